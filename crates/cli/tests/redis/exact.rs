//! Four processes, one limit: exactly the limit is admitted.

use sluicegate_testkit::redis::{Cluster, Sentinel, Single};
use sluicegate_testkit::until;

use crate::fleet::{Fleet, PATIENT};
use crate::hammer::{Counts, ask_over_rls, ask_times, ask_until_denied};

const NODES: usize = 4;

/// One of each kind, all of 150; of three limits it is the least.
const RULES: &str = "
  - key: window
    limits: { algorithm: fixed_window, rate: 150/year }
  - key: bucket
    limits: { algorithm: token_bucket, rate: 1/day, burst: 150 }
  - key: log
    limits: { algorithm: sliding_log, rate: 150/day }
  - key: three
    limits:
      - { name: bucket, algorithm: token_bucket, rate: 1/day, burst: 170 }
      - { name: log, algorithm: sliding_log, rate: 150/day }
      - { name: window, algorithm: fixed_window, rate: 160/year }
  - key: envoy
    rate_limit: { unit: year, requests_per_unit: 150 }
";
const KEYS: [&str; 5] = ["window", "bucket", "log", "three", "envoy"];

#[test]
fn through_one_server() {
    let server = Single::start();
    admits_exactly_the_limit(server.url());
    // Whatever was left there says whose it is, and goes by itself.
    let keys = server.command(&["KEYS", "*"]);
    assert!(!keys.items().is_empty());
    for key in keys.items().iter().map(ToString::to_string) {
        assert!(key.starts_with("sg:1:"), "{key}");
        let left: i64 = server.cli(&["PTTL", &key]).parse().unwrap();
        assert!(left > 0, "{key}: {left}");
    }
}

#[test]
fn through_a_primary_that_sentinels_know() {
    let sentinel = Sentinel::start();
    admits_exactly_the_limit(sentinel.url());
}

#[test]
fn through_a_cluster() {
    let cluster = Cluster::start();
    admits_exactly_the_limit(cluster.url());
}

fn admits_exactly_the_limit(store: &str) {
    let fleet = Fleet::start(NODES, store, RULES);
    let asked = KEYS.map(|key| format!(r#"{{"{key}":"ada"}}"#));
    let asked = asked.each_ref().map(String::as_str);
    // Each is asked for 320 times.
    for (counts, asked) in ask_times(&fleet.services, &asked, 20).iter().zip(asked) {
        assert_eq!(*counts, exactly(150, 320), "{asked}");
    }
    for key in KEYS {
        let counts = ask_over_rls(&fleet.services, key, "bob", 100);
        assert_eq!(counts, exactly(150, 400), "{key}");
    }
    // Who was denied by one of three limits has not used the others.
    for user in ["ada", "bob"] {
        assert_eq!(fleet.left(&format!(r#"{{"three":"{user}"}}"#)), [20, 0, 10]);
    }
    fleet.trusts_its_store();
}

#[test]
fn on_the_keys_of_envoyproxy_ratelimit() {
    let server = Single::start();
    admits_exactly_on_envoys_keys(server.url());
    // Which are named by the second at which the year began.
    let keys = server.command(&["KEYS", "shop_envoy_*"]);
    let used = keys.items().iter().map(|key| server.cli(&["GET", &key.to_string()]));
    let used: Vec<u64> = used.map(|used| used.parse().unwrap()).collect();
    assert!(used.len() == 2 && used.iter().all(|used| *used >= 150), "{keys}: {used:?}");
}

#[test]
fn on_the_keys_of_envoyproxy_ratelimit_in_a_cluster() {
    admits_exactly_on_envoys_keys(Cluster::start().url());
}

fn admits_exactly_on_envoys_keys(store: &str) {
    let fleet = Fleet::with(NODES, store, RULES, &[PATIENT, ("SLUICEGATE_COMPAT", "envoy")]);
    let asked = r#"{"envoy":"ada"}"#;
    assert_eq!(ask_times(&fleet.services, &[asked], 20), [exactly(150, 320)]);
    let counts = ask_over_rls(&fleet.services, "envoy", "bob", 100);
    assert_eq!(counts, exactly(150, 400));
    fleet.trusts_its_store();
}

fn exactly(allowed: u64, asked: u64) -> Counts {
    Counts { allowed, denied: asked - allowed, ..Counts::default() }
}

const TWO: &str = "
  - key: user
    limits: { algorithm: fixed_window, rate: 140/year }
  - key: team
    limits: { algorithm: token_bucket, rate: 1/day, burst: 100 }
";

/// A request that is under two identities.
const BOTH: &str = r#"{"user":"ada"},{"team":"blue"}"#;

#[test]
fn a_request_of_two_identities_is_charged_to_both_or_none() {
    let server = Single::start();
    let fleet = Fleet::start(NODES, server.url(), TWO);
    assert_eq!(ask_times(&fleet.services, &[BOTH], 20), [exactly(100, 320)]);
    assert_eq!(fleet.left(BOTH), [40, 0]);
    fleet.trusts_its_store();
}

#[test]
fn identities_on_two_nodes_of_a_cluster_are_charged_never_over_and_given_back() {
    let cluster = Cluster::start();
    let slot = |identity: &str| cluster.slot_of(&format!("sg:1:{{shop|{identity}}}"));
    let [ada, blue] = ["user=ada", "team=blue"].map(|it| cluster.master_of(slot(it)).port());
    assert_ne!(ada, blue, "they lie on two nodes");
    let fleet = Fleet::start(NODES, cluster.url(), TWO);
    // While one waits for what another is about to give back, it may be denied: so not all may have
    // been used.
    let hammered = ask_times(&fleet.services, &[BOTH], 20)[0];
    let used = hammered.allowed;
    assert!(used <= 100 && hammered.in_doubt() == 0, "{hammered:?}");
    let left = [140 - used, 100 - used].map(|left| i64::try_from(left).unwrap());
    until("all that was given back has arrived", || (fleet.left(BOTH) == left).then_some(()));
    let rest = ask_until_denied(&fleet.services[..1], BOTH).allowed;
    assert!(used + rest <= 100, "{used} and {rest}");
    fleet.trusts_its_store();
}
