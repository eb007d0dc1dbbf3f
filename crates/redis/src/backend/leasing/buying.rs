//! The calls behind leases: buying, giving back, renewing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::lease::Leases;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use tokio::sync::mpsc;

use super::lease::{Bought, View};
use super::{Due, Inner, Seat};
use crate::CallError;
use crate::backend::levels::{add, take};
use crate::script::{LeaseOutcome, LeaseRequest};
use sluicegate::backend::UNCOUNTED;

/// The most of one call.
const ASKS_MAX: usize = 16;
/// How many calls are under way at a time.
const CALLS_MAX: usize = 8;
/// How often seats are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// In how many looks what was asked for counts half.
const LOOKS_TO_HALF: u64 = 5;
/// How long a node that stops waits for its calls.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes the calls that are due, until nobody can want any more.
pub(super) async fn buy(leases: Weak<Inner>, mut due: mpsc::UnboundedReceiver<Due>) {
    let mut fresh = Vec::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            came = due.recv_many(&mut fresh, ASKS_MAX), if under_way.len() < CALLS_MAX => {
                let Some(inner) = leases.upgrade().filter(|_| came > 0) else { return };
                for batch in by_slot(&inner, std::mem::take(&mut fresh)) {
                    under_way.push(make(inner.clone(), batch));
                }
            }
        }
    }
}

