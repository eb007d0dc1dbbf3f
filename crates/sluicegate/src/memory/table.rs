//! The hash table of one shard: open addressing with linear probing, one cache line per bucket.
//!
//! ```text
//!   bucket 0                 bucket 1                 bucket 2
//!  |name name name name |   |name name .    .    |   |name name name .    |
//!  |word word word word |   |word word 0    0    |   |word word word 0    |
//!        home of n ----------^    n is probed for from its home until a bucket has an empty lane
//! ```
//!
//! A lane holds a name, an eight-byte word and, for a throttle, the index of its parameters: four
//! lanes of `()` or three of `u32` fill a cache line. An expired lane is reused by the next
//! newcomer that probes it, and only a lane that was never used ends a probe. So nothing is removed
//! and there are no tombstones: a full table is rebuilt with its live lanes, larger, smaller or as
//! large.
//!
//! A table grows when four fifths of its lanes are used: by half with four lanes per bucket (20 to
//! 30 bytes per entry), by a third with three (27 to 36). Doubling would cost up to 40 bytes, and
//! all shards would double at about the same time.

use super::word::{Since, Word};

/// A hash table from names to words, each with an `X`.
#[derive(Debug)]
pub(crate) struct Table<X, const LANES: usize> {
    buckets: Box<[Bucket<X, LANES>]>,
    /// Lanes that are not empty, live or not.
    used: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket<X, const LANES: usize> {
    names: [u64; LANES],
    words: [Word; LANES],
    extras: [X; LANES],
}

/// The content of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneEntry<X> {
    pub(crate) name: u64,
    pub(crate) word: Word,
    pub(crate) extra: X,
}

/// Data that a lane holds beside its word.
pub(crate) trait LaneExtra: Copy + std::fmt::Debug {
    /// The value in unused lanes.
    const UNUSED: Self;
}

/// The index of a lane, valid until the table changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    bucket: usize,
    lane: usize,
}

/// The result of probing for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The name is live in this lane.
    Occupied(Lane),
    /// The name is not live; this lane has expired and can be reused.
    Expired(Lane),
    /// The name is not live; this lane was never used.
    Empty(Lane),
    /// The name is not live, and the table must be rebuilt before anything is added.
    Full,
}

impl LaneExtra for () {
    const UNUSED: Self = ();
}

impl<X: LaneExtra, const LANES: usize> Table<X, LANES> {
    /// The word of `name` in its home bucket, where nearly every name is found. It may have
    /// expired, and for the name 0 it may be an empty lane.
    #[inline]
    pub(crate) fn at_home(&mut self, name: u64) -> Option<(&mut Word, X)> {
        let home = home(name, self.buckets.len());
        let bucket = self.buckets.get_mut(home)?;
        let lanes = bucket.names.iter().zip(bucket.words.iter_mut().zip(&bucket.extras));
        lanes
            .into_iter()
            .find(|(other, _)| **other == name)
            .map(|(_, (word, extra))| (word, *extra))
    }

    /// Finds the lane of `name` at `now`, or one for it.
    pub(crate) fn probe(&self, name: u64, now: Since) -> Probe {
        let mut expired = None;
        let mut index = home(name, self.buckets.len());
        // A table is never full, so a probe ends at an empty lane; the count only bounds it.
        for _ in 0..self.buckets.len() {
            let Some(bucket) = self.buckets.get(index) else { break };
            for lane in 0..LANES {
                let word = bucket.words[lane];
                let here = Lane { bucket: index, lane };
                if bucket.names[lane] == name && !word.is_empty() {
                    return if word.is_live(now) {
                        Probe::Occupied(here)
                    } else {
                        // The name's lane, even after a reusable one: a name has one lane only.
                        Probe::Expired(here)
                    };
                }
                if word.is_empty() {
                    return match expired {
                        Some(lane) => Probe::Expired(lane),
                        None if self.is_full() => Probe::Full,
                        None => Probe::Empty(here),
                    };
                }
                if expired.is_none() && !word.is_live(now) {
                    expired = Some(here);
                }
            }
            index = self.bucket_after(index);
        }
        expired.map_or(Probe::Full, Probe::Expired)
    }

    #[inline]
    pub(crate) fn entry(&self, lane: Lane) -> LaneEntry<X> {
        self.buckets.get(lane.bucket).map_or(LaneEntry::EMPTY, |bucket| bucket.entry(lane.lane))
    }

    #[inline]
    pub(crate) fn word(&self, lane: Lane) -> Word {
        self.buckets.get(lane.bucket).map_or(Word::EMPTY, |bucket| bucket.words[lane.lane])
    }

    #[inline]
    pub(crate) fn put(&mut self, lane: Lane, entry: LaneEntry<X>) {
        if let Some(bucket) = self.buckets.get_mut(lane.bucket) {
            self.used += usize::from(bucket.words[lane.lane].is_empty());
            bucket.put(lane.lane, entry);
        }
    }

