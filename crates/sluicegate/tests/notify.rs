//! Thresholds of budgets: each is reported once per window, whatever charges it.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_support::{ask, engine, rules};
use sluicegate::backend::ready;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Engine, Holder, Span, ThresholdReached, UsageListener};

const RULES: &str = "
domain: shop
descriptors:
  - key: team
    id: budget
    notify: [50%, 80%, 100%, 120%]
    limits: { name: day, algorithm: fixed_window, rate: 100/day }
    pools: [{ name: credits, limits: { algorithm: fixed_window, rate: 10/day } }]
  - key: user
    notify: 80%
    limits: { algorithm: token_bucket, rate: 1/s, burst: 10 }
  - key: address
    notify: [100%]
    rate_limit: { unit: day, requests_per_unit: 10 }
";

#[derive(Debug, Default)]
struct Reported(Mutex<Vec<String>>);

impl UsageListener for Reported {
    fn threshold_reached(&self, reached: &ThresholdReached<'_>) {
        let (rule, descriptor) = (reached.rule_id(), reached.descriptor());
        let ThresholdReached { threshold, used, quota, .. } = reached;
        let text = format!("{rule} {descriptor} {threshold}% {used}/{quota}");
        self.0.lock().unwrap().push(text);
    }
}

struct Fixture {
    engine: Engine,
    clock: ManualClock,
    reported: Arc<Reported>,
}

impl Fixture {
    fn new() -> Self {
        let (engine, clock) = engine(RULES);
        let reported = Arc::new(Reported::default());
        assert!(engine.set_usage_listener(reported.clone()));
        Self { engine, clock, reported }
    }

    /// What is reported about a checked request.
    fn check(&self, text: &str) -> Vec<String> {
        ask(text, |request| self.engine.check(request));
        self.take()
    }

