//! Batches requests into calls of `decide.lua`.
//!
//! While few calls are in flight, a request is sent at once. Otherwise requests queue, and the next
//! call takes up to [`REQUESTS_MAX`] of them at little more than the cost of one. So batching adds
//! no delay, and calls fill under load. Identical requests become one with a count: a hot key is
//! evaluated once per call.
//!
//! Each request has its own deadline. When it passes, the caller gets [`BatchReply::Late`] and
//! decides without the store, while the call continues: the server may have executed it, and the
//! caller reconciles its decision with the later outcome.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::observed::{Observation, Observations};
use super::stats::StoreCounters;
use super::store_clock::StoreClock;
use crate::call::CallError;
use crate::connection::Link;
use crate::script::{self, ScriptAnswer, ScriptOutcome, ScriptRequest};
use sluicegate::clock::Clock;

/// Distinct requests of one call. With 64, a call blocks the store four times as long and is hardly
/// cheaper.
const REQUESTS_MAX: usize = 16;
/// Identical requests that are merged into one.
const MERGED_MAX: usize = 1_000;
/// Calls of a batcher in flight, late ones aside. With more of them, each would carry fewer
/// requests.
const CALLS_MAX: usize = 3;
/// The same on a Cluster, where a call carries requests of one slot, so usually one.
const CLUSTER_CALLS_MAX: usize = 48;
/// Timeouts that a call may take while its server is up. A server that is silent for one timeout is
/// down.
const TIMEOUTS_MAX: u32 = 4;
/// Checks of that per timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// A queued request.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: ScriptRequest,
    /// Of the first identity; equal for identical requests.
    pub(super) hash: u64,
    pub(super) deadline: Deadline,
    pub(super) reply: oneshot::Sender<BatchReply>,
}

/// Deadline of a caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// If the server is down.
    next: Instant,
    /// If it is up: a slow reply is better than none.
    last: Instant,
}

/// Reply to a queued request.
#[derive(Debug)]
pub(super) enum BatchReply {
    /// The store decided. One of the identical requests gets the records of all parts.
    Decided(ScriptAnswer, Option<Observations>),
    /// The script does not support it. Nothing has changed.
    Unsupported(ScriptRequest),
    /// The call failed. The error distinguishes whether it may have been executed.
    Failed(CallError),
    /// The deadline has passed. The outcome follows, which is never `Late` again.
    Late(oneshot::Receiver<Self>),
}

/// Shared by all calls of a batcher.
#[derive(Clone)]
pub(super) struct BatcherContext {
    pub(super) link: Link,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) counters: Arc<StoreCounters>,
    pub(super) store_clock: Arc<StoreClock>,
}

/// Requests of one call, each with its waiters.
struct Batch {
    requests: Vec<ScriptRequest>,
    hashes: Vec<u64>,
    waiters: Vec<Vec<Waiter>>,
    slot: Option<u16>,
}

struct Waiter {
    deadline: Deadline,
    /// Receives the reply, or the outcome of a late call.
    reply: oneshot::Sender<BatchReply>,
    is_late: bool,
}

/// Late calls, which do not count as in flight.
#[derive(Default)]
struct LateCalls {
    count: AtomicUsize,
    changed: Notify,
}

/// Sends queued requests until the queue is closed.
pub(super) async fn run(mut waiting: mpsc::Receiver<Pending>, context: BatcherContext) {
    let late = Arc::<LateCalls>::default();
    let mut queue = VecDeque::new();
    let mut received = Vec::new();
    let mut in_flight = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !in_flight.is_empty() || !queue.is_empty() {
        tokio::select! {
            biased;
            Some(is_down) = in_flight.next(), if !in_flight.is_empty() => {
                // The server is down, and nothing of the queue was sent.
                if is_down {
                    fail_all(&mut queue);
                }
            }
            count = waiting.recv_many(&mut received, REQUESTS_MAX * MERGED_MAX), if is_open => {
                is_open = count > 0;
                queue.extend(received.drain(..));
            }
            () = late.changed.notified() => {}
        }
        loop {
            let in_time = in_flight.len().saturating_sub(late.count.load(Ordering::Relaxed));
            let Some(batch) = next_batch(&mut queue, &context.link, in_time) else { break };
            in_flight.push(batch.send(context.clone(), late.clone()));
        }
    }
}

