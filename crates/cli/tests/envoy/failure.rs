//! The service is gone, and comes back.

use crate::bed::Bed;
use crate::config::{Front, header};

const ALICE: (&str, &str) = ("x-user", "alice");
const OPEN: usize = 0;
const CLOSED: usize = 1;

#[test]
fn without_the_service_envoy_does_as_it_was_told_and_it_asks_again_when_it_is_back() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }";
    let front = || Front::by_route([header("x-user", "user")]);
    let mut bed = Bed::start(rules, &[front(), front().with("failure_mode_deny", true)]);
    let statuses = |bed: &Bed, front| [(); 3].map(|()| bed.get_at(front, &[ALICE]).status);
    assert_eq!(statuses(&bed, OPEN), [200, 200, 429]);
    assert_eq!(statuses(&bed, CLOSED), [429; 3], "one service counts for both");

    bed.service.kill();
    assert_eq!(statuses(&bed, OPEN), [200; 3]);
    assert_eq!(statuses(&bed, CLOSED), [500; 3]);
    assert_eq!(bed.upstream.reached(), 2 + 3, "what fails closed never gets there");
    assert_eq!(bed.envoy.counted("cluster.upstream.ratelimit.error"), 6);

    bed.restart();
    // What was counted was in memory, and is gone.
    assert_eq!(statuses(&bed, CLOSED), [200, 200, 429]);
    assert_eq!(statuses(&bed, OPEN), [429; 3]);
}

#[test]
fn a_question_that_the_service_refuses_is_a_failure_like_any_other() {
    let rules = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 0 } }";
    let too_many = || Front::new((0..257).map(|_| header("x-user", "user")));
    let bed = Bed::start(rules, &[too_many(), too_many().with("failure_mode_deny", true)]);
    assert_eq!([OPEN, CLOSED].map(|front| bed.get_at(front, &[ALICE]).status), [200, 500]);
    assert_eq!(bed.envoy.counted("cluster.upstream.ratelimit.error"), 2);
}
