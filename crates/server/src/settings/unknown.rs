//! Errors about unknown `SLUICEGATE_` variables, with suggestions.

use sluicegate::config::suggest::nearest;

use super::vars::Vars;

/// Our own variables, without their prefix `SLUICEGATE_`; any other is an error.
const OWN: &str = "ADMIN ADMIN_TOKEN ADMIN_TOKEN_FILE CLIENT_CA CLIENT_SAN COMPAT DRAIN_DELAY DRAIN_TIMEOUT ERRORS GRPC \
     HEADERS HTTP INCLUDE_DOT_FILES JSON LOG_FORMAT LOG_LEVEL LOG_PER_SECOND MAX_CONNECTIONS \
     MAX_IDENTITIES MAX_IN_FLIGHT MAX_RESERVATIONS MAX_WAITING MEMORY_BUDGET MERGE_DOMAINS METRICS \
     METRIC_VALUES REFUNDS RESET RESP \
     RESP_PASSWORD RULES RULES_REMOVAL_GRACE SHADOW SNAPSHOT SNAPSHOT_EVERY \
     START_WITHOUT_RULES STORE STORE_CA STORE_CERT STORE_CONNECTIONS STORE_KEY \
     STORE_NAMESPACE STORE_PASSWORD STORE_PASSWORD_FILE STORE_TIMEOUT STORE_WAIT_REPLICAS \
     TLS_CERT TLS_KEY TRACES UNMATCHED";

/// Last words of a name that ask for an address.
const ADDRESS_WORDS: [&str; 6] = ["PORT", "HOST", "ADDR", "ADDRESS", "LISTEN", "BIND"];

/// One error for each variable that is none of ours.
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
        let example = "with an address and a port, such as `127.0.0.1:8080`";
        return Some(match ["HTTP", "GRPC", "ADMIN", "RESP", "METRICS"].contains(&first) {
            true => format!("set SLUICEGATE_{first} {example}"),
            false => format!("set SLUICEGATE_HTTP, SLUICEGATE_GRPC or SLUICEGATE_ADMIN {example}"),
        });
    }
    // Without the prefix, which all of them share: it would make any two short names similar.
    let lower: Vec<String> = own().map(str::to_ascii_lowercase).collect();
    let near = nearest(name, lower.iter().map(String::as_str))?;
    Some(format!("did you mean `SLUICEGATE_{}`?", near.to_ascii_uppercase()))
}
