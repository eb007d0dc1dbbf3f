//! How limits stand, and making them as new.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::time::Duration;

use engine_support::{ask, check, engine, peek, rules, told};
use sluicegate::backend::ready;
use sluicegate::rules::request::{Override, Request};
use sluicegate::rules::unit::Unit;
use sluicegate::{Checked, Engine, Inspected, Memory, Policy, Snapshot, Span};

const RULES: &str = "
domain: shop
deny: [{ key: ip, value: 192.0.2.1 }]
descriptors:
  - key: user
    limits:
      - { name: burst, algorithm: token_bucket, rate: 1/m, burst: 3 }
      - { name: daily, algorithm: fixed_window, rate: 10/day }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: named
    rate_limit: { unit: day, requests_per_unit: 5, name: logins }
    shadow_mode: true
  - key: slots
    limits: { algorithm: concurrency, max: 2, lease: 60s }
  - key: free
    rate_limit: { unlimited: true }
  - key: ip
    limits: { algorithm: fixed_window, rate: 1/day }
  - key: closed
    rate_limit: { unit: day, requests_per_unit: 0 }
";

fn inspect(engine: &Engine, text: &str) -> Vec<Inspected> {
    let mut inspected = Vec::new();
    ask(text, |request: &Request<'_>| {
        inspected =
            ready(engine.inspect(engine.call(&engine.snapshot(), request))).unwrap().unwrap();
        Checked::default()
    });
    inspected
}

fn reset(engine: &Engine, text: &str) -> String {
    told(&ask(text, |request| engine.reset(request)))
}

/// `name left retry`, for each limit of each descriptor.
fn stands(engine: &Engine, text: &str) -> Vec<Vec<String>> {
    let limit = |limit: &sluicegate::LimitState| {
        let left = limit.remaining.map_or("-".to_owned(), |left| left.to_string());
        let wait = match limit.retry_after {
            Some(wait) => format!("{}s", wait.as_micros() / 1_000_000),
            None => if limit.allowed { "now" } else { "never" }.to_owned(),
        };
        format!("{} {left} {wait}", limit.policy.name)
    };
    inspect(engine, text).iter().map(|one| one.limits.iter().map(limit).collect()).collect()
}

// === inspecting ===

