//! Eventual consistency: nodes decide locally and exchange their counts afterwards (anti-entropy).
//!
//! A node decides by its own counts and the peers' as last pulled (`key_replica`). Twice per
//! `sync_interval` it pushes its counts per window and pulls those of the peers (`sync`), so an
//! admission reaches every node within one interval and two calls. The overshoot is at most the
//! admissions of that time that nodes had not yet exchanged. The counts of a node only grow and are
//! merged by the maximum: a lost or repeated call is harmless, and a crashed node's counts remain.
//!
//! Windows follow the store's clock, which a node estimates to within a round trip (`store_time`).

mod decide;
mod key_replica;
mod overshoot;
mod series;
mod store_time;
mod sync;
mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Verdict};
use tokio::sync::{mpsc, oneshot};

use super::local::{Local, LocalStep};
use crate::script::SyncRequest;
use crate::{CallError, Store};
use key_replica::KeyReplica;
use sluicegate::backend::Rule;
use sluicegate::clock::TimeSource;
use sluicegate::{Level, Promise};
use sync::SyncCommand;
use table::{Entry, EntryId, NewEntry, ReplicaTable};

/// Suffix of the keys.
const KEY_SUFFIX: &str = ":e";

/// The replicas of this node, and the task that syncs them.
#[derive(Debug)]
pub(super) struct Eventual {
    store: Store,
    clock: TimeSource,
    table: ReplicaTable,
    commands: mpsc::UnboundedSender<SyncCommand>,
}

impl Eventual {
    /// Starts the sync task. Must be called within a Tokio runtime.
    pub(super) fn start(store: &Store, clock: &TimeSource) -> Arc<Self> {
        Self::with_table(store, clock.clone(), ReplicaTable::new())
    }

    fn with_table(store: &Store, clock: TimeSource, table: ReplicaTable) -> Arc<Self> {
        let (commands, received) = mpsc::unbounded_channel();
        let this = Arc::new(Self { store: store.clone(), clock, table, commands });
        tokio::spawn(sync::run(Arc::downgrade(&this), received));
        tokio::spawn(sync::repush_after_data_loss(Arc::downgrade(&this)));
        this
    }

    /// Whether limits can be counted like this.
    pub(super) fn supports(rule: &Rule) -> bool {
        key_replica::supports(rule)
    }

    /// Decides a hit and counts it if it is admitted.
    #[inline]
    pub(super) fn hit(&self, step: &LocalStep<'_>, sync_interval: Span, tick: Timestamp) -> Local {
        self.decide(step, sync_interval, tick, |replica| {
            replica.hit(step.rule, step.cost, sync_interval, tick)
        })
    }

    /// Decides without counting.
    pub(super) fn peek(&self, step: &LocalStep<'_>, sync_interval: Span, tick: Timestamp) -> Local {
        self.decide(step, sync_interval, tick, |replica| {
            replica.peek(step.rule, step.cost, sync_interval, tick)
        })
    }

    #[inline]
    fn decide(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
        tick: Timestamp,
        decide: impl FnOnce(&mut KeyReplica) -> Option<Verdict>,
    ) -> Local {
        let decision = self.table.find(step.identity, step.hash, |entry| {
            entry.touch(step.counters, sync_interval, tick);
            if !entry.is_synced {
                self.schedule_sync(entry);
            }
            let verdict = decide(&mut entry.replica)?;
            let over = entry.replica.overshoot_bound();
            Some(Local::Decided(verdict, Promise { level: Level::Eventual, over }))
        });
        decision.flatten().unwrap_or(Local::Unknown)
    }

