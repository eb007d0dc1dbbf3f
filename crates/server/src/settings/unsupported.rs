//! Warnings about variables of envoyproxy/ratelimit that are set and have no effect.

use super::store::{RedisServer, Store};
use super::vars::Vars;
use super::{RedisSettings, Settings, go_values, misspelt};

/// A variable without effect.
struct Unsupported {
    /// The name, or a prefix with a `*` at its end.
    name: &'static str,
    /// Values that request the actual behavior.
    harmless: &'static [&'static str],
    /// The actual behavior, or the alternative.
    hint: &'static str,
}

/// Variables that have no effect with some stores.
struct StoreCondition {
    applies: fn(&Store) -> bool,
    names: &'static [Unsupported],
}

const NO: &[&str] = &["false"];
const MEMORY: &str = "counters are in the memory of this process, so each process counts by itself; SLUICEGATE_STORE or REDIS_URL \
                      selects a Redis, such as `redis://127.0.0.1:6379`";
const KEYS: &str = "it is about the keys of envoyproxy/ratelimit, and counters have other keys here; `--compat envoy` uses its keys";
const PLAIN: &str =
    "the URL of the store has no TLS; write `rediss://`, or set REDIS_TLS=true beside REDIS_URL";
const SHARED: &str = "concurrent checks are batched automatically";
const BACKOFF: &str =
    "it reconnects with backoff for as long as it runs, and is not ready meanwhile";
const XDS: &str = "rules come from files; CONFIG_TYPE=GRPC_XDS_SOTW without SLUICEGATE_RULES has a control plane send them";
const NATIVE: &str =
    "write such limits in the native form (`limits:`), where a denied request charges nothing";
const WAITING: &str =
    "a bounded number of calls waits for a permit, and none longer than SLUICEGATE_STORE_TIMEOUT";
const DOTS: &str = "values are in metrics only with `--metric-values`: in a label of Prometheus with all characters, in \
                    names of StatsD with their dots, except those of IPv4 addresses";
const STATSD: &str = "metrics are at `/metrics` of the admin address, for Prometheus";

/// Variables without effect whatever the store is.
const UNSUPPORTED: &[Unsupported] = &[
    of("MEMCACHE_*", &[], "memcached is not supported; `--store redis://…` is shared by nodes"),
    of("USE_DOG_STATSD_*", NO, STATSD),
    of("DOG_STATSD_*", &[], STATSD),
    of("PROMETHEUS_MAPPER_YAML", &[], "names and labels are the defaults of envoyproxy/ratelimit"),
    of("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", NO, "times are in seconds"),
    of("SANITIZE_DESCRIPTOR_METRIC_DOTS", NO, DOTS),
    of(
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        NO,
        "write such a limit in the native form: `{ algorithm: fixed_window, rate: 10/month, align: calendar }`",
    ),
    of("RUNTIME_WATCH_ROOT", &["true", "false"], "files are watched, however they change"),
];

const fn of(
    name: &'static str,
    harmless: &'static [&'static str],
    hint: &'static str,
) -> Unsupported {
    Unsupported { name, harmless, hint }
}

/// Variables of a Redis. Without the address of one the counters of each process would be its own,
/// though a shared store was meant. Our own timeouts and sizes do not mean one.
const NEEDS_STORE: &[Unsupported] = &[
    of("REDIS_AUTH", &[], ""),
    of("REDIS_AUTH_FILE", &[], ""),
    of("REDIS_SENTINEL_AUTH", &[], ""),
    of("REDIS_TYPE", &[], ""),
    of("REDIS_SOCKET_TYPE", &[], ""),
    of("REDIS_TLS", NO, ""),
    of("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", NO, ""),
    of("REDIS_TLS_*", &[], ""),
    of("REDIS_TIMEOUT", &[], ""),
    of("REDIS_POOL_SIZE", &[], ""),
    of("REDIS_POOL_ON_EMPTY_*", &[], ""),
    of("REDIS_PIPELINE_*", &["0", "0s"], ""),
    of("REDIS_CLUSTER_PIPELINE_PARALLELISM", &[], ""),
    of("REDIS_STARTUP_*", &[], ""),
    of("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", NO, ""),
    of("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", NO, ""),
    of("REDIS_PERSECOND", NO, ""),
    of("REDIS_PERSECOND_*", &[], ""),
    of("SLUICEGATE_COMPAT", &["none"], ""),
    of("SLUICEGATE_STORE_PASSWORD", &[], ""),
    of("SLUICEGATE_STORE_PASSWORD_FILE", &[], ""),
    of("SLUICEGATE_STORE_CA", &[], ""),
    of("SLUICEGATE_STORE_CERT", &[], ""),
    of("SLUICEGATE_STORE_KEY", &[], ""),
    of("SLUICEGATE_STORE_WAIT_REPLICAS", &["0"], ""),
];