/// Calls that may go together.
fn by_slot(inner: &Inner, all: Vec<Due>) -> Vec<Vec<Due>> {
    let mut batches: Vec<(Option<u16>, Vec<Due>)> = Vec::new();
    for due in all {
        let slot = inner.store.slot_of(&due.ask.key);
        match batches.iter_mut().find(|(of, _)| *of == slot) {
            Some((_, batch)) => batch.push(due),
            None => batches.push((slot, vec![due])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

async fn make(inner: Arc<Inner>, batch: Vec<Due>) {
    let (hashes, asks): (Vec<u64>, Vec<LeaseRequest>) =
        batch.into_iter().map(|due| (due.hash, due.ask)).unzip();
    let sent = inner.clock.ticks();
    let told = inner.store.lease(&asks).await;
    let heard = inner.clock.ticks();
    match told {
        Ok(told) => {
            for ((hash, ask), told) in hashes.into_iter().zip(&asks).zip(told) {
                inner.heard(hash, ask, Ok(told), sent, heard);
            }
        }
        Err(error) => {
            for (hash, ask) in hashes.into_iter().zip(&asks) {
                inner.heard(hash, ask, Err(&error), sent, heard);
            }
        }
    }
    inner.answered.notify_waiters();
}

/// Gives back what nobody needs, and renews what is about to run out; until it is dropped.
pub(super) async fn look_after(leases: Weak<Inner>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0u64;
    loop {
        every.tick().await;
        let Some(inner) = leases.upgrade() else { return };
        looks += 1;
        if looks.is_multiple_of(LOOKS_TO_HALF) {
            inner.sketch.halve();
        }
        inner.look_at_all();
    }
}

/// Says what is held, whenever the store may have forgotten it; until it is dropped.
pub(super) async fn say_again(leases: Weak<Inner>) {
    let Some(mut changes) = leases.upgrade().map(|inner| inner.store.link().epoch_changes()) else {
        return;
    };
    while changes.changed().await.is_ok() {
        let Some(inner) = leases.upgrade() else { return };
        let ticks = inner.clock.ticks();
        inner.for_each(|seat| seat.lease.says_again(&inner.serials, ticks));
    }
}

/// Gives everything back: first what calls under way bring is waited for.
pub(super) async fn close(inner: &Arc<Inner>) {
    inner.is_closing.store(true, Ordering::SeqCst);
    let given = async {
        inner.until_nothing_is_called().await;
        let ticks = inner.clock.ticks();
        inner.for_each(|seat| seat.lease.gives_all(&inner.serials, ticks));
        inner.until_nothing_is_called().await;
    };
    // A store that is away gets nothing back: it forgets the leases by itself.
    let _ = tokio::time::timeout(PATIENCE, given).await;
}

// === impl Inner ===

impl Inner {
    /// What became of a call.
    fn heard(
        &self,
        hash: u64,
        ask: &LeaseRequest,
        told: Result<LeaseOutcome, &CallError>,
        sent: Timestamp,
        heard: Timestamp,
    ) {
        let mut shard = self.shard(hash).lock();
        let seat = shard.get_mut(&hash).filter(|seat| *seat.key == *ask.key);
        // Of a seat that was given up meanwhile.
        let Some(seat) = seat else { return };
        if told.as_ref().is_err_and(|error| error.may_have_executed()) {
            seat.lease.unanswered(ask.serial, heard);
            seat.count();
            return;
        }
        let Some(asked) = seat.lease.answers(ask.serial) else { return };
        add(&seat.counters.lease_calls, 1);
        match told {
            Ok(LeaseOutcome::Granted { now, granted, until, kept, account, lapsed, .. }) => {
                seat.lease.lapsed(lapsed);
                let lasts = until.since(now);
                let is_last = until < now.after(ask.ttl);
                let bought = Bought { granted, lasts, kept, is_last };
                seat.lease.bought(asked, bought, sent, heard);
                let (steps, held) = (ask.rule.steps(), seat.lease.unspent());
                seat.lease.sees(view(&account, steps, held, now, heard));
                // Bought from a record that lacks what nodes have admitted without the store.
                if granted > 0 && self.store.is_local_mode() {
                    let numbers = seat.lease.returns(granted, &self.serials);
                    self.call(seat, hash, numbers);
                }
            }
            Ok(LeaseOutcome::Stale | LeaseOutcome::Unsupported) | Err(_) => {
                seat.lease.failed(asked, heard);
            }
        }
        seat.count();
    }

    fn look_at_all(&self) {
        let ticks = self.clock.ticks();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (hash, seat) in shard.iter_mut() {
                if let Some(numbers) = seat.lease.looks_after(&self.serials, ticks) {
                    self.call(seat, *hash, numbers);
                }
                seat.count();
            }
            let over: Vec<u64> = shard
                .iter()
                .filter(|(_, seat)| seat.lease.is_over(ticks))
                .map(|(hash, _)| *hash)
                .collect();
            for hash in over {
                if let Some(seat) = shard.remove(&hash) {
                    self.seats.fetch_sub(1, Ordering::Relaxed);
                    add(&seat.counters.demoted, 1);
                    take(&seat.counters.leases, 1);
                }
            }
        }
    }

    fn for_each(&self, mut call: impl FnMut(&mut Seat) -> Option<super::Numbers>) {
        for shard in &self.shards {
            for (hash, seat) in shard.lock().iter_mut() {
                if let Some(numbers) = call(seat) {
                    self.call(seat, *hash, numbers);
                }
            }
        }
    }

    async fn until_nothing_is_called(&self) {
        loop {
            let answered = self.answered.notified();
            let is_called = |seat: &Seat| seat.lease.is_called();
            if !self.shards.iter().any(|shard| shard.lock().values().any(is_called)) {
                return;
            }
            answered.await;
        }
    }
}

/// How an account stands if everything that is held were given back, and what each that is spent changes.
fn view(
    account: &Account,
    steps: &[EnforcedLimit],
    held: u64,
    now: Timestamp,
    heard: Timestamp,
) -> View {
    let look = |account: &mut Account| {
        let said = account.apply(steps, Op::Peek { cost: 0 }, Moment::at(now));
        said.map_or(UNCOUNTED, |answer| answer.verdict)
    };
    // What others hold is charged already; what counts as held is not given back.
    let mut account = account.clone().with_leases(Leases::default());
    let spent = look(&mut account).reset_after;
    // Every algorithm that is leased can be given back to.
    let _ = account.apply(steps, Op::Refund { cost: held }, Moment::at(now));
    let verdict = look(&mut account);
    let slope = spent.less(verdict.reset_after).as_micros().checked_div(held).unwrap_or(0);
    View { verdict, slope, at: heard, held }
}
