//! The table of one shard: a name, eight bytes of state and the place of its terms, three of each to a cache line.
//!
//! It is the limiter's table ([`crate::memory::table`]) with terms in each lane, and works in the same way: a name is looked
//! for from its home on until a bucket has a lane that was never used; what has run out is as good as free; nothing is ever
//! removed, and when lanes run short the table is made anew with what is live.
//!
//! It grows by a third when four fifths of the lanes are used, so that a lane costs from 27 to 36 bytes.

use super::interner::NOWHERE;
use crate::memory::table::home;
use crate::memory::word::{Since, Word};

/// Lanes of a bucket: what fits in a cache line of 64 bytes.
const LANES: usize = 3;

/// A hash table from names to what a lane holds.
#[derive(Debug, Default)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
    /// Lanes that are not empty, live or not.
    used: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    names: [u64; LANES],
    words: [Word; LANES],
    terms: [u32; LANES],
}

/// What a lane holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) name: u64,
    pub(super) word: Word,
    /// The place of its terms in the book.
    pub(super) terms: u32,
}

/// A lane of the table, until the table is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    bucket: usize,
    lane: usize,
}

/// Where a name is, or could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    /// It is here, live.
    Taken(Lane),
    /// It is not live anywhere; this lane was used and is free.
    Free(Lane),
    /// It is not live anywhere; this lane was never used, and using it makes the table fuller.
    Fresh(Lane),
    /// It is not live anywhere, and the table is to be made anew before anything is added.
    Full,
}

const UNUSED: Held = Held { name: 0, word: Word::EMPTY, terms: NOWHERE };

// === impl Table ===

impl Table {
    /// What `name` has in its home bucket, where nearly everybody is found. It may have run out, or never have been.
    #[inline]
    pub(super) fn at_home(&mut self, name: u64) -> Option<(&mut Word, u32)> {
        let home = home(name, self.buckets.len());
        let bucket = self.buckets.get_mut(home)?;
        let lane = bucket.names.iter().position(|other| *other == name)?;
        Some((&mut bucket.words[lane], bucket.terms[lane]))
    }

    /// Where `name` is at `now`, or where it may be put.
    pub(super) fn seat(&self, name: u64, now: Since) -> Seat {
        let mut free = None;
        for (lane, held) in self.way(name) {
            if held.word.is_empty() {
                return match free {
                    Some(lane) => Seat::Free(lane),
                    None if self.is_full() => Seat::Full,
                    None => Seat::Fresh(lane),
                };
            }
            if held.name == name {
                // Its own lane, even if one before is free: a name has one lane only.
                return if held.word.is_live(now) { Seat::Taken(lane) } else { Seat::Free(lane) };
            }
            if free.is_none() && !held.word.is_live(now) {
                free = Some(lane);
            }
        }
        free.map_or(Seat::Full, Seat::Free)
    }

    /// The lane of a name, whether it has run out or not.
    pub(super) fn find(&self, name: u64) -> Option<Lane> {
        let used = self.way(name).take_while(|(_, held)| !held.word.is_empty());
        used.into_iter().find(|(_, held)| held.name == name).map(|(lane, _)| lane)
    }

    #[inline]
    pub(super) fn held(&self, lane: Lane) -> Held {
        self.buckets.get(lane.bucket).map_or(UNUSED, |bucket| bucket.held(lane.lane))
    }

    #[inline]
    pub(super) fn put(&mut self, lane: Lane, held: Held) {
        if let Some(bucket) = self.buckets.get_mut(lane.bucket) {
            self.used += usize::from(bucket.words[lane.lane].is_empty());
            bucket.put(lane.lane, held);
        }
    }

    /// Lanes in use, live or not.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// All lanes there are.
    pub(super) fn lanes(&self) -> usize {
        self.buckets.len() * LANES
    }

    /// Every lane that is live.
    pub(super) fn live(&self, now: Since) -> impl Iterator<Item = Held> + '_ {
        self.all().filter(move |held| held.word.is_live(now))
    }

    /// Makes the table anew with what is live, and so much room that `more` can be added. What has run out
    /// is handed to `gone`.
    pub(super) fn renew(&mut self, more: usize, now: Since, mut gone: impl FnMut(Held)) {
        let live = self.live(now).count();
        let old = std::mem::replace(self, Self::with_room(live + more));
        for held in old.all() {
            if held.word.is_live(now) {
                self.add(held);
            } else {
                gone(held);
            }
        }
    }

    /// Whether it is more than twice as large as what is live would need, or used and nothing is.
    pub(super) fn is_sparse(&self, now: Since) -> bool {
        let live = self.live(now).count();
        self.buckets.len() > 2 * buckets_for(live) || live == 0 && self.used > 0
    }

    /// Replaces what every used lane holds; its name stays.
    pub(super) fn replace(&mut self, mut with: impl FnMut(Held) -> Held) {
        for bucket in &mut self.buckets {
            for lane in 0..LANES {
                let held = bucket.held(lane);
                if !held.word.is_empty() {
                    bucket.put(lane, Held { name: held.name, ..with(held) });
                }
            }
        }
    }

    /// Where the buckets are, and how many: for [`crate::memory::prefetch`].
    pub(super) fn extent(&self) -> (usize, usize) {
        (self.buckets.as_ptr() as usize, self.buckets.len())
    }

    fn with_room(lanes: usize) -> Self {
        let mut empty =
            Bucket { names: [0; LANES], words: [Word::EMPTY; LANES], terms: [0; LANES] };
        (0..LANES).for_each(|lane| empty.put(lane, UNUSED));
        Self { buckets: vec![empty; buckets_for(lanes)].into(), used: 0 }
    }

    /// Adds a name that is not there, to a table that has room.
    fn add(&mut self, held: Held) {
        let empty = self.way(held.name).find(|(_, other)| other.word.is_empty());
        if let Some((lane, _)) = empty {
            self.put(lane, held);
        }
    }

    /// All lanes, in the order in which a name is looked for.
    #[inline]
    fn way(&self, name: u64) -> impl Iterator<Item = (Lane, Held)> + '_ {
        let (before, from) = self.buckets.split_at(home(name, self.buckets.len()));
        let buckets = (before.len()..).zip(from).chain((0..).zip(before));
        buckets.flat_map(|(index, bucket)| {
            (0..LANES).map(move |lane| (Lane { bucket: index, lane }, bucket.held(lane)))
        })
    }

    fn all(&self) -> impl Iterator<Item = Held> + '_ {
        let lanes = self.buckets.iter().flat_map(|bucket| (0..LANES).map(|lane| bucket.held(lane)));
        lanes.filter(|held| !held.word.is_empty())
    }

    /// Whether four fifths of the lanes are used.
    #[inline]
    fn is_full(&self) -> bool {
        self.used * 5 >= self.lanes() * 4
    }
}

// === impl Bucket ===

impl Bucket {
    #[inline]
    fn held(&self, lane: usize) -> Held {
        Held { name: self.names[lane], word: self.words[lane], terms: self.terms[lane] }
    }

    #[inline]
    fn put(&mut self, lane: usize, held: Held) {
        self.names[lane] = held.name;
        self.words[lane] = held.word;
        self.terms[lane] = held.terms;
    }
}

/// How many buckets hold so many lanes, with room for a third as many again before the table is full.
fn buckets_for(lanes: usize) -> usize {
    // 3 lanes a bucket, of which 4/5 are used at most: 2.4; 5/9 = 4/3 / 2.4.
    (lanes * 5).div_ceil(9).max(1)
}
