//! One shard of a throttle: some keys with the parameters of their last call, behind one lock.
//!
//! A key is a 64-bit hash. Its highest 8 bits select the shard; rotated by as many, it names a
//! lane. The lane refers to the parameters its state was made with, so that no state is ever read
//! under other parameters.

#[cfg(test)]
pub(super) mod tests;

use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::packed::Packed;
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};

use super::interner::{Interner, ParamsIndex};
use super::params::ThrottleParams;
use crate::memory::lanes::Lanes;
use crate::memory::shard_set::ShardUpkeep;
use crate::memory::slab::{Slab, Whole};
use crate::memory::table::{Lane, LaneEntry, Probe};
use crate::memory::word::{Content, Epoch, Since, Word};
use crate::memory::{Store, word_of};

/// A shard, under its lock. A hit reads the start of `lanes` and of `interner`: two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ThrottleShard {
    lanes: Lanes<ParamsIndex, 3>,
    interner: Interner,
}

/// The result of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThrottleOutcome {
    Decided,
    /// Decided, and a lane was added: the table may have been rebuilt.
    Added,
    /// Not decided: there is no room for a newcomer.
    NoRoom,
}

/// A hit on a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThrottleHit<'a> {
    pub(super) name: u64,
    pub(super) params: &'a ThrottleParams,
    pub(super) cost: u64,
    pub(super) now: Timestamp,
}

type Entry = LaneEntry<ParamsIndex>;

impl ThrottleShard {
    pub(super) fn new() -> Self {
        // The first call rebases it to the current time.
        Self { lanes: Lanes::new(Epoch::around(Timestamp::EPOCH)), interner: Interner::new() }
    }

    /// Decides a hit. The verdict is written in place.
    #[inline]
    pub(super) fn hit(
        &mut self,
        store: &Store,
        args: ThrottleHit<'_>,
        verdict: &mut Verdict,
    ) -> ThrottleOutcome {
        // The most common case: a known key in its home bucket, under the same parameters.
        let ThrottleHit { name, params, cost, now } = args;
        if let Some(bucket) = params.integer_bucket()
            && cost > 0
            && let Some((word, index)) = self.lanes.table.at_home(name)
            && self.interner.is(index, &params.raw)
            && let Some(kept) = fast_state(*word, self.lanes.epoch, now)
            && let Some(hit) = bucket.hit(kept, cost, now)
        {
            let Some(packed) = hit.stored else {
                *verdict = Verdict::from_single(&hit.decision());
                return ThrottleOutcome::Decided;
            };
            if let Some(new) = Word::packed(packed, self.lanes.epoch) {
                *word = new;
                *verdict = Verdict::from_single(&hit.decision());
                return ThrottleOutcome::Decided;
            }
        }
        self.hit_slow(store, args, verdict)
    }

    #[inline(never)]
    fn hit_slow(
        &mut self,
        store: &Store,
        args: ThrottleHit<'_>,
        verdict: &mut Verdict,
    ) -> ThrottleOutcome {
        let args = ThrottleHit { now: args.now.min(NOW_MAX), ..args };
        let ThrottleHit { name, params, cost, now } = args;
        if !self.lanes.epoch.suits(now) {
            self.rebase(store, Epoch::around(now), now);
        }
        let since = self.lanes.epoch.since(now);
        let probe = self.lanes.table.probe(name, since);
        if cost == 0 {
            *verdict = self.peek(probe, params, now);
            return ThrottleOutcome::Decided;
        }
        let kept = match probe {
            Probe::Occupied(lane) => {
                let entry = self.lanes.table.entry(lane);
                match entry.word.content(self.lanes.epoch) {
                    Content::Packed(packed) if self.interner.is(entry.extra, &params.raw) => {
                        Some(packed)
                    }
                    _ => return self.hit_whole(store, args, probe, verdict),
                }
            }
            Probe::Expired(_) | Probe::Empty(_) | Probe::Full => None,
        };
        let hit = params.hit_fast(kept, cost, now);
        let word = match hit.map(|hit| hit.stored) {
            Some(Some(packed)) => Word::packed(packed, self.lanes.epoch),
            Some(None) => None,
            None => return self.hit_whole(store, args, probe, verdict),
        };
        match (hit, word, probe) {
            // Denied: nothing changes.
            (Some(hit), None, Probe::Occupied(_)) if hit.stored.is_none() => {
                *verdict = Verdict::from_single(&hit.decision());
                ThrottleOutcome::Decided
            }
            (Some(hit), Some(word), Probe::Occupied(lane)) => {
                *verdict = Verdict::from_single(&hit.decision());
                self.lanes.table.put(lane, Entry { word, ..self.lanes.table.entry(lane) });
                ThrottleOutcome::Decided
            }
            (Some(hit), Some(word), _) => {
                *verdict = Verdict::from_single(&hit.decision());
                self.add(store, args, probe, since, |_, _| word)
            }
            _ => self.hit_whole(store, args, probe, verdict),
        }
    }

