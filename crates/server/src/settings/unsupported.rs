//! Variables that are set and have no effect here. Each is told of, so that nobody relies on what does not happen.

use super::store::{RedisServer, Store};
use super::vars::Vars;
use super::{RedisSettings, go_values};

/// What happens instead.
struct Unsupported {
    /// The name; with a `*` at its end, all that begin so.
    name: &'static str,
    /// Values that ask for nothing but what happens anyway.
    fine: &'static [&'static str],
    instead: &'static str,
}

/// Variables about the store that mean nothing while it is so.
struct WhileSo {
    is_so: fn(&Store) -> bool,
    names: &'static [Unsupported],
}

const NO: &[&str] = &["false"];
const MEMORY: &str = "counters are in the memory of this process, so each process counts by itself; SLUICEGATE_STORE or REDIS_URL \
                      says where a Redis is, such as `redis://127.0.0.1:6379`";
const KEYS: &str = "it is about the keys of envoyproxy/ratelimit, and limits are kept on our own; `--compat envoy` counts on its keys";
const PLAIN: &str = "the address of the store asks for no TLS; write `rediss://`, or set REDIS_TLS=true beside REDIS_URL";
const SHARED: &str = "checks that come at the same time share calls by themselves";
const BACKOFF: &str =
    "it goes on trying for as long as it runs, more and more slowly, and is not ready meanwhile";
const XDS: &str = "rules come from files; write what your control plane would send to a file";
const NATIVE: &str =
    "write such limits in the native form (`limits:`), where a denied request charges nothing";
const WAITING: &str =
    "a bounded number of calls waits for a place, and none longer than SLUICEGATE_STORE_TIMEOUT";
const STATSD: &str = "numbers are at `/metrics` of the admin address, for Prometheus";

/// The variables of envoyproxy/ratelimit that mean something there and nothing here.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        name: "MEMCACHE_*",
        fine: &[],
        instead: "there is no store on memcached; `--store redis://…` is one that nodes share",
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

const fn of(
    name: &'static str,
    fine: &'static [&'static str],
    instead: &'static str,
) -> Unsupported {
    Unsupported { name, fine, instead }
}

/// About the store; the first that fits is told.
const STORE: &[WhileSo] = &[
    WhileSo {
        is_so: |store| matches!(store, Store::Memory),
        names: &[
            of("BACKEND_TYPE", &[], MEMORY),
            of("REDIS_PERSECOND", NO, MEMORY),
            of("REDIS_*", &[], MEMORY),
            of("SLUICEGATE_COMPAT", &["none"], MEMORY),
            of("SLUICEGATE_STORE_*", &[], MEMORY),
            of("CACHE_KEY_PREFIX", &[], MEMORY),
            of("EXPIRATION_JITTER_MAX_SECONDS", &[], "nothing expires all at once here"),
            of(
                "LOCAL_CACHE_SIZE_IN_BYTES",
                &["0"],
                "every check is made in this process already; `SLUICEGATE_MAX_IDENTITIES` bounds its memory",
            ),
            of("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", NO, NATIVE),
        ],
    },
    WhileSo {
        is_so: |store| redis(store).is_some_and(|redis| redis.compat.is_none()),
        names: &[
            of("REDIS_PERSECOND", NO, KEYS),
            of("REDIS_PERSECOND_*", &[], KEYS),
            of("CACHE_KEY_PREFIX", &[], KEYS),
            of("EXPIRATION_JITTER_MAX_SECONDS", &[], KEYS),
            of("LOCAL_CACHE_SIZE_IN_BYTES", &["0"], KEYS),
            of("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", NO, NATIVE),
        ],
    },
    WhileSo {
        is_so: |store| redis(store).is_some_and(|redis| redis.per_second.is_none()),
        names: &[of("REDIS_PERSECOND_*", &[], "REDIS_PERSECOND is not `true`")],
    },
    WhileSo {
        is_so: |store| !servers(store).any(|server| server.tls.is_some()),
        names: &[
            of("REDIS_TLS", NO, PLAIN),
            of("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", NO, PLAIN),
            of("REDIS_TLS_*", &[], PLAIN),
            of("SLUICEGATE_STORE_CA", &[], PLAIN),
            of("SLUICEGATE_STORE_CERT", &[], PLAIN),
            of("SLUICEGATE_STORE_KEY", &[], PLAIN),
        ],
    },
    WhileSo {
        is_so: |store| !servers(store).any(|server| server.address.contains("-sentinel:")),
        names: &[
            of("REDIS_SENTINEL_AUTH", &[], "no Sentinel is asked"),
            of("REDIS_PERSECOND_SENTINEL_AUTH", &[], "no Sentinel is asked"),
        ],
    },
    WhileSo {
        is_so: |_| true,
        names: &[
            of("BACKEND_TYPE", &["redis"], "SLUICEGATE_STORE stands above it"),
            of("REDIS_PIPELINE_*", &["0", "0s"], SHARED),
            of("REDIS_PERSECOND_PIPELINE_*", &["0", "0s"], SHARED),
            of(
                "REDIS_CLUSTER_PIPELINE_PARALLELISM",
                &[],
                "the parts of a Cluster are always asked at once",
            ),
            of(
                "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
                &[],
                "the parts of a Cluster are always asked at once",
            ),
            of("REDIS_POOL_ON_EMPTY_*", &["WAIT"], WAITING),
            of("REDIS_PERSECOND_POOL_ON_EMPTY_*", &["WAIT"], WAITING),
            of("REDIS_STARTUP_MAX_ELAPSED_TIME", &["0", "0s"], BACKOFF),
            of("REDIS_STARTUP_*", &[], BACKOFF),
            of(
                "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
                &["true"],
                "a server that takes no writes is always left",
            ),
            of(
                "REDIS_AUTH_FILE",
                &[],
                "SLUICEGATE_STORE_PASSWORD_FILE is a file that the password is in",
            ),
        ],
    },
];

/// A sentence for each variable that is set and has no effect.
pub(super) fn warnings(vars: &Vars, store: &Store) -> Vec<String> {
    let about_it = STORE.iter().filter(|such| (such.is_so)(store)).flat_map(|such| such.names);
    let all: Vec<&Unsupported> = about_it.chain(UNSUPPORTED).collect();
    let told = vars.names().filter_map(|name| {
        let text = vars.get(name)?;
        let stranger = all.iter().find(|stranger| stranger.is(name))?;
        let is_fine = |fine: &&str| match go_values::truth(fine) {
            Some(_) => go_values::truth(text) == go_values::truth(fine),
            None => fine.eq_ignore_ascii_case(text),
        };
        let told = format!("{name} is set and has no effect: {}", stranger.instead);
        (!stranger.fine.iter().any(is_fine)).then_some(told)
    });
    told.collect()
}

const fn redis(store: &Store) -> Option<&RedisSettings> {
    match store {
        Store::Memory => None,
        Store::Redis(redis) => Some(redis),
    }
}

fn servers(store: &Store) -> impl Iterator<Item = &RedisServer> {
    redis(store)
        .into_iter()
        .flat_map(|redis| [Some(&redis.server), redis.per_second.as_ref()])
        .flatten()
}

impl Unsupported {
    fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => self.name == name,
        }
    }
}
