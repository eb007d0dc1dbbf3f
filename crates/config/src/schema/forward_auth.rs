//! `forward_auth`, and the parts of a request that it names.

use serde_json::{Value, json};
use sluicegate_rules::mapping::{DESCRIPTORS_MAX, Part};

use super::keys::{mapping, setting};
use super::values::{NETWORK, bits};
use super::{extend, shown};
use crate::rules::forward_auth::{
    DENY_STATUS, DESCRIPTORS, HITS, STATUS_MAX, STATUS_MIN, TRUSTED_PROXIES,
};
use crate::rules::{DEPTH_MAX, KEY_CHARS_MAX, VALUE_CHARS_MAX};

pub(super) fn forward_auth() -> Value {
    let proxies = json!({
        "type": ["string", "array"],
        "pattern": NETWORK,
        "items": { "type": "string", "pattern": NETWORK },
        "minItems": 1,
    });
    let entries = json!({
        "type": "object",
        "additionalProperties": part(),
        "propertyNames": { "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[^*]*$" },
        "minProperties": 1,
        "maxProperties": DEPTH_MAX,
    });
    let descriptors =
        json!({ "type": "array", "items": entries, "minItems": 1, "maxItems": DESCRIPTORS_MAX });
    let status = bits(STATUS_MIN.into(), STATUS_MAX.into(), "");
    let mut fields = mapping([
        (
            TRUSTED_PROXIES,
            shown(
                "The networks of proxies that may say for whom they ask; this machine if left out.",
                proxies,
                json!([["127.0.0.0/8", "10.0.0.0/8"]]),
            ),
        ),
        (
            DESCRIPTORS,
            shown(
                "What is made of a request: descriptors, each with the values of its keys. One of which a part is missing \
                 is left out.",
                descriptors,
                json!([[{ "remote_address": "client_ip" }, { "user": "header X-User", "path": "path" }]]),
            ),
        ),
        (HITS.name, setting(&HITS, part(), "How many hits a request is; one if left out.")),
        (
            DENY_STATUS.name,
            setting(&DENY_STATUS, status, "The status of a denial; nginx needs 403."),
        ),
    ]);
    extend(&mut fields, json!({ "required": [DESCRIPTORS] }));
    shown(
        "How proxies are answered that ask about their requests: nginx, Caddy, Traefik.",
        fields,
        json!([{ "descriptors": [{ "remote_address": "client_ip" }] }]),
    )
}

/// A part of a request.
fn part() -> Value {
    let plain: Vec<&str> = Part::WORDS.into_iter().filter(|word| !named(word)).collect();
    let named = "(?:header|cookie|query)\\s+\\S+";
    let pattern =
        format!("^\\s*(?:text\\s+\\S|(?:{}|{named})(?:\\s+or\\s+\\S|\\s*$))", plain.join("|"));
    json!({ "type": "string", "pattern": pattern, "maxLength": VALUE_CHARS_MAX })
}

fn named(word: &str) -> bool {
    matches!(word, "header" | "cookie" | "query" | "text")
}
