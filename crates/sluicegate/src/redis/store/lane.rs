//! A lane: asks that wait for the store ride together.
//!
//! As long as few calls are under way, an ask goes at once; while they are, those that come behind gather, and go together with the next
//! call: up to [`ASKS_MAX`] of them, at little more than the price of one. So a lane waits for nobody, and still fills its calls when there is much to
//! do. Asks that are the same in everything are one ask with a count: of a key that everybody wants at once, the store hears once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::clock_of;
use super::recent::{Seen, Sights};
use crate::clock::Clock;
use crate::redis::call::CallError;
use crate::redis::link::Link;
use crate::redis::script::{self, Answered, Ask, Told};

/// The most different asks of one call. With 64 a call holds the store up four times as long, and is hardly cheaper.
const ASKS_MAX: usize = 16;
/// The most that are counted as one.
const MERGED_MAX: usize = 1_000;
/// How many calls of a lane are under way at a time. More of them would be sent emptier.
const CALLS_MAX: usize = 3;
/// On a Cluster a call holds asks of one slot, so most hold one: there have to be more of them.
const CALLS_OF_SLOTS_MAX: usize = 48;

/// An ask that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    /// What the same asks have in common.
    pub(super) hash: u64,
    pub(super) reply: oneshot::Sender<Result<Said, CallError>>,
}

/// What the store said.
#[derive(Debug)]
pub(super) enum Said {
    /// That; and how those stand who were charged, told to one of all who asked the same.
    Answered(Answered, Option<Sights>),
    /// That this is not for a script to decide. Nothing has changed.
    LongWay(Ask),
}

/// Asks that ride together, each with all who asked it.
struct Batch {
    asks: Vec<Ask>,
    hashes: Vec<u64>,
    replies: Vec<Vec<oneshot::Sender<Result<Said, CallError>>>>,
    slot: Option<u16>,
}

/// Serves a lane until nobody can ask any more.
pub(super) async fn serve(
    mut waiting: mpsc::Receiver<Pending>,
    link: Link,
    clock: Option<Arc<dyn Clock>>,
    garbage: Arc<AtomicU64>,
) {
    let mut queue = VecDeque::new();
    let mut fresh = Vec::new();
    let mut under_way = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !under_way.is_empty() || !queue.is_empty() {
        tokio::select! {
            biased;
            Some(failed) = under_way.next(), if !under_way.is_empty() => {
                // Whoever waits for the same server would wait for as long, and in vain.
                if let Some(error) = failed {
                    fail_all(&mut queue, &error);
                }
            }
            came = waiting.recv_many(&mut fresh, ASKS_MAX * MERGED_MAX), if is_open => {
                is_open = came > 0;
                queue.extend(fresh.drain(..));
            }
        }
        while let Some(batch) = next_batch(&mut queue, &link, under_way.len()) {
            let (link, now) = (link.clone(), clock_of(clock.as_deref()));
            under_way.push(batch.send(link, now, garbage.clone()));
        }
    }
}

fn next_batch(queue: &mut VecDeque<Pending>, link: &Link, under_way: usize) -> Option<Batch> {
    let slot = link.slot_of(&queue.front()?.ask.parts.first()?.key);
    let most = if slot.is_some() { CALLS_OF_SLOTS_MAX } else { CALLS_MAX };
    if under_way >= most {
        return None;
    }
    let mut batch = Batch { asks: Vec::new(), hashes: Vec::new(), replies: Vec::new(), slot };
    let mut left = VecDeque::new();
    while let Some(pending) = queue.pop_front() {
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
    Some(batch)
}

fn fail_all(queue: &mut VecDeque<Pending>, error: &CallError) {
    for pending in queue.drain(..) {
        // Whoever has gone does not mind.
        let _ = pending.reply.send(Err(error.clone()));
    }
}

// === impl Batch ===

impl Batch {
    /// Takes an ask along, if there is room for it.
    fn take(&mut self, pending: Pending, link: &Link) -> Option<Pending> {
        let may_merge = pending.ask.holder.is_none();
        let alike = self.hashes.iter().position(|hash| *hash == pending.hash);
        if let Some(place) = alike.filter(|place| may_merge && self.is_alike(*place, &pending.ask))
            && self.replies[place].len() < MERGED_MAX
        {
            self.asks[place].count += 1;
            self.replies[place].push(pending.reply);
            return None;
        }
        let slot = pending.ask.parts.first().and_then(|part| link.slot_of(&part.key));
        if self.asks.len() == ASKS_MAX || slot != self.slot {
            return Some(pending);
        }
        self.asks.push(pending.ask);
        self.hashes.push(pending.hash);
        self.replies.push(vec![pending.reply]);
        None
    }

    fn is_alike(&self, place: usize, ask: &Ask) -> bool {
        let other = &self.asks[place];
        let parts = other.parts.iter().zip(&ask.parts);
        other.holder.is_none()
            && other.op == ask.op
            && other.parts.len() == ask.parts.len()
            && parts.into_iter().all(|(one, other)| {
                one.cost == other.cost
                    && one.stand == other.stand
                    && one.open == other.open
                    && one.key == other.key
                    && Arc::ptr_eq(&one.charter, &other.charter)
            })
    }

    /// Asks the store, and tells everybody; why all that wait would fail, if that is so.
    async fn send(
        self,
        link: Link,
        now: Option<Timestamp>,
        garbage: Arc<AtomicU64>,
    ) -> Option<CallError> {
        let answered = link.call(&script::call(&self.asks, now)).await;
        let told = answered.and_then(|value| {
            script::told(&self.asks, value)
                .map_err(|bad| CallError::Refused(bad.to_string().into()))
        });
        match told {
            Ok(told) => {
                let asked = self.asks.into_iter().zip(self.replies);
                for (told, (ask, replies)) in told.into_iter().zip(asked) {
                    if let Told::Done { garbage: true, .. } = &told {
                        garbage.fetch_add(1, Ordering::Relaxed);
                    }
                    reply(told, ask, replies, link.epoch());
                }
                None
            }
            Err(error) => {
                for reply in self.replies.into_iter().flatten() {
                    let _ = reply.send(Err(error.clone()));
                }
                let is_all = self.slot.is_none() && !matches!(error, CallError::Refused(_));
                is_all.then_some(error)
            }
        }
    }
}

/// Tells all who asked the same, each what became of its own.
fn reply(
    told: Told,
    ask: Ask,
    replies: Vec<oneshot::Sender<Result<Said, CallError>>>,
    primary: u64,
) {
    match told {
        Told::Done { now, each, after, .. } => {
            let seen = after.into_iter().map(|(place, account, epoch)| {
                let part = &ask.parts[place];
                (
                    part.key.clone(),
                    Seen { charter: part.charter.clone(), account, epoch, at: now, primary },
                )
            });
            let mut seen = Some(seen.collect());
            for (answered, reply) in each.into_iter().zip(replies) {
                let _ = reply.send(Ok(Said::Answered(answered, seen.take())));
            }
        }
        Told::LongWay => {
            let one = Ask { count: 1, ..ask };
            for reply in replies {
                let _ = reply.send(Ok(Said::LongWay(one.clone())));
            }
        }
    }
}
