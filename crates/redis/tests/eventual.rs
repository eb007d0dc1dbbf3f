//! Several nodes that tell each other what they have admitted, through one Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, HoldError, Level, Operation, Span, new_holder, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

const RULES: &str = "
domain: shop
descriptors:
  - key: window
    consistency: { eventual: { sync_interval: 20ms } }
    on_store_failure: deny
    limits: { algorithm: fixed_window, rate: 500/year }
  - key: share
    consistency: { eventual: { sync_interval: 20ms } }
    on_store_failure: local
    limits: { algorithm: fixed_window, rate: 500/year }
  - key: sliding
    consistency: eventual
    on_store_failure: deny
    limits: { algorithm: sliding_window, rate: 500/year }
  - key: other
    on_store_failure: deny
    limits: { algorithm: fixed_window, rate: 100/year }
";
const LIMIT: u64 = 500;

fn node(server: &Single) -> Engine<RedisBackend> {
    let address = Address::parse(server.url()).unwrap();
    // The machine may be busy with other tests.
    let options = LinkOptions { timeout: Duration::from_secs(10), ..Default::default() };
    let link = Link::open(address, options).unwrap();
    let engine = Engine::new(rules_of(RULES).unwrap()).unwrap();
    RedisBackend::attach(engine, Store::new(link, StoreOptions::default()))
}

/// Asks something of a node about descriptors of one entry each.
macro_rules! with_request {
    ($asked:expr, $hits:expr, |$request:ident| $then:expr) => {{
        let entries: Vec<[Entry<'_>; 1]> =
            $asked.iter().map(|(key, value)| [Entry::new(*key, *value)]).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let $request = Request { domain: "shop", descriptors: &descriptors, hits: $hits };
        $then
    }};
}

async fn ask(node: &Engine<RedisBackend>, asked: &[(&str, &str)]) -> Checked {
    with_request!(asked, 1, |request| node.check_async(&request).await.unwrap())
}

async fn until_denied(node: &Engine<RedisBackend>, asked: &[(&str, &str)]) -> u64 {
    let mut passed = 0;
    while ask(node, asked).await.allowed {
        passed += 1;
    }
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_alone_admits_exactly_the_limit() {
    let server = Single::start();
    for key in ["window", "sliding"] {
        let node = node(&server);
        let first = ask(&node, &[(key, "ada")]).await;
        assert_eq!(first.statuses[0].promise.level, Level::Eventual);
        assert_eq!(first.statuses[0].verdict.remaining, Some(499));
        assert_eq!(until_denied(&node, &[(key, "ada")]).await, LIMIT - 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_know_of_each_other_and_whoever_comes_later_knows_all() {
    let server = Single::start();
    let asked = [("window", "ada")];
    let one = node(&server);
    for _ in 0..300 {
        assert!(ask(&one, &asked).await.allowed);
    }
    // Tells what it has not told yet, and goes.
    one.backend().close().await;
    drop(one);
    // Whoever has not heard of the others hears of them first.
    let [two, three] = [node(&server), node(&server)];
    assert_eq!(until_denied(&two, &asked).await, LIMIT - 300);
    two.backend().close().await;
    assert_eq!(until_denied(&three, &asked).await, 0);
    assert_eq!(until_denied(&two, &asked).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_or_made_anew_is_so_for_all() {
    let server = Single::start();
    let [one, other] = [node(&server), node(&server)];
    let asked = [("window", "bob")];
    assert_eq!(until_denied(&one, &asked).await, LIMIT);
    one.backend().close().await;
    let mut checked = Checked::default();
    with_request!(asked, 40, |request| {
        let rules = other.snapshot();
        other.apply(Operation::Refund, other.call(&rules, &request), &mut checked).await.unwrap();
    });
    assert_eq!(checked.statuses[0].verdict.remaining, Some(40));
    assert_eq!(until_denied(&node(&server), &asked).await, 40);
    with_request!(asked, 1, |request| {
        let rules = one.snapshot();
        one.apply(Operation::Reset, one.call(&rules, &request), &mut checked).await.unwrap();
    });
    assert_eq!(checked.statuses[0].verdict.remaining, Some(500));
    assert_eq!(until_denied(&node(&server), &asked).await, LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_limit_denies_is_not_counted() {
    let server = Single::start();
    let node = node(&server);
    let both = [("window", "eve"), ("other", "eve")];
    assert_eq!(until_denied(&node, &both).await, 100);
    for _ in 0..20 {
        assert!(!ask(&node, &both).await.allowed);
    }
    assert_eq!(until_denied(&node, &[("window", "eve")]).await, LIMIT - 100);
    // Nor the other way round.
    let both = [("window", "eve"), ("other", "fay")];
    assert!(!ask(&node, &both).await.allowed);
    assert_eq!(until_denied(&node, &[("other", "fay")]).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_looked_at_and_not_be_held() {
    let server = Single::start();
    let node = node(&server);
    for _ in 0..7 {
        ask(&node, &[("window", "guy")]).await;
    }
    with_request!([("window", "guy")], 1, |request| {
        let rules = node.snapshot();
        let looked = node.inspect(node.call(&rules, &request)).await.unwrap();
        assert_eq!(looked[0].limits[0].remaining, Some(493));
        let mut checked = Checked::default();
        let call = node.call(&rules, &request);
        let held = node.reserve(call, new_holder(), Span::from_secs(1), &mut checked);
        let refused = held.await.unwrap_err();
        assert_eq!(refused, HoldError::Eventual { descriptor: 0 });
        assert!(refused.to_string().contains("`consistency: leased` or `strict`"), "{refused}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_can_be_heard_a_node_has_its_share_less_what_it_has_had() {
    let server = Single::start();
    let node = node(&server);
    for _ in 0..200 {
        assert!(ask(&node, &[("share", "hal")]).await.allowed);
    }
    node.backend().close().await;
    server.kill();
    // It is the only node, so its share is all of it.
    assert_eq!(until_denied(&node, &[("share", "hal")]).await, LIMIT - 200);
    assert_eq!(until_denied(&node, &[("share", "ida")]).await, LIMIT);
}
