//! Pools whose counters are in Redis, at every consistency level.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use futures_util::future::join_all;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Holder, Span, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

const LEVELS: [&str; 4] = [
    "strict",
    "leased",
    "{ strict: { hot_keys: leased } }",
    "{ eventual: { sync_interval: 10ms } }",
];
const INCLUDED: u64 = 300;
const CREDITS: u64 = 200;

fn rules(level: &str, on_failure: &str) -> String {
    format!(
        "
domain: llm
descriptors:
  - key: team
    consistency: {level}
    on_store_failure: {on_failure}
    limits: {{ algorithm: fixed_window, rate: {INCLUDED}/year }}
    pools:
      - {{ name: credits, limits: {{ algorithm: fixed_window, rate: {CREDITS}/year }} }}
  - key: user
    on_store_failure: {on_failure}
    limits: {{ algorithm: fixed_window, rate: 1000/year }}
"
    )
}

fn node(url: &str, namespace: &str, rules: &str) -> Engine<RedisBackend> {
    let options = LinkOptions { timeout: Duration::from_secs(10), ..Default::default() };
    let link = Link::open(Address::parse(url).unwrap(), options).unwrap();
    let engine = Engine::new(rules_of(rules).unwrap()).unwrap();
    let options = StoreOptions { namespace: namespace.to_owned(), ..StoreOptions::default() };
    RedisBackend::attach(engine, Store::new(link, options))
}

async fn check(node: &Engine<RedisBackend>, keys: &[&str], hits: u64) -> Checked {
    let entries: Vec<[Entry<'_>; 1]> = keys.iter().map(|key| [Entry::new(key, "a")]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let request = Request { domain: "llm", descriptors: &descriptors, hits };
    node.check_async(&request).await.unwrap()
}

/// Admitted requests of one hit by pool, until a denial.
async fn until_denied(node: &Engine<RedisBackend>) -> [u64; 2] {
    let mut admitted = [0, 0];
    loop {
        let checked = check(node, &["team"], 1).await;
        if !checked.allowed {
            return admitted;
        }
        admitted[usize::from(node.snapshot().pool(&checked.statuses[0]).is_some())] += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_draws_from_both_pools_at_every_level() {
    let server = Single::start();
    for (index, level) in LEVELS.into_iter().enumerate() {
        let node = node(server.url(), &format!("one{index}"), &rules(level, "deny"));
        assert_eq!(until_denied(&node).await, [INCLUDED, CREDITS], "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_admit_no_more_than_both_pools_hold() {
    let server = Single::start();
    for (index, level) in LEVELS.into_iter().enumerate().take(3) {
        let rules = rules(level, "deny");
        let nodes: Vec<_> =
            (0..3).map(|_| node(server.url(), &format!("many{index}"), &rules)).collect();
        let admitted = join_all(nodes.iter().map(until_denied)).await;
        let sum = |pool: usize| admitted.iter().map(|one| one[pool]).sum::<u64>();
        assert!(sum(0) <= INCLUDED && sum(1) <= CREDITS, "{level}: {admitted:?}");
        if index == 0 {
            assert_eq!([sum(0), sum(1)], [INCLUDED, CREDITS]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_by_another_rule_charges_no_pool() {
    let server = Single::start();
    for (index, level) in LEVELS.into_iter().enumerate() {
        let node = node(server.url(), &format!("both{index}"), &rules(level, "deny"));
        assert!(check(&node, &["user"], 950).await.allowed);
        assert!(check(&node, &["team"], 290).await.allowed);
        let denied = check(&node, &["team", "user"], 60).await;
        assert!(!denied.allowed && denied.statuses[0].verdict.is_allowed(), "{level}");
        let admitted = check(&node, &["team", "user"], 50).await;
        assert!(admitted.allowed, "{level}");
        assert_eq!(node.snapshot().pool(&admitted.statuses[0]), Some("credits"), "{level}");
        assert_eq!(admitted.statuses[0].verdict.remaining, Some(150), "{level}");
        assert!(check(&node, &["team"], 10).await.allowed, "the first pool has its rest: {level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_settles_a_reservation_at_its_pool() {
    let server = Single::start();
    let rules = rules("strict", "deny");
    let (one, other) = (node(server.url(), "held", &rules), node(server.url(), "held", &rules));
    assert!(check(&one, &["team"], 250).await.allowed);
    let entries = [Entry::new("team", "a")];
    let descriptors = [Descriptor::of(&entries)];
    let request = |hits| Request { domain: "llm", descriptors: &descriptors, hits };
    let (estimate, used, mut checked) = (request(100), request(30), Checked::default());
    let snapshot = one.snapshot();
    let call = one.call(&snapshot, &estimate);
    one.reserve(call, Holder(7), Span::from_secs(60), &mut checked).await.unwrap();
    assert_eq!(snapshot.pool(&checked.statuses[0]), Some("credits"));
    let snapshot = other.snapshot();
    let call = other.call(&snapshot, &used);
    assert_eq!(other.commit(call, Holder(7), &mut checked).await, Ok(70));
    assert_eq!(snapshot.pool(&checked.statuses[0]), Some("credits"));
    assert_eq!(checked.statuses[0].verdict.remaining, Some(170));
    assert_eq!(check(&one, &["team"], 0).await.statuses[0].verdict.remaining, Some(50));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_the_failure_policy_decides() {
    // Nothing listens there.
    let url = "redis://127.0.0.1:9";
    let denied = check(&node(url, "away", &rules("strict", "deny")), &["team"], 1).await;
    assert!(!denied.allowed);
    // No second pool is tried where the store decides nothing.
    assert_eq!(denied.statuses[0].verdict, sluicegate::backend::DENIED_WITHOUT_STORE);
    let local = node(url, "away", &rules("strict", "local"));
    assert_eq!(until_denied(&local).await, [INCLUDED, CREDITS], "the share of an only node is all");
    let open = node(url, "away", &rules("strict", "allow"));
    assert!(check(&open, &["team"], 1_000).await.allowed);
}