    /// Lanes in use, live or not.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// All lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.buckets.len() * LANES
    }

    /// The live entries.
    pub(crate) fn live(&self, now: Since) -> impl Iterator<Item = LaneEntry<X>> + '_ {
        self.entries().filter(move |entry| entry.word.is_live(now))
    }

    /// Rebuilds the table with its live entries and room for `more`. Expired ones go to `dropped`.
    pub(crate) fn rebuild(
        &mut self,
        more: usize,
        now: Since,
        mut dropped: impl FnMut(LaneEntry<X>),
    ) {
        let live = self.live(now).count();
        let old = std::mem::replace(self, Self::with_room(live + more));
        for entry in old.entries() {
            if entry.word.is_live(now) {
                self.add(entry);
            } else {
                dropped(entry);
            }
        }
    }

    /// Whether it is more than twice as large as its live entries need, or used without any.
    pub(crate) fn is_sparse(&self, now: Since) -> bool {
        let live = self.live(now).count();
        self.buckets.len() > 2 * Self::buckets_for(live) || live == 0 && self.used > 0
    }

    /// Replaces the content of every used lane; names stay.
    pub(crate) fn replace(&mut self, mut with: impl FnMut(LaneEntry<X>) -> LaneEntry<X>) {
        for bucket in &mut self.buckets {
            for lane in 0..LANES {
                let entry = bucket.entry(lane);
                if !entry.word.is_empty() {
                    bucket.put(lane, LaneEntry { name: entry.name, ..with(entry) });
                }
            }
        }
    }

    /// Address and number of the buckets, for [`super::prefetch`].
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.buckets.as_ptr() as usize, self.buckets.len())
    }

    fn with_room(lanes: usize) -> Self {
        let empty =
            Bucket { names: [0; LANES], words: [Word::EMPTY; LANES], extras: [X::UNUSED; LANES] };
        Self { buckets: vec![empty; Self::buckets_for(lanes)].into(), used: 0 }
    }

    /// The buckets for so many entries, with room to grow before four fifths of the lanes are used.
    fn buckets_for(lanes: usize) -> usize {
        let buckets = match LANES {
            // 3 lanes, at most 2.4 used, and a third more: 5/9 = 4/3 / 2.4.
            3 => (lanes * 5).div_ceil(9),
            // 4 lanes, at most 3.2 used, and half as many more: 15/32 = 1.5 / 3.2.
            _ => (lanes * 15).div_ceil(8 * LANES),
        };
        buckets.max(1)
    }

    /// Adds a name that is not there, to a table that has room.
    fn add(&mut self, entry: LaneEntry<X>) {
        let mut index = home(entry.name, self.buckets.len());
        while let Some(bucket) = self.buckets.get_mut(index) {
            if let Some(lane) = bucket.words.iter().position(|word| word.is_empty()) {
                bucket.put(lane, entry);
                self.used += 1;
                return;
            }
            index = self.bucket_after(index);
        }
    }

    fn entries(&self) -> impl Iterator<Item = LaneEntry<X>> + '_ {
        let lanes =
            self.buckets.iter().flat_map(|bucket| (0..LANES).map(|lane| bucket.entry(lane)));
        lanes.filter(|entry| !entry.word.is_empty())
    }

    /// Whether four fifths of the lanes are used.
    #[inline]
    fn is_full(&self) -> bool {
        self.used * 5 >= self.lanes() * 4
    }

    #[inline]
    fn bucket_after(&self, index: usize) -> usize {
        if index + 1 == self.buckets.len() { 0 } else { index + 1 }
    }
}

impl<X, const LANES: usize> Default for Table<X, LANES> {
    fn default() -> Self {
        Self { buckets: Box::default(), used: 0 }
    }
}

impl<X: LaneExtra, const LANES: usize> Bucket<X, LANES> {
    #[inline]
    fn entry(&self, lane: usize) -> LaneEntry<X> {
        LaneEntry { name: self.names[lane], word: self.words[lane], extra: self.extras[lane] }
    }

    #[inline]
    fn put(&mut self, lane: usize, entry: LaneEntry<X>) {
        self.names[lane] = entry.name;
        self.words[lane] = entry.word;
        self.extras[lane] = entry.extra;
    }
}

impl<X: LaneExtra> LaneEntry<X> {
    const EMPTY: Self = Self { name: 0, word: Word::EMPTY, extra: X::UNUSED };

    /// The same lane, reusable.
    pub(crate) const fn gone(self) -> Self {
        Self { word: Word::GONE, extra: X::UNUSED, ..self }
    }
}

/// The bucket where the probe for a name begins, of so many: names are scaled to buckets in order.
#[inline]
pub(crate) fn home(name: u64, buckets: usize) -> usize {
    ((u128::from(name) * buckets as u128) >> 64) as usize
}

#[cfg(test)]
mod tests;