#[test]
fn every_limit_says_how_it_stands_and_nothing_is_counted() {
    let (engine, clock) = engine(RULES);
    assert_eq!(stands(&engine, "user=a"), [["burst 3 now", "daily 10 now"]]);
    check(&engine, "user=a x3");
    for _ in 0..3 {
        assert_eq!(stands(&engine, "user=a x9"), [["burst 0 60s", "daily 7 now"]]);
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(stands(&engine, "user=a"), [["burst 1 now", "daily 7 now"]]);
    assert_eq!(check(&engine, "user=a"), "yes 0");
    let [one] = inspect(&engine, "user=a").try_into().unwrap();
    assert_eq!(one.limits[0].reset_after, Span::from_secs(180));
}

#[test]
fn descriptors_come_in_their_order() {
    let (engine, _) = engine(RULES);
    check(&engine, "tenant=t x7");
    let all = stands(&engine, "free=f | tenant=t | nobody=n | slots=s | closed=c");
    let due: [&[&str]; 5] =
        [&[], &["shop/tenant 0 3600s"], &[], &["concurrency 2 now"], &["shop/closed 0 never"]];
    assert_eq!(all, due);
}

#[test]
fn limits_that_come_with_a_request_stand_by_what_came() {
    let (engine, _) = engine(RULES);
    check(&engine, "tenant=t x4 limit=5/minute");
    assert_eq!(stands(&engine, "tenant=t limit=5/minute"), [["override 1 now"]]);
    assert_eq!(stands(&engine, "tenant=t limit=4/minute"), [["override 0 60s"]]);
    assert_eq!(stands(&engine, "tenant=t limit=0/minute"), [["override 0 never"]]);
    assert_eq!(stands(&engine, "tenant=t"), [["shop/tenant 5 now"]]);
}

#[test]
fn whoever_has_no_room_is_shown_what_it_shares() {
    let text = "{ domain: shop, descriptors: [{ key: u, limits: { algorithm: fixed_window, rate: 5/day } }] }";
    let memory = Memory::with_entries(1);
    let clock = sluicegate::clock::ManualClock::new();
    let engine = Engine::builder(rules(text)).memory(&memory).clock(clock).build().unwrap();
    assert_eq!(check(&engine, "u=first"), "yes 4");
    assert_eq!(check(&engine, "u=second x3"), "yes 2");
    assert_eq!(stands(&engine, "u=first"), [["fixed_window 4 now"]]);
    assert_eq!(stands(&engine, "u=third"), [["fixed_window 2 now"]]);
}

#[test]
fn policies_are_in_the_order_that_verdicts_name_them_by() {
    let (engine, _) = engine(RULES);
    check(&engine, "user=a x3");
    let denied = ask("user=a", |request| engine.check(request));
    let snapshot = engine.snapshot();
    let named = |way: &str| {
        let no = snapshot.rules().rules().find(|no| snapshot.rules().path_of(*no) == way);
        snapshot.policies(no.unwrap())
    };
    let decided_by = denied.statuses[0].verdict.decided_by.unwrap();
    assert_eq!(named("shop/user")[decided_by].name, "burst");
    let hour = Some(Span::from_secs(3_600));
    let due = Policy {
        name: "shop/tenant".to_owned(),
        algorithm: "tally",
        quota: Some(5),
        window: hour,
        enforced: true,
    };
    assert_eq!(named("shop/tenant"), [due]);
    let logins = &named("shop/named")[0];
    assert_eq!((logins.name.as_str(), logins.enforced), ("logins", false));
    assert!(named("shop/free").is_empty());
    let limit = Override { requests_per_unit: 5, unit: Unit::Hour };
    let policy = Snapshot::override_policy(limit);
    assert_eq!((policy.quota, policy.window), (Some(5), hour));
}

#[test]
fn a_rule_that_is_called_something_else_is_told_by_its_new_name() {
    let text = |name: &str| {
        format!(
            "{{ domain: shop, descriptors: [{{ key: u, rate_limit: {{ unit: day, requests_per_unit: 5, name: {name} }} }}] }}"
        )
    };
    let (engine, _) = engine(&text("before"));
    check(&engine, "u=a");
    assert_eq!(stands(&engine, "u=a"), [["before 4 now"]]);
    assert_eq!(engine.reload(rules(&text("after"))).unwrap().changed, 1);
    assert_eq!(stands(&engine, "u=a"), [["after 4 now"]]);
}

// === resetting ===

#[test]
fn what_is_reset_is_as_new_for_who_is_described() {
    let (engine, _) = engine(RULES);
    check(&engine, "user=a x3 | tenant=t x5");
    check(&engine, "user=b x3");
    check(&engine, "tenant=t x8");
    assert_eq!(reset(&engine, "user=a x9 | tenant=t"), "yes 3 5");
    assert_eq!(stands(&engine, "user=a"), [["burst 3 now", "daily 10 now"]]);
    assert_eq!(peek(&engine, "user=b"), "no 0!", "nobody else");
    assert_eq!(check(&engine, "tenant=t x5"), "yes 0");
    assert_eq!(
        engine.snapshot().stats(engine.snapshot().rules().rules().next().unwrap()).total_hits,
        6
    );
}

#[test]
fn limits_that_came_with_a_request_are_reset_by_one_that_has_them() {
    let (engine, _) = engine(RULES);
    check(&engine, "tenant=t x9 limit=5/minute");
    reset(&engine, "tenant=t");
    assert_eq!(peek(&engine, "tenant=t limit=5/minute"), "no 0!");
    assert_eq!(reset(&engine, "tenant=t limit=5/minute"), "yes 5");
    assert_eq!(check(&engine, "tenant=t x5 limit=5/minute"), "yes 0");
}

#[test]
fn all_slots_are_free() {
    let (engine, _) = engine(RULES);
    assert_eq!(check(&engine, "slots=s x2"), "yes 0");
    assert_eq!(check(&engine, "slots=s"), "no 0!");
    assert_eq!(reset(&engine, "slots=s | slots=s"), "yes 2 2");
    assert_eq!(check(&engine, "slots=s x2"), "yes 0");
}

#[test]
fn lists_do_not_keep_limits_from_being_reset() {
    let lists = "deny: [{ key: ip, value: 192.0.2.1 }]\n";
    let (engine, _) = engine(&RULES.replace(lists, ""));
    assert_eq!(check(&engine, "ip=192.0.2.1"), "yes 0");
    engine.reload(rules(RULES)).unwrap();
    assert_eq!(reset(&engine, "ip=192.0.2.1"), "yes 1");
    engine.reload(rules(&RULES.replace(lists, ""))).unwrap();
    assert_eq!(check(&engine, "ip=192.0.2.1"), "yes 0");
}

#[test]
fn nothing_is_kept_of_who_is_as_new() {
    let (engine, _) = engine(RULES);
    assert_eq!(reset(&engine, "user=a | free=f | nobody=n | closed=c"), "yes 3 - - 0");
    assert_eq!(engine.memory().entries(), 0);
}
