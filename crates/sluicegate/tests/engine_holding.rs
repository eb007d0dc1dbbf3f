//! Requests that are reserved, and settled or cancelled later.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::time::Duration;

use engine_support::{ask_in, engine, peek, rules, told};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sluicegate::backend::{Call, ready};
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Engine, HoldError, Holder, Memory, Span};

const NATIVE: &str = "
domain: shop
deny: [{ key: user, value: mallory }]
allow: [{ key: user, value: root }]
descriptors:
  - key: user
    limits: { algorithm: token_bucket, rate: 10/day, burst: 100 }
  - key: tenant
    limits: { algorithm: fixed_window, rate: 50/day }
  - key: weighty
    cost: 5
    limits: { algorithm: fixed_window, rate: 100/day }
  - key: calls
    limits: { algorithm: concurrency, max: 1, lease: 30s }
  - key: address
    rate_limit: { unit: day, requests_per_unit: 100 }
";

const A_MINUTE: Span = Span::from_secs(60);

/// With a request of so many hits, and what they have left.
fn with(
    text: &str,
    hits: u64,
    then: impl FnOnce(&Request<'_>, &mut Checked) -> Result<u64, HoldError>,
) -> Result<(u64, String), HoldError> {
    let mut result = Ok(0);
    let checked = ask_in("shop", text, |request| {
        let mut checked = Checked::default();
        result = then(&Request { hits, ..*request }, &mut checked);
        checked
    });
    result.map(|returned| (returned, told(&checked)))
}

fn reserve(engine: &Engine, text: &str, hits: u64, id: u64) -> Result<String, HoldError> {
    let said = with(text, hits, |request, checked| {
        let rules = engine.snapshot();
        ready(engine.reserve(
            Call::new(&rules, request, engine.now()),
            Holder(id),
            A_MINUTE,
            checked,
        ))
        .unwrap()
        .map(|()| 0)
    });
    said.map(|(_, told)| told)
}

fn commit(engine: &Engine, text: &str, used: u64, id: u64) -> Result<(u64, String), HoldError> {
    with(text, used, |request, checked| {
        ready(engine.commit(engine.call(&engine.snapshot(), request), Holder(id), checked)).unwrap()
    })
}

fn cancel(engine: &Engine, text: &str, id: u64) -> Result<(u64, String), HoldError> {
    with(text, 1, |request, checked| {
        ready(engine.cancel(engine.call(&engine.snapshot(), request), Holder(id), checked)).unwrap()
    })
}

fn ok<T>(returned: u64, told: &str) -> Result<(u64, String), T> {
    Ok((returned, told.to_owned()))
}

#[test]
fn what_was_not_used_is_given_back_by_every_limit() {
    let (engine, _) = engine(NATIVE);
    let who = "user=a | tenant=t";
    assert_eq!(reserve(&engine, who, 40, 7).unwrap(), "yes 60 10");
    assert_eq!(commit(&engine, who, 15, 7), ok(25, "yes 85 35"));
    assert_eq!(commit(&engine, who, 15, 7), Err(HoldError::Unknown), "once");
    assert_eq!(cancel(&engine, who, 7), Err(HoldError::Unknown));
}

#[test]
fn what_was_used_beyond_is_charged_into_debt() {
    let (engine, _) = engine(NATIVE);
    reserve(&engine, "tenant=t", 10, 7).unwrap();
    assert_eq!(commit(&engine, "tenant=t", 70, 7), ok(0, "yes -20"));
}

fn commit_part(engine: &Engine, text: &str, used: u64, id: u64) -> Result<u64, HoldError> {
    let said = with(text, used, |request, checked| {
        let rules = engine.snapshot();
        let call = Call::new(&rules, request, engine.now());
        ready(engine.commit_part(call, Holder(id), checked)).unwrap()
    });
    said.map(|(held, _)| held)
}

fn renew(engine: &Engine, text: &str, ttl: Span, id: u64) -> Result<Span, HoldError> {
    let said = with(text, 1, |request, checked| {
        let rules = engine.snapshot();
        let call = Call::new(&rules, request, engine.now());
        let renewed = ready(engine.renew(call, Holder(id), ttl, checked)).unwrap();
        renewed.map(Span::as_micros)
    });
    said.map(|(micros, _)| Span::from_micros(micros))
}

#[test]
fn a_long_stream_commits_in_parts() {
    let (engine, clock) = engine(NATIVE);
    let who = "user=a | tenant=t";
    reserve(&engine, who, 40, 7).unwrap();
    assert_eq!(commit_part(&engine, who, 10, 7), Ok(30));
    clock.advance(Duration::from_secs(50));
    assert_eq!(renew(&engine, who, A_MINUTE, 7), Ok(A_MINUTE));
    clock.advance(Duration::from_secs(50));
    assert_eq!(commit_part(&engine, who, 5, 7), Ok(25), "renewed");
    assert_eq!(commit(&engine, who, 5, 7).unwrap().0, 20);
    assert_eq!(peek(&engine, "tenant=t"), "yes 30");
    assert_eq!(commit_part(&engine, who, 5, 7), Err(HoldError::Unknown));
    assert_eq!(renew(&engine, who, A_MINUTE, 7), Err(HoldError::Unknown));
    // What has expired is not renewed.
    reserve(&engine, who, 20, 8).unwrap();
    clock.advance(Duration::from_secs(61));
    assert_eq!(renew(&engine, who, A_MINUTE, 8), Err(HoldError::Expired));
    assert_eq!(peek(&engine, "tenant=t"), "yes 30");
}

#[test]
fn a_slot_is_renewed_for_its_lease() {
    let (engine, clock) = engine(NATIVE);
    let who = "tenant=t | calls=x";
    reserve(&engine, who, 1, 7).unwrap();
    clock.advance(Duration::from_secs(29));
    assert_eq!(renew(&engine, who, A_MINUTE, 7), Ok(Span::from_secs(30)));
    clock.advance(Duration::from_secs(29));
    assert_eq!(peek(&engine, "calls=x"), "no 0!");
    assert_eq!(commit_part(&engine, who, 1, 7), Ok(0));
    assert_eq!(peek(&engine, "calls=x"), "no 0!", "a partial commit keeps the slot");
    assert_eq!(commit(&engine, who, 0, 7).unwrap().1, "yes 49 1");
}

#[test]
fn a_denied_reservation_takes_nothing_and_holds_nothing() {
    let (engine, _) = engine(NATIVE);
    let who = "user=a | tenant=t";
    assert_eq!(reserve(&engine, who, 60, 7).unwrap(), "no 100 50!");
    assert_eq!(peek(&engine, who), "yes 100 50");
    assert_eq!(cancel(&engine, who, 7), Err(HoldError::Unknown));
}

#[test]
fn a_cancelled_reservation_never_was() {
    let (engine, _) = engine(NATIVE);
    let who = "user=a | tenant=t";
    reserve(&engine, who, 40, 7).unwrap();
    assert_eq!(cancel(&engine, who, 7), ok(40, "yes 100 50"));
}

#[test]
fn it_runs_out_by_itself_and_a_late_commit_is_charged_in_full() {
    let (engine, clock) = engine(NATIVE);
    reserve(&engine, "tenant=t", 40, 7).unwrap();
    clock.advance(Duration::from_secs(59));
    assert_eq!(peek(&engine, "tenant=t"), "yes 10");
    clock.advance(Duration::from_secs(1));
    assert_eq!(peek(&engine, "tenant=t"), "yes 50");
    assert_eq!(commit(&engine, "tenant=t", 15, 7), ok(0, "yes 35"));
}

#[test]
fn a_rules_cost_counts_on_both_sides() {
    let (engine, _) = engine(NATIVE);
    assert_eq!(reserve(&engine, "weighty=w", 10, 7).unwrap(), "yes 50");
    assert_eq!(commit(&engine, "weighty=w", 4, 7), ok(30, "yes 80"));
}

#[test]
fn a_descriptor_with_hits_of_its_own_is_settled_with_them() {
    let (engine, _) = engine(NATIVE);
    let who = "user=a | calls=c x1";
    assert_eq!(reserve(&engine, who, 40, 7).unwrap(), "yes 60 0");
    assert_eq!(reserve(&engine, who, 1, 8).unwrap(), "no 60 0!", "the slot is in use");
    assert_eq!(commit(&engine, who, 15, 7), ok(25, "yes 85 1"));
    assert_eq!(reserve(&engine, who, 1, 8).unwrap(), "yes 84 0");
    assert_eq!(cancel(&engine, who, 8), ok(1, "yes 85 1"));
    assert_eq!(reserve(&engine, "calls=c", 1, 9).unwrap(), "yes 0");
    assert_eq!(cancel(&engine, "calls=c", 9), ok(1, "yes 1"), "of a slot alone, that it is free");
}

#[test]
fn who_is_named_twice_is_held_once_with_the_most() {
    let (engine, _) = engine(NATIVE);
    let who = "tenant=t x5 | tenant=t x8";
    assert_eq!(reserve(&engine, who, 1, 7).unwrap(), "yes 42 42");
    assert_eq!(cancel(&engine, who, 7), ok(8, "yes 50 50"));
}

#[test]
fn what_counts_at_once_cannot_be_held_and_nothing_is_charged() {
    let (engine, _) = engine(NATIVE);
    for who in ["tenant=t | address=x", "tenant=t | user=a limit=5/minute"] {
        let refused = Err(HoldError::CountsAtOnce { descriptor: 1 });
        assert_eq!(reserve(&engine, who, 5, 7), refused);
    }
    assert_eq!(peek(&engine, "tenant=t | address=x"), "yes 50 100");
    let text = HoldError::CountsAtOnce { descriptor: 1 }.to_string();
    assert!(text.starts_with("descriptors[1] is under a limit in Envoy's form"), "{text}");
}

#[test]
fn what_nothing_limits_is_settled_without_a_word() {
    let (engine, _) = engine(NATIVE);
    assert_eq!(reserve(&engine, "nobody=x", 5, 7).unwrap(), "yes -");
    assert_eq!(commit(&engine, "nobody=x", 5, 7), ok(0, "yes -"));
    assert_eq!(
        reserve(&engine, "user=root", 500, 7).unwrap(),
        "yes -",
        "on the list of the allowed"
    );
    assert_eq!(commit(&engine, "user=root", 500, 7), ok(0, "yes -"));
    assert_eq!(reserve(&engine, "user=mallory", 1, 7).unwrap(), "no -!");
}

#[test]
fn rules_that_came_later_have_nothing_to_settle() {
    let (engine, _) = engine(NATIVE);
    let who = "user=a | later=l";
    assert_eq!(reserve(&engine, who, 40, 7).unwrap(), "yes 60 -");
    let more =
        format!("{NATIVE}  - key: later\n    limits: {{ algorithm: fixed_window, rate: 9/day }}\n");
    engine.reload(rules(&more)).unwrap();
    assert_eq!(commit(&engine, who, 15, 7), ok(25, "yes 85 9"));
}

#[test]
fn a_quota_that_agreed_holds_nothing_for_a_request_that_is_denied() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - key: quota
    quota_mode: true
    limits: { algorithm: fixed_window, rate: 10/day }
  - key: user
    limits: { algorithm: fixed_window, rate: 3/day }
",
    );
    assert_eq!(reserve(&engine, "quota=q | user=a", 5, 7).unwrap(), "no 5 3!");
    assert_eq!(peek(&engine, "quota=q"), "yes 10");
    assert_eq!(reserve(&engine, "quota=q | user=a", 2, 7).unwrap(), "yes 8 1");
    assert_eq!(commit(&engine, "quota=q | user=a", 1, 7), ok(1, "yes 9 2"));
}

