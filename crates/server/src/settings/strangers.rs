//! Variables that are set and have no effect here. Each is told of, so that nobody relies on what does not happen.

use super::go;
use super::vars::Vars;

/// What happens instead.
struct Unsupported {
    /// The name; with a `*` at its end, all that begin so.
    name: &'static str,
    /// Values that ask for nothing but what happens anyway.
    fine: &'static [&'static str],
    instead: &'static str,
}

const NO: &[&str] = &["false"];
const REDIS: &str =
    "there is no store but the memory of this process yet, so each process counts by itself";
const XDS: &str = "rules come from files; write what your control plane would send to a file";
const STATSD: &str = "numbers are at `/metrics` of the admin address, for Prometheus";

/// The variables of envoyproxy/ratelimit that mean something there and nothing here.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "BACKEND_TYPE", fine: &[], instead: REDIS },
    Unsupported { name: "REDIS_PERSECOND", fine: NO, instead: REDIS },
    Unsupported { name: "REDIS_*", fine: &[], instead: REDIS },
    Unsupported { name: "MEMCACHE_*", fine: &[], instead: REDIS },
    Unsupported { name: "CACHE_KEY_PREFIX", fine: &[], instead: REDIS },
    Unsupported {
        name: "EXPIRATION_JITTER_MAX_SECONDS",
        fine: &[],
        instead: "nothing expires all at once here",
    },
    Unsupported {
        name: "LOCAL_CACHE_SIZE_IN_BYTES",
        fine: &["0"],
        instead: "every check is made in this process already; `SLUICEGATE_MAX_IDENTITIES` bounds its memory",
    },
    Unsupported {
        name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        fine: NO,
        instead: "write such limits in the native form (`limits:`), where a denied request charges nothing",
    },
    Unsupported { name: "CONFIG_TYPE", fine: &["FILE"], instead: XDS },
    Unsupported { name: "CONFIG_GRPC_XDS_*", fine: &[], instead: XDS },
    Unsupported { name: "XDS_CLIENT_*", fine: &[], instead: XDS },
    Unsupported { name: "USE_STATSD", fine: NO, instead: STATSD },
    Unsupported { name: "STATSD_*", fine: &[], instead: STATSD },
    Unsupported { name: "USE_DOG_STATSD*", fine: NO, instead: STATSD },
    Unsupported { name: "DOG_STATSD_*", fine: &[], instead: STATSD },
    Unsupported {
        name: "EXTRA_TAGS",
        fine: &[],
        instead: "add labels where the numbers are collected",
    },
    Unsupported { name: "STATS_FLUSH_INTERVAL", fine: &[], instead: "numbers are never behind" },
    Unsupported { name: "DISABLE_STATS", fine: NO, instead: "numbers are always counted" },
    Unsupported { name: "PROMETHEUS_ADDR", fine: &[], instead: STATSD },
    Unsupported { name: "PROMETHEUS_PATH", fine: &["/metrics"], instead: STATSD },
    Unsupported {
        name: "PROMETHEUS_MAPPER_YAML",
        fine: &[],
        instead: "names and labels are as they are by default there",
    },
    Unsupported {
        name: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        fine: NO,
        instead: "times are in seconds",
    },
    Unsupported {
        name: "SANITIZE_DESCRIPTOR_METRIC_DOTS",
        fine: NO,
        instead: "the values of requests are never part of a name",
    },
    Unsupported {
        name: "USE_CALENDAR_MONTH_RATE_LIMIT",
        fine: NO,
        instead: "write such a limit in the native form: `{ algorithm: fixed_window, rate: 10/month, align: calendar }`",
    },
    Unsupported {
        name: "RUNTIME_WATCH_ROOT",
        fine: &["true", "false"],
        instead: "files are followed whichever way they change",
    },
];

/// A sentence for each variable that is set and has no effect.
pub(super) fn warnings(vars: &Vars) -> Vec<String> {
    let told = vars.names().filter_map(|name| {
        let stranger = UNSUPPORTED.iter().find(|stranger| stranger.is(name))?;
        let text = vars.get(name)?;
        let is_fine = |fine: &&str| match go::truth(fine) {
            Some(_) => go::truth(text) == go::truth(fine),
            None => fine.eq_ignore_ascii_case(text),
        };
        let told = format!("{name} is set and has no effect: {}", stranger.instead);
        (!stranger.fine.iter().any(is_fine)).then_some(told)
    });
    told.collect()
}

impl Unsupported {
    fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => self.name == name,
        }
    }
}
