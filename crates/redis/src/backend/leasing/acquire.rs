//! Background tasks of leases: send the calls that acquire, renew and release, and re-assert leases
//! after the store lost data.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::lease::NodeLeases;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use tokio::sync::mpsc;

use super::quota_lease::{Grant, LeaseCall, LimitView};
use super::{Inner, LeasedIdentity, QueuedCall};
use crate::CallError;
use crate::backend::levels::{add, subtract};
use crate::script::{LeaseOutcome, LeaseRequest};
use sluicegate::backend::UNCOUNTED;

/// Largest number of requests per call.
const REQUESTS_MAX: usize = 16;
/// Largest number of calls in flight.
const CALLS_MAX: usize = 8;
/// Interval in which all leases are checked for renewal and release.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of checks after which the sketch is halved.
const CHECKS_PER_HALVING: u64 = 5;
/// How long a stopping node waits for its calls.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends queued calls until the leases are dropped.
pub(super) async fn send_calls(
    leases: Weak<Inner>,
    mut queue: mpsc::UnboundedReceiver<QueuedCall>,
) {
    let mut received = Vec::new();
    let mut in_flight = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
            count = queue.recv_many(&mut received, REQUESTS_MAX), if in_flight.len() < CALLS_MAX => {
                let Some(inner) = leases.upgrade().filter(|_| count > 0) else { return };
                for batch in by_slot(&inner, std::mem::take(&mut received)) {
                    in_flight.push(send(inner.clone(), batch));
                }
            }
        }
    }
}