fn next_batch(queue: &mut VecDeque<Pending>, link: &Link, in_flight: usize) -> Option<Batch> {
    let slot = link.slot_of(&queue.front()?.request.parts.first()?.key);
    let max = if slot.is_some() { CLUSTER_CALLS_MAX } else { CALLS_MAX };
    if in_flight >= max {
        return None;
    }
    let now = Instant::now();
    let mut batch = Batch { requests: Vec::new(), hashes: Vec::new(), waiters: Vec::new(), slot };
    let mut left = VecDeque::new();
    while let Some(pending) = queue.pop_front() {
        if pending.deadline.last <= now {
            let _ = pending.reply.send(BatchReply::Failed(CallError::Busy));
            continue;
        }
        if let Some(not_taken) = batch.add(pending, link) {
            left.push_back(not_taken);
            // On a Cluster, later ones may be of the same slot; the search is bounded.
            if slot.is_none() || left.len() >= REQUESTS_MAX {
                break;
            }
        }
    }
    while let Some(pending) = left.pop_back() {
        queue.push_front(pending);
    }
    (!batch.requests.is_empty()).then_some(batch)
}

fn fail_all(queue: &mut VecDeque<Pending>) {
    for pending in queue.drain(..) {
        let _ = pending.reply.send(BatchReply::Failed(CallError::Down));
    }
}

impl Batch {
    /// Adds a request, or returns it if it does not fit.
    fn add(&mut self, pending: Pending, link: &Link) -> Option<Pending> {
        let may_merge = pending.request.holder.is_none();
        let same_hash = self.hashes.iter().position(|hash| *hash == pending.hash);
        if let Some(index) =
            same_hash.filter(|index| may_merge && self.is_identical(*index, &pending.request))
            && self.waiters[index].len() < MERGED_MAX
        {
            self.requests[index].count += 1;
            self.waiters[index].push(Waiter::new(pending.deadline, pending.reply));
            return None;
        }
        let slot = pending.request.parts.first().and_then(|part| link.slot_of(&part.key));
        if self.requests.len() == REQUESTS_MAX || slot != self.slot {
            return Some(pending);
        }
        self.requests.push(pending.request);
        self.hashes.push(pending.hash);
        self.waiters.push(vec![Waiter::new(pending.deadline, pending.reply)]);
        None
    }

    fn is_identical(&self, index: usize, request: &ScriptRequest) -> bool {
        let other = &self.requests[index];
        let parts = other.parts.iter().zip(&request.parts);
        other.holder.is_none()
            && other.op == request.op
            && other.parts.len() == request.parts.len()
            && parts.into_iter().all(|(one, other)| {
                one.cost == other.cost
                    && one.combine == other.combine
                    && one.spare_capacity == other.spare_capacity
                    && one.key == other.key
                    && Arc::ptr_eq(&one.rule, &other.rule)
            })
    }

    /// Sends the call and replies to all waiters. Returns whether the server is down.
    async fn send(mut self, context: BatcherContext, late: Arc<LateCalls>) -> bool {
        let BatcherContext { link, clock, counters, store_clock } = context;
        let call = script::encode(&self.requests, clock.as_deref().map(Clock::now));
        let outcome = {
            let calling = link.call_awaiting_late_reply(&call);
            self.await_outcome(pin!(calling), &link, &late).await
        };
        let outcomes = outcome.and_then(|value| {
            script::decode(&self.requests, value)
                .map_err(|bad| CallError::Refused(bad.to_string().into()))
        });
        match outcomes {
            Ok(outcomes) => {
                if let Some(ScriptOutcome::Decided { now, .. }) = outcomes.first() {
                    store_clock.observe(*now);
                }
                let sent = self.requests.into_iter().zip(self.waiters);
                for (outcome, (request, waiters)) in outcomes.into_iter().zip(sent) {
                    if let ScriptOutcome::Decided { is_corrupt: true, .. } = &outcome {
                        counters.corrupt.fetch_add(1, Ordering::Relaxed);
                    }
                    reply_all(outcome, request, waiters, link.epoch());
                }
                false
            }
            Err(error) => {
                for waiter in self.waiters.into_iter().flatten() {
                    let _ = waiter.reply.send(BatchReply::Failed(error.clone()));
                }
                self.slot.is_none() && error == CallError::Down
            }
        }
    }

