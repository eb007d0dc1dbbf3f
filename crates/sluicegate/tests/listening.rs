//! A listener hears each decision once, as it was.

#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::sync::{Arc, Mutex};

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, FixedWindow, IntoLimit, LeakyBucket, TokenBucket};
use sluicegate::{
    Event, Limiter, Listener, Memory, Op, OpKind, Overflow, Timestamp, Together, Verdict,
};
use sluicegate_core::algorithm::concurrency::Holder;
use support::{Polled, SECOND};

/// What was heard: the operation, the key, the cost.
type Heard = (OpKind, Option<String>, u64);

#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<Heard>>,
    last: Mutex<Option<(String, Verdict, Timestamp, bool)>>,
}

impl Listener for Ear {
    fn decided(&self, event: &Event<'_>) {
        let key = event.key.map(|key| String::from_utf8(key.to_vec()).unwrap());
        self.heard.lock().unwrap().push((event.op, key, event.cost));
        let last = (event.limiter.to_owned(), *event.verdict, event.now, event.overflowed);
        *self.last.lock().unwrap() = Some(last);
    }
}

impl Ear {
    /// What was heard since the last time.
    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn last(&self) -> (String, Verdict, Timestamp, bool) {
        self.last.lock().unwrap().clone().unwrap()
    }
}

fn with_ear(limit: impl IntoLimit, clock: &ManualClock) -> (Arc<Ear>, Limiter) {
    let ear = Arc::new(Ear::default());
    let builder = Limiter::builder().name("uploads").limit(limit).listener(ear.clone());
    (ear, builder.clock(clock.clone()).build().unwrap())
}

fn alice(op: OpKind, cost: u64) -> Heard {
    (op, Some("alice".into()), cost)
}

/// What only the limiter's own record is left of. To give up has no cost of its own.
fn nameless(op: OpKind, cost: u64) -> Heard {
    (op, None, cost)
}

#[test]
fn every_question_is_heard_once() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(TokenBucket::per_hour(100), &clock);
    let ask = limiter.of("alice").cost(3);
    limiter.hit("alice");
    limiter.hit_at("alice", limiter.now());
    ask.hit();
    ask.id("request 7").hit();
    let _ = ask.peek();
    assert_eq!(
        ear.heard(),
        [
            alice(OpKind::Hit, 1),
            alice(OpKind::Hit, 1),
            alice(OpKind::Hit, 3),
            alice(OpKind::Hit, 3),
            alice(OpKind::Peek, 3),
        ]
    );
    ask.take().unwrap();
    ask.charge().unwrap();
    ask.refund().unwrap();
    ask.add().unwrap();
    assert_eq!(
        ear.heard(),
        [OpKind::Take, OpKind::Charge, OpKind::Refund, OpKind::ForceAdd].map(|op| alice(op, 3))
    );
    ask.drain().unwrap();
    ask.reset().unwrap();
    let ops: Vec<OpKind> = ear.heard().into_iter().map(|(op, ..)| op).collect();
    assert_eq!(ops, [OpKind::Drain, OpKind::Reset]);
}

#[test]
fn what_is_heard_is_what_was_said() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(FixedWindow::per_hour(2), &clock);
    for _ in 0..4 {
        clock.advance(SECOND);
        let verdict = limiter.hit("alice");
        assert_eq!(ear.last(), ("uploads".into(), verdict, limiter.now(), false));
    }
    let then = limiter.now().after(sluicegate::Span::from_secs(7200));
    let verdict = limiter.of("alice").at(then).hit();
    assert_eq!(ear.last(), ("uploads".into(), verdict, then, false));
}

#[test]
fn what_is_refused_was_not_decided() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(Concurrency::at_most(1), &clock);
    assert!(limiter.of("alice").charge().is_err());
    assert!(limiter.of("alice").take().is_err());
    assert!(ear.heard().is_empty());
}

// === guards ===

#[test]
fn a_permit_is_heard_when_it_is_taken_and_when_it_is_given_back() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(Concurrency::at_most(3), &clock);
    let permit = limiter.of("alice").cost(2).permit().unwrap();
    assert_eq!(ear.heard(), [alice(OpKind::Hit, 2)]);
    assert!(limiter.of("alice").cost(2).permit().is_err());
    assert_eq!(ear.heard(), [alice(OpKind::Hit, 2)], "a denial too");
    drop(permit);
    assert_eq!(ear.heard(), [nameless(OpKind::Cancel, 0)]);
}

#[test]
fn a_reservation_is_heard_when_it_is_made_and_when_it_is_settled() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(TokenBucket::per_hour(100), &clock);
    let reservation = limiter.of("alice").cost(30).reserve().unwrap();
    drop(limiter.of("alice").cost(5).reserve().unwrap());
    assert_eq!(
        ear.heard(),
        [alice(OpKind::Reserve, 30), alice(OpKind::Reserve, 5), nameless(OpKind::Cancel, 0)]
    );
    let verdict = reservation.commit(12).unwrap();
    assert_eq!(ear.last().1, verdict);
    assert_eq!(ear.heard(), [nameless(OpKind::Commit, 12)], "with what was used");
}

#[test]
fn an_operation_is_heard_with_its_own_cost() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(TokenBucket::per_hour(100), &clock);
    limiter.of("alice").cost(3).ask(Op::Charge { cost: 40 }).unwrap();
    assert_eq!(ear.heard(), [alice(OpKind::Charge, 40)]);
}

