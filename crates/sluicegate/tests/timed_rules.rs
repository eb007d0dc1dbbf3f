//! Schedules and overrides: the follower switches at the boundaries, and counters continue.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::config::rules::Source;
use sluicegate::config::watch::{PollResult, RulesSource, SourceError};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::zone::{moment_of, show_moment};
use sluicegate::{Change, Engine, Follower, Reloaded, rules_of};

/// Rules that never change.
#[derive(Debug)]
struct Fixed(String);

impl RulesSource for Fixed {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        Ok(vec![Source { name: "shop.yaml".to_owned(), text: self.0.clone() }])
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        PollResult::Same
    }
}

fn at(text: &str) -> sluicegate::Timestamp {
    moment_of(text).unwrap()
}

fn followed(text: &str, now: &str) -> (Engine, Follower, ManualClock) {
    let clock = ManualClock::at(at(now));
    let engine = Engine::builder(Default::default()).clock(clock.clone()).build().unwrap();
    let (follower, warnings) = engine.follow(Fixed(text.to_owned()), Default::default()).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    (engine, follower, clock)
}

/// Whether a request is allowed, and what remains.
fn check(engine: &Engine, entries: &[(&str, &str)], hits: u64) -> (bool, Option<i64>) {
    let entries: Vec<Entry<'_>> = entries.iter().map(|(k, v)| Entry::new(k, v)).collect();
    let descriptors = [Descriptor::of(&entries)];
    let checked = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits });
    (checked.allowed, checked.statuses.first().and_then(|status| status.verdict.remaining))
}

fn user(engine: &Engine, name: &str, hits: u64) -> (bool, Option<i64>) {
    check(engine, &[("user", name)], hits)
}

const OFFICE: &str = "domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 100/day }
    schedule:
      - { days: mon-fri, from: 09:00, until: 18:00, zone: Europe/Berlin, limits: { algorithm: fixed_window, rate: 40/day } }
";

#[test]
fn a_limit_switches_at_each_boundary_and_what_was_used_stays_used() {
    // A Friday, before 9.
    let (engine, mut follower, clock) = followed(OFFICE, "2026-11-20T07:59:59.999999Z");
    assert_eq!(user(&engine, "alice", 30), (true, Some(70)));
    assert!(follower.poll().is_none());
    clock.advance(Duration::from_micros(1));
    let change = follower.poll();
    assert!(matches!(change, Some(Change::Switched(Reloaded { changed: 1, .. }))), "{change:?}");
    assert_eq!(user(&engine, "alice", 1), (true, Some(9)), "30 of 40 were used");
    assert!(follower.poll().is_none());

    clock.set(at("2026-11-20T17:00:00Z"));
    assert!(matches!(follower.poll(), Some(Change::Switched(_))));
    assert_eq!(user(&engine, "alice", 1), (true, Some(68)));
    // Not on the weekend.
    clock.set(at("2026-11-23T07:59:59Z"));
    assert!(follower.poll().is_none());
    clock.set(at("2026-11-23T08:00:00Z"));
    assert!(matches!(follower.poll(), Some(Change::Switched(_))));
    assert!(!user(&engine, "bob", 41).0);
}

#[test]
fn a_clock_that_is_set_back_has_the_limits_of_then() {
    let (engine, mut follower, clock) = followed(OFFICE, "2026-11-20T08:00:00Z");
    assert_eq!(user(&engine, "alice", 1), (true, Some(39)));
    clock.set(at("2026-11-20T07:00:00Z"));
    assert!(matches!(follower.poll(), Some(Change::Switched(_))));
    assert_eq!(user(&engine, "bob", 1), (true, Some(99)));
}

#[test]
fn invalid_files_leave_the_schedule_in_force() {
    let clock = ManualClock::at(at("2026-11-20T07:00:00Z"));
    let engine = Engine::builder(Default::default()).clock(clock.clone()).build().unwrap();
    #[derive(Debug)]
    struct Breaking(u32);
    impl RulesSource for Breaking {
        fn read(&mut self) -> Result<Vec<Source>, SourceError> {
            self.0 += 1;
            let text = if self.0 == 1 { OFFICE } else { "domain: [" };
            Ok(vec![Source { name: "shop.yaml".to_owned(), text: text.to_owned() }])
        }
        fn poll(&mut self) -> PollResult<SourceError> {
            PollResult::Same
        }
    }
    let (mut follower, _) = engine.follow(Breaking(0), Default::default()).unwrap();
    assert!(matches!(follower.reread(), Change::Refused(_)));
    clock.set(at("2026-11-20T08:00:00Z"));
    // The failed reading is repeated first.
    let changes = [follower.poll(), follower.poll()];
    assert!(
        matches!(changes, [Some(Change::Refused(_)), Some(Change::Switched(_))]),
        "{changes:?}"
    );
    assert_eq!(user(&engine, "alice", 1), (true, Some(39)));
}