    /// Waits for the outcome of the call. Waiters whose deadline passes meanwhile get `Late`.
    async fn await_outcome<T>(
        &mut self,
        mut calling: std::pin::Pin<&mut impl Future<Output = T>>,
        link: &Link,
        late: &LateCalls,
    ) -> T {
        let mut is_late = false;
        let timeout = link.timeout();
        let outcome = loop {
            let Some(deadline) = self.next_deadline() else { break calling.await };
            tokio::select! {
                biased;
                outcome = &mut calling => break outcome,
                () = sleep_until(deadline) => {}
            }
            let now = Instant::now();
            if self.is_server_up(link) {
                self.extend(now, now + timeout / CHECKS_PER_TIMEOUT);
            }
            let has_expired = self.expire(now);
            if has_expired && !std::mem::replace(&mut is_late, true) {
                late.count.fetch_add(1, Ordering::Relaxed);
                late.changed.notify_one();
            }
        };
        if is_late {
            late.count.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    fn is_server_up(&self, link: &Link) -> bool {
        let part = self.requests.first().and_then(|request| request.parts.first());
        part.is_some_and(|part| link.is_up_for(&part.key))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waiters = self.waiters.iter().flatten().filter(|waiter| !waiter.is_late);
        waiters.map(|waiter| waiter.deadline.next).min()
    }

    /// Extends passed deadlines, up to the last one of each waiter.
    fn extend(&mut self, now: Instant, next: Instant) {
        let waiters = self.waiters.iter_mut().flatten().map(|waiter| &mut waiter.deadline);
        waiters.filter(|deadline| deadline.next <= now && now < deadline.last).for_each(
            |deadline| {
                deadline.next = next.min(deadline.last);
            },
        );
    }

    /// Replies `Late` to waiters whose deadline has passed. Returns whether there are any.
    fn expire(&mut self, now: Instant) -> bool {
        let mut has_expired = false;
        let waiters = self.waiters.iter_mut().flatten();
        waiters.filter(|waiter| !waiter.is_late && waiter.deadline.next <= now).for_each(
            |waiter| {
                let (outcome, later) = oneshot::channel();
                let first = std::mem::replace(&mut waiter.reply, outcome);
                (waiter.is_late, has_expired) = (true, true);
                let _ = first.send(BatchReply::Late(later));
            },
        );
        has_expired
    }
}

impl Deadline {
    /// A timeout from now, but not after the deadline of the client.
    pub(super) fn new(timeout: Duration, client: Option<Instant>) -> Self {
        let now = Instant::now();
        let last = now + timeout * TIMEOUTS_MAX;
        let last = client.map_or(last, |client| client.min(last));
        Self { next: (now + timeout).min(last), last }
    }
}

impl Waiter {
    const fn new(deadline: Deadline, reply: oneshot::Sender<BatchReply>) -> Self {
        Self { deadline, reply, is_late: false }
    }
}

/// Replies to the waiters of identical requests.
fn reply_all(outcome: ScriptOutcome, request: ScriptRequest, waiters: Vec<Waiter>, primary: u64) {
    match outcome {
        ScriptOutcome::Decided { now, answers, records, .. } => {
            let records = records.into_iter().map(|(index, account, epoch)| {
                let part = &request.parts[index];
                let observation = Observation::new(part.rule.clone(), account, epoch, now, primary);
                (part.key.clone(), observation)
            });
            let mut records = Some(records.collect());
            for (answer, waiter) in answers.into_iter().zip(waiters) {
                let _ = waiter.reply.send(BatchReply::Decided(answer, records.take()));
            }
        }
        ScriptOutcome::Unsupported => {
            let one = ScriptRequest { count: 1, ..request };
            for waiter in waiters {
                let _ = waiter.reply.send(BatchReply::Unsupported(one.clone()));
            }
        }
    }
}
