//! Limiters that share a store share its cap, and what one has no use for any more is there for the others.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, FixedWindow, IntoLimit, LeakyBucket, LimitConfig, SlidingLog, SlidingWindow,
    Tally, TokenBucket,
};
use sluicegate::rules::domain::{DescriptorConfig, Domain};
use sluicegate::rules::rule::{Limits, RuleConfig};
use sluicegate::rules::set::RuleSet;
use sluicegate::{Consistency, Engine, LimitError, Limiter, Memory, Mode, Overflow, Span};

fn limiter(limit: impl IntoLimit, memory: &Memory, clock: &ManualClock) -> Limiter {
    let builder = Limiter::builder().limit(limit).memory(memory).overflow(Overflow::Deny);
    builder.clock(clock.clone()).build().unwrap()
}

/// How often somebody has to ask until there is room.
fn tries(limiter: &Limiter, key: &str) -> Option<usize> {
    (1..=10_000).find(|_| limiter.hit(key).is_allowed())
}

#[test]
fn what_has_run_out_in_one_limiter_makes_room_in_another_though_nobody_asks_the_first() {
    let (memory, clock) = (Memory::with_entries(100), ManualClock::new());
    let idle = [
        limiter(TokenBucket::per_second(1), &memory, &clock),
        limiter(SlidingLog::per_second(1), &memory, &clock),
        limiter(FixedWindow::per_second(1), &memory, &clock),
    ];
    let busy = limiter(FixedWindow::per_day(5), &memory, &clock);
    for number in 0..100 {
        assert!(idle[number % 3].hit(format!("{number}")).is_allowed());
    }
    assert!(!busy.hit("alice").is_allowed(), "there is no room");
    clock.advance(Duration::from_secs(2));
    let tries = tries(&busy, "alice");
    assert!(tries.is_some_and(|tries| tries <= 5 * 256), "{tries:?} tries");
    for number in 1..100 {
        assert!((0..5 * 256).any(|_| busy.hit(format!("{number}")).is_allowed()), "{number}");
    }
    assert_eq!(memory.entries(), 100);
    assert!(!busy.hit("one more").is_allowed());
}

#[test]
fn each_limiter_tells_by_its_own_clock_what_has_run_out() {
    let (memory, slow, fast) = (Memory::with_entries(1), ManualClock::new(), ManualClock::new());
    let first = limiter(FixedWindow::per_day(1), &memory, &slow);
    let second = limiter(FixedWindow::per_day(1), &memory, &fast);
    assert!(first.hit("alice").is_allowed());
    fast.advance(Duration::from_secs(5 * 86_400));
    assert_eq!(tries(&second, "bob"), None, "Alice's day is not over");
    assert!(!first.hit("alice").is_allowed());
}

#[test]
fn a_name_is_taken_once() {
    let memory = Memory::new();
    let logins =
        || Limiter::builder().name("logins").limit(FixedWindow::per_day(1)).memory(&memory);
    let first = logins().build().unwrap();
    let error = logins().build().unwrap_err();
    assert_eq!(error, LimitError::NameTaken { name: "logins".to_owned() });
    assert_eq!(logins().on(&memory).unwrap_err(), error);
    assert!(error.to_string().contains("`logins`"), "{error}");
    let clone = first.clone();
    drop(first);
    assert!(logins().build().is_err(), "a clone has it");
    drop(clone);
    logins().build().unwrap();
    let nameless = || Limiter::builder().limit(FixedWindow::per_day(1)).on(&memory).unwrap();
    let _two = (nameless(), nameless());
    let _elsewhere = logins().memory(&Memory::new()).build().unwrap();
}

#[test]
fn a_consistency_that_a_limit_does_not_support_is_refused() {
    let eventual = Consistency::Eventual { sync_interval: Span::from_millis(50) };
    let refused = |consistency, limit: Result<LimitConfig, LimitError>, mode| {
        let limiter = || {
            let builder = Limiter::builder().name("api").limit(limit.clone()).mode(mode);
            builder.consistency(consistency)
        };
        let [built, on_store] = [limiter().build(), limiter().on(&Memory::new())];
        let error = built.err().map(|error| error.to_string());
        assert_eq!(error, on_store.err().map(|error| error.to_string()));
        error
    };
    let (window, hard) = (|| FixedWindow::per_minute(5).into_limit(), Mode::Hard);
    for limit in [window(), SlidingWindow::per_minute(5).into_limit()] {
        assert_eq!(refused(eventual, limit.clone(), hard), None);
        assert_eq!(refused(Consistency::Leased, limit, hard), None);
    }
    assert_eq!(refused(Consistency::Leased, TokenBucket::per_second(5).into_limit(), hard), None);
    assert_eq!(refused(Consistency::Strict, Concurrency::at_most(5).into_limit(), hard), None);
    assert_eq!(refused(Consistency::Strict, window(), Mode::Shadow), None);
    for (limit, name) in [
        (TokenBucket::per_second(5).into_limit(), "token_bucket"),
        (Concurrency::at_most(5).into_limit(), "concurrency"),
        (LeakyBucket::per_second(5).into_limit(), "leaky_bucket"),
        (SlidingLog::per_second(5).into_limit(), "sliding_log"),
        (Tally::per_minute(5).into_limit(), "tally"),
    ] {
        let expected = format!(
            "`eventual` needs a `fixed_window` aligned to the clock or the calendar, or a \
             `sliding_window`, got `{name}`: use `Consistency::Strict`, or another limit"
        );
        assert_eq!(refused(eventual, limit.clone(), hard), Some(expected));
        let rule = RuleConfig {
            consistency: eventual,
            ..RuleConfig::new(Limits::Native([limit.unwrap()].into()))
        };
        let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user") };
        let domain = Domain { descriptors: vec![users], ..Domain::new("shop") };
        let error = Engine::new(RuleSet::new(vec![domain]).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("rule `shop/user`: `eventual` needs"), "{error}");
    }
    assert_eq!(
        refused(eventual, window(), Mode::Shadow).unwrap(),
        "`eventual` needs the mode `hard`, got `shadow`: use `Consistency::Strict`, or another limit"
    );
    let (soft, leased) = (Mode::Soft { percent: 50 }, Consistency::Leased);
    assert!(refused(leased, window(), soft).unwrap().contains("got `soft`"));
}

#[test]
fn the_domain_of_limiters_is_reserved() {
    let rules = || RuleSet::new(vec![Domain::new("@limiter")]).unwrap();
    let error = Engine::new(rules()).unwrap_err();
    assert_eq!(error, LimitError::ReservedDomain);
    assert!(error.to_string().contains("`@limiter` is reserved"), "{error}");
    let engine = Engine::new(RuleSet::default()).unwrap();
    assert_eq!(engine.reload(rules()).unwrap_err(), LimitError::ReservedDomain);
}

#[test]
fn two_limits_of_one_name_are_refused() {
    let minute = || FixedWindow::per_minute(5).named("rate");
    let both = Limiter::builder().limit(minute()).limit(FixedWindow::per_day(9).named("rate"));
    let error = both.build().unwrap_err();
    assert_eq!(error, LimitError::LimitNamedTwice { name: "rate".to_owned() });
    assert!(error.to_string().contains("rename one"), "{error}");
    let unnamed = Limiter::builder().limit(FixedWindow::per_minute(5));
    let unnamed = unnamed.limit(FixedWindow::per_day(9)).limit(minute()).build().unwrap();
    assert_eq!(unnamed.policies().len(), 3, "limits without a name get one each");
}
