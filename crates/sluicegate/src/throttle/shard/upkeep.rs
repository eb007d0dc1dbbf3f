//! Making room, giving memory back, and what a snapshot wants.

use sluicegate_core::limit::State;
use sluicegate_core::time::Timestamp;

use super::{Book, Content, Epoch, Held, NOWHERE, Shard, Since, Slab, Store, Terms, Wanted, Way};
use super::{Whole, Word};

/// The fewest operations between two looks for memory to give back.
pub(super) const SWEEP_EVERY_MIN: u32 = 1_024;
/// At the cap, the part of the lanes that must have run out before looking for them is worth it.
const WORTH_RECLAIMING: usize = 8;
/// How many lanes are looked at to guess when that will be.
const SAMPLE: usize = 64;

impl Shard {
    /// Lanes in use, live or not.
    pub(in crate::throttle) fn used(&self) -> usize {
        self.table.used()
    }

    pub(in crate::throttle) fn extent(&self) -> (usize, usize) {
        self.table.extent()
    }

    /// Sets a lane aside for a newcomer; looks for lanes that have run out if that may help.
    pub(super) fn reserve(&mut self, store: &Store, since: Since) -> bool {
        store.budget().reserve() || {
            self.reclaim(store, since);
            store.budget().reserve()
        }
    }

    /// Makes the table anew, with room for `more`.
    pub(super) fn renew(&mut self, store: &Store, more: usize, since: Since) {
        let used = self.table.used();
        let (book, slab) = (&mut self.book, &mut self.slab);
        self.table.renew(more, since, |held| give_up(store, book, slab, held));
        store.budget().release(used.saturating_sub(self.table.used()));
    }

    /// At the cap: drops what has run out.
    pub(in crate::throttle) fn reclaim_at(&mut self, store: &Store, now: Timestamp) {
        self.reclaim(store, self.epoch.since(now));
    }

    /// The same, unless there cannot be enough of it to be worth the time. So a flood of newcomers costs a bounded number of looks
    /// each, however many lanes there are.
    fn reclaim(&mut self, store: &Store, since: Since) {
        if since < self.renew_after || self.table.used() == 0 {
            return;
        }
        self.renew(store, 0, since);
        let step = (self.table.used() / SAMPLE).max(1);
        let mut ends: Vec<Since> =
            self.table.live(since).step_by(step).map(|held| held.word.until()).collect();
        ends.sort_unstable();
        self.renew_after = ends.get(ends.len() / WORTH_RECLAIMING).copied().unwrap_or(since);
    }

    /// Counts an operation; whether it is time to look for memory to give back.
    #[inline]
    pub(in crate::throttle) fn sweep_due(&mut self) -> bool {
        self.until_sweep = self.until_sweep.wrapping_sub(1);
        if self.until_sweep > 0 {
            return false;
        }
        let lanes = u32::try_from(self.table.lanes()).unwrap_or(u32::MAX);
        self.until_sweep = lanes.max(SWEEP_EVERY_MIN);
        true
    }

    /// Gives memory back that is not needed any more.
    pub(in crate::throttle) fn sweep(&mut self, store: &Store, now: Timestamp) {
        if !self.epoch.suits(now) && self.table.used() > 0 {
            self.count_from(store, Epoch::around(now), now);
        }
        let since = self.epoch.since(now);
        if self.table.is_sparse(since) {
            self.renew(store, 0, since);
        } else if self.book.len() > 1 || self.slab.len() > 0 {
            self.drop_run_out(store, since);
        }
        if self.slab.is_sparse() {
            self.pack_slab();
        }
        if self.book.is_sparse() {
            self.pack_book(store);
        }
    }

    /// Gives up what lanes lead to that have run out; the lanes stay.
    fn drop_run_out(&mut self, store: &Store, since: Since) {
        let (book, slab) = (&mut self.book, &mut self.slab);
        self.table.replace(|held| {
            if held.word.is_live(since) {
                return held;
            }
            give_up(store, book, slab, held);
            Held { word: Word::GONE, terms: NOWHERE, ..held }
        });
    }

