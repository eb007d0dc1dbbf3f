//! The table of one shard: eight bytes of name and eight of content, four pairs to a cache line.
//!
//! ```text
//!   bucket 0                 bucket 1                 bucket 2
//!  |name name name name |   |name name .    .    |   |name name name .    |
//!  |word word word word |   |word word 0    0    |   |word word word 0    |
//!        home of n ----------^    n is looked for from its home on, until a bucket has an empty lane
//! ```
//!
//! A lane whose word has run out is as good as free, and is taken by the next newcomer whose way leads by it. It
//! does not end anybody's search, though: only a lane that was never used does. So nothing ever has to
//! be removed, and there are no tombstones to count: when lanes run short the table is made anew with
//! what is live, larger, smaller or just as large.
//!
//! It grows by half when four fifths of the lanes are used, so that a lane costs from 20 to 30 bytes; one that
//! doubles would cost up to 40, and all shards would double at about the same time.

use super::word::{Since, Word};

/// Lanes of a bucket: what fits in a cache line of 64 bytes.
const LANES: usize = 4;
/// The fewest buckets of a table that has any.
const BUCKETS_MIN: usize = 1;

/// A hash table from names to words. A name is never 0 with an empty word.
#[derive(Debug, Default)]
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    /// Lanes that are not empty, live or not.
    used: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    names: [u64; LANES],
    words: [Word; LANES],
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

// === impl Table ===

impl Table {
    /// What `name` has in its home bucket, where nearly everybody is found. It may have run out.
    #[inline]
    pub(super) fn at_home(&mut self, name: u64) -> Option<&mut Word> {
        let home = self.home(name);
        let bucket = self.buckets.get_mut(home)?;
        let lanes = bucket.names.iter().zip(&mut bucket.words);
        lanes.into_iter().find(|(other, _)| **other == name).map(|(_, word)| word)
    }

    /// Where `name` is at `now`, or where it may be put.
    pub(super) fn seat(&self, name: u64, now: Since) -> Seat {
        let mut free = None;
        let mut index = self.home(name);
        // A table is never full, so there is an empty lane somewhere; the count is for the reader's peace.
        for _ in 0..self.buckets.len() {
            let Some(bucket) = self.buckets.get(index) else { break };
            for lane in 0..LANES {
                let word = bucket.words[lane];
                let here = Lane { bucket: index, lane };
                if bucket.names[lane] == name && !word.is_empty() {
                    return if word.is_live(now) {
                        Seat::Taken(here)
                    } else {
                        // Its own lane, even if one before is free: a name has one lane only.
                        Seat::Free(here)
                    };
                }
                if word.is_empty() {
                    return match free {
                        Some(lane) => Seat::Free(lane),
                        None if self.is_full() => Seat::Full,
                        None => Seat::Fresh(here),
                    };
                }
                if free.is_none() && !word.is_live(now) {
                    free = Some(here);
                }
            }
            index = if index + 1 == self.buckets.len() { 0 } else { index + 1 };
        }
        free.map_or(Seat::Full, Seat::Free)
    }

    pub(super) fn name(&self, lane: Lane) -> u64 {
        self.buckets.get(lane.bucket).map_or(0, |bucket| bucket.names[lane.lane])
    }

    #[inline]
    pub(super) fn word(&self, lane: Lane) -> Word {
        self.buckets.get(lane.bucket).map_or(Word::EMPTY, |bucket| bucket.words[lane.lane])
    }

    /// Puts `word` into a lane, under `name`.
    #[inline]
    pub(super) fn put(&mut self, lane: Lane, name: u64, word: Word) {
        if let Some(bucket) = self.buckets.get_mut(lane.bucket) {
            self.used += usize::from(bucket.words[lane.lane].is_empty());
            bucket.names[lane.lane] = name;
            bucket.words[lane.lane] = word;
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

    /// Every name and word that is live.
    pub(super) fn live(&self, now: Since) -> impl Iterator<Item = (u64, Word)> + '_ {
        self.all().filter(move |(_, word)| word.is_live(now))
    }

    /// Makes the table anew with what is live, and so much room that `more` can be added. What has run out
    /// is handed to `gone`.
    pub(super) fn renew(&mut self, more: usize, now: Since, mut gone: impl FnMut(Word)) {
        let live = self.live(now).count();
        let old = std::mem::replace(self, Self::with_room(live + more));
        for (name, word) in old.all() {
            if word.is_live(now) {
                self.add(name, word);
            } else {
                gone(word);
            }
        }
    }

    /// Whether it is more than twice as large as what is live would need, or used and nothing is.
    pub(super) fn is_sparse(&self, now: Since) -> bool {
        let live = self.live(now).count();
        let needed = buckets_for(live).max(BUCKETS_MIN);
        self.buckets.len() > 2 * needed || live == 0 && self.used > 0
    }

    /// Replaces every word that is not empty.
    pub(super) fn replace(&mut self, mut with: impl FnMut(u64, Word) -> Word) {
        for bucket in &mut self.buckets {
            for (name, word) in bucket.names.iter().zip(&mut bucket.words) {
                if !word.is_empty() {
                    *word = with(*name, *word);
                }
            }
        }
    }

    /// Where the buckets are, and how many: for [`super::prefetch`].
    pub(super) fn extent(&self) -> (usize, usize) {
        (self.buckets.as_ptr() as usize, self.buckets.len())
    }

    fn with_room(lanes: usize) -> Self {
        let empty = Bucket { names: [0; LANES], words: [Word::EMPTY; LANES] };
        Self { buckets: vec![empty; buckets_for(lanes)].into(), used: 0 }
    }

    /// Adds a name that is not there, to a table that has room.
    fn add(&mut self, name: u64, word: Word) {
        let mut index = self.home(name);
        while let Some(bucket) = self.buckets.get_mut(index) {
            if let Some(lane) = bucket.words.iter().position(|word| word.is_empty()) {
                bucket.names[lane] = name;
                bucket.words[lane] = word;
                self.used += 1;
                return;
            }
            index = if index + 1 == self.buckets.len() { 0 } else { index + 1 };
        }
    }

    fn all(&self) -> impl Iterator<Item = (u64, Word)> + '_ {
        self.buckets.iter().flat_map(|bucket| {
            let lanes = bucket.names.iter().zip(&bucket.words);
            lanes.filter(|(_, word)| !word.is_empty()).map(|(name, word)| (*name, *word))
        })
    }

    /// Whether four fifths of the lanes are used.
    #[inline]
    fn is_full(&self) -> bool {
        self.used * 5 >= self.lanes() * 4
    }

    /// The bucket where the search for a name begins.
    #[inline]
    fn home(&self, name: u64) -> usize {
        home(name, self.buckets.len())
    }
}

/// The bucket where the search for a name begins, in a table of so many: its place in all names, scaled.
#[inline]
pub(crate) fn home(name: u64, buckets: usize) -> usize {
    ((u128::from(name) * buckets as u128) >> 64) as usize
}

/// How many buckets hold so many lanes, with room for half as many again before the table is full.
fn buckets_for(lanes: usize) -> usize {
    // 4 lanes a bucket, of which 4/5 are used at most: 3.2; 15/32 = 1.5 / 3.2.
    (lanes * 15).div_ceil(32).max(BUCKETS_MIN)
}

#[cfg(test)]
mod tests;