    /// Decision of each limit on its own.
    ///
    /// # Errors
    /// When the store does not reply and the view is stale.
    pub(super) async fn decide_each(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Vec<Decision>, CallError> {
        let decide = || {
            let tick = self.tick();
            let decisions = self.table.find(step.identity, step.hash, |entry| {
                entry.replica.decide_each(step.rule, step.cost, sync_interval, tick)
            });
            decisions.flatten()
        };
        if let Some(decisions) = decide() {
            return Ok(decisions);
        }
        self.pull(step, sync_interval).await?;
        decide().ok_or(CallError::Busy)
    }

    /// Counts a hit that was admitted while peers were unreachable; it is pushed later.
    pub(super) fn record(&self, step: &LocalStep<'_>, tick: Timestamp) {
        self.table.find(step.identity, step.hash, |entry| {
            entry.replica.record(step.rule, step.cost, tick);
            if !entry.is_synced {
                self.schedule_sync(entry);
            }
        });
    }

    /// Own count in the current windows.
    pub(super) fn own_count(&self, step: &LocalStep<'_>, tick: Timestamp) -> u64 {
        let own = |entry: &mut Entry| entry.replica.own_count(step.rule, tick);
        self.table.find(step.identity, step.hash, own).unwrap_or(0)
    }

    /// Undoes a hit that was admitted just now.
    pub(super) fn undo(&self, step: &LocalStep<'_>, tick: Timestamp) {
        self.table.find(step.identity, step.hash, |entry| {
            entry.replica.refund(step.rule, step.cost, tick);
        });
    }

    /// Pulls the peers' counts at once, so that [`Eventual::hit`] can decide.
    ///
    /// # Errors
    /// When the store does not reply, or the table is full.
    pub(super) async fn pull(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<(), CallError> {
        let id = self.entry_id(step, sync_interval).ok_or(CallError::Busy)?;
        self.sync_now(id).await
    }

    /// Refunds a cost, admitted on any node, and pushes at once. Returns the verdict after it.
    ///
    /// # Errors
    /// When the store does not reply and the view is stale. If only the push fails, it is
    /// repeated later.
    pub(super) async fn refund(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Verdict, CallError> {
        if let Local::Unknown = self.decide(step, sync_interval, self.tick(), |replica| {
            replica.peek(step.rule, 0, sync_interval, self.tick())
        }) {
            self.pull(step, sync_interval).await?;
        }
        let refunded = self.table.find(step.identity, step.hash, |entry| {
            let verdict = entry.replica.refund(step.rule, step.cost, self.tick());
            verdict.map(|verdict| (entry.id, verdict))
        });
        let Some((id, verdict)) = refunded.flatten() else { return Err(CallError::Busy) };
        // A failed push is repeated later.
        let _ = self.sync_now(id).await;
        Ok(verdict)
    }

    /// Resets the counts of all nodes. Returns the verdict after it.
    ///
    /// # Errors
    /// When the store does not reply. The reset may have been executed if the reply was lost.
    pub(super) async fn reset(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Verdict, CallError> {
        // The pull determines the lifetime of the stored reset.
        self.pull(step, sync_interval).await?;
        let id = self.entry_id(step, sync_interval).ok_or(CallError::Busy)?;
        let payload =
            self.table.with(id, |entry| (entry.key.clone(), entry.replica.reset_payload()));
        let Some((key, payload)) = payload else { return Err(CallError::Busy) };
        let (op, epoch, counted) = (payload.op, payload.epoch, payload.counted);
        let sent = self.tick();
        let replies = self.store.sync(&[SyncRequest { key, op, epoch, counted }]).await?;
        let verdict = self.table.with(id, |entry| {
            let tick = self.tick();
            for reply in &replies {
                entry.replica.merge(reply, payload.version, (sent, tick));
            }
            entry.replica.refund(step.rule, 0, tick)
        });
        verdict.flatten().ok_or(CallError::Busy)
    }

    /// Pushes all counts that are not pushed.
    pub(super) async fn close(&self) {
        let unpushed = self.table.unpushed(self.tick()).into_iter();
        let replies: Vec<_> = unpushed.map(|id| self.request_sync(id)).collect();
        for reply in replies {
            // A failed push is not repeated at shutdown.
            let _ = reply.await;
        }
    }

    /// Re-pushes all counts that still matter, idle keys included, after the store lost data.
    fn repush_all(&self) {
        let tick = self.tick();
        for id in self.table.ids() {
            self.table.with(id, |entry| {
                entry.replica.mark_unpushed();
                if !entry.is_synced && entry.replica.has_unpushed(tick) {
                    self.schedule_sync(entry);
                }
            });
        }
    }

    /// The entry of an identity, inserted if absent.
    fn entry_id(&self, step: &LocalStep<'_>, interval: Span) -> Option<EntryId> {
        let tick = self.tick();
        let found = self.table.find(step.identity, step.hash, |entry| {
            entry.touch(step.counters, interval, tick);
            entry.id
        });
        found.or_else(|| {
            let key = self.store.key_of(step.identity, KEY_SUFFIX);
            self.table.insert(NewEntry {
                identity: step.identity,
                hash: step.hash,
                slot: self.store.slot_of(&key),
                key,
                replica: KeyReplica::new(step.rule),
                counters: step.counters,
                interval,
                tick,
            })
        })
    }

    async fn sync_now(&self, id: EntryId) -> Result<(), CallError> {
        self.request_sync(id).await.unwrap_or(Err(CallError::Broken))
    }

    fn request_sync(&self, id: EntryId) -> oneshot::Receiver<Result<(), CallError>> {
        let (waiter, outcome) = oneshot::channel();
        self.send(SyncCommand::SyncNow(id, waiter));
        outcome
    }

    #[cold]
    fn schedule_sync(&self, entry: &mut Entry) {
        entry.set_synced(true);
        self.send(SyncCommand::Schedule(entry.id, entry.interval));
    }

    fn send(&self, command: SyncCommand) {
        // The task ends only with this value.
        let _ = self.commands.send(command);
    }

    fn tick(&self) -> Timestamp {
        self.clock.ticks()
    }
}
