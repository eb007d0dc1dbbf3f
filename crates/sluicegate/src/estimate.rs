//! Estimates the memory of an identity in the embedded store.
//!
//! ```text
//!   a lane        16 bytes, in a table that is 8/15 to 4/5 full            20 to 30 bytes
//!   stored whole    what does not fit a lane lies beside it, in a list
//!                 that grows by a quarter                                  + a state, and up to 1/4
//!   a log         whole, and its entries in a ring that grows by 1/16      + 1 to 8 bytes a hit
//!   slots         whole, and its leases in a list that doubles             + 24 bytes a lease
//! ```
//!
//! Each limit takes one lane, an elastic limit two. *Typical* is an identity that has used half of
//! its quota, in tables of average load. *Max* is an identity that has used all of it, just after
//! the tables have grown. An identity whose state has expired takes nothing. `tests/estimate.rs`
//! compares the estimate with real allocations. It excludes the allocator's overhead and the 48 KB
//! of an empty limiter.

use sluicegate_core::algorithm::concurrency::{SlotLease, SlotsState};
use sluicegate_core::algorithm::sliding_log::{LogState, SlidingLog};
use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::LimitConfig;

use crate::memory::fits_a_word;

/// Bytes of the embedded store that one identity takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// For an identity that has used half of its quota.
    pub typical: u64,
    /// For an identity that has used all of its quota, at the worst moment.
    pub max: u64,
}

/// Memory of one identity under these limits in the embedded store.
///
/// ```
/// use sluicegate::estimate::bytes_per_identity;
/// use sluicegate::limit::{IntoLimit, SlidingLog, TokenBucket};
/// use sluicegate::Mode;
///
/// let bucket = bytes_per_identity(&[TokenBucket::per_second(10).into_limit()?], Mode::Hard);
/// assert_eq!((bucket.typical, bucket.max), (25, 30));
///
/// let log = bytes_per_identity(&[SlidingLog::per_hour(500).into_limit()?], Mode::Hard);
/// assert!(log.max > 2_000, "a log keeps every hit");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[must_use]
pub fn bytes_per_identity(limits: &[LimitConfig], mode: Mode) -> Estimate {
    let mut all = Estimate::default();
    for limit in limits {
        let limit = limit.at(NOW);
        // Unreachable: a mode that a limit does not support is rejected earlier.
        let Ok(step) = EnforcedLimit::new(limit, mode) else { continue };
        for limit in [Some(step.limit()), step.boost()].into_iter().flatten() {
            let one = of_one(limit);
            all.typical = all.typical.saturating_add(one.typical);
            all.max = all.max.saturating_add(one.max);
        }
    }
    all
}

/// A recent time that is not a whole millisecond.
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_123_457);

/// A lane takes 16 bytes, and from 16 / (4/5) to 16 / (8/15) of the table; the mean of many sizes
/// is near the geometric one.
const LANE: Estimate = Estimate { typical: 25, max: 30 };

fn of_one(limit: &Limit) -> Estimate {
    match limit {
        Limit::Unlimited | Limit::Closed => Estimate::default(),
        Limit::SlidingLog(log) => {
            let (admitted, stored) = log_entries(log);
            let (half, all) = (ring(log, admitted.div_ceil(2)), ring(log, stored));
            // It grows by a sixteenth, or by twenty bytes.
            let (half, all) = (half + (half / 32).max(20), all + (all / 16).max(20));
            let state = size_of::<LogState>() as u64;
            beside(state.saturating_add(half), state.saturating_add(all))
        }
        Limit::SlidingSlices(window) => {
            let (half, all) =
                (counts(window, window.counts_max() / 2), counts(window, window.counts_max()));
            let (half, all) = (half + (half / 32).max(20), all + (all / 16).max(20));
            let state = size_of::<LogState>() as u64;
            beside(state.saturating_add(half), state.saturating_add(all))
        }
        Limit::Concurrency(slots) => {
            let bytes = |held: u64| size_of::<SlotsState>() as u64 + leases(held);
            beside(bytes(slots.max().div_ceil(2)), bytes(slots.max()))
        }
        _ => of_numbers(limit),
    }
}

/// A limit with a numeric state: stored in the lane if the numbers fit.
fn of_numbers(limit: &Limit) -> Estimate {
    let capacity = limit.capacity().unwrap_or(1).max(1);
    let half = capacity.div_ceil(2);
    let whole = beside(0, 0);
    let typical = if fits_a_lane(limit, half) { LANE } else { whole };
    let always = [1, half, capacity].into_iter().all(|used| fits_a_lane(limit, used));
    let max = if always { LANE } else { whole };
    Estimate { typical: typical.typical, max: max.max }
}

/// A whole state with its heap memory: typically, and at most.
fn beside(typical: u64, max: u64) -> Estimate {
    let state = size_of::<State>() as u64;
    Estimate {
        // The list of states grows by a quarter, so an eighth of it is unused on average.
        typical: LANE.typical.saturating_add(state + state / 8).saturating_add(typical),
        max: LANE.max.saturating_add(state + state / 4).saturating_add(max),
    }
}

/// Whether a state with this usage fits the eight bytes of a lane.
fn fits_a_lane(limit: &Limit, used: u64) -> bool {
    let mut state = State::New;
    limit.open(&mut state, NOW);
    limit.spend(&mut state, used, NOW, NOW);
    limit.pack(&state).is_some_and(|packed| fits_a_word(packed, NOW))
}

/// How many hits of cost 1 a log admits, and how many it may hold.
fn log_entries(log: &SlidingLog) -> (u64, u64) {
    let longest = log.rates().max_by_key(|(_, length)| *length);
    let admitted = longest.map_or(0, |(max, _)| max);
    // Denied entries are stored too, up to twice as many.
    (admitted, if log.counts_denied() { admitted.saturating_mul(3) } else { admitted })
}

/// The bytes of `hits` spread evenly over the longest window.
fn ring(log: &SlidingLog, hits: u64) -> u64 {
    let longest = log.rates().map(|(_, length)| length.as_micros()).max().unwrap_or(0);
    let gap = longest / log_entries(log).0.max(1);
    // A time difference carries two flag bits and is encoded in groups of seven bits.
    let bits = u64::from(64 - gap.leading_zeros()) + 2;
    bits.div_ceil(7).saturating_mul(hits)
}

/// The bytes of `slices` counts, which share the limit's number evenly.
fn counts(window: &SlidingSlices, slices: u64) -> u64 {
    let groups = |number: u64, flags: u32| {
        u64::from(u64::BITS - number.leading_zeros() + flags).div_ceil(7).max(1)
    };
    let count = window.rate().count().div_ceil(slices.max(1));
    let each = groups(window.slice().as_micros(), 2) + if count > 1 { groups(count, 0) } else { 0 };
    // Fewer hits than slices leave the others empty.
    each.saturating_mul(slices.min(window.rate().count()))
}

/// The bytes of a list of leases, one slot each.
fn leases(held: u64) -> u64 {
    // It doubles, from four on.
    let room = held.checked_next_power_of_two().unwrap_or(held).max(4);
    room.saturating_mul(size_of::<SlotLease>() as u64)
}
