//! What Envoy adds to answers, to requests and to its own metadata on our word.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::config::{Front, header};

const ALICE: (&str, &str) = ("x-user", "alice");
const RULES: &str = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }";

#[test]
fn headers_for_the_client() {
    let front = Front::by_route([header("x-user", "user")]);
    let bed = Bed::with_environment(RULES, &[front], &[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")]);
    for status in [200, 429] {
        let answer = bed.get(&[ALICE]);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("ratelimit-limit"), Some("1"));
        assert_eq!(answer.header("ratelimit-remaining"), Some("0"));
        let reset = answer.header("ratelimit-reset").unwrap();
        // Who may come again when the window is over is told the same twice.
        let retry_after = (status == 429).then_some(reset);
        assert_eq!(answer.header("retry-after"), retry_after);
    }
    assert_eq!(bed.get(&[]).header("ratelimit-limit"), None);
}

#[test]
fn metadata_for_logs_and_filters() {
    let front = Front::by_route([header("x-user", "user")])
        .logging("metadata: %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%");
    let mut bed = Bed::with_environment(RULES, &[front], &[("RESPONSE_DYNAMIC_METADATA", "true")]);
    let mut told = || {
        bed.get(&[ALICE]);
        let line = bed.envoy.says("metadata: ");
        let (_, metadata) = line.split_once("metadata: ").unwrap();
        serde_json::from_str::<Value>(metadata).unwrap()
    };
    let asked = json!({ "domain": "shop", "descriptors": [{ "entries": ["user=alice"] }] });
    assert_eq!(told(), asked);
    let mut denied = asked;
    denied["deniedBy"] = json!("shop/user");
    assert_eq!(told(), denied);
}
