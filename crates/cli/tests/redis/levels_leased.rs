//! Four processes that buy ahead: never above the limit, and exactly the limit once they have given
//! back what they hold.

use sluicegate_testkit::redis::{Cluster, Sentinel, Single};

use crate::fleet::Fleet;
use crate::hammer::{Counts, ask_over_rls, ask_times, ask_times_while, ask_until_denied};
use crate::levels::{await_lease, cells, key_of, stop};

const NODES: usize = 4;
const KEYS: [&str; 4] = ["bucket", "window", "sliding", "two"];
const LIMIT: u64 = 600;
/// Of the one that has to be hot first.
const HOT_LIMIT: u64 = 4_000;

fn rules(consistency: &str, hot: &str) -> String {
    format!(
        "
  - key: bucket
    consistency: {consistency}
    limits: {{ algorithm: token_bucket, rate: 1/day, burst: {LIMIT} }}
    on_store_failure: error
  - key: window
    consistency: {consistency}
    limits: {{ algorithm: fixed_window, rate: {LIMIT}/year }}
    on_store_failure: error
  - key: sliding
    consistency: {consistency}
    limits: {{ algorithm: sliding_window, rate: {LIMIT}/year }}
    on_store_failure: error
  - key: two
    consistency: {consistency}
    limits:
      - {{ name: bucket, algorithm: token_bucket, rate: 1/day, burst: 700 }}
      - {{ name: window, algorithm: fixed_window, rate: {LIMIT}/year }}
    on_store_failure: error
  - key: hot
    consistency: {hot}
    limits: {{ algorithm: token_bucket, rate: 1/day, burst: {HOT_LIMIT} }}
    on_store_failure: error
"
    )
}

fn leased() -> String {
    rules("leased", "{ strict: { hot_keys: leased } }")
}

fn strict() -> String {
    rules("strict", "strict")
}

#[test]
fn through_one_server() {
    let server = Single::start();
    admits_exactly_the_limit(server.url(), |_| &server);
}

#[test]
fn through_a_primary_that_sentinels_know() {
    let sentinel = Sentinel::start();
    admits_exactly_the_limit(sentinel.url(), |_| sentinel.primary());
}

#[test]
fn through_a_cluster() {
    let cluster = Cluster::start();
    admits_exactly_the_limit(cluster.url(), |key| cluster.master_of(cluster.slot_of(key)));
}

/// Ada is asked for more often than the limit allows, bob less often. Both before the services
/// stop, which is while they hold leases of both.
fn admits_exactly_the_limit<'a>(store: &str, server_of: impl Fn(&str) -> &'a Single) {
    let mut fleet = Fleet::start(NODES, store, &leased());
    let both = ["ada", "bob"].map(asked_for);
    let [adas, bobs] = both.each_ref().map(|all| all.each_ref().map(String::as_str));
    let ada = ask_times_while(&fleet.services, &adas, 50, |progress| {
        progress.await_allowed(100);
        for key in KEYS {
            await_lease(server_of(&key_of(key, "ada")), &key_of(key, "ada"));
        }
    });
    let bob = ask_times(&fleet.services, &bobs, 20);
    for counts in ada.iter().chain(&bob) {
        assert!(counts.allowed <= LIMIT && counts.in_doubt() == 0, "{counts:?}");
    }
    fleet.trusts_its_store();
    stop(&mut fleet.services);

    let last = Fleet::start(1, store, &strict());
    for (asked, counts) in adas.iter().chain(&bobs).zip(ada.iter().chain(&bob)) {
        assert_exact(&last, asked, *counts, LIMIT);
    }
    last.trusts_its_store();
}

fn asked_for(user: &str) -> [String; 4] {
    KEYS.map(|key| format!(r#"{{"{key}":"{user}"}}"#))
}

/// What those that stopped have left is there for whoever asks the store for every hit.
fn assert_exact(last: &Fleet, asked: &str, before: Counts, limit: u64) {
    let rest = ask_until_denied(&last.services, asked);
    assert_eq!(rest.in_doubt(), 0, "{asked}: {rest:?}");
    assert_eq!(before.allowed + rest.allowed, limit, "{asked}: {before:?}, then {rest:?}");
}

#[test]
fn a_strict_rule_whose_key_gets_hot() {
    let server = Single::start();
    let mut fleet = Fleet::start(NODES, server.url(), &leased());
    let key = key_of("hot", "ada");
    // Those who ask seldom are not leased.
    let mut counts = ask_times(&fleet.services, &[r#"{"hot":"ada"}"#], 5)[0];
    assert_eq!(cells(&server, &key), []);
    counts += ask_over_rls(&fleet.services, "hot", "ada", 800);
    assert_ne!(cells(&server, &key), [], "some node has found that it is hot");
    assert!(counts.allowed <= HOT_LIMIT && counts.in_doubt() == 0, "{counts:?}");
    fleet.trusts_its_store();
    stop(&mut fleet.services);
    let last = Fleet::start(1, server.url(), &strict());
    assert_exact(&last, r#"{"hot":"ada"}"#, counts, HOT_LIMIT);
}
