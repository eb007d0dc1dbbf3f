//! Every algorithm, at 100 thousand ids, with the time given.
//!
//! The numbers are chosen so that every check is admitted; rows of algorithms that need time for
//! that (the smooth ones) advance the time further.

use std::time::Duration;

use sluicegate::limit::{
    Concurrency, Cycle, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, SmoothBursty, WarmUp,
};
use sluicegate::{LimitError, Limiter};

use super::cell::{EACH, Quota};
use super::contestant::{Entry, Fills};
use super::ours::{GivenNow, token_bucket};
use super::report::{FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET};

const SECOND_US: u64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// One row.
pub(crate) trait Algorithm: 'static {
    /// Time from one check to the next.
    const STEP_US: u64 = 1;
    /// Time from the filling to the first check.
    const LEAP_US: u64 = 0;
    /// Hits per id when memory is measured.
    const HITS_PER_ID: usize = 1;

    /// The limiter.
    fn limiter(quota: Quota) -> Result<Limiter, LimitError>;

    /// When the hit of this number comes, if memory is measured.
    fn fill_us(_id: &str, _hit: usize) -> u64 {
        0
    }
}

/// All of them.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        row::<Token>(TOKEN_BUCKET, Fills::Millions),
        row::<Leaky>("ours-leaky_bucket", Fills::Never),
        row::<Fixed>(FIXED_WINDOW, Fills::Millions),
        row::<Sliding>(SLIDING_WINDOW, Fills::Millions),
        row::<Log>(SLIDING_LOG, Fills::Logs),
        row::<Bursty>("ours-smooth_bursty", Fills::Never),
        row::<Warming>("ours-warm_up", Fills::Never),
        row::<Cycling>("ours-cycle", Fills::Never),
        row::<Slots>("ours-concurrency", Fills::Never),
    ]
}

fn row<A: Algorithm>(name: &'static str, fills: Fills) -> Entry {
    Entry { cells: &[EACH], fills, ..Entry::new::<GivenNow<A>>(name) }
}

/// The bucket of every other row.
pub(crate) struct Token;

impl Algorithm for Token {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(token_bucket(quota))
    }
}

struct Leaky;

impl Algorithm for Leaky {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(LeakyBucket::per_minute(1).queue(u64::from(quota.burst)))
    }
}

struct Fixed;

impl Algorithm for Fixed {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(FixedWindow::per_day(u64::from(quota.burst)))
    }
}

struct Sliding;

impl Algorithm for Sliding {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(SlidingWindow::per_day(u64::from(quota.burst)))
    }
}

/// Keeps every hit of the last hour: some 10 to 30 when timed, 500 when its memory is measured.
struct Log;

impl Algorithm for Log {
    const HITS_PER_ID: usize = 500;

    fn limiter(_quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(SlidingLog::per_hour(Self::HITS_PER_ID as u64))
    }

    /// Spread over an hour, each somewhere in its five-hundredth: even gaps would be too easy to
    /// pack.
    fn fill_us(id: &str, hit: usize) -> u64 {
        let share = 3_600 * SECOND_US / Self::HITS_PER_ID as u64;
        let last = id.bytes().fold(hit as u64, |sum, byte| sum * 31 + u64::from(byte));
        hit as u64 * share + last.wrapping_mul(0x9e37_79b9_7f4a_7c15) % share
    }
}

/// Nothing is stored at first: ten minutes later there are 600 permits.
struct Bursty;

impl Algorithm for Bursty {
    const LEAP_US: u64 = 600 * SECOND_US;

    fn limiter(_quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(SmoothBursty::per_second(1).max_burst(HOUR))
    }
}

/// A cold permit takes 3 µs, so a check every 10 µs never waits.
struct Warming;

impl Algorithm for Warming {
    const STEP_US: u64 = 10;
    const LEAP_US: u64 = SECOND_US;

    fn limiter(_quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(WarmUp::per_second(1_000_000).over(Duration::from_secs(10)))
    }
}

struct Cycling;

impl Algorithm for Cycling {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(Cycle::of(u64::from(quota.burst)).every(DAY))
    }
}

/// Slots are taken and not freed: some 10 to 30 are held when timed.
struct Slots;

impl Algorithm for Slots {
    fn limiter(quota: Quota) -> Result<Limiter, LimitError> {
        Limiter::new(Concurrency::at_most(u64::from(quota.burst)).lease(HOUR))
    }
}
