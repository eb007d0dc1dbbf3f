//! Limits sent with the request.
//!
//! A [`Limiter`](crate::Limiter) has fixed limits. A [`Throttle`] takes the limit with each call,
//! as [redis-cell] does: *may `user:42` pass, with a burst of 15 and 30 per 60 seconds?*
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
//! - It is a greedy token bucket of the core: the answers are those of any other limit.
//! - *Other parameters on a known key* carry over the usage in units, as a live change of a limit
//!   does with [`CarryOver::Used`](crate::CarryOver::Used). The parameters of the last call with a
//!   quantity above 0 count, admitted or not.
//! - *A quantity of 0* always passes and changes nothing.
//! - *A clock that is set back* denies more, and never admits more.
//! - *Everything is bounded*: a key takes an entry of the [`Memory`], and parameters are stored
//!   once, while an entry refers to them. At the cap a newcomer gets [`NoRoom`], and no known key
//!   is dropped for it.
//! - *Snapshots* include it, beside the limiters ([`crate::snapshot`]).
//!
//! A key takes 27 to 36 bytes if keys share parameters, and about 50 more with unique parameters.
//!
//! [redis-cell]: https://github.com/brandur/redis-cell

mod interner;
mod params;
mod shard;
mod shards;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use crate::memory::{Memory, prefetch};
pub use params::{ThrottleParams, ThrottleParamsError};
use shards::ThrottleShards;

/// Decides by limits sent with the request. Clones share their state.
#[derive(Debug, Clone)]
pub struct Throttle {
    shards: Arc<ThrottleShards>,
}

/// An unknown key while the store was full.
///
/// Known keys are decided as usual. There is room again once an entry has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoRoom {
    /// Maximum number of entries of the store.
    pub max: usize,
}

/// Keys prefetched ahead: more would evict the first lines from the nearest cache.
const AHEAD: usize = 16;

impl Throttle {
    /// A throttle on a store that it shares with limiters. A restored store restores it.
    ///
    /// A snapshot does not distinguish throttles: a saved store has at most one.
    #[must_use]
    pub fn new(memory: &Memory) -> Self {
        let shards = Arc::new(ThrottleShards::new(memory.store.clone()));
        shards::register(&shards);
        Self { shards }
    }

    /// Charges `quantity` to `key` if the limit admits it.
    ///
    /// Any bytes are a key. A quantity above [`ThrottleParams::limit`] never passes
    /// ([`Outcome::Never`](crate::Outcome::Never)).
    ///
    /// # Errors
    /// When the key is unknown and there is no room for it.
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

    /// Decides several hits at the same moment; `each` gets the index and the verdict of each.
    ///
    /// It is faster than single calls, because memory is prefetched.
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
            // Prefetch the keys, then their lanes, then decide: each for all keys at once.
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

    /// Removes a key and its state.
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

    /// Replaces the state of a key by that of an account with this limit, if there is room.
    pub fn replace(&self, key: &[u8], params: &ThrottleParams, account: Account) {
        let states = account.into_states().unwrap_or_default();
        if let Some((state @ State::Gcra(_), _)) = states.into_iter().next() {
            self.shards.restore(self.shards.hash(key), params, state);
        }
    }

    /// Number of keys, including expired ones that have not been reused yet.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.shards.entries()
    }

    /// Releases unused memory.
    ///
    /// Traffic does the same over time. A throttle reads no clock, though: without calls, its
    /// expired entries do not become available to limiters on the same store.
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