/// Variables about the store; the first match counts.
const STORE: &[StoreCondition] = &[
    StoreCondition {
        applies: |store| matches!(store, Store::Memory),
        names: &[
            of("BACKEND_TYPE", &[], MEMORY),
            of("REDIS_PERSECOND", NO, MEMORY),
            of("REDIS_TLS", NO, MEMORY),
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
    StoreCondition {
        applies: |store| redis(store).is_some_and(|redis| redis.compat.is_none()),
        names: &[
            of("REDIS_PERSECOND", NO, KEYS),
            of("REDIS_PERSECOND_*", &[], KEYS),
            of("CACHE_KEY_PREFIX", &[], KEYS),
            of("EXPIRATION_JITTER_MAX_SECONDS", &[], KEYS),
            of("LOCAL_CACHE_SIZE_IN_BYTES", &["0"], KEYS),
            of("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", NO, NATIVE),
        ],
    },
    StoreCondition {
        applies: |store| redis(store).is_some_and(|redis| redis.per_second.is_none()),
        names: &[of("REDIS_PERSECOND_*", &[], "REDIS_PERSECOND is not `true`")],
    },
    StoreCondition {
        applies: |store| !servers(store).any(|server| server.address.is_tls()),
        names: &[
            of("REDIS_TLS", NO, PLAIN),
            of("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", NO, PLAIN),
            of("REDIS_TLS_*", &[], PLAIN),
            of("SLUICEGATE_STORE_CA", &[], PLAIN),
            of("SLUICEGATE_STORE_CERT", &[], PLAIN),
            of("SLUICEGATE_STORE_KEY", &[], PLAIN),
        ],
    },
    StoreCondition {
        applies: |store| !servers(store).any(|server| server.address.is_sentinel()),
        names: &[
            of("REDIS_SENTINEL_AUTH", &[], "the store has no Sentinel"),
            of("REDIS_PERSECOND_SENTINEL_AUTH", &[], "the store has no Sentinel"),
        ],
    },
    StoreCondition {
        applies: |_| true,
        names: &[
            of("BACKEND_TYPE", &["redis"], "SLUICEGATE_STORE has precedence"),
            of("REDIS_PIPELINE_*", &["0", "0s"], SHARED),
            of("REDIS_PERSECOND_PIPELINE_*", &["0", "0s"], SHARED),
            of(
                "REDIS_CLUSTER_PIPELINE_PARALLELISM",
                &[],
                "the nodes of a Cluster are always called concurrently",
            ),
            of(
                "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
                &[],
                "the nodes of a Cluster are always called concurrently",
            ),
            of("REDIS_POOL_ON_EMPTY_*", &["WAIT"], WAITING),
            of("REDIS_PERSECOND_POOL_ON_EMPTY_*", &["WAIT"], WAITING),
            of("REDIS_STARTUP_MAX_ELAPSED_TIME", &["0", "0s"], BACKOFF),
            of("REDIS_STARTUP_*", &[], BACKOFF),
            of(
                "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
                &["true"],
                "a connection to a read-only server is always closed",
            ),
            of(
                "REDIS_AUTH_FILE",
                &[],
                "SLUICEGATE_STORE_PASSWORD_FILE names a file with the password",
            ),
        ],
    },
];

/// Variables without effect while nothing is sent to StatsD.
const WITHOUT_STATSD: &[Unsupported] = &[
    of(
        "STATSD_*",
        &[],
        "nothing is sent to StatsD without USE_STATSD=true, or with DISABLE_STATS=true",
    ),
    of("STATS_FLUSH_INTERVAL", &[], "nothing is sent to StatsD, and metrics are always current"),
    of("EXTRA_TAGS", &[], "nothing is sent to StatsD; add labels where metrics are scraped"),
    of("DISABLE_STATS", NO, "metrics are always counted; it disables StatsD only"),
];

/// Variables without effect while rules come from files.
const WITHOUT_XDS: &[Unsupported] = &[
    of("CONFIG_TYPE", &["FILE"], "SLUICEGATE_RULES has precedence"),
    of("CONFIG_GRPC_XDS_*", &[], XDS),
    of("XDS_CLIENT_*", &[], XDS),
];

/// One warning for each variable that is set and has no effect.
pub(super) fn warnings(vars: &Vars, settings: &Settings) -> Vec<String> {
    let of_store = STORE.iter().filter(|condition| (condition.applies)(&settings.store));
    let without_statsd = if settings.statsd.is_none() { WITHOUT_STATSD } else { &[] };
    let without_xds = if settings.rules.xds.is_none() { WITHOUT_XDS } else { &[] };
    let all: Vec<&Unsupported> = of_store
        .flat_map(|condition| condition.names)
        .chain(without_statsd)
        .chain(without_xds)
        .chain(UNSUPPORTED)
        .collect();
    let found = find(vars, &all).filter(|(name, _)| misspelt::meant(vars, name).is_none());
    found.map(|(name, hint)| format!("{name} is set and has no effect: {hint}")).collect()
}

/// Error about settings of a Redis that is not named. `SLUICEGATE_STORE=memory` confirms that none
/// is meant, and `BACKEND_TYPE` has errors of its own.
pub(super) fn missing_store(vars: &Vars) -> Option<String> {
    if ["SLUICEGATE_STORE", "REDIS_URL", "BACKEND_TYPE"].iter().any(|name| vars.get(name).is_some())
    {
        return None;
    }
    // A misspelt address has an error of its own.
    if misspelt::has_near_miss(vars, "REDIS_URL") {
        return None;
    }
    let all: Vec<&Unsupported> = NEEDS_STORE.iter().collect();
    let names: Vec<&str> = find(vars, &all).map(|(name, _)| vars.source(name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: set for a Redis, whose address is missing; set REDIS_URL too, such as `127.0.0.1:6379`, or \
             SLUICEGATE_STORE, to a URL or to `memory` for counters of each process",
            names.join(", ")
        )
    })
}

/// The variables of a list that are set, with their hints. The first match of a name counts.
fn find<'a>(
    vars: &'a Vars,
    all: &[&'a Unsupported],
) -> impl Iterator<Item = (&'a str, &'static str)> {
    vars.names().filter_map(|name| {
        let text = vars.get(name)?;
        let variable = all.iter().find(|variable| variable.matches(name))?;
        let is_harmless = |harmless: &&str| match go_values::parse_bool(harmless) {
            Some(value) => go_values::parse_bool(text) == Some(value),
            None => harmless.eq_ignore_ascii_case(text),
        };
        (!variable.harmless.iter().any(is_harmless)).then_some((name, variable.hint))
    })
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
    fn matches(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => self.name == name,
        }
    }
}
