//! A lane: asks that wait for the store ride together.
//!
//! As long as few calls are under way, an ask goes at once; while they are, those that come behind gather, and go together with the next
//! call: up to [`ASKS_MAX`] of them, at little more than the price of one. So a lane waits for nobody, and still fills its calls when there is much to
//! do. Asks that are the same in everything are one ask with a count: of a key that everybody wants at once, the store hears once.
//!
//! Each ask has a deadline of its own. When it passes, the caller gets [`Reply::Late`] and decides
//! without the store, while the call goes on: the server may have executed it, and the caller
//! settles what it did by the outcome that follows.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::clock_of;
use super::observed::{Observation, Observations};
use crate::call::CallError;
use crate::connection::Link;
use crate::script::{self, ScriptAnswer, ScriptOutcome, ScriptRequest};
use sluicegate::clock::Clock;

/// The most different asks of one call. With 64 a call holds the store up four times as long, and is hardly cheaper.
const ASKS_MAX: usize = 16;
/// The most that are counted as one.
const MERGED_MAX: usize = 1_000;
/// How many calls of a lane are under way at a time, late ones aside. More of them would be sent
/// emptier.
const CALLS_MAX: usize = 3;
/// On a Cluster a call holds asks of one slot, so most hold one: there have to be more of them.
const CALLS_OF_SLOTS_MAX: usize = 48;
/// While its server is alive, a call is waited for up to so many timeouts. A server that is silent
/// for one timeout is not alive.
const TIMEOUTS_MAX: u32 = 4;
/// How often that is looked at, in parts of a timeout.
const LOOKS: u32 = 4;

/// An ask that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: ScriptRequest,
    /// What the same asks have in common.
    pub(super) hash: u64,
    pub(super) deadline: Deadline,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// For a server that is silent.
    next: Instant,
    /// For one that is alive: a slow answer is better than none.
    last: Instant,
}

/// What became of an ask.
#[derive(Debug)]
pub(super) enum Reply {
    /// The store decided it. The records of all parts go to one of those who asked the same.
    Answered(ScriptAnswer, Option<Observations>),
    /// The script cannot decide it. Nothing has changed.
    Unsupported(ScriptRequest),
    /// There is no answer. It may have been executed, as the error says.
    Failed(CallError),
    /// The deadline has passed. The outcome follows; it never is another one of these.
    Late(oneshot::Receiver<Self>),
}

/// What all calls of a lane share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) garbage: Arc<AtomicU64>,
    /// What the store's clock is ahead of this node's.
    pub(super) store_clock: Arc<super::store_clock::StoreClock>,
}

/// Asks that ride together, each with all who asked it.
struct Batch {
    asks: Vec<ScriptRequest>,
    hashes: Vec<u64>,
    waiters: Vec<Vec<Waiter>>,
    slot: Option<u16>,
}

struct Waiter {
    deadline: Deadline,
    /// Where the next reply goes: the first one, or the outcome of a late call.
    reply: oneshot::Sender<Reply>,
    is_late: bool,
}

/// Calls whose deadline has passed, which do not keep others from being sent.
#[derive(Default)]
struct LateCalls {
    count: AtomicUsize,
    changed: Notify,
}

/// Serves a lane until nobody can ask any more.
pub(super) async fn serve(mut waiting: mpsc::Receiver<Pending>, shared: Shared) {
    let late = Arc::<LateCalls>::default();
    let mut queue = VecDeque::new();
    let mut fresh = Vec::new();
    let mut under_way = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !under_way.is_empty() || !queue.is_empty() {
        tokio::select! {
            biased;
            Some(failed) = under_way.next(), if !under_way.is_empty() => {
                // The server cannot be reached, and nobody who waits has sent anything yet.
                if failed {
                    fail_all(&mut queue);
                }
            }
            came = waiting.recv_many(&mut fresh, ASKS_MAX * MERGED_MAX), if is_open => {
                is_open = came > 0;
                queue.extend(fresh.drain(..));
            }
            () = late.changed.notified() => {}
        }
        loop {
            let in_time = under_way.len().saturating_sub(late.count.load(Ordering::Relaxed));
            let Some(batch) = next_batch(&mut queue, &shared.link, in_time) else { break };
            under_way.push(batch.send(shared.clone(), late.clone()));
        }
    }
}