#[test]
fn reservations_are_counted_as_hits_are() {
    let (engine, _) = engine(NATIVE);
    reserve(&engine, "tenant=t", 40, 7).unwrap();
    reserve(&engine, "tenant=t", 40, 8).unwrap();
    let rules = engine.snapshot();
    let no = rules.rules().rules().find(|no| rules.rules().id(*no).contains("tenant")).unwrap();
    let stats = rules.stats(no);
    assert_eq!((stats.total_hits, stats.within_limit, stats.over_limit), (80, 40, 40));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is reserved and settled, in whatever order: what is left is the quota less what was used or is still held.
    #[test]
    fn nothing_is_lost_and_nothing_is_won(
        deeds in prop::collection::vec((0u64..6, 0u64..30, 0u8..3), 1..40),
    ) {
        let (engine, _) = engine(NATIVE);
        let (mut held, mut used) = ([None::<u64>; 6], 0i64);
        for (id, amount, deed) in deeds {
            let who = "tenant=t | user=a";
            match (deed, held[id as usize]) {
                (0, None) => {
                    let said = reserve(&engine, who, amount, id).unwrap();
                    if said.starts_with("yes") {
                        held[id as usize] = Some(amount);
                    }
                }
                (0, Some(_)) => prop_assert!(reserve(&engine, who, amount, id).is_err()),
                (1, Some(_)) => {
                    commit(&engine, who, amount, id).unwrap();
                    held[id as usize] = None;
                    used += amount as i64;
                }
                (2, Some(reserved)) => {
                    prop_assert_eq!(cancel(&engine, who, id).unwrap().0, reserved);
                    held[id as usize] = None;
                }
                _ => prop_assert_eq!(commit(&engine, who, amount, id), Err(HoldError::Unknown)),
            }
            let pending: u64 = held.iter().flatten().sum();
            let spent = used + pending as i64;
            let due = format!("yes {} {}", 50 - spent, 100 - spent);
            prop_assert_eq!(peek(&engine, "tenant=t x0 | user=a x0"), due);
        }
    }
}

