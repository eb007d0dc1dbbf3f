//! Misspelt variables of envoyproxy/ratelimit.
//!
//! The environment belongs to other software too, so an unknown variable is no error. A name that
//! differs from one of ours by a letter, or only by underscores, is reported if that one is not
//! set; it is refused if counters, rules or the shadow mode would be others than intended.

use sluicegate::config::suggest::nearest_within;

use super::vars::Vars;

/// Variables of envoyproxy/ratelimit with an effect here. Those of OpenTelemetry are standard
/// names, and names of a single word are too common.
const KNOWN: &str = "BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS \
     CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID \
     CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL \
     CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL \
     CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS \
     EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG \
     GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE \
     GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY \
     GRPC_SERVER_USE_TLS GRPC_UDS HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED LIMIT_LIMIT_HEADER \
     LIMIT_REMAINING_HEADER LIMIT_REQUEST_HEADERS_ENABLED LIMIT_REQUEST_LIMIT_HEADER \
     LIMIT_REQUEST_REMAINING_HEADER LIMIT_REQUEST_RESET_HEADER LIMIT_RESET_HEADER \
     LIMIT_RESPONSE_HEADERS_ENABLED LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL \
     MERGE_DOMAIN_CONFIG NEAR_LIMIT_RATIO PROMETHEUS_ADDR PROMETHEUS_PATH QUOTA_MODE REDIS_AUTH \
     REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND REDIS_PERSECOND_AUTH \
     REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE \
     REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL \
     REDIS_POOL_SIZE REDIS_SENTINEL_AUTH REDIS_SOCKET_TYPE REDIS_TIMEOUT REDIS_TLS \
     REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY \
     REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL RESPONSE_DYNAMIC_METADATA \
     RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT RUNTIME_SUBDIRECTORY SHADOW_MODE \
     STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT \
     TRACING_ENABLED TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID \
     TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE USE_PROMETHEUS USE_STATSD \
     XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER \
     XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR \
     XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

/// Prefixes of variables that have reports of their own, or are standard names.
const OTHERS: [&str; 2] = ["SLUICEGATE_", "OTEL_"];

/// Variables about rules whose near misses are errors, with our own that has precedence.
pub(super) const RULES: &[(&str, &str)] = &[
    ("CONFIG_TYPE", "SLUICEGATE_RULES"),
    ("RUNTIME_ROOT", "SLUICEGATE_RULES"),
    ("RUNTIME_SUBDIRECTORY", "SLUICEGATE_RULES"),
    ("RUNTIME_APPDIRECTORY", "SLUICEGATE_RULES"),
];

/// The same about the service.
pub(super) const SERVICE: &[(&str, &str)] = &[
    ("REDIS_URL", "SLUICEGATE_STORE"),
    ("BACKEND_TYPE", "SLUICEGATE_STORE"),
    ("SHADOW_MODE", "SLUICEGATE_SHADOW"),
];

/// One error for each near miss of these variables whose right name and own variable are not set.
pub(super) fn errors(vars: &Vars, refused: &[(&str, &str)]) -> Vec<String> {
    let misspelt = vars.names().filter_map(|name| {
        let meant = meant(vars, name)?;
        let (_, own) = refused.iter().find(|(known, _)| *known == meant)?;
        vars.get(own).is_none().then(|| {
            format!(
                "{name}: has no effect; did you mean `{meant}`? rename it, or remove it; {own} has precedence over \
                 both"
            )
        })
    });
    misspelt.collect()
}

/// One warning for each near miss.
pub(super) fn warnings(vars: &Vars) -> impl Iterator<Item = String> {
    vars.names().filter_map(|name| {
        let meant = meant(vars, name)?;
        Some(format!("{name} is set and has no effect: did you mean `{meant}`?"))
    })
}

/// Whether a variable that is set is a near miss of this one, which is not.
pub(super) fn has_near_miss(vars: &Vars, known: &str) -> bool {
    vars.names().any(|name| meant(vars, name) == Some(known))
}

/// The variable that was probably meant by an unknown one, if it is not set.
pub(super) fn meant(vars: &Vars, name: &str) -> Option<&'static str> {
    let known = || KNOWN.split_ascii_whitespace();
    let is_other = OTHERS.iter().any(|prefix| name.starts_with(prefix));
    if is_other || known().any(|known| known == name) {
        return None;
    }
    let bare = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let letters: Vec<String> = known().map(bare).collect();
    let nearest = nearest_within(&bare(name), letters.iter().map(String::as_str), slips_forgiven);
    let nearest = nearest.and_then(|found| known().find(|known| bare(known) == found));
    let meant = nearest.or_else(|| known().find(|known| is_abbreviation(name, known)))?;
    vars.get(meant).is_none().then_some(meant)
}

/// Stricter than for our own names: the environment is full of similar short ones.
const fn slips_forgiven(letters: usize) -> usize {
    match letters {
        0..8 => 0,
        8..16 => 1,
        _ => 2,
    }
}

/// `RUNTIME_SUBDIR` for `RUNTIME_SUBDIRECTORY`: the last word is cut.
fn is_abbreviation(name: &str, known: &str) -> bool {
    let last = name.rsplit_once('_').map_or("", |(_, last)| last);
    let cut = known.strip_prefix(name);
    last.len() >= 3 && cut.is_some_and(|cut| !cut.contains('_'))
}