    /// Moves the whole states together.
    fn pack_slab(&mut self) {
        let mut packed = Slab::default();
        let slab = &mut self.slab;
        self.table.replace(|held| match held.word.place().and_then(|place| slab.take(place)) {
            Some(whole) => Held { word: held.word.moved_to(packed.keep(whole)), ..held },
            None => held,
        });
        self.slab = packed;
    }

    /// Moves the terms together.
    fn pack_book(&mut self, store: &Store) {
        let old = std::mem::replace(&mut self.book, Book::new());
        let book = &mut self.book;
        self.table.replace(|held| match old.figures(held.terms) {
            Some(figures) => Held { terms: book.enter(store, &figures), ..held },
            None => held,
        });
    }

    /// Counts times from another epoch. Whatever fits is moved as it stands.
    pub(super) fn count_from(&mut self, store: &Store, epoch: Epoch, now: Timestamp) {
        self.renew(store, 0, self.epoch.since(now));
        self.recount(epoch);
    }

    /// The same, and nothing is dropped.
    fn recount(&mut self, epoch: Epoch) {
        let old = std::mem::replace(&mut self.epoch, epoch);
        self.renew_after = Since::default();
        let (book, slab) = (&self.book, &mut self.slab);
        let bucket = |held: Held| Some(Terms::of(book.figures(held.terms)?)?.bucket());
        self.table.replace(|held| {
            if held.terms == NOWHERE {
                return Held { word: Word::GONE, ..held };
            }
            let word = match held.word.content(old) {
                // It was too far ahead to be told, and may be near now.
                Content::Whole(place) if held.word.is_never() => {
                    let expires_at = match (slab.get(place), bucket(held)) {
                        (Some(Whole::State(state)), Some(bucket)) => bucket.expires_at(state),
                        _ => Timestamp::EPOCH,
                    };
                    Word::whole(place, expires_at, epoch)
                }
                Content::Whole(place) => Word::whole(place, old.at(held.word.until()), epoch),
                Content::Packed(packed) => Word::packed(packed, epoch).unwrap_or_else(|| {
                    let state = bucket(held).map_or(State::New, |bucket| bucket.unpack(packed));
                    Word::whole(slab.keep(Whole::State(state)), packed.expires_at, epoch)
                }),
            };
            Held { word, ..held }
        });
    }

    /// The names of those of which anything is kept.
    pub(in crate::throttle) fn names(&self, now: Timestamp) -> Vec<u64> {
        self.table.live(self.epoch.since(now)).map(|held| held.name).collect()
    }

    /// What is kept of a name, and the terms it was made by.
    pub(in crate::throttle) fn kept(&self, name: u64) -> Option<(Terms, State)> {
        let held = self.table.held(self.table.find(name)?);
        let terms = Terms::of(self.book.figures(held.terms)?)?;
        let state = self.state(held, &terms.bucket());
        (state != State::New).then_some((terms, state))
    }

    /// Keeps what a snapshot has of a name, if there is room. It does not say what time it is; the states do, about.
    pub(in crate::throttle) fn restore(
        &mut self,
        store: &Store,
        name: u64,
        terms: &Terms,
        state: State,
    ) -> Way {
        let bucket = terms.bucket();
        let expires_at = bucket.expires_at(&state);
        if self.table.used() == 0 || self.epoch.since(expires_at) == Since::default() {
            self.recount(Epoch::around(expires_at));
        }
        let wanted = Wanted { name, terms, cost: 0, now: Timestamp::EPOCH };
        let since = Since::default();
        let seat = self.table.seat(name, since);
        self.add(store, wanted, seat, since, |slab, epoch| {
            crate::memory::word_of(slab, epoch, &bucket, state)
        })
    }
}

/// Gives up what a lane leads to.
fn give_up(store: &Store, book: &mut Book, slab: &mut Slab, held: Held) {
    book.leave(store, held.terms);
    if let Some(place) = held.word.place() {
        slab.take(place);
    }
}
