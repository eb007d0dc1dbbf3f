//! Anti-entropy: the task that pushes own counts to the store and pulls those of the peers.
//!
//! ```text
//!   active entries  --->  [ every half interval ]  --\
//!                                                     +-->  calls of up to 32 keys
//!   stale entries   --->  [ at once ]  --------------/
//! ```
//!
//! A failed call is not repeated, since the next one carries the same counts. The task waits only
//! for timers, replies and commands, and all collections are ordered: a simulation is reproducible.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use sluicegate_core::time::{Span, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Eventual;
use super::overshoot::{OvershootPeaks, PEAK_PERIOD};
use super::table::{EntryId, SHARDS};
use crate::CallError;
use crate::backend::levels::add;
use crate::script::{KEYS_MAX, SyncOp, SyncReply, SyncRequest};

/// Largest number of calls in flight.
const CALLS_MAX: usize = 4;
/// The same on a Cluster, where a call holds keys of one slot: most hold one key.
const CLUSTER_CALLS_MAX: usize = 48;
/// Pause of periodic syncs after a failure.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);
/// Resolution of timers.
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// Interval in which a part of the table is searched for expired entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const SHARDS_PER_SWEEP: usize = SHARDS / 8;

/// Receives the outcome of a sync.
pub(super) type Waiter = oneshot::Sender<Result<(), CallError>>;

/// Command to the task.
#[derive(Debug)]
pub(super) enum SyncCommand {
    /// Syncs an entry periodically.
    Schedule(EntryId, Span),
    /// Syncs an entry at once.
    SyncNow(EntryId, Waiter),
}

/// State of the task.
struct SyncTask {
    /// Periodic entries by period.
    rounds: BTreeMap<Duration, Round>,
    /// Entries to be synced at once, and their waiters.
    waiting: BTreeMap<EntryId, Vec<Waiter>>,
    /// Periodic entries that are due.
    due: BTreeSet<EntryId>,
    /// The entry synced last: the next ones follow it, so that none starves.
    last: EntryId,
    in_flight: FuturesUnordered<BoxFuture<'static, CallOutcome>>,
    peaks: OvershootPeaks,
    paused_until: Option<Instant>,
    sweep_at: Instant,
    swept: usize,
    rotate_at: Instant,
}

struct Round {
    next: Instant,
    ids: Vec<EntryId>,
}

/// An entry within a call.
struct CallEntry {
    id: EntryId,
    op: SyncOp,
    version: u64,
    waiters: Vec<Waiter>,
}

/// Outcome of a call.
struct CallOutcome {
    entries: Vec<CallEntry>,
    sent: Timestamp,
    replies: Result<Vec<SyncReply>, CallError>,
}

/// Pushes and pulls until the backend is dropped.
pub(super) async fn run(
    eventual: Weak<Eventual>,
    mut commands: mpsc::UnboundedReceiver<SyncCommand>,
) {
    let now = Instant::now();
    let mut task = SyncTask {
        rounds: BTreeMap::new(),
        waiting: BTreeMap::new(),
        due: BTreeSet::new(),
        last: EntryId::first_of(None),
        in_flight: FuturesUnordered::new(),
        peaks: OvershootPeaks::default(),
        paused_until: None,
        sweep_at: now + SWEEP_INTERVAL,
        swept: 0,
        rotate_at: now + PEAK_PERIOD,
    };
    let mut received = Vec::new();
    loop {
        let next = task.next();
        tokio::select! {
            biased;
            Some(outcome) = task.in_flight.next(), if !task.in_flight.is_empty() => {
                let Some(eventual) = eventual.upgrade() else { return };
                task.complete(&eventual, outcome);
            }
            count = commands.recv_many(&mut received, 1_024) => {
                // The sender was dropped.
                if count == 0 {
                    return;
                }
                received.drain(..).for_each(|command| task.handle(command));
            }
            () = sleep_until(next) => {}
        }
        let Some(eventual) = eventual.upgrade() else { return };
        task.run_timers(&eventual, Instant::now());
        while let Some(call) = task.next_call(&eventual) {
            task.in_flight.push(call);
        }
    }
}

/// Re-pushes all counts whenever the store may have lost data.
pub(super) async fn repush_after_data_loss(eventual: Weak<Eventual>) {
    let Some(mut changes) = eventual.upgrade().map(|this| this.store.link().epoch_changes()) else {
        return;
    };
    while changes.changed().await.is_ok() {
        let Some(eventual) = eventual.upgrade() else { return };
        eventual.repush_all();
    }
}

impl SyncTask {
    fn handle(&mut self, command: SyncCommand) {
        match command {
            SyncCommand::Schedule(id, interval) => {
                let period = period(interval);
                let first = Round { next: Instant::now() + period, ids: Vec::new() };
                self.rounds.entry(period).or_insert(first).ids.push(id);
            }
            SyncCommand::SyncNow(id, waiter) => self.waiting.entry(id).or_default().push(waiter),
        }
    }

    /// Next timer.
    fn next(&self) -> Instant {
        let rounds = self.rounds.values().map(|round| round.next).min();
        let next = self.sweep_at.min(self.rotate_at);
        rounds.map_or(next, |round| round.min(next))
    }

