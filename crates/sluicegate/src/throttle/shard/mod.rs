//! One shard: some of the keys, and the terms they were last asked under, behind one lock.
//!
//! A key is a hash of 64 bits. Its highest 8 name the shard; turned round by as many, it names a lane of the shard's table.
//! The lane says by itself which terms its state was made by. So whoever comes with others sees it under the same lock, and
//! nobody ever reads a state of the one as one of the other.

#[cfg(test)]
pub(super) mod tests;
mod upkeep;

use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::packed::Packed;
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};

use super::interner::{Book, NOWHERE};
use super::params::Terms;
use super::table::{Held, Lane, Seat, Table};
use crate::memory::slab::{Slab, Whole};
use crate::memory::word::{Content, Epoch, Since, Word};
use crate::memory::{Store, word_of};

/// A shard, under its lock. In this order, what nearly every hit looks at lies in one cache line with the lock.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    /// What the times in the table count from.
    epoch: Epoch,
    table: Table,
    book: Book,
    /// Operations until somebody looks for memory to give back.
    until_sweep: u32,
    slab: Slab,
    /// No search for what has run out is worth its time before.
    renew_after: Since,
}

/// What became of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Decided,
    /// Decided, and a newcomer was added: the table may be another one now.
    Added,
    /// It is a newcomer, and there is no room.
    NoRoom,
}

/// A key and what it wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: u64,
    pub(super) terms: &'a Terms,
    pub(super) cost: u64,
    pub(super) now: Timestamp,
}

