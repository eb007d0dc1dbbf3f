//! Usage that an engine reports to its meter, on every path of a request.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sluicegate::backend::ready;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{
    Checked, Engine, MeteredUsage, Span, UsageKind, UsageMeter, descriptor_text, new_holder,
    rules_of,
};

const RULES: &str = "
domain: llm
deny: [{ key: team, value: banned }]
descriptors:
  - { key: team, id: team, limits: { algorithm: fixed_window, rate: 10/year } }
  - { key: soft, limits: { algorithm: fixed_window, rate: 2/year }, mode: { soft: 100% } }
  - { key: shadow, limits: { algorithm: fixed_window, rate: 2/year }, mode: shadow }
  - { key: envoy, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: other, id: unmetered, limits: { algorithm: fixed_window, rate: 1/year } }
  - key: pooled
    id: pooled
    limits: { algorithm: fixed_window, rate: 2/year }
    pools: [{ name: credits, limits: { algorithm: fixed_window, rate: 2/year } }]
";

/// Identity and pool.
type Key = (String, Option<String>);

#[derive(Debug, Default)]
struct Meter(Mutex<BTreeMap<Key, [u64; 3]>>);

impl UsageMeter for Meter {
    fn is_metered(&self, domain: &str, rule: &str) -> bool {
        assert_eq!(domain, "llm");
        rule != "llm/unmetered"
    }

    fn record(&self, usage: &MeteredUsage<'_>) {
        let key = (descriptor_text(usage.identity), usage.pool().map(str::to_owned));
        let kind = match usage.kind {
            UsageKind::Admitted => 0,
            UsageKind::Denied => 1,
            UsageKind::Refunded => 2,
        };
        self.0.lock().unwrap().entry(key).or_default()[kind] += usage.cost;
    }
}

struct Bed {
    engine: Engine,
    meter: Arc<Meter>,
}

impl Bed {
    fn new() -> Self {
        let meter = Arc::new(Meter::default());
        let engine = Engine::builder(rules_of(RULES).unwrap())
            .clock(ManualClock::new())
            .meter(meter.clone())
            .build()
            .unwrap();
        Self { engine, meter }
    }

    /// Admitted, denied and refunded costs of an identity.
    fn used(&self, identity: &str, pool: Option<&str>) -> [u64; 3] {
        let key = (identity.to_owned(), pool.map(str::to_owned));
        self.meter.0.lock().unwrap().get(&key).copied().unwrap_or_default()
    }

    fn check(&self, entries: &[(&str, &str)], hits: u64) -> bool {
        with(entries, hits, |request| self.engine.check(request).allowed)
    }
}