#[test]
fn it_survives_a_restart() {
    let clock = ManualClock::new();
    let file = std::env::temp_dir().join(format!("sluicegate-holding-{}", std::process::id()));
    let memory = Memory::new();
    let before =
        Engine::builder(rules(NATIVE)).memory(&memory).clock(clock.clone()).build().unwrap();
    let who = "user=a | calls=c x1";
    assert_eq!(reserve(&before, who, 40, 7).unwrap(), "yes 60 0");
    memory.save(&file).unwrap();

    let memory = Memory::restore(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let after = Engine::builder(rules(NATIVE)).memory(&memory).clock(clock).build().unwrap();
    assert_eq!(peek(&after, who), "no 60 0!");
    assert_eq!(commit(&after, who, 15, 7).unwrap().1, "yes 85 1");
}

#[test]
fn whoever_has_no_room_reserves_with_the_others_who_have_none() {
    let memory = Memory::with_entries(1);
    let engine = Engine::builder(rules(NATIVE)).memory(&memory).build().unwrap();
    assert_eq!(reserve(&engine, "tenant=a", 10, 1).unwrap(), "yes 40");
    assert_eq!(reserve(&engine, "tenant=b", 10, 2).unwrap(), "yes 40");
    assert_eq!(reserve(&engine, "tenant=c", 10, 3).unwrap(), "yes 30", "beside b");
    assert_eq!(commit(&engine, "tenant=c", 4, 3), ok(6, "yes 36"));
    assert_eq!(cancel(&engine, "tenant=b", 2), ok(10, "yes 46"));
    assert_eq!(commit(&engine, "tenant=a", 0, 1), ok(10, "yes 50"));
}