// === impl Shard ===

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            // Nobody has told the time yet; the first who does moves it on.
            epoch: Epoch::around(Timestamp::EPOCH),
            table: Table::default(),
            book: Book::new(),
            until_sweep: upkeep::SWEEP_EVERY_MIN,
            slab: Slab::default(),
            renew_after: Since::default(),
        }
    }

    /// A hit. The verdict is written where the caller wants it.
    #[inline]
    pub(super) fn hit(&mut self, store: &Store, wanted: Wanted<'_>, verdict: &mut Verdict) -> Way {
        // Known, under the same terms, in a lane that is found at once: no step further than needed.
        let Wanted { name, terms, cost, now } = wanted;
        if let Some(bucket) = terms.whole()
            && cost > 0
            && let Some((word, place)) = self.table.at_home(name)
            && self.book.is(place, &terms.figures)
            && let Some(kept) = kept_plainly(*word, self.epoch, now)
            && let Some(hit) = bucket.hit(kept, cost, now)
        {
            let Some(packed) = hit.kept else {
                *verdict = Verdict::from_single(&hit.decision());
                return Way::Decided;
            };
            if let Some(new) = Word::packed(packed, self.epoch) {
                *word = new;
                *verdict = Verdict::from_single(&hit.decision());
                return Way::Decided;
            }
        }
        self.hit_any(store, wanted, verdict)
    }

    #[inline(never)]
    fn hit_any(&mut self, store: &Store, wanted: Wanted<'_>, verdict: &mut Verdict) -> Way {
        let wanted = Wanted { now: wanted.now.min(NOW_MAX), ..wanted };
        let Wanted { name, terms, cost, now } = wanted;
        if !self.epoch.suits(now) {
            self.count_from(store, Epoch::around(now), now);
        }
        let since = self.epoch.since(now);
        let seat = self.table.seat(name, since);
        if cost == 0 {
            *verdict = self.look(seat, terms, now);
            return Way::Decided;
        }
        let kept = match seat {
            Seat::Taken(lane) => {
                let held = self.table.held(lane);
                match held.word.content(self.epoch) {
                    Content::Packed(packed) if self.book.is(held.terms, &terms.figures) => {
                        Some(packed)
                    }
                    _ => return self.hit_long(store, wanted, seat, verdict),
                }
            }
            Seat::Free(_) | Seat::Fresh(_) | Seat::Full => None,
        };
        let hit = terms.hit_fast(kept, cost, now);
        let word = match hit.map(|hit| hit.kept) {
            Some(Some(packed)) => Word::packed(packed, self.epoch),
            Some(None) => None,
            None => return self.hit_long(store, wanted, seat, verdict),
        };
        match (hit, word, seat) {
            // Denied: all stays as it is.
            (Some(hit), None, Seat::Taken(_)) if hit.kept.is_none() => {
                *verdict = Verdict::from_single(&hit.decision());
                Way::Decided
            }
            (Some(hit), Some(word), Seat::Taken(lane)) => {
                *verdict = Verdict::from_single(&hit.decision());
                self.table.put(lane, Held { word, ..self.table.held(lane) });
                Way::Decided
            }
            (Some(hit), Some(word), _) => {
                *verdict = Verdict::from_single(&hit.decision());
                self.add(store, wanted, seat, since, |_, _| word)
            }
            _ => self.hit_long(store, wanted, seat, verdict),
        }
    }

    /// Other terms than the last time, a state that is kept whole or will be, a debt, a clock that was set back.
    #[inline(never)]
    fn hit_long(
        &mut self,
        store: &Store,
        wanted: Wanted<'_>,
        seat: Seat,
        verdict: &mut Verdict,
    ) -> Way {
        let Wanted { name, terms, cost, now } = wanted;
        let bucket = terms.bucket();
        let mut state = self.state_under(seat, terms, &bucket, now);
        *verdict =
            Verdict::from_single(&EnforcedLimit::hard(bucket).hit_single(&mut state, cost, now));
        if state == State::New {
            // Also where it has run out: should the clock step back, it would be live again.
            self.forget(store, name);
            return Way::Decided;
        }
        let word = |slab: &mut Slab, epoch| word_of(slab, epoch, &bucket, state);
        match seat {
            Seat::Taken(lane) => {
                let word = word(&mut self.slab, self.epoch);
                self.write(store, lane, wanted, word);
                Way::Decided
            }
            _ => self.add(store, wanted, seat, self.epoch.since(now), word),
        }
    }

    /// What is said to a cost of nothing: how the key stands. No trace is left.
    fn look(&self, seat: Seat, terms: &Terms, now: Timestamp) -> Verdict {
        let bucket = terms.bucket();
        let mut state = self.state_under(seat, terms, &bucket, now);
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

    /// The state in a seat, carried over to these terms if it was made by others. `bucket` is theirs.
    fn state_under(&self, seat: Seat, terms: &Terms, bucket: &Limit, now: Timestamp) -> State {
        let Seat::Taken(lane) = seat else { return State::New };
        let held = self.table.held(lane);
        if self.book.is(held.terms, &terms.figures) {
            return self.state(held, bucket);
        }
        match self.book.figures(held.terms).and_then(Terms::of) {
            Some(old) => {
                let old = old.bucket();
                bucket.carry(&old, self.state(held, &old), CarryOver::Used, now)
            }
            None => State::New,
        }
    }

    /// The state in a lane, which was made by this bucket.
    fn state(&self, held: Held, bucket: &Limit) -> State {
        match held.word.content(self.epoch) {
            Content::Packed(packed) => bucket.unpack(packed),
            Content::Whole(place) => match self.slab.get(place) {
                Some(Whole::State(state)) => state.clone(),
                Some(Whole::Account(_)) | None => State::New,
            },
        }
    }

    /// Forgets a key.
    pub(super) fn forget(&mut self, store: &Store, name: u64) {
        if let Some(lane) = self.table.find(name) {
            self.give_up(store, self.table.held(lane));
            self.table.put(lane, Held { name, word: Word::GONE, terms: NOWHERE });
        }
    }

    /// Gives a newcomer its lane, if there is room. `word` is asked for only then.
    #[inline(never)]
    fn add(
        &mut self,
        store: &Store,
        wanted: Wanted<'_>,
        seat: Seat,
        since: Since,
        word: impl FnOnce(&mut Slab, Epoch) -> Word,
    ) -> Way {
        let mut seat = seat;
        if !matches!(seat, Seat::Free(_)) {
            if !self.reserve(store, since) {
                return Way::NoRoom;
            }
            seat = self.table.seat(wanted.name, since);
            if seat == Seat::Full {
                self.renew(store, 1, since);
                seat = self.table.seat(wanted.name, since);
            }
            // What was set aside is what a lane that was never used costs.
            if !matches!(seat, Seat::Fresh(_)) {
                store.budget().release(1);
            }
        }
        let (Seat::Taken(lane) | Seat::Free(lane) | Seat::Fresh(lane)) = seat else {
            // A table just made anew has room.
            return Way::NoRoom;
        };
        let word = word(&mut self.slab, self.epoch);
        self.write(store, lane, wanted, word);
        Way::Added
    }

    /// Writes a state, and the terms it was made by, over what a lane held.
    fn write(&mut self, store: &Store, lane: Lane, wanted: Wanted<'_>, word: Word) {
        let mut before = self.table.held(lane);
        let terms = match self.book.is(before.terms, &wanted.terms.figures) {
            true => std::mem::replace(&mut before.terms, NOWHERE),
            false => self.book.enter(store, &wanted.terms.figures),
        };
        self.give_up(store, before);
        self.table.put(lane, Held { name: wanted.name, word, terms });
    }

    /// Gives up what a lane leads to: its terms, and the whole state if it has one.
    fn give_up(&mut self, store: &Store, held: Held) {
        self.book.leave(store, held.terms);
        if let Some(place) = held.word.place() {
            self.slab.take(place);
        }
    }
}

/// What a lane keeps of its key, in the common case: a whole number of microseconds, or nothing since it has run out.
#[inline]
fn kept_plainly(word: Word, epoch: Epoch, now: Timestamp) -> Option<Option<Packed>> {
    match word.whole_micros(epoch, now) {
        Some(packed) => Some(Some(packed)),
        None => (word.place().is_none() && !word.is_live(epoch.since(now))).then_some(None),
    }
}