const BLOCKED: &str = "domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 100/day }
    descriptors: [{ key: path, limits: { algorithm: fixed_window, rate: 10/day } }]
overrides:
  - { match: { user: eve }, block: true, until: 2026-11-20T10:00:00Z, note: credential stuffing }
  - { match: { user: probe* }, unlimited: true, until: 2026-11-20T11:00:00Z, note: load test }
  - { match: { user: acme* }, factor: 2x, until: 2026-11-20T12:00:00Z, note: sale }
  - { match: { user: acme-1 }, rule: user/path, limits: deny, until: 2026-11-20T12:00:00Z, note: crawler }
";

#[test]
fn overrides_hold_until_they_end() {
    let (engine, mut follower, clock) = followed(BLOCKED, "2026-11-20T09:00:00Z");
    assert!(!user(&engine, "eve", 1).0);
    assert!(user(&engine, "probe-7", 1_000).0);
    assert_eq!(user(&engine, "acme-1", 1), (true, Some(199)));
    assert!(!check(&engine, &[("user", "acme-1"), ("path", "/")], 1).0);
    assert_eq!(check(&engine, &[("user", "acme-2"), ("path", "/")], 1), (true, Some(19)));
    assert_eq!(user(&engine, "bob", 1), (true, Some(99)));

    clock.set(at("2026-11-20T10:00:00Z"));
    let change = follower.poll();
    // A list changed, and no rule: counters are as they were.
    let none = Reloaded { changed: 0, added: 0, removed: 0, domains: 1, same: 6 };
    assert!(matches!(change, Some(Change::Switched(found)) if found == none), "{change:?}");
    assert_eq!(user(&engine, "eve", 1), (true, Some(99)));
    clock.set(at("2026-11-20T12:00:00Z"));
    assert!(matches!(follower.poll(), Some(Change::Switched(Reloaded { removed: 4, .. }))));
    assert!(!user(&engine, "probe-7", 1_000).0);
    assert_eq!(user(&engine, "acme-1", 1), (true, Some(99)), "the counter of the rule itself");
    assert!(follower.poll().is_none());
    clock.advance(Duration::from_secs(86_400 * 365));
    assert!(follower.poll().is_none(), "nothing depends on the time any more");
}

#[cfg(feature = "explain")]
#[test]
fn explanations_name_the_override_and_the_part_of_the_schedule() {
    use sluicegate::explain::explain;

    let explained = |text: &str, name: &str| {
        let (engine, ..) = followed(text, "2026-11-20T09:30:00Z");
        let entries = [Entry::new("user", name)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        explain(&engine.snapshot(), &request, engine.now()).to_text()
    };
    let eve = explained(BLOCKED, "eve");
    let why = "now: denied: `user=eve` is on the deny list by an override: user=eve blocked until \
               2026-11-20T10:00:00Z: credential stuffing";
    assert!(eve.contains(why), "{eve}");
    let acme = explained(BLOCKED, "acme-1");
    let why = "override until 2026-11-20T12:00:00Z: sale; without it: fixed window 100/day";
    assert!(acme.contains(why), "{acme}");
    let alice = explained(OFFICE, "alice");
    let now = "now: mon-fri 09:00-18:00 Europe/Berlin, changes 2026-11-20 18:00 Europe/Berlin";
    assert!(alice.contains(now), "{alice}");
    assert!(alice.contains("at other times: fixed window 100/day"), "{alice}");
}

#[test]
fn rules_that_nothing_would_change_are_refused() {
    let error = rules_of(OFFICE).unwrap_err().to_string();
    assert!(error.contains("the rules of domain `shop` change by themselves"), "{error}");
}

#[test]
fn the_thread_of_the_follower_wakes_at_the_boundary() {
    let engine = Engine::new(Default::default()).unwrap();
    let until = show_moment(engine.now().after(sluicegate::Span::from_millis(300)));
    let text = format!(
        "domain: shop\ndescriptors: [{{ key: user, limits: {{ algorithm: fixed_window, rate: 9/day }} }}]\n\
         overrides: [{{ match: {{ user: eve }}, block: true, until: {until}, note: test }}]\n"
    );
    let (follower, _) = engine.follow(Fixed(text), Default::default()).unwrap();
    assert!(!user(&engine, "eve", 1).0);
    let (sender, changes) = std::sync::mpsc::channel();
    // It would look once a day, if nothing ended.
    let following = follower.start(Duration::from_secs(86_400), move |change| {
        let _ = sender.send(matches!(change, Change::Switched(_)));
    });
    let following = following.unwrap();
    assert_eq!(changes.recv_timeout(Duration::from_secs(60)), Ok(true));
    assert!(engine.now() >= at(&until) && user(&engine, "eve", 1).0);
    drop(following);
}
