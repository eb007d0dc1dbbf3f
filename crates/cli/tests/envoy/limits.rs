//! Who may go on, and who may not.

use std::thread;

use serde_json::json;

use crate::bed::Bed;
use crate::config::{Front, header, with};
use crate::support::http;

const ALICE: (&str, &str) = ("x-user", "alice");
const BOB: (&str, &str) = ("x-user", "bob");

#[test]
fn each_user_has_a_limit_of_its_own() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }";
    let bed = Bed::start(rules, &[Front::by_route([header("x-user", "user")])]);
    assert_eq!(bed.statuses(&[ALICE]), [200, 200, 200, 429]);
    let denied = bed.get(&[ALICE]);
    assert_eq!((denied.status, denied.header("x-envoy-ratelimited")), (429, Some("true")));
    assert_eq!(bed.upstream.reached(), 3, "what is denied never gets there");

    let other = bed.get(&[BOB]);
    assert_eq!((other.status, other.header("x-envoy-ratelimited")), (200, None));
    assert!(other.body.contains("x-user: bob"), "{other:?}");
    // Who is nobody is under no rule: Envoy does not even ask.
    assert_eq!(bed.statuses(&[]), [200; 5]);
    assert_eq!(bed.envoy.counted("cluster.sluicegate.upstream_rq_completed"), 6);
}

#[test]
fn requests_at_once_are_counted_each_once() {
    let rules =
        "  - { key: user, limits: [{ algorithm: token_bucket, rate: 50/100years, burst: 50 }] }";
    let bed = Bed::start(rules, &[Front::by_route([header("x-user", "user")])]);
    let statuses = thread::scope(|scope| {
        let clients = [(); 4].map(|()| scope.spawn(|| bed.statuses::<25>(&[ALICE])));
        clients.map(|client| client.join().unwrap()).concat()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((passed, denied, bed.upstream.reached()), (50, 50, 50));
}

/// A request under two rules, one of which has nothing left.
fn two_rules(rules: &str) -> Bed {
    let bed =
        Bed::start(rules, &[Front::new([header("x-user", "user"), header("x-door", "door")])]);
    assert_eq!(bed.statuses(&[ALICE, ("x-door", "front")]), [200, 200, 429]);
    bed
}

#[test]
fn one_descriptor_over_its_limit_denies_the_request_and_the_other_is_charged_as_envoy_charges() {
    let bed = two_rules(
        "  - { key: user, rate_limit: { unit: year, requests_per_unit: 5 } }\n\
         \x20 - { key: door, rate_limit: { unit: year, requests_per_unit: 2 } }",
    );
    assert_eq!(bed.statuses(&[ALICE]), [200, 200, 429], "three were charged already");
}

#[test]
fn one_descriptor_over_its_limit_denies_the_request_and_a_native_limit_is_not_charged() {
    let bed = two_rules(
        "  - { key: user, limits: [{ algorithm: token_bucket, rate: 5/100years, burst: 5 }] }\n\
         \x20 - { key: door, limits: [{ algorithm: sliding_window, rate: 2/year }] }",
    );
    assert_eq!(bed.statuses(&[ALICE]), [200, 200, 200, 429], "two were charged already");
    assert_eq!(
        bed.statuses(&[BOB, ("x-door", "back")]),
        [200, 200, 429],
        "others are not affected"
    );
}

#[test]
fn a_descriptor_says_what_it_costs() {
    let rules =
        "  - { key: user, limits: [{ algorithm: token_bucket, rate: 10/100years, burst: 10 }] }";
    let cost = json!({ "format": "%REQ(x-cost)%" });
    let front = Front::new([with(header("x-user", "user"), "hits_addend", cost)]);
    let bed = Bed::start(rules, &[front]);
    let mut status = |cost: &str| bed.get(&[ALICE, ("x-cost", cost)]).status;
    assert_eq!(
        ["4", "4", "4", "2"].map(&mut status),
        [200, 200, 429, 200],
        "denied means not charged"
    );
    assert_eq!(["0", "1"].map(&mut status), [200, 429], "a look costs nothing");
}

#[test]
fn a_request_says_what_it_costs() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 10 } }";
    let cost = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config",
        "on_request_headers": [{
            "object_key": "envoy.ratelimit.hits_addend",
            "format_string": { "text_format_source": { "inline_string": "%REQ(x-cost)%" } },
        }],
    });
    let front = Front::by_route([header("x-user", "user")]).after(cost);
    let bed = Bed::start(rules, &[front]);
    let status = |cost: &str| bed.get(&[ALICE, ("x-cost", cost)]).status;
    assert_eq!(["4", "6", "1"].map(status), [200, 200, 429]);
}

