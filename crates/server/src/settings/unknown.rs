//! Errors about unknown `SLUICEGATE_` variables, with suggestions.

use sluicegate::config::suggest::nearest;

use super::vars::Vars;

/// Our own variables, without their prefix `SLUICEGATE_`; any other is an error.
const OWN: &str = "ADMIN ADMIN_TOKEN ADMIN_TOKEN_FILE ADMIN_TOKENS AUDIT_LOG CLIENT_CA CLIENT_SAN COMPAT DRAIN_DELAY DRAIN_TIMEOUT ERRORS GRPC \
     HEADERS HTTP INCLUDE_DOT_FILES JSON LOG_FORMAT LOG_LEVEL LOG_PER_SECOND MAX_CONNECTIONS \
     MAX_IDENTITIES MAX_IN_FLIGHT MAX_RESERVATIONS MAX_WAITING MEMORY_BUDGET MERGE_DOMAINS METRICS \
     METRIC_VALUES REFUNDS RESET RESP \
     RESP_PASSWORD RULES RULES_APPROVAL RULES_CACHE RULES_PASSWORD_FILE RULES_READ_ONLY RULES_REMOVAL_GRACE SHADOW SNAPSHOT SNAPSHOT_EVERY \
     START_WITHOUT_RULES STORE STORE_CA STORE_CERT STORE_CONNECTIONS STORE_KEY \
     STORE_NAMESPACE WEBHOOK_SECRET WEBHOOK_SECRET_FILE WEBHOOK_URL STORE_PASSWORD STORE_PASSWORD_FILE STORE_TIMEOUT STORE_WAIT_REPLICAS \
     TLS_CERT TLS_KEY TRACES TRAFFIC_STATISTICS UNMATCHED USAGE USAGE_EVERY USAGE_MAX_IDENTITIES \
     USAGE_RETENTION_DAYS USAGE_RULES";

/// Names of envoyproxy/ratelimit with our prefix, whose own names differ.
const OF_ENVOY: [(&str, &str); 7] = [
    ("SHADOWMODE", "SLUICEGATE_SHADOW"),
    ("REDISURL", "SLUICEGATE_STORE"),
    ("REDISAUTH", "SLUICEGATE_STORE_PASSWORD"),
    ("REDISTIMEOUT", "SLUICEGATE_STORE_TIMEOUT"),
    ("REDISPOOLSIZE", "SLUICEGATE_STORE_CONNECTIONS"),
    ("RUNTIMEROOT", "SLUICEGATE_RULES"),
    ("MERGEDOMAINCONFIG", "SLUICEGATE_MERGE_DOMAINS"),
];

/// Endpoints with examples of their addresses.
const ENDPOINTS: [(&str, &str); 5] = [
    ("HTTP", "127.0.0.1:8080"),
    ("GRPC", "127.0.0.1:8081"),
    ("ADMIN", "127.0.0.1:6070"),
    ("RESP", "127.0.0.1:6380"),
    ("METRICS", "0.0.0.0:9090"),
];

/// Last words of a name that ask for an address.
const ADDRESS_WORDS: [&str; 6] = ["PORT", "HOST", "ADDR", "ADDRESS", "LISTEN", "BIND"];

/// One error for each unknown `SLUICEGATE_` variable.
pub(super) fn errors(vars: &Vars) -> impl Iterator<Item = String> {
    let names = vars.names().filter_map(|name| name.strip_prefix("SLUICEGATE_"));
    let unknown = names.filter(|name| own().all(|one| one != *name) && !name.starts_with("TEST_"));
    unknown.map(|name| match hint(name) {
        Some(hint) => format!("SLUICEGATE_{name}: unknown setting; {hint}"),
        None => format!(
            "SLUICEGATE_{name}: unknown setting; remove it, or see `sluicegate serve --help`"
        ),
    })
}

fn own() -> impl Iterator<Item = &'static str> {
    OWN.split_ascii_whitespace()
}

/// What was probably meant.
fn hint(name: &str) -> Option<String> {
    let (first, last) = name.rsplit_once('_').unwrap_or(("", name));
    if ADDRESS_WORDS.contains(&last) {
        let known = ENDPOINTS.iter().find(|(endpoint, _)| *endpoint == first);
        let (endpoints, example) = match known {
            Some((endpoint, example)) => (format!("SLUICEGATE_{endpoint}"), *example),
            None => {
                let all = "SLUICEGATE_HTTP, SLUICEGATE_GRPC or SLUICEGATE_ADMIN";
                (all.to_owned(), "127.0.0.1:8080")
            }
        };
        return Some(format!("set {endpoints} with an address and a port, such as `{example}`"));
    }
    let bare = name.replace('_', "");
    if let Some((_, own)) = OF_ENVOY.iter().find(|(envoy, _)| *envoy == bare) {
        return Some(format!("did you mean `{own}`?"));
    }
    // Without the prefix, which all of them share: it would make any two short names similar.
    let lower: Vec<String> = own().map(str::to_ascii_lowercase).collect();
    let near = nearest(name, lower.iter().map(String::as_str))?;
    Some(format!("did you mean `SLUICEGATE_{}`?", near.to_ascii_uppercase()))
}