fn with<T>(entries: &[(&str, &str)], hits: u64, act: impl FnOnce(&Request<'_>) -> T) -> T {
    let entries: Vec<_> = entries.iter().map(|(key, value)| [Entry::new(key, value)]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entry| Descriptor::of(entry)).collect();
    act(&Request { domain: "llm", descriptors: &descriptors, hits })
}

#[test]
fn hits_count_by_the_outcome_of_their_request() {
    let bed = Bed::new();
    assert!(bed.check(&[("team", "a")], 8) && !bed.check(&[("team", "a")], 5));
    assert_eq!(bed.used("team=a", None), [8, 5, 0]);
    // The other rule denies, and this one is not charged.
    assert!(bed.check(&[("other", "x")], 1) && !bed.check(&[("other", "x"), ("team", "a")], 2));
    assert_eq!(bed.used("team=a", None), [8, 7, 0]);
    assert_eq!(bed.used("other=x", None), [0; 3], "not selected");
    // Two descriptors of one counter are charged once.
    assert!(bed.check(&[("team", "twice"), ("team", "twice")], 3));
    assert_eq!(bed.used("team=twice", None), [3, 0, 0]);
    assert!(!bed.check(&[("team", "banned")], 1));
    assert_eq!(bed.used("team=banned", None), [0; 3], "a list decided");
    for key in ["soft", "shadow"] {
        assert!(bed.check(&[(key, "a")], 2) && bed.check(&[(key, "a")], 2), "{key}");
        assert_eq!(bed.used(&format!("{key}=a"), None), [4, 0, 0]);
    }
    assert!(bed.check(&[("envoy", "a")], 1) && !bed.check(&[("envoy", "a")], 2));
    assert_eq!(bed.used("envoy=a", None), [1, 2, 0]);
    assert!(bed.check(&[("free", "a")], 7));
    assert_eq!(bed.used("free=a", None), [7, 0, 0]);
    with(&[("team", "a")], 1, |request| bed.engine.peek(request));
    with(&[("team", "a")], 3, |request| bed.engine.refund(request));
    assert_eq!(bed.used("team=a", None), [8, 7, 3]);
}

#[test]
fn a_reservation_counts_when_it_is_settled_with_its_actual_cost() {
    let bed = Bed::new();
    let (holder, ttl) = (new_holder(), Span::from_secs(60));
    let rules = bed.engine.snapshot();
    let reserve = |hits, holder| {
        with(&[("team", "a")], hits, |request| {
            let mut checked = Checked::default();
            let call = bed.engine.call(&rules, request);
            ready(bed.engine.reserve(call, holder, ttl, &mut checked)).unwrap().unwrap();
            checked.allowed
        })
    };
    assert!(reserve(6, holder));
    assert_eq!(bed.used("team=a", None), [0; 3]);
    assert!(!reserve(5, new_holder()));
    assert_eq!(bed.used("team=a", None), [0, 5, 0], "a denial is final");
    let commit = |hits, is_part| {
        with(&[("team", "a")], hits, |request| {
            let (call, mut checked) = (bed.engine.call(&rules, request), Checked::default());
            match is_part {
                true => ready(bed.engine.commit_part(call, holder, &mut checked)).unwrap(),
                false => ready(bed.engine.commit(call, holder, &mut checked)).unwrap(),
            }
        })
    };
    commit(1, true).unwrap();
    commit(2, false).unwrap();
    assert!(commit(2, false).is_err(), "it is settled");
    assert_eq!(bed.used("team=a", None), [3, 5, 0]);

    let cancelled = new_holder();
    assert!(reserve(4, cancelled));
    with(&[("team", "a")], 0, |request| {
        let (call, mut checked) = (bed.engine.call(&rules, request), Checked::default());
        ready(bed.engine.cancel(call, cancelled, &mut checked)).unwrap().unwrap()
    });
    assert_eq!(bed.used("team=a", None), [3, 5, 0], "nothing was used");
}

#[test]
fn a_turn_counts_when_it_is_booked_and_is_refunded_if_nobody_waits() {
    let bed = Bed::new();
    let (rules, holder) = (bed.engine.snapshot(), new_holder());
    with(&[("team", "a")], 4, |request| {
        let mut checked = Checked::default();
        let call = bed.engine.call(&rules, request);
        ready(bed.engine.book(call, holder, Span::from_secs(9), &mut checked)).unwrap().unwrap();
        assert_eq!(bed.used("team=a", None), [4, 0, 0]);
    });
    #[cfg(feature = "tokio")]
    with(&[("team", "a")], 4, |request| {
        bed.engine.cancel_turn(request, holder);
        assert_eq!(bed.used("team=a", None), [4, 0, 4]);
    });
}

#[test]
fn the_pool_that_is_drawn_from_has_the_usage() {
    let bed = Bed::new();
    let outcomes = [1, 1, 2, 1].map(|hits| bed.check(&[("pooled", "a")], hits));
    assert_eq!(outcomes, [true, true, true, false]);
    assert_eq!(bed.used("pooled=a", None)[0], 2);
    assert_eq!(bed.used("pooled=a", Some("credits"))[0], 2);
    let denied = bed.used("pooled=a", None)[1] + bed.used("pooled=a", Some("credits"))[1];
    assert_eq!(denied, 1, "once");
}