#[test]
fn hits_are_given_back() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }";
    let back = json!({ "number": 2, "is_negative_hits": true });
    let refund = with(header("x-back", "user"), "hits_addend", back);
    let bed = Bed::start(rules, &[Front::new([header("x-user", "user"), refund])]);
    assert_eq!(bed.statuses(&[ALICE]), [200; 3]);
    assert_eq!(bed.statuses(&[("x-back", "alice")]), [200], "giving back is never denied");
    assert_eq!(bed.statuses(&[ALICE]), [200, 200, 429]);
}

#[test]
fn what_an_answer_turned_out_to_cost_is_charged_afterwards() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 10 } }";
    let spent =
        with(header("x-user", "user"), "hits_addend", json!({ "format": "%RESP(x-cost)%" }));
    let spent = with(spent, "apply_on_stream_done", json!(true));
    let bed = Bed::start(rules, &[Front::new([header("x-user", "user"), spent])]);
    let answer = bed.get(&[ALICE, ("x-will-cost", "8")]);
    assert_eq!((answer.status, answer.header("x-cost")), (200, Some("8")));
    // It is charged when the answer is out already: the service has then been asked twice.
    bed.envoy.counts("cluster.sluicegate.upstream_rq_completed", 2);
    assert_eq!(bed.get(&[ALICE, ("x-will-cost", "0")]).status, 200);
    assert_eq!(bed.get(&[ALICE]).status, 429);
}

#[test]
fn a_limit_that_comes_with_the_request_takes_the_place_of_the_rule() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 9 } }";
    let plan = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
        "metadata": [{
            "metadata_namespace": "plan",
            "value": { "limit": { "requests_per_unit": 2, "unit": "YEAR" } },
        }],
    });
    let path = json!({ "metadata_key": { "key": "plan", "path": [{ "key": "limit" }] } });
    let limit = json!({ "dynamic_metadata": path });
    let fronts = [
        Front::by_route([with(header("x-user", "user"), "limit", limit)]).after(plan),
        Front::by_route([header("x-user", "user")]),
    ];
    let bed = Bed::start(rules, &fronts);
    assert_eq!(bed.statuses(&[ALICE]), [200, 200, 429]);
    assert_eq!(bed.get_at(1, &[BOB]).status, 200);
}

#[test]
fn grpc_is_told_in_its_own_words() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 0 } }";
    let front = || Front::by_route([header("x-user", "user")]);
    let exhausted = front().with("rate_limited_as_resource_exhausted", true);
    let bed = Bed::start(rules, &[front(), exhausted]);
    let told = |front| {
        let answer =
            bed.get_at(front, &[ALICE, ("content-type", "application/grpc"), ("te", "trailers")]);
        (answer.status, answer.header("grpc-status").map(str::to_owned))
    };
    let (unavailable, resource_exhausted) = ("14".to_owned(), "8".to_owned());
    assert_eq!(told(0), (200, Some(unavailable)));
    assert_eq!(told(1), (200, Some(resource_exhausted)));
}

#[test]
fn who_sends_what_is_not_text_is_limited_too() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }";
    let bed = Bed::start(rules, &[Front::by_route([header("x-user", "user")])]);
    let latin_1: (&str, &[u8]) = ("x-user", b"Jos\xe9");
    let status = |()| http::get(&bed.envoy.listeners[0], "/", &[latin_1]).status;
    assert_eq!([(); 3].map(status), [200, 429, 429]);
}