fn next_batch(queue: &mut VecDeque<Pending>, link: &Link, under_way: usize) -> Option<Batch> {
    let slot = link.slot_of(&queue.front()?.ask.parts.first()?.key);
    let most = if slot.is_some() { CALLS_OF_SLOTS_MAX } else { CALLS_MAX };
    if under_way >= most {
        return None;
    }
    let now = Instant::now();
    let mut batch = Batch { asks: Vec::new(), hashes: Vec::new(), waiters: Vec::new(), slot };
    let mut left = VecDeque::new();
    while let Some(pending) = queue.pop_front() {
        if pending.deadline.last <= now {
            let _ = pending.reply.send(Reply::Failed(CallError::Busy));
            continue;
        }
        if let Some(not_taken) = batch.take(pending, link) {
            left.push_back(not_taken);
            // On a Cluster others of the same slot may be behind it; but not without end.
            if slot.is_none() || left.len() >= ASKS_MAX {
                break;
            }
        }
    }
    while let Some(pending) = left.pop_back() {
        queue.push_front(pending);
    }
    (!batch.asks.is_empty()).then_some(batch)
}

fn fail_all(queue: &mut VecDeque<Pending>) {
    for pending in queue.drain(..) {
        // Whoever has gone does not mind.
        let _ = pending.reply.send(Reply::Failed(CallError::Down));
    }
}

// === impl Batch ===

impl Batch {
    /// Takes an ask along, if there is room for it.
    fn take(&mut self, pending: Pending, link: &Link) -> Option<Pending> {
        let may_merge = pending.ask.holder.is_none();
        let alike = self.hashes.iter().position(|hash| *hash == pending.hash);
        if let Some(index) = alike.filter(|index| may_merge && self.is_alike(*index, &pending.ask))
            && self.waiters[index].len() < MERGED_MAX
        {
            self.asks[index].count += 1;
            self.waiters[index].push(Waiter::of(pending.deadline, pending.reply));
            return None;
        }
        let slot = pending.ask.parts.first().and_then(|part| link.slot_of(&part.key));
        if self.asks.len() == ASKS_MAX || slot != self.slot {
            return Some(pending);
        }
        self.asks.push(pending.ask);
        self.hashes.push(pending.hash);
        self.waiters.push(vec![Waiter::of(pending.deadline, pending.reply)]);
        None
    }

    fn is_alike(&self, index: usize, ask: &ScriptRequest) -> bool {
        let other = &self.asks[index];
        let parts = other.parts.iter().zip(&ask.parts);
        other.holder.is_none()
            && other.op == ask.op
            && other.parts.len() == ask.parts.len()
            && parts.into_iter().all(|(one, other)| {
                one.cost == other.cost
                    && one.combine == other.combine
                    && one.open == other.open
                    && one.key == other.key
                    && Arc::ptr_eq(&one.rule, &other.rule)
            })
    }

    /// Sends the call and answers everybody. Whether the server cannot be reached at all.
    async fn send(mut self, shared: Shared, late: Arc<LateCalls>) -> bool {
        let Shared { link, clock, garbage, store_clock } = shared;
        let call = script::encode(&self.asks, clock_of(clock.as_deref()));
        let outcome = {
            let calling = link.call_awaiting_late_reply(&call);
            self.await_outcome(pin!(calling), &link, &late).await
        };
        let told = outcome.and_then(|value| {
            script::decode(&self.asks, value)
                .map_err(|bad| CallError::Refused(bad.to_string().into()))
        });
        match told {
            Ok(told) => {
                if let Some(ScriptOutcome::Decided { now, .. }) = told.first() {
                    store_clock.observe(*now);
                }
                let asked = self.asks.into_iter().zip(self.waiters);
                for (told, (ask, waiters)) in told.into_iter().zip(asked) {
                    if let ScriptOutcome::Decided { garbage: true, .. } = &told {
                        garbage.fetch_add(1, Ordering::Relaxed);
                    }
                    reply(told, ask, waiters, link.epoch());
                }
                false
            }
            Err(error) => {
                for waiter in self.waiters.into_iter().flatten() {
                    let _ = waiter.reply.send(Reply::Failed(error.clone()));
                }
                self.slot.is_none() && error == CallError::Down
            }
        }
    }