    fn run_timers(&mut self, eventual: &Eventual, now: Instant) {
        let tick = eventual.tick();
        for (period, round) in &mut self.rounds {
            if round.next > now {
                continue;
            }
            // A late round does not make the next one early.
            round.next = now + *period;
            let is_paused = self.paused_until.is_some_and(|until| now < until);
            let due = &mut self.due;
            round.ids.retain(|id| match eventual.table.sync_schedule(*id, tick) {
                Some(schedule) if self::period(schedule.interval) == *period => {
                    if !schedule.is_in_flight && !is_paused {
                        due.insert(*id);
                    }
                    true
                }
                Some(schedule) => {
                    eventual.send(SyncCommand::Schedule(*id, schedule.interval));
                    false
                }
                None => false,
            });
        }
        self.rounds.retain(|_, round| !round.ids.is_empty());
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_INTERVAL;
            for _ in 0..SHARDS_PER_SWEEP {
                self.swept = (self.swept + 1) % SHARDS;
                eventual.table.sweep(self.swept, tick);
            }
        }
        if self.rotate_at <= now {
            self.rotate_at = now + PEAK_PERIOD;
            self.peaks.rotate();
        }
    }

    /// The next call, if there is one and it may be sent.
    fn next_call(&mut self, eventual: &Eventual) -> Option<BoxFuture<'static, CallOutcome>> {
        let (slot, from) = match self.waiting.keys().next() {
            Some(id) => (id.slot, EntryId::first_of(id.slot)),
            None => {
                let behind = (Bound::Excluded(self.last), Bound::Unbounded);
                let next = *self.due.range(behind).next().or_else(|| self.due.first())?;
                (next.slot, next)
            }
        };
        let max = if slot.is_some() { CLUSTER_CALLS_MAX } else { CALLS_MAX };
        if self.in_flight.len() >= max {
            return None;
        }
        let sent = eventual.tick();
        let mut entries = Vec::new();
        let mut pushes = Vec::new();
        while entries.len() < KEYS_MAX {
            let Some((id, waiters)) = self.next_of(slot, from) else { break };
            let payload = eventual.table.with(id, |entry| {
                entry.is_in_flight = true;
                let payload = entry.replica.sync_payload(sent);
                if payload.op == SyncOp::Push {
                    add(&entry.counters.pushes, 1);
                }
                (entry.key.clone(), payload)
            });
            // The entry was removed.
            let Some((key, payload)) = payload else { continue };
            entries.push(CallEntry { id, op: payload.op, version: payload.version, waiters });
            let (op, epoch, counted) = (payload.op, payload.epoch, payload.counted);
            pushes.push(SyncRequest { key, op, epoch, counted });
        }
        let store = eventual.store.clone();
        Some(Box::pin(async move {
            let replies =
                if pushes.is_empty() { Ok(Vec::new()) } else { store.sync(&pushes).await };
            CallOutcome { entries, sent, replies }
        }))
    }

    /// The next entry of a slot: first those with waiters, then due ones from an id on.
    fn next_of(&mut self, slot: Option<u16>, from: EntryId) -> Option<(EntryId, Vec<Waiter>)> {
        let is_next = |id: &&EntryId| id.slot == slot;
        let waiting = self.waiting.range(EntryId::first_of(slot)..).next().map(|(id, _)| id);
        if let Some(id) = waiting.filter(is_next).copied() {
            self.due.remove(&id);
            return self.waiting.remove(&id).map(|waiters| (id, waiters));
        }
        let id = *self.due.range(from..).next().filter(is_next)?;
        self.due.remove(&id);
        self.last = id;
        Some((id, Vec::new()))
    }

    fn complete(&mut self, eventual: &Eventual, outcome: CallOutcome) {
        let tick = eventual.tick();
        let CallOutcome { entries, sent, replies } = outcome;
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => return self.fail(eventual, entries, &error),
        };
        for (synced, reply) in entries.into_iter().zip(replies) {
            eventual.table.with(synced.id, |entry| {
                entry.is_in_flight = false;
                let overshoot = entry.replica.merge(&reply, synced.version, (sent, tick));
                self.peaks.record(&entry.counters, overshoot);
            });
            // A waiter may have given up.
            synced.waiters.into_iter().for_each(|waiter| drop(waiter.send(Ok(()))));
        }
    }

    fn fail(&mut self, eventual: &Eventual, entries: Vec<CallEntry>, error: &CallError) {
        if entries.first().is_some_and(|first| first.id.slot.is_none()) {
            self.paused_until = Some(Instant::now() + FAILURE_PAUSE);
        }
        for failed in entries {
            eventual.table.with(failed.id, |entry| {
                entry.is_in_flight = false;
                if failed.op == SyncOp::Push {
                    add(&entry.counters.pushes_failed, 1);
                }
            });
            failed.waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(error.clone()))));
        }
    }
}

/// Period of syncs: twice an interval, so that counts are known everywhere within one.
fn period(interval: Span) -> Duration {
    (interval.to_duration() / 2).max(PERIOD_MIN)
}
