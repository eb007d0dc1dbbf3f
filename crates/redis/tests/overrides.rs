//! Overrides of identities whose counters are in Redis: what was used stays used.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use sluicegate::config::rules::{Options, Source, load};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::resolve::resolve;
use sluicegate::rules::set::RuleSet;
use sluicegate::rules::zone::moment_of;
use sluicegate::{Engine, Timestamp};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

const RULES: &str = "domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 100/year }
overrides:
  - { match: { user: acme* }, factor: 2, until: 2026-12-01T00:00:00Z, note: sale }
";

fn rules_at(now: Timestamp) -> RuleSet {
    let source = Source { name: "shop.yaml".to_owned(), text: RULES.to_owned() };
    let loaded = load(&[source], &Options::default()).unwrap();
    RuleSet::new(resolve(loaded.domains, now).unwrap().domains).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_continues_its_counter_under_an_override_and_after_it() {
    let server = Single::start();
    let options = LinkOptions { timeout: Duration::from_secs(10), ..Default::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    let ended = rules_at(moment_of("2026-12-01T00:00:00Z").unwrap());
    let store = Store::new(link, StoreOptions::default());
    let engine = RedisBackend::attach(Engine::new(ended).unwrap(), store);
    let remaining = async |hits| {
        let entries = [Entry::new("user", "acme-7")];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits };
        let checked = engine.check_async(&request).await.unwrap();
        (checked.allowed, checked.statuses[0].verdict.remaining)
    };
    assert_eq!(remaining(90).await, (true, Some(10)));
    engine.reload(rules_at(Timestamp::EPOCH)).unwrap();
    assert_eq!(remaining(20).await, (true, Some(90)), "110 of 200 were used");
    engine.reload(rules_at(moment_of("2026-12-01T00:00:00Z").unwrap())).unwrap();
    let (allowed, left) = remaining(1).await;
    assert!(!allowed && left.is_some_and(|left| left <= 0), "110 of 100 were used: {left:?}");
}
