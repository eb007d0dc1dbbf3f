//! Nodes that do not all have the same rules yet.

use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::fleet::Fleet;
use crate::hammer::ask_times;
use crate::support::service::Service;

const ADA: &str = r#"{"user":"ada"}"#;

fn rules(limits: &str) -> String {
    format!("  - key: user\n    limits: {limits}\n    on_store_failure: error\n")
}

/// Two nodes with one limit and two with another, all at once.
fn admitted(old: &str, new: &str) -> u64 {
    let server = Single::start();
    let mut old = Fleet::start(2, server.url(), &rules(old));
    let mut new = Fleet::start(2, server.url(), &rules(new));
    let services: Vec<Service> = old.services.drain(..).chain(new.services.drain(..)).collect();
    let counts = ask_times(&services, &[ADA], 20)[0];
    assert_eq!(counts.in_doubt(), 0);
    counts.allowed
}

#[test]
fn a_window_whose_number_is_raised_node_by_node_admits_the_higher_one_and_no_more() {
    let [old, new] = [100, 150].map(|n| format!("{{ algorithm: fixed_window, rate: {n}/year }}"));
    assert_eq!(admitted(&old, &new), 150);
}

#[test]
fn a_bucket_whose_burst_is_raised_node_by_node_admits_the_higher_one_and_no_more() {
    let bucket = |n| format!("{{ algorithm: token_bucket, rate: 1/day, burst: {n} }}");
    assert_eq!(admitted(&bucket(100), &bucket(150)), 150);
}

#[test]
fn a_log_whose_number_is_raised_node_by_node_admits_the_higher_one_and_no_more() {
    let [old, new] = [100, 150].map(|n| format!("{{ algorithm: sliding_log, rate: {n}/day }}"));
    assert_eq!(admitted(&old, &new), 150);
}

#[test]
fn limits_that_change_keep_what_was_used() {
    let server = Single::start();
    let limits = |n| rules(&format!("{{ algorithm: fixed_window, rate: {n}/year }}"));
    let mut fleet = Fleet::start(2, server.url(), &limits(100));
    assert_eq!(ask_times(&fleet.services, &[ADA], 5)[0].allowed, 40);
    fleet.reload(&limits(150));
    assert_eq!(ask_times(&fleet.services, &[ADA], 20)[0].allowed, 110);
    fleet.reload(&limits(120));
    assert_eq!(ask_times(&fleet.services, &[ADA], 1)[0].allowed, 0);
}

#[test]
fn limits_that_change_after_the_store_has_lost_everything() {
    let server = Single::start();
    let limits = |n| rules(&format!("{{ algorithm: fixed_window, rate: {n}/year }}"));
    let mut fleet = Fleet::start(2, server.url(), &limits(100));
    assert_eq!(ask_times(&fleet.services, &[ADA], 5)[0].allowed, 40);
    server.kill();
    fleet.says("the store cannot be reached");
    server.restart();
    fleet.says("the store answers");
    until("it was told", || (fleet.left(ADA) == [60]).then_some(()));
    fleet.reload(&limits(150));
    assert_eq!(ask_times(&fleet.services, &[ADA], 20)[0].allowed, 110);
}
