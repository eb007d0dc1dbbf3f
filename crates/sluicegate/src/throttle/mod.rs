//! Limits that come with the request.
//!
//! A [`Limiter`](crate::Limiter) knows its limits and is asked about keys. Here whoever asks brings the limit along, as clients of
//! [redis-cell] do: *may `user:42` go, with a burst of 15 and 30 in 60 seconds?*
//!
//! ```
//! use sluicegate::throttle::{ThrottleParams, Throttle};
//! use sluicegate::{Memory, Timestamp};
//!
//! let throttle = Throttle::new(&Memory::new());
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let params = ThrottleParams::new(15, 30, 60)?;
//!
//! let verdict = throttle.hit(b"user:42", &params, 1, now)?;
//! assert_eq!((verdict.is_allowed(), verdict.remaining), (true, Some(15)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - It is a token bucket of the core, refilled greedily: answers are those of any other limit.
//! - *Other params on a known key* keep what was used, in units, as a live change of a limit does with
//!   [`CarryOver::Used`](crate::CarryOver::Used). What counts are the params of the last call, admitted or not, that asked for anything.
//! - *Nothing* (a quantity of 0) is always allowed and leaves no trace.
//! - *A clock that goes back* denies more, and never admits more than what is remembered allows.
//! - *Everything is bounded*: a key takes an entry of the [`Memory`], params are kept once, and only while an entry was made by them. At
//!   the cap a newcomer gets [`NoRoom`], and nobody who is known is dropped for it.
//! - *Snapshots* have it, beside the limiters ([`crate::snapshot`]).
//!
//! A key takes 27 to 36 bytes where keys share their params, and about 50 more where each has params of its own.
//!
//! [redis-cell]: https://github.com/brandur/redis-cell

mod interner;
mod params;
mod section;
mod shard;
mod shards;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use crate::memory::{Memory, prefetch};
pub use params::{ThrottleParams, ThrottleParamsError};
use shards::ThrottleShards;

/// Decides by limits that come with the request. Clones are the same throttle.
#[derive(Debug, Clone)]
pub struct Throttle {
    shards: Arc<ThrottleShards>,
}

/// A key that is not known came when the store was full.
///
/// Whoever is known is answered as always. There is room again when some entry has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoRoom {
    /// How many entries the store may have.
    pub max: usize,
}

/// How many are looked ahead: more would push the first lines out of the nearest cache again.
const AHEAD: usize = 16;

// === impl Throttle ===

impl Throttle {
    /// A throttle on a store, which it shares with the limiters there. What a restored store had of one, it has.
    ///
    /// A snapshot tells throttles apart from limiters, not from each other: a store that is saved has one of them.
    #[must_use]
    pub fn new(memory: &Memory) -> Self {
        let shards = Arc::new(ThrottleShards::new(memory.store.clone()));
        section::register(&shards);
        Self { shards }
    }

    /// May `quantity` go for `key`? If so, it is charged.
    ///
    /// Any bytes are a key. A quantity above [`ThrottleParams::limit`] never passes, which is an answer, too
    /// ([`Outcome::Never`](crate::Outcome::Never)).
    ///
    /// # Errors
    /// When nothing is known of the key, and there is no room for it.
    #[inline]
    pub fn hit(
        &self,
        key: &[u8],
        params: &ThrottleParams,
        quantity: u64,
        now: Timestamp,
    ) -> Result<Verdict, NoRoom> {
        self.shards.hit(self.shards.hash(key), params, quantity, now)
    }

    /// One hit after the other, all at the same moment; `each` is told the place of the hit and its verdict.
    ///
    /// It is faster than one call after another, because memory is fetched ahead.
    ///
    /// ```
    /// use sluicegate::throttle::{ThrottleParams, Throttle};
    /// use sluicegate::{Memory, Timestamp};
    ///
    /// let throttle = Throttle::new(&Memory::new());
    /// let once = ThrottleParams::new(0, 1, 60)?;
    /// let hits = [(&b"alice"[..], &once, 1), (b"bob", &once, 1), (b"alice", &once, 1)];
    /// let mut denied = Vec::new();
    /// throttle.hit_batch(hits, Timestamp::EPOCH, |place, verdict| {
    ///     if verdict.is_ok_and(|verdict| !verdict.is_allowed()) {
    ///         denied.push(place);
    ///     }
    /// });
    /// assert_eq!(denied, [2]);
    /// # Ok::<(), sluicegate::throttle::ThrottleParamsError>(())
    /// ```
    pub fn hit_batch<'a>(
        &self,
        hits: impl IntoIterator<Item = (&'a [u8], &'a ThrottleParams, u64)>,
        now: Timestamp,
        mut each: impl FnMut(usize, Result<Verdict, NoRoom>),
    ) {
        let mut hits = hits.into_iter();
        let mut index = 0;
        loop {
            // First where all keys are, then what they are and where they lead, then the decisions: each time all at once.
            let mut ahead = [None; AHEAD];
            for (ahead, hit) in ahead.iter_mut().zip(&mut hits) {
                prefetch(hit.0);
                *ahead = Some((hit, 0));
            }
            for ((key, ..), hash) in ahead.iter_mut().flatten() {
                *hash = self.shards.hash(key);
                self.shards.prefetch(*hash);
            }
            for ((_, params, quantity), hash) in ahead.iter().flatten() {
                each(index, self.shards.hit(*hash, params, *quantity, now));
                index += 1;
            }
            if ahead.last().is_none_or(Option::is_none) {
                return;
            }
        }
    }

    /// Forgets a key: it begins anew.
    ///
    /// ```
    /// use sluicegate::throttle::{ThrottleParams, Throttle};
    /// use sluicegate::{Memory, Timestamp};
    ///
    /// let (throttle, now) = (Throttle::new(&Memory::new()), Timestamp::EPOCH);
    /// let once = ThrottleParams::new(0, 1, 60)?;
    /// assert!(throttle.hit(b"alice", &once, 1, now)?.is_allowed());
    /// assert!(!throttle.hit(b"alice", &once, 1, now)?.is_allowed());
    /// throttle.reset(b"alice");
    /// assert!(throttle.hit(b"alice", &once, 1, now)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(&self, key: &[u8]) {
        self.shards.forget(self.shards.hash(key));
    }

    /// How many keys are kept, including those that have run out and whose place has not been used again yet.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.shards.entries()
    }

    /// Gives back memory that is not needed any more.
    ///
    /// There is no need to call it as long as there is traffic, which does the same by and by. A throttle reads no clock, though: when
    /// nobody asks it anything, limiters on the same store get the room of what has run out here only after a call.
    ///
    /// ```
    /// use sluicegate::throttle::{ThrottleParams, Throttle};
    /// use sluicegate::{Memory, Span, Timestamp};
    ///
    /// let (throttle, now) = (Throttle::new(&Memory::new()), Timestamp::EPOCH);
    /// throttle.hit(b"alice", &ThrottleParams::new(0, 1, 60)?, 1, now)?;
    /// throttle.sweep(now.after(Span::from_secs(60)));
    /// assert_eq!(throttle.entries(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&self, now: Timestamp) {
        self.shards.sweep(now);
    }
}

// === impl NoRoom ===

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no room for another key: the store has its `{}` entries; wait until some have run out, or give it more",
            self.max
        )
    }
}

impl std::error::Error for NoRoom {}
