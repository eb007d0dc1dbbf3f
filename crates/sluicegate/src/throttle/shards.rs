//! The shards of a throttle.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::NoRoom;
use super::params::{RawParams, ThrottleParams};
use super::shard::{ThrottleHit, ThrottleOutcome, ThrottleShard};
use crate::memory::shard_set::{SHARD_BITS, ShardSet};
use crate::memory::{Section, Store, UNCOUNTED};
use crate::snapshot::{Entry, Sink};

/// Keys copied under one lock when all are read.
const AT_A_TIME: usize = 128;
/// Shards that a newcomer without room reclaims from.
const RECLAIMS_MAX: usize = 8;

/// The keys of a throttle.
#[derive(Debug)]
pub(super) struct ThrottleShards {
    set: ShardSet<ThrottleShard>,
    /// The time of a recent call, in microseconds.
    last_now: AtomicU64,
}

impl ThrottleShards {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let set = ShardSet::new(store, SHARD_BITS, ThrottleShard::new);
        Self { set, last_now: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.store().hash(key)
    }

    pub(super) fn store(&self) -> &Store {
        self.set.store()
    }

    /// Prefetches the memory that a hit on `hash` reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.set.prefetch(index(hash), name(hash));
    }

    #[inline]
    pub(super) fn hit(
        &self,
        hash: u64,
        params: &ThrottleParams,
        cost: u64,
        now: Timestamp,
    ) -> Result<Verdict, NoRoom> {
        let args = ThrottleHit { name: name(hash), params, cost, now };
        let mut verdict = UNCOUNTED;
        match self.hit_once(index(hash), args, &mut verdict) {
            ThrottleOutcome::NoRoom => self.hit_without_room(hash, args),
            ThrottleOutcome::Decided | ThrottleOutcome::Added => Ok(verdict),
        }
    }

    #[inline]
    fn hit_once(
        &self,
        index: usize,
        args: ThrottleHit<'_>,
        verdict: &mut Verdict,
    ) -> ThrottleOutcome {
        let mut shard = self.set.lock(index);
        let outcome = shard.hit(self.store(), args, verdict);
        if outcome == ThrottleOutcome::Added {
            self.set.update_hint(index, &shard);
            self.set_last_now(args.now);
        }
        let sweep = shard.sweep_due();
        drop(shard);
        if sweep {
            self.set.sweep_next(args.now);
            self.set_last_now(args.now);
        }
        outcome
    }

    /// The key's own shard had nothing to reclaim: tries other shards, and other limiters of the
    /// store.
    #[cold]
    fn hit_without_room(&self, hash: u64, args: ThrottleHit<'_>) -> Result<Verdict, NoRoom> {
        let budget = self.store().budget();
        for _ in 0..RECLAIMS_MAX {
            self.set.reclaim_next(args.now);
            if budget.has_room() {
                let mut verdict = UNCOUNTED;
                match self.hit_once(index(hash), args, &mut verdict) {
                    ThrottleOutcome::NoRoom => {}
                    ThrottleOutcome::Decided | ThrottleOutcome::Added => return Ok(verdict),
                }
            }
        }
        Err(NoRoom { max: budget.max() })
    }

    pub(super) fn forget(&self, hash: u64) {
        self.set.lock(index(hash)).forget(self.store(), name(hash));
    }

    pub(super) fn entries(&self) -> usize {
        self.set.used()
    }

    /// Calls `each` with a copy of every live key. A few are copied at a time, so that keys are
    /// consistent one by one, not with each other.
    pub(super) fn each_live<E>(
        &self,
        mut each: impl FnMut(u64, ThrottleParams, State) -> Result<(), E>,
    ) -> Result<(), E> {
        for index in 0..self.set.len() {
            let names = self.set.lock(index).names(self.last_now());
            for some in names.chunks(AT_A_TIME) {
                let shard = self.set.lock(index);
                let live: Vec<_> = some.iter().map(|name| (*name, shard.get(*name))).collect();
                drop(shard);
                for (name, found) in live {
                    if let Some((params, state)) = found {
                        each(hash_of(name), params, state)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores a state from a snapshot, if there is room.
    pub(super) fn restore(&self, hash: u64, params: &ThrottleParams, state: State) {
        let mut shard = self.set.lock(index(hash));
        shard.restore(self.store(), name(hash), params, state);
        self.set.update_hint(index(hash), &shard);
    }

    /// Releases memory that is no longer needed.
    pub(super) fn sweep(&self, now: Timestamp) {
        self.set.sweep(now);
        self.set_last_now(now);
    }

    /// Drops keys that had expired at the time of a recent call, where that is worth the time.
    pub(super) fn reclaim(&self) {
        self.set.reclaim(self.last_now());
    }

    /// Calls `inspect` with every shard.
    #[cfg(test)]
    pub(super) fn inspect<T>(&self, mut inspect: impl FnMut(&mut ThrottleShard) -> T) -> Vec<T> {
        (0..self.set.len()).map(|index| inspect(&mut self.set.lock(index))).collect()
    }

    fn last_now(&self) -> Timestamp {
        Timestamp::from_micros(self.last_now.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_last_now(&self, now: Timestamp) {
        self.last_now.store(now.as_micros(), Ordering::Relaxed);
    }
}

/// The shard of a key.
#[inline]
const fn index(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARD_BITS)) as usize
}

/// The lane name of a key: the table uses the highest bits first, which select the shard.
#[inline]
const fn name(hash: u64) -> u64 {
    hash.rotate_left(SHARD_BITS)
}

const fn hash_of(name: u64) -> u64 {
    name.rotate_right(SHARD_BITS)
}

/// The name of the throttle among the limiters of its store.
const NAME: &str = "sluicegate::throttle";

impl Section for ThrottleShards {
    fn name(&self) -> &str {
        NAME
    }

    fn write_to(&self, sink: &mut Sink<'_>) -> io::Result<()> {
        sink.limiter(NAME, SHARD_BITS, Mode::Hard, &[])?;
        self.each_live(|hash, params, state| {
            sink.entry(&Entry { hash, account: to_account(&params, state) })
        })?;
        sink.end()
    }

    fn is_retired(&self) -> bool {
        false
    }

    fn reclaim(&self) {
        self.reclaim();
    }
}

/// Registers the throttle with its store and restores its keys.
pub(super) fn register(shards: &Arc<ThrottleShards>) {
    let store = shards.store();
    store.with_restored(|restored| {
        restored.limiter(
            NAME,
            |_, _| (),
            |(), Entry { hash, account }| {
                if let Some((params, state)) = from_account(account) {
                    shards.restore(hash, &params, state);
                }
            },
        );
    });
    let section: Arc<dyn Section> = shards.clone();
    store.add_limiter(&section);
}

fn to_account(params: &ThrottleParams, state: State) -> Account {
    let RawParams { limit, count, period_s } = params.raw;
    Account::from_states([
        (state, State::New),
        (State::Spent(limit), State::Spent(count)),
        (State::Spent(period_s), State::New),
    ])
}

/// The inverse of [`to_account`]; `None` if malformed.
fn from_account(account: Account) -> Option<(ThrottleParams, State)> {
    let mut states = account.into_states().ok()?.into_iter();
    let (state @ State::Gcra(_), State::New) = states.next()? else { return None };
    let (State::Spent(limit), State::Spent(count)) = states.next()? else { return None };
    let (State::Spent(period_s), State::New) = states.next()? else { return None };
    let params = ThrottleParams::from_raw(RawParams { limit, count, period_s })?;
    states.next().is_none().then_some((params, state))
}