    fn hold(&self, hits: u64, then: impl FnOnce(&Request<'_>, &mut Checked)) -> Vec<String> {
        ask("team=a", |request| {
            let mut checked = Checked::default();
            then(&Request { hits, ..*request }, &mut checked);
            checked
        });
        self.take()
    }

    fn reserve(&self, hits: u64, id: u64) -> Vec<String> {
        self.hold(hits, |request, checked| {
            let (rules, ttl) = (self.engine.snapshot(), Span::from_secs(60));
            let call = self.engine.call(&rules, request);
            ready(self.engine.reserve(call, Holder(id), ttl, checked)).unwrap().unwrap();
            assert!(checked.allowed);
        })
    }

    fn commit(&self, hits: u64, id: u64) -> Vec<String> {
        self.hold(hits, |request, checked| {
            let rules = self.engine.snapshot();
            let call = self.engine.call(&rules, request);
            ready(self.engine.commit(call, Holder(id), checked)).unwrap().unwrap();
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.reported.0.lock().unwrap())
    }
}

#[test]
fn a_window_reports_each_threshold_once_and_the_next_one_again() {
    let all = Fixture::new();
    assert_eq!(all.check("team=a x49"), [""; 0]);
    assert_eq!(all.check("team=a x1"), ["shop/budget team=a 50% 50/100"]);
    assert_eq!(all.check("team=a x1"), [""; 0]);
    assert_eq!(all.check("team=b x60"), ["shop/budget team=b 50% 60/100"], "each identity");
    let both = ["shop/budget team=a 80% 100/100", "shop/budget team=a 100% 100/100"];
    assert_eq!(all.check("team=a x49"), both);
    assert_eq!(all.check("team=a x200"), [""; 0], "a denial changes nothing");
    // A refund makes room in the same window, and no threshold is reported twice.
    ask("team=a x60", |request| all.engine.refund(request));
    assert_eq!(all.check("team=a x55"), [""; 0]);
    all.clock.advance(Duration::from_secs(86_400));
    assert_eq!(all.check("team=a x85").len(), 2, "all at once in the next window");
}

#[test]
fn a_reset_begins_anew() {
    let all = Fixture::new();
    assert_eq!(all.check("team=a x60").len(), 1);
    ask("team=a", |request| all.engine.reset(request));
    assert_eq!(all.check("team=a x60").len(), 1);
}

#[test]
fn a_limit_that_refills_reports_again_after_a_fall() {
    let all = Fixture::new();
    assert_eq!(all.check("user=u x8"), ["shop/user user=u 80% 8/10"]);
    assert_eq!(all.check("user=u x1"), [""; 0]);
    all.clock.advance(Duration::from_secs(5));
    assert_eq!(all.check("user=u x1"), [""; 0], "5 of 10 are used");
    assert_eq!(all.check("user=u x3"), ["shop/user user=u 80% 8/10"]);
}

#[test]
fn every_pool_and_every_form_has_thresholds() {
    let all = Fixture::new();
    all.check("team=a x99");
    assert_eq!(all.check("team=a x5"), ["shop/budget:credits team=a 50% 5/10"]);
    let envoy = ["shop/address address=1.2.3.4 100% 12/10"];
    assert_eq!(all.check("address=1.2.3.4 x12"), envoy, "denied hits count in Envoy's form");
    assert_eq!(all.check("address=1.2.3.4 x1"), [""; 0]);
}

#[test]
fn a_reservation_is_judged_when_it_is_settled() {
    let all = Fixture::new();
    assert_eq!(all.reserve(90, 1), [""; 0], "an estimate");
    assert_eq!(all.commit(40, 1), [""; 0]);
    assert_eq!(all.reserve(20, 2), [""; 0]);
    assert_eq!(all.commit(20, 2), ["shop/budget team=a 50% 60/100"]);
    assert_eq!(all.reserve(40, 3), [""; 0]);
    let debt = all.commit(75, 3);
    let expected = [80, 100, 120].map(|one| format!("shop/budget team=a {one}% 135/100"));
    assert_eq!(debt, expected, "into debt");
    assert_eq!(all.reserve(5, 4), [""; 0]);
    assert_eq!(
        all.commit(8, 4),
        ["shop/budget:credits team=a 50% 8/10", "shop/budget:credits team=a 80% 8/10"]
    );
    assert_eq!(all.check("team=a x1"), [""; 0], "the pool is the same for hits");
}

#[test]
fn a_reload_forgets_nothing() {
    let all = Fixture::new();
    assert_eq!(all.check("team=a x60").len(), 1);
    let other = RULES.replace("[50%, 80%, 100%, 120%]", "[50%, 90%]");
    all.engine.reload(rules(&other)).unwrap();
    assert_eq!(all.check("team=a x1"), [""; 0]);
    assert_eq!(all.check("team=a x30"), ["shop/budget team=a 90% 91/100"]);
}

#[test]
fn what_has_no_single_quota_is_refused() {
    let bad = [
        ("limits: { algorithm: concurrency, max: 5, lease: 5s }, notify: 80%", "a quota"),
        ("limits: { algorithm: unlimited }, notify: 80%", "a quota"),
        (
            "limits: [{ algorithm: token_bucket, rate: 5/s }, { algorithm: fixed_window, rate: 5/day }], notify: 80%",
            "a single limit",
        ),
        ("limits: { algorithm: fixed_window, rate: 5/day }, notify: [80%, 50%]", "ascending order"),
        ("limits: { algorithm: fixed_window, rate: 5/day }, notify: [0%]", "from `1%` to `1000%`"),
        ("limits: { algorithm: fixed_window, rate: 5/day }, notify: []", "1 to 8 thresholds"),
        ("limits: { algorithm: fixed_window, rate: 5/day }, notify: 0.8", "whole percentage"),
        ("notify: 80%", "has no effect without"),
    ];
    for (rule, reason) in bad {
        let text = format!("domain: shop\ndescriptors: [{{ key: team, {rule} }}]\n");
        let error = sluicegate::rules_of(&text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
