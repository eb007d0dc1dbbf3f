//! Several nodes that buy ahead from one Redis: never more passes than under `strict`, and nothing is lost that somebody could have given back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use futures_util::future::join_all;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Level, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

const RULES: &str = "
domain: shop
descriptors:
  - key: window
    consistency: leased
    on_store_failure: deny
    limits: { algorithm: fixed_window, rate: 3000/year }
  - key: bucket
    consistency: leased
    on_store_failure: deny
    limits: { algorithm: token_bucket, rate: 1/day, burst: 3000 }
  - key: sliding
    consistency: leased
    on_store_failure: deny
    limits: { algorithm: sliding_window, rate: 3000/year }
  - key: two
    consistency: leased
    on_store_failure: deny
    limits:
      - { name: bucket, algorithm: token_bucket, rate: 1/day, burst: 5000 }
      - { name: window, algorithm: fixed_window, rate: 3000/year }
  - key: hot
    consistency: { strict: { hot_keys: leased } }
    on_store_failure: deny
    limits: { algorithm: token_bucket, rate: 1/day, burst: 3000 }
  - key: other
    on_store_failure: deny
    limits: { algorithm: fixed_window, rate: 100/year }
";
const LIMIT: u64 = 3_000;
const KEYS: [&str; 5] = ["window", "bucket", "sliding", "two", "hot"];

fn node(server: &Single) -> Engine<RedisBackend> {
    let address = Address::parse(server.url()).unwrap();
    // The machine may be busy with other tests.
    let options = LinkOptions { timeout: std::time::Duration::from_secs(10), ..Default::default() };
    let link = Link::open(address, options).unwrap();
    let engine = Engine::new(rules_of(RULES).unwrap()).unwrap();
    RedisBackend::attach(engine, Store::new(link, StoreOptions::default()))
}

async fn ask(node: &Engine<RedisBackend>, asked: &[(&str, &str)]) -> Checked {
    let entries: Vec<[Entry<'_>; 1]> =
        asked.iter().map(|(key, value)| [Entry::new(key, value)]).collect();
    let descriptors: Vec<Descriptor<'_>> =
        entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    node.check_async(&request).await.unwrap()
}

/// How many pass until the node says no, and how many of them it decided by itself.
async fn until_denied(node: &Engine<RedisBackend>, asked: &[(&str, &str)]) -> (u64, u64) {
    let (mut passed, mut here) = (0, 0);
    loop {
        let checked = ask(node, asked).await;
        if !checked.allowed {
            return (passed, here);
        }
        passed += 1;
        here += u64::from(checked.statuses[0].promise.level == Level::Leased);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_give_back_what_they_do_not_need_admit_exactly_the_limit() {
    let server = Single::start();
    for key in KEYS {
        let nodes: Vec<Engine<RedisBackend>> = (0..3).map(|_| node(&server)).collect();
        let asked = [(key, "ada")];
        let said = join_all(nodes.iter().map(|node| until_denied(node, &asked))).await;
        let (passed, here) = said.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        assert!(passed <= LIMIT, "{key}: {said:?}");
        assert!(here > 0, "{key}: nobody decided anything by itself");
        join_all(nodes.iter().map(|node| node.backend().close())).await;
        // Whoever comes afterwards finds what was left.
        let (rest, _) = until_denied(&node(&server), &asked).await;
        assert_eq!(passed + rest, LIMIT, "{key}: {said:?}, then {rest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_takes_with_it_no_more_than_it_held() {
    let server = Single::start();
    let [dying, other] = [node(&server), node(&server)];
    let asked = [("window", "ada")];
    let mut passed = 0;
    for _ in 0..500 {
        passed += u64::from(ask(&dying, &asked).await.allowed);
        passed += u64::from(ask(&other, &asked).await.allowed);
    }
    // One call may be under way, and bring as much again as it can have wanted: eight times what is held, of the limit at most.
    let held: u64 = dying.backend().leases(10).iter().map(|lease| lease.unspent).sum();
    assert!(held > 0, "it was asked for often");
    drop(dying);
    let (rest, _) = until_denied(&other, &asked).await;
    other.backend().close().await;
    let (last, _) = until_denied(&node(&server), &asked).await;
    let total = passed + rest + last;
    assert!(total <= LIMIT, "{total}");
    assert!(total + held * 8 >= LIMIT, "{total} of {LIMIT}, {held} were held");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_limit_denies_is_not_spent() {
    let server = Single::start();
    let node = node(&server);
    // Often enough to be leased.
    for _ in 0..20 {
        assert!(ask(&node, &[("window", "bob")]).await.allowed);
    }
    let both = [("window", "bob"), ("other", "bob")];
    let (passed, _) = until_denied(&node, &both).await;
    assert_eq!(passed, 100);
    for _ in 0..50 {
        let checked = ask(&node, &both).await;
        assert!(!checked.allowed);
    }
    node.backend().close().await;
    let (rest, _) = until_denied(&node, &[("window", "bob")]).await;
    assert_eq!(rest + passed + 20, LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_leased_is_told() {
    let server = Single::start();
    let node = node(&server);
    for _ in 0..100 {
        ask(&node, &[("bucket", "eve")]).await;
    }
    // Between two calls of the store it may have nothing.
    let (mut asked, mut checked) = (101, ask(&node, &[("bucket", "eve")]).await);
    while checked.statuses[0].promise.level != Level::Leased {
        (asked, checked) = (asked + 1, ask(&node, &[("bucket", "eve")]).await);
        assert!(checked.allowed, "nothing is ever leased");
    }
    // What is left to all, not what this node holds; answers that were under way together may come in another order.
    let left = checked.statuses[0].verdict.remaining.unwrap() - (3_000 - asked);
    assert!((0..16).contains(&left), "{left} too many after {asked}");
    let leases = node.backend().leases(10);
    let [lease] = &*leases else { panic!("{leases:?}") };
    assert!(!lease.is_hot);
    assert!(String::from_utf8_lossy(&lease.identity).contains("eve"));
    let level = {
        let rules = node.snapshot();
        node.backend().level(&rules, lease.rule)
    };
    assert_eq!((level.leases, level.promoted), (1, 1));
    assert!(level.lease_calls > 0);
    node.backend().close().await;
    let rules = node.snapshot();
    assert!(node.backend().level(&rules, lease.rule).local > 0);
    assert_eq!(node.backend().level(&rules, lease.rule).short_bound, 0);
}
