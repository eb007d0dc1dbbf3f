//! What Envoy makes of our answers: `x-ratelimit-limit`, `-remaining` and `-reset`.

use crate::bed::Bed;
use crate::config::{Front, header};
use crate::support::http::Answer;

const ALICE: (&str, &str) = ("x-user", "alice");
const YEAR_S: u64 = 365 * 86_400;

fn bed(rules: &str) -> Bed {
    let descriptors = [header("x-user", "user"), header("x-door", "door")];
    let front = Front::new(descriptors).with("enable_x_ratelimit_headers", "DRAFT_VERSION_03");
    Bed::start(rules, &[front])
}

fn limit(answer: &Answer) -> Option<&str> {
    answer.header("x-ratelimit-limit")
}

fn remaining(answer: &Answer) -> u64 {
    number(answer, "x-ratelimit-remaining")
}

fn reset_s(answer: &Answer) -> u64 {
    number(answer, "x-ratelimit-reset")
}

fn number(answer: &Answer, name: &str) -> u64 {
    let value = answer.header(name).unwrap_or_else(|| panic!("no `{name}`: {answer:?}"));
    value.parse().unwrap()
}

#[test]
fn a_limit_its_name_and_what_is_left_of_it() {
    let bed =
        bed("  - { key: user, rate_limit: { name: plan, unit: year, requests_per_unit: 2 } }");
    for (status, left) in [(200, 1), (200, 0), (429, 0), (429, 0)] {
        let answer = bed.get(&[ALICE]);
        assert_eq!((answer.status, remaining(&answer)), (status, left));
        assert_eq!(limit(&answer), Some(r#"2, 2;w=31536000;name="plan""#));
        assert!((1..=YEAR_S).contains(&reset_s(&answer)), "{answer:?}");
    }
}

#[test]
fn of_several_descriptors_the_one_with_the_least_left_is_told_and_all_are_listed() {
    let bed = bed("  - { key: user, rate_limit: { unit: year, requests_per_unit: 9 } }\n\
         \x20 - { key: door, rate_limit: { name: door, unit: week, requests_per_unit: 1000000 } }\n\
         \x20 - { key: door, value: narrow, rate_limit: { name: narrow, unit: year, requests_per_unit: 2 } }");
    let wide = bed.get(&[ALICE, ("x-door", "wide")]);
    let both = r#"9, 9;w=31536000, 1000000;w=604800;name="door""#;
    assert_eq!((limit(&wide), remaining(&wide)), (Some(both), 8));
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let narrow = bed.get(&[ALICE, ("x-door", "narrow")]);
        let both = r#"2, 9;w=31536000, 2;w=31536000;name="narrow""#;
        assert_eq!((narrow.status, limit(&narrow), remaining(&narrow)), (status, Some(both), left));
    }
}

#[test]
fn a_native_limit_tells_when_it_is_full() {
    let bed = bed(
        "  - { key: user, limits: [{ name: slow, algorithm: token_bucket, rate: 5/year, burst: 5 }] }\n\
         \x20 - { key: door, limits: [{ algorithm: token_bucket, rate: 5/100years, burst: 5 }] }",
    );
    let first = bed.get(&[ALICE]);
    assert_eq!((limit(&first), remaining(&first)), (Some(r#"5, 5;w=31536000;name="slow""#), 4));
    assert_eq!(reset_s(&first), YEAR_S / 5, "one token is missing");
    // Envoy's protocol has a name for some windows only.
    let first = bed.get(&[("x-door", "any")]);
    assert_eq!((limit(&first), remaining(&first)), (Some("5"), 4));
    assert_eq!(reset_s(&first), 20 * YEAR_S);
}

#[test]
fn who_is_under_no_limit_is_told_of_none() {
    let bed = bed("  - { key: user, rate_limit: { unlimited: true } }\n\
         \x20 - { key: door, value: front, rate_limit: { unit: year, requests_per_unit: 1 } }");
    for headers in [&[ALICE][..], &[("x-door", "back")], &[]] {
        let answer = bed.get(headers);
        assert_eq!((answer.status, limit(&answer)), (200, None), "{headers:?}");
    }
    // Nor does it hide the limit of another.
    let answer = bed.get(&[ALICE, ("x-door", "front")]);
    assert_eq!((limit(&answer), remaining(&answer)), (Some("1, 1;w=31536000"), 0));
}