    /// Other parameters than in the last call, a state that is not packed, a debt, or a clock that
    /// was set back.
    #[inline(never)]
    fn hit_whole(
        &mut self,
        store: &Store,
        args: ThrottleHit<'_>,
        probe: Probe,
        verdict: &mut Verdict,
    ) -> ThrottleOutcome {
        let ThrottleHit { name, params, cost, now } = args;
        let bucket = params.bucket();
        let mut state = self.state_under(probe, params, &bucket, now);
        *verdict =
            Verdict::from_single(&EnforcedLimit::hard(bucket).hit_single(&mut state, cost, now));
        if state == State::New {
            // Expired ones too: they would be live again if the clock stepped back.
            self.forget(store, name);
            return ThrottleOutcome::Decided;
        }
        let word = |slab: &mut Slab, epoch| word_of(slab, epoch, &bucket, state);
        match probe {
            Probe::Occupied(lane) => {
                let word = word(&mut self.lanes.slab, self.lanes.epoch);
                self.write(store, lane, args, word);
                ThrottleOutcome::Decided
            }
            _ => self.add(store, args, probe, self.lanes.epoch.since(now), word),
        }
    }

    /// The verdict on a cost of 0: always allowed, and nothing changes.
    fn peek(&self, probe: Probe, params: &ThrottleParams, now: Timestamp) -> Verdict {
        let bucket = params.bucket();
        let mut state = self.state_under(probe, params, &bucket, now);
        bucket.open(&mut state, now);
        Verdict::from_single(&Decision {
            outcome: Outcome::Allow { wait: Span::ZERO },
            enforced: true,
            remaining: bucket.remaining(&state, now),
            reset_after: bucket.full_after(&state, now),
            beyond: 0,
            soft: false,
            elastic: false,
        })
    }

    /// The state of a lane, carried over to `params`, whose bucket is `bucket`.
    fn state_under(
        &self,
        probe: Probe,
        params: &ThrottleParams,
        bucket: &Limit,
        now: Timestamp,
    ) -> State {
        let Probe::Occupied(lane) = probe else { return State::New };
        let entry = self.lanes.table.entry(lane);
        if self.interner.is(entry.extra, &params.raw) {
            return self.state(entry, bucket);
        }
        match self.params(entry) {
            Some(old) => {
                let old = old.bucket();
                bucket.carry(&old, self.state(entry, &old), CarryOver::Used, now)
            }
            None => State::New,
        }
    }

    /// The state of a lane that was made with `bucket`.
    fn state(&self, entry: Entry, bucket: &Limit) -> State {
        match entry.word.content(self.lanes.epoch) {
            Content::Packed(packed) => bucket.unpack(packed),
            Content::Whole(index) => match self.lanes.slab.get(index) {
                Some(Whole::State(state)) => state.clone(),
                Some(Whole::Account(_)) | None => State::New,
            },
        }
    }

    fn params(&self, entry: Entry) -> Option<ThrottleParams> {
        self.interner.get(entry.extra).and_then(ThrottleParams::from_raw)
    }
}

impl ThrottleShard {
    /// Counts an operation; whether a sweep is due.
    #[inline]
    pub(super) fn sweep_due(&mut self) -> bool {
        self.lanes.sweep_due()
    }

    /// Removes a key.
    pub(super) fn forget(&mut self, store: &Store, name: u64) {
        if let Some(lane) = self.find(name) {
            let entry = self.lanes.table.entry(lane);
            self.drop_entry(store, entry);
            self.lanes.table.put(lane, entry.gone());
        }
    }

    /// The lane of a name, expired or not.
    fn find(&self, name: u64) -> Option<Lane> {
        // At the epoch every lane is live that was not removed.
        match self.lanes.table.probe(name, Since::default()) {
            Probe::Occupied(lane) => Some(lane),
            Probe::Expired(_) | Probe::Empty(_) | Probe::Full => None,
        }
    }

    /// Adds a lane for a newcomer, if there is room; `word` is called only then.
    #[inline(never)]
    fn add(
        &mut self,
        store: &Store,
        args: ThrottleHit<'_>,
        probe: Probe,
        since: Since,
        word: impl FnOnce(&mut Slab, Epoch) -> Word,
    ) -> ThrottleOutcome {
        let mut probe = probe;
        if !matches!(probe, Probe::Expired(_)) {
            let (lanes, interner) = (&mut self.lanes, &mut self.interner);
            if !lanes.reserve(store.budget(), since, |index| interner.release(store, index)) {
                return ThrottleOutcome::NoRoom;
            }
            probe = lanes.table.probe(args.name, since);
            if probe == Probe::Full {
                lanes.rebuild(store.budget(), 1, since, |index| interner.release(store, index));
                probe = lanes.table.probe(args.name, since);
            }
            // The reservation pays for an empty lane only.
            if !matches!(probe, Probe::Empty(_)) {
                store.budget().release(1);
            }
        }
        let (Probe::Occupied(lane) | Probe::Expired(lane) | Probe::Empty(lane)) = probe else {
            // A table that was just rebuilt has room.
            return ThrottleOutcome::NoRoom;
        };
        let word = word(&mut self.lanes.slab, self.lanes.epoch);
        self.write(store, lane, args, word);
        ThrottleOutcome::Added
    }