    /// Waits for the outcome of the call. Callers whose deadline passes meanwhile learn that it is
    /// late.
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
            if self.is_alive(link) {
                self.extend(now, now + timeout / LOOKS);
            }
            let is_any = self.expire(now);
            if is_any && !std::mem::replace(&mut is_late, true) {
                late.count.fetch_add(1, Ordering::Relaxed);
                late.changed.notify_one();
            }
        };
        if is_late {
            late.count.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    fn is_alive(&self, link: &Link) -> bool {
        let part = self.asks.first().and_then(|ask| ask.parts.first());
        part.is_some_and(|part| link.is_up_for(&part.key))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waiters = self.waiters.iter().flatten().filter(|waiter| !waiter.is_late);
        waiters.map(|waiter| waiter.deadline.next).min()
    }

    /// Callers whose deadline has passed wait on, if they can.
    fn extend(&mut self, now: Instant, next: Instant) {
        let waiters = self.waiters.iter_mut().flatten().map(|waiter| &mut waiter.deadline);
        waiters.filter(|deadline| deadline.next <= now && now < deadline.last).for_each(
            |deadline| {
                deadline.next = next.min(deadline.last);
            },
        );
    }

    /// Callers whose deadline has passed learn that the call is late; whether there are any.
    fn expire(&mut self, now: Instant) -> bool {
        let mut is_any = false;
        let waiters = self.waiters.iter_mut().flatten();
        waiters.filter(|waiter| !waiter.is_late && waiter.deadline.next <= now).for_each(
            |waiter| {
                let (outcome, later) = oneshot::channel();
                let first = std::mem::replace(&mut waiter.reply, outcome);
                (waiter.is_late, is_any) = (true, true);
                let _ = first.send(Reply::Late(later));
            },
        );
        is_any
    }
}

// === impl Deadline ===

impl Deadline {
    /// A timeout from now, and no later than the client waits.
    pub(super) fn new(timeout: Duration, client: Option<Instant>) -> Self {
        let now = Instant::now();
        let last = now + timeout * TIMEOUTS_MAX;
        let last = client.map_or(last, |client| client.min(last));
        Self { next: (now + timeout).min(last), last }
    }
}

// === impl Waiter ===

impl Waiter {
    const fn of(deadline: Deadline, reply: oneshot::Sender<Reply>) -> Self {
        Self { deadline, reply, is_late: false }
    }
}

/// Tells all who asked the same, each what became of its own.
fn reply(told: ScriptOutcome, ask: ScriptRequest, waiters: Vec<Waiter>, primary: u64) {
    match told {
        ScriptOutcome::Decided { now, each, after, .. } => {
            let records = after.into_iter().map(|(index, account, epoch)| {
                let part = &ask.parts[index];
                let observation = Observation::new(part.rule.clone(), account, epoch, now, primary);
                (part.key.clone(), observation)
            });
            let mut records = Some(records.collect());
            for (answered, waiter) in each.into_iter().zip(waiters) {
                let _ = waiter.reply.send(Reply::Answered(answered, records.take()));
            }
        }
        ScriptOutcome::Unsupported => {
            let one = ScriptRequest { count: 1, ..ask };
            for waiter in waiters {
                let _ = waiter.reply.send(Reply::Unsupported(one.clone()));
            }
        }
    }
}