#[test]
fn a_turn_is_heard_when_it_is_booked_and_when_it_is_given_up() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(LeakyBucket::per_second(1).queue(5), &clock);
    limiter.hit("alice");
    let booked = [alice(OpKind::Hit, 1), alice(OpKind::Acquire, 1)];
    let ask = limiter.of("alice");
    let mut waiting = Polled::new(ask.acquire());
    assert!(waiting.waits());
    assert_eq!(ear.heard(), booked);
    assert!(waiting.waits() && ear.heard().is_empty(), "to wait is not to ask");
    clock.advance(SECOND);
    assert!(waiting.done().is_ok());
    drop(waiting);
    assert!(ear.heard().is_empty(), "that a turn has come is no decision");

    drop(limiter.of("alice").book().unwrap());
    assert_eq!(ear.heard(), [alice(OpKind::Acquire, 1), nameless(OpKind::Cancel, 0)]);
    assert!(limiter.of("alice").within(std::time::Duration::ZERO).acquire_blocking().is_err());
    assert_eq!(ear.heard(), [alice(OpKind::Acquire, 1)], "denied, and nothing to give up");
}

// === batches, and several limiters ===

#[test]
fn a_batch_is_heard_key_by_key() {
    let clock = ManualClock::new();
    let (ear, limiter) = with_ear(FixedWindow::per_hour(1), &clock);
    let keys: Vec<String> = (0..40).map(|user| format!("user:{}", user % 20)).collect();
    let mut said = Vec::new();
    limiter.hit_batch(&keys, |_, verdict| {
        assert_eq!(ear.last().1, verdict, "before the caller is told");
        said.push(verdict);
    });
    let expected: Vec<Heard> = keys.iter().map(|key| (OpKind::Hit, Some(key.clone()), 1)).collect();
    assert_eq!(ear.heard(), expected);
}

#[test]
fn a_decision_of_several_is_heard_by_each_about_its_own_key() {
    let clock = ManualClock::new();
    let (first, one) = with_ear(FixedWindow::per_hour(9), &clock);
    let (second, two) = with_ear(TokenBucket::per_hour(5), &clock);
    let request = Together::new().and(&one, "alice").and(&two, "bob").cost(3);
    let verdict = request.hit();
    let as_reported = |decided_by| Verdict { decided_by, ..verdict };
    assert_eq!(verdict.decided_by, Some(1));
    assert_eq!(first.last().1, as_reported(None), "it was none of its own limits");
    assert_eq!(second.last().1, as_reported(Some(0)), "the first of its own");
    let denied = request.hit();
    assert_eq!((denied.is_allowed(), denied.decided_by), (false, Some(1)));
    assert_eq!(
        first.last().1,
        as_reported(None),
        "a denial is reported by the limiter that denied"
    );
    assert_eq!(second.last().1, Verdict { decided_by: Some(0), ..denied });
    let _ = request.peek();
    request.ask(Op::Charge { cost: 40 }).unwrap();
    assert!(request.ask(Op::Commit { cost: 1, holder: Holder(1) }).is_err());
    let of = |key: &str, op, cost| (op, Some(key.to_owned()), cost);
    let alice = |op, cost| of("alice", op, cost);
    assert_eq!(first.heard(), [alice(OpKind::Hit, 3), alice(OpKind::Charge, 40)]);
    let bob = |op, cost| of("bob", op, cost);
    let hits = [bob(OpKind::Hit, 3), bob(OpKind::Hit, 3)];
    assert_eq!(second.heard()[..2], hits);
}

// === no room ===

#[test]
fn what_the_policy_answered_is_marked() {
    for overflow in [Overflow::Shared, Overflow::Deny, Overflow::Allow] {
        let (clock, ear) = (ManualClock::new(), Arc::new(Ear::default()));
        let limiter = Limiter::builder()
            .limit(FixedWindow::per_hour(5))
            .clock(clock.clone())
            .memory(&Memory::with_entries(1))
            .overflow(overflow)
            .listener(ear.clone())
            .build()
            .unwrap();
        limiter.hit("alice");
        assert!(!ear.last().3);
        let verdict = limiter.hit("bob");
        assert_eq!(ear.last(), (String::new(), verdict, limiter.now(), true), "{overflow:?}");
        limiter.of("bob").cost(2).hit();
        assert!(ear.last().3);
        drop(limiter.of("bob").reserve());
        assert!(ear.last().3);
        limiter.hit("alice");
        assert!(!ear.last().3, "there is room for who is known");
        let hits = ear.heard().iter().filter(|(op, ..)| *op == OpKind::Hit).count();
        assert_eq!(hits, 4, "each once");
    }
}

#[test]
fn a_listener_may_ask_its_own_limiter() {
    struct Curious(std::sync::OnceLock<Limiter>);
    impl Listener for Curious {
        fn decided(&self, event: &Event<'_>) {
            if event.op == OpKind::Hit {
                let peek = self.0.get().unwrap().of("alice").peek();
                assert_eq!(peek.remaining, event.verdict.remaining, "no lock is held");
            }
        }
    }
    let curious = Arc::new(Curious(std::sync::OnceLock::new()));
    let builder = Limiter::builder().limit(FixedWindow::per_hour(3)).listener(curious.clone());
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    curious.0.set(limiter.clone()).unwrap();
    limiter.hit("alice");
    limiter.of("alice").cost(2).hit();
}
