//! Deciding here, and telling the others afterwards.
//!
//! A node decides by what it has counted itself and what it last heard of the others. Twice in every `sync_interval` it tells how much it has counted in each window,
//! and hears how much the others have: so what is admitted somewhere is known everywhere within one interval, and the time of two calls. As much more than its limit may pass
//! as was admitted meanwhile by nodes that did not know of each other. What a node has counted only rises and is merged by the greater number, so
//! nothing is lost or doubled when a call is, and a node that has gone leaves what it had counted.
//!
//! Windows are those of the store's clock, which a node knows to within a round trip (`store_time`).

mod book;
mod deciding;
mod peaks;
mod series;
mod store_time;
mod syncing;
mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Verdict};
use tokio::sync::{mpsc, oneshot};

use super::local::{Local, LocalStep};
use crate::sync::SyncRequest;
use crate::{CallError, Store};
use book::Book;
use sluicegate::backend::Rule;
use sluicegate::clock::TimeSource;
use sluicegate::{Level, Promise};
use syncing::Word;
use table::{Entry, Name, Newcomer, Table};

/// What stands beside the identity in the names of what is kept.
const BESIDE: &str = ":e";

/// The identities that this node decides by itself and tells the others of.
#[derive(Debug)]
pub(super) struct Eventual {
    store: Store,
    clock: TimeSource,
    table: Table,
    words: mpsc::UnboundedSender<Word>,
}

// === impl Eventual ===

impl Eventual {
    /// Begins to tell and to hear. `clock` is whose ticks the others are asked with: the system's unless told. To be called where tokio runs.
    pub(super) fn start(store: &Store, clock: &TimeSource) -> Arc<Self> {
        Self::with(store, clock.clone(), Table::new())
    }

    fn with(store: &Store, clock: TimeSource, table: Table) -> Arc<Self> {
        let (words, heard) = mpsc::unbounded_channel();
        let this = Arc::new(Self { store: store.clone(), clock, table, words });
        tokio::spawn(syncing::serve(Arc::downgrade(&this), heard));
        tokio::spawn(syncing::tell_again(Arc::downgrade(&this)));
        this
    }

    /// Whether limits can be counted like this.
    pub(super) fn serves(rule: &Rule) -> bool {
        book::serves(rule)
    }

    /// May it go? If so it is counted.
    #[inline]
    pub(super) fn hit(&self, step: &LocalStep<'_>, sync_interval: Span, tick: Timestamp) -> Local {
        self.ask(step, sync_interval, tick, |book| {
            book.hit(step.rule, step.cost, sync_interval, tick)
        })
    }

    /// Might it go? Nothing is counted.
    pub(super) fn peek(&self, step: &LocalStep<'_>, sync_interval: Span, tick: Timestamp) -> Local {
        self.ask(step, sync_interval, tick, |book| {
            book.peek(step.rule, step.cost, sync_interval, tick)
        })
    }

    #[inline]
    fn ask(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
        tick: Timestamp,
        ask: impl FnOnce(&mut Book) -> Option<Verdict>,
    ) -> Local {
        let said = self.table.find(step.identity, step.hash, |entry| {
            entry.is_asked(step.counters, sync_interval, tick);
            if !entry.is_synced {
                self.begin_to_sync(entry);
            }
            let verdict = ask(&mut entry.book)?;
            Some((verdict, Promise { level: Level::Eventual, over: entry.book.over() }))
        });
        said.flatten().map_or(Local::Unknown, |(verdict, promise)| Local::Decided(verdict, promise))
    }