    /// Writes a state and its parameters over the content of a lane.
    fn write(&mut self, store: &Store, lane: Lane, args: ThrottleHit<'_>, word: Word) {
        let mut before = self.lanes.table.entry(lane);
        let extra = match self.interner.is(before.extra, &args.params.raw) {
            true => std::mem::replace(&mut before.extra, ParamsIndex::NONE),
            false => self.interner.intern(store, &args.params.raw),
        };
        self.drop_entry(store, before);
        self.lanes.table.put(lane, Entry { name: args.name, word, extra });
    }

    /// Releases the parameters and the whole state of a lane.
    fn drop_entry(&mut self, store: &Store, entry: Entry) {
        self.interner.release(store, entry.extra);
        self.lanes.slab.drop_state(entry.word);
    }

    /// Counts times from another epoch; drops expired lanes.
    fn rebase(&mut self, store: &Store, epoch: Epoch, now: Timestamp) {
        self.rebuild(store, self.lanes.epoch.since(now));
        self.rebase_all(epoch);
    }

    fn rebuild(&mut self, store: &Store, since: Since) {
        let interner = &mut self.interner;
        self.lanes.rebuild(store.budget(), 0, since, |index| interner.release(store, index));
    }

    fn rebase_all(&mut self, epoch: Epoch) {
        let interner = &self.interner;
        let bucket = |entry: Entry| {
            let params = interner.get(entry.extra).and_then(ThrottleParams::from_raw)?;
            Some(params.bucket())
        };
        self.lanes.rebase(
            epoch,
            |entry, whole| match (whole, bucket(entry)) {
                (Whole::State(state), Some(bucket)) => bucket.expires_at(state),
                _ => Timestamp::EPOCH,
            },
            |entry, packed| bucket(entry).map_or(State::New, |bucket| bucket.unpack(packed)),
        );
    }

    /// Compacts the interner if most of it is free.
    fn compact_interner(&mut self, store: &Store) {
        if !self.interner.is_sparse() {
            return;
        }
        let old = std::mem::replace(&mut self.interner, Interner::new());
        let interner = &mut self.interner;
        self.lanes.table.replace(|entry| match old.get(entry.extra) {
            Some(raw) => Entry { extra: interner.intern(store, &raw), ..entry },
            None => entry,
        });
    }
}

impl ThrottleShard {
    /// The names of live lanes.
    pub(super) fn names(&self, now: Timestamp) -> Vec<u64> {
        self.lanes.table.live(self.lanes.epoch.since(now)).map(|entry| entry.name).collect()
    }

    /// The parameters and the state of a name.
    pub(super) fn get(&self, name: u64) -> Option<(ThrottleParams, State)> {
        let entry = self.lanes.table.entry(self.find(name)?);
        let params = self.params(entry)?;
        let state = self.state(entry, &params.bucket());
        (state != State::New).then_some((params, state))
    }

    /// Stores a state from a snapshot, if there is room. The time is unknown; expiries approximate
    /// it.
    pub(super) fn restore(
        &mut self,
        store: &Store,
        name: u64,
        params: &ThrottleParams,
        state: State,
    ) -> ThrottleOutcome {
        let bucket = params.bucket();
        let expires_at = bucket.expires_at(&state);
        let since = Since::default();
        if self.used() == 0 || self.lanes.epoch.since(expires_at) == since {
            self.rebase_all(Epoch::around(expires_at));
        }
        let args = ThrottleHit { name, params, cost: 0, now: Timestamp::EPOCH };
        let probe = self.lanes.table.probe(name, since);
        self.add(store, args, probe, since, |slab, epoch| word_of(slab, epoch, &bucket, state))
    }
}

impl ShardUpkeep for ThrottleShard {
    fn used(&self) -> usize {
        self.lanes.table.used()
    }

    fn extent(&self) -> (usize, usize) {
        self.lanes.table.extent()
    }

    fn sweep(&mut self, store: &Store, now: Timestamp) {
        if !self.lanes.epoch.suits(now) && self.used() > 0 {
            self.rebase(store, Epoch::around(now), now);
        }
        let since = self.lanes.epoch.since(now);
        if self.lanes.table.is_sparse(since) {
            self.rebuild(store, since);
        } else if self.interner.len() > 1 || self.lanes.slab.len() > 0 {
            let interner = &mut self.interner;
            self.lanes.drop_expired(since, |_| true, |index| interner.release(store, index));
        }
        self.lanes.compact_slab();
        self.compact_interner(store);
    }

    fn reclaim(&mut self, store: &Store, now: Timestamp) {
        let (since, interner) = (self.lanes.epoch.since(now), &mut self.interner);
        self.lanes.reclaim(store.budget(), since, |index| interner.release(store, index));
    }
}

/// The state of a lane on the fast path: at a whole microsecond, or none since it has expired.
#[inline]
fn fast_state(word: Word, epoch: Epoch, now: Timestamp) -> Option<Option<Packed>> {
    match word.whole_micros(epoch, now) {
        Some(packed) => Some(Some(packed)),
        None => (word.index().is_none() && !word.is_live(epoch.since(now))).then_some(None),
    }
}