/// Batches calls by Cluster slot.
fn by_slot(inner: &Inner, all: Vec<QueuedCall>) -> Vec<Vec<QueuedCall>> {
    let mut batches: Vec<(Option<u16>, Vec<QueuedCall>)> = Vec::new();
    for call in all {
        let slot = inner.store.slot_of(&call.request.key);
        match batches.iter_mut().find(|(of, _)| *of == slot) {
            Some((_, batch)) => batch.push(call),
            None => batches.push((slot, vec![call])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

async fn send(inner: Arc<Inner>, batch: Vec<QueuedCall>) {
    let (hashes, requests): (Vec<u64>, Vec<LeaseRequest>) =
        batch.into_iter().map(|call| (call.hash, call.request)).unzip();
    let sent = inner.clock.ticks();
    let outcomes = inner.store.lease(&requests).await;
    let received = inner.clock.ticks();
    match outcomes {
        Ok(outcomes) => {
            for ((hash, request), outcome) in hashes.into_iter().zip(&requests).zip(outcomes) {
                inner.complete(hash, request, Ok(outcome), sent, received);
            }
        }
        Err(error) => {
            for (hash, request) in hashes.into_iter().zip(&requests) {
                inner.complete(hash, request, Err(&error), sent, received);
            }
        }
    }
    inner.completed.notify_waiters();
}

/// Renews and releases leases until they are dropped.
pub(super) async fn maintain(leases: Weak<Inner>) {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut checks = 0u64;
    loop {
        interval.tick().await;
        let Some(inner) = leases.upgrade() else { return };
        checks += 1;
        if checks.is_multiple_of(CHECKS_PER_HALVING) {
            inner.sketch.halve();
        }
        inner.renew_and_release();
    }
}

/// Re-asserts all leases whenever the store may have lost data.
pub(super) async fn reassert_after_data_loss(leases: Weak<Inner>) {
    let Some(mut changes) = leases.upgrade().map(|inner| inner.store.link().epoch_changes()) else {
        return;
    };
    while changes.changed().await.is_ok() {
        let Some(inner) = leases.upgrade() else { return };
        let ticks = inner.clock.ticks();
        inner.for_each(|leased| leased.lease.reassert(&inner.serials, ticks));
    }
}

/// Releases all leases, after the calls in flight have completed.
pub(super) async fn close(inner: &Arc<Inner>) {
    inner.is_closing.store(true, Ordering::SeqCst);
    let released = async {
        inner.calls_completed().await;
        let ticks = inner.clock.ticks();
        inner.for_each(|leased| leased.lease.release_all(&inner.serials, ticks));
        inner.calls_completed().await;
    };
    // If the store is unreachable, the leases expire by themselves.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, released).await;
}

impl Inner {
    /// Applies the outcome of a call to its lease.
    fn complete(
        &self,
        hash: u64,
        request: &LeaseRequest,
        outcome: Result<LeaseOutcome, &CallError>,
        sent: Timestamp,
        received: Timestamp,
    ) {
        let mut shard = self.shard(hash).lock();
        let leased = shard.get_mut(&hash).filter(|leased| *leased.key == *request.key);
        // The lease has ended meanwhile.
        let Some(leased) = leased else { return };
        if outcome.as_ref().is_err_and(|error| error.may_have_executed()) {
            leased.lease.mark_unconfirmed(request.serial, received);
            leased.flush_counters();
            return;
        }
        let Some(call) = leased.lease.complete_call(request.serial) else { return };
        add(&leased.counters.lease_calls, 1);
        match outcome {
            Ok(LeaseOutcome::Granted {
                now, granted, until, is_extended, account, lapsed, ..
            }) => {
                leased.lease.add_expired(lapsed);
                let ttl = until.since(now);
                let ends_with_window = until < now.after(request.ttl);
                let grant = Grant { granted, ttl, is_extended, ends_with_window };
                leased.lease.apply_grant(call, grant, sent, received);
                let (steps, held) = (request.rule.steps(), leased.lease.unspent());
                leased.lease.set_view(view(&account, steps, held, now, received));
                // Granted from a record that lacks what nodes admitted without the store.
                if granted > 0 && self.store.is_local_mode() {
                    let call = leased.lease.release(granted, &self.serials);
                    self.enqueue(leased, hash, call);
                }
            }
            Ok(LeaseOutcome::Stale | LeaseOutcome::Unsupported) | Err(_) => {
                leased.lease.call_failed(call, received);
            }
        }
        leased.flush_counters();
    }

    /// Renews and releases leases, and removes those that are idle and empty.
    fn renew_and_release(&self) {
        let ticks = self.clock.ticks();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (hash, leased) in shard.iter_mut() {
                if let Some(call) = leased.lease.renew_or_release(&self.serials, ticks) {
                    self.enqueue(leased, *hash, call);
                }
                leased.flush_counters();
            }
            let removable: Vec<u64> = shard
                .iter()
                .filter(|(_, leased)| leased.lease.is_removable(ticks))
                .map(|(hash, _)| *hash)
                .collect();
            for hash in removable {
                if let Some(leased) = shard.remove(&hash) {
                    self.leased_count.fetch_sub(1, Ordering::Relaxed);
                    add(&leased.counters.demoted, 1);
                    subtract(&leased.counters.leases, 1);
                }
            }
        }
    }

    /// Queues the calls that a function returns.
    fn for_each(&self, mut next_call: impl FnMut(&mut LeasedIdentity) -> Option<LeaseCall>) {
        for shard in &self.shards {
            for (hash, leased) in shard.lock().iter_mut() {
                if let Some(call) = next_call(leased) {
                    self.enqueue(leased, *hash, call);
                }
            }
        }
    }

    /// Waits until no call is in flight.
    async fn calls_completed(&self) {
        loop {
            let completed = self.completed.notified();
            let is_busy = |leased: &LeasedIdentity| leased.lease.has_call_in_flight();
            if !self.shards.iter().any(|shard| shard.lock().values().any(is_busy)) {
                return;
            }
            completed.await;
        }
    }
}

/// State of the limit as if everything held were released, and the effect of each unit spent.
fn view(
    account: &Account,
    steps: &[EnforcedLimit],
    held: u64,
    now: Timestamp,
    received: Timestamp,
) -> LimitView {
    let peek = |account: &mut Account| {
        let answer = account.apply(steps, Op::Peek { cost: 0 }, Moment::at(now));
        answer.map_or(UNCOUNTED, |answer| answer.verdict)
    };
    // The amounts that other nodes hold are charged already and are not released.
    let mut account = account.clone().with_leases(NodeLeases::default());
    let spent = peek(&mut account).reset_after;
    // Every algorithm that can be leased supports refunds.
    let _ = account.apply(steps, Op::Refund { cost: held }, Moment::at(now));
    let verdict = peek(&mut account);
    let slope = spent.less(verdict.reset_after).as_micros().checked_div(held).unwrap_or(0);
    LimitView { verdict, slope, at: received, held }
}
