//! What Envoy makes of our answers: `x-ratelimit-limit`, `-remaining` and `-reset`.

use crate::bed::Bed;
use crate::config::{Front, header};
use crate::support::http::Answer;

const ALICE: (&str, &str) = ("x-user", "alice");

fn bed(rules: &str) -> Bed {
    let descriptors = [header("x-user", "user"), header("x-door", "door")];
    let front = Front::new(descriptors).with("enable_x_ratelimit_headers", "DRAFT_VERSION_03");
    Bed::start(rules, &[front])
}

fn limit(answer: &Answer) -> &str {
    answer.header("x-ratelimit-limit").unwrap_or("none")
}

fn number(answer: &Answer, name: &str) -> u64 {
    let value = answer.header(name).unwrap_or_else(|| panic!("no `{name}`: {answer:?}"));
    value.parse().unwrap()
}

#[test]
fn dump() {
    let bed = bed(
        "  - { key: user, limits: [{ name: burst, algorithm: token_bucket, rate: 10/100years, burst: 5 }, { name: daily, algorithm: fixed_window, rate: 3/year }] }\n\
         \x20 - { key: door, value: a, limits: [{ name: slots, algorithm: concurrency, max: 3, lease: 30s }] }\n\
         \x20 - { key: door, value: b, rate_limit: { unlimited: true } }\n\
         \x20 - { key: door, value: c, rate_limit: { name: cc, unit: year, requests_per_unit: 7 } }\n\
         \x20 - { key: door, value: d, limits: [{ algorithm: token_bucket, rate: 5/50years, burst: 2 }] }",
    );
    for h in [
        vec![ALICE],
        vec![ALICE],
        vec![ALICE],
        vec![ALICE],
        vec![("x-door", "a")],
        vec![("x-door", "b")],
        vec![("x-door", "c")],
        vec![("x-door", "d")],
        vec![("x-door", "d"), ("x-user", "bob")],
        vec![("x-door", "d"), ("x-user", "bob")],
    ] {
        let a = bed.get(&h);
        println!(
            "{h:?}: {} {:?}",
            a.status,
            a.headers.iter().filter(|(k, _)| k.contains("rate")).collect::<Vec<_>>()
        );
    }
}