    /// What each limit says on its own to a cost.
    ///
    /// # Errors
    /// When the store does not answer, and it is not known how it stands.
    pub(super) async fn look(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Vec<Decision>, CallError> {
        let look = || {
            let tick = self.tick();
            let said = self.table.find(step.identity, step.hash, |entry| {
                entry.book.look(step.rule, step.cost, sync_interval, tick)
            });
            said.flatten()
        };
        if let Some(said) = look() {
            return Ok(said);
        }
        self.pull(step, sync_interval).await?;
        look().ok_or(CallError::Busy)
    }

    /// A hit was admitted without asking: nobody could be heard. The others are told when they can be.
    pub(super) fn count(&self, step: &LocalStep<'_>, tick: Timestamp) {
        self.table.find(step.identity, step.hash, |entry| {
            entry.book.count(step.rule, step.cost, tick);
            if !entry.is_synced {
                self.begin_to_sync(entry);
            }
        });
    }

    /// What this node has counted in the windows of this moment.
    pub(super) fn own(&self, step: &LocalStep<'_>, tick: Timestamp) -> u64 {
        let own = |entry: &mut Entry| entry.book.own(step.rule, tick);
        self.table.find(step.identity, step.hash, own).unwrap_or(0)
    }

    /// A hit that was said to pass just now does not happen.
    pub(super) fn undo(&self, step: &LocalStep<'_>, tick: Timestamp) {
        self.table.find(step.identity, step.hash, |entry| {
            entry.book.refund(step.rule, step.cost, tick);
        });
    }

    /// Hears of the others at once: then [`Eventual::hit`] knows enough.
    ///
    /// # Errors
    /// When the store does not answer, or there are more identities than can be held.
    pub(super) async fn pull(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<(), CallError> {
        let name = self.known(step, sync_interval).ok_or(CallError::Busy)?;
        self.sync_now(name).await
    }

    /// Gives back what was admitted, here or elsewhere, and tells the others at once. How it stands then.
    ///
    /// # Errors
    /// When the store does not answer, and it is not known how it stands. If it only could not be told, that is done later.
    pub(super) async fn refund(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Verdict, CallError> {
        if let Local::Unknown = self.ask(step, sync_interval, self.tick(), |book| {
            book.peek(step.rule, 0, sync_interval, self.tick())
        }) {
            self.pull(step, sync_interval).await?;
        }
        let given = self.table.find(step.identity, step.hash, |entry| {
            let verdict = entry.book.refund(step.rule, step.cost, self.tick());
            verdict.map(|verdict| (entry.name, verdict))
        });
        let Some((name, verdict)) = given.flatten() else { return Err(CallError::Busy) };
        // It is told later if not now.
        let _ = self.sync_now(name).await;
        Ok(verdict)
    }

    /// Makes it as new, for everybody. How it stands then.
    ///
    /// # Errors
    /// When the store does not answer. Nothing has changed then, unless it was too late to say so.
    pub(super) async fn reset(
        &self,
        step: &LocalStep<'_>,
        sync_interval: Span,
    ) -> Result<Verdict, CallError> {
        // It has to be known for how long that is to be remembered.
        self.pull(step, sync_interval).await?;
        let name = self.known(step, sync_interval).ok_or(CallError::Busy)?;
        let telling =
            self.table.with(name, |entry| (entry.key.clone(), entry.book.tells_to_forget()));
        let Some((key, telling)) = telling else { return Err(CallError::Busy) };
        let (op, epoch, counted) = (telling.op, telling.epoch, telling.counted);
        let sent = self.tick();
        let heard = self.store.sync(&[SyncRequest { key, op, epoch, counted }]).await?;
        let stands = self.table.with(name, |entry| {
            let tick = self.tick();
            for heard in &heard {
                entry.book.hears(heard, telling.version, (sent, tick));
            }
            entry.book.refund(step.rule, 0, tick)
        });
        stands.flatten().ok_or(CallError::Busy)
    }

    /// Tells the others everything that they have not heard.
    pub(super) async fn close(&self) {
        let untold = self.table.untold(self.tick()).into_iter();
        let told: Vec<_> = untold.map(|name| self.say_to_sync(name)).collect();
        for reply in told {
            // Who cannot be told now is not told at all.
            let _ = reply.await;
        }
    }

    /// The store may have forgotten what it was told: everything that is still of use is told once more, also of whom nobody asks for.
    fn tell_again(&self) {
        let tick = self.tick();
        for name in self.table.all() {
            self.table.with(name, |entry| {
                entry.book.forgotten();
                if !entry.is_synced && entry.book.is_untold(tick) {
                    self.begin_to_sync(entry);
                }
            });
        }
    }

    /// The entry of an identity, which is taken up if it is not known.
    fn known(&self, step: &LocalStep<'_>, interval: Span) -> Option<Name> {
        let tick = self.tick();
        let found = self.table.find(step.identity, step.hash, |entry| {
            entry.is_asked(step.counters, interval, tick);
            entry.name
        });
        found.or_else(|| {
            let key = self.store.key_of(step.identity, BESIDE);
            self.table.take_up(Newcomer {
                identity: step.identity,
                hash: step.hash,
                slot: self.store.slot_of(&key),
                key,
                book: Book::new(step.rule),
                counters: step.counters,
                interval,
                tick,
            })
        })
    }

    async fn sync_now(&self, name: Name) -> Result<(), CallError> {
        self.say_to_sync(name).await.unwrap_or(Err(CallError::Broken))
    }

    fn say_to_sync(&self, name: Name) -> oneshot::Receiver<Result<(), CallError>> {
        let (reply, said) = oneshot::channel();
        self.say(Word::Ask(name, reply));
        said
    }

    #[cold]
    fn begin_to_sync(&self, entry: &mut Entry) {
        entry.set_synced(true);
        self.say(Word::Sync(entry.name, entry.interval));
    }

    fn say(&self, word: Word) {
        // The task ends with us, not before.
        let _ = self.words.send(word);
    }

    fn tick(&self) -> Timestamp {
        self.clock.ticks()
    }
}
