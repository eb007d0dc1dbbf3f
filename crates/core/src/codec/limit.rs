//! A limit and its mode as bytes: what was written in the rule, to be checked anew when it is read.

use super::{Written, byte, count, read_all, read_number, with_kind, write_number};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::cycle::Cycle;
use crate::algorithm::fixed_window::{Align, FixedWindow};
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::periodic::{EDGES_MAX, Edges};
use crate::algorithm::sliding_log::{LOG_WINDOWS_MAX, SlidingLog};
use crate::algorithm::sliding_window::{Rounding, SlidingWindow};
use crate::algorithm::smooth::SmoothBursty;
use crate::algorithm::tally::Tally;
use crate::algorithm::token_bucket::{Refill, TokenBucket};
use crate::algorithm::warm_up::WarmUp;
use crate::limit::Limit;
use crate::mode::{ELASTIC_FACTOR_MAX, GateLevels, Mode, SOFT_PERCENT_MAX};
use crate::quota::Rate;
use crate::time::{Span, Timestamp};

// === impl Limit ===

impl Limit {
    /// Appends this limit to `out`: as a rule names it, not as a mode has grown it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unlimited => out.push(0),
            Self::Closed => out.push(1),
            Self::TokenBucket(bucket) => with_kind(2, bucket, out),
            Self::LeakyBucket(bucket) => with_kind(3, bucket, out),
            Self::FixedWindow(window) => with_kind(4, window, out),
            Self::SlidingLog(log) => with_kind(5, log, out),
            Self::SlidingWindow(window) => with_kind(6, window, out),
            Self::SmoothBursty(smooth) => with_kind(7, smooth, out),
            Self::WarmUp(warm_up) => with_kind(8, warm_up, out),
            Self::Cycle(cycle) => with_kind(9, cycle, out),
            Self::Concurrency(slots) => with_kind(10, slots, out),
            Self::Tally(tally) => with_kind(11, tally, out),
        }
    }

    /// The limit at the front of `bytes`, which is taken away from them; `None` if there is none, or not
    /// one that can be held.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    ///
    /// let mut bytes = Vec::new();
    /// Limit::Closed.write(&mut bytes);
    /// assert_eq!(Limit::read(&mut &bytes[..]), Some(Limit::Closed));
    /// assert_eq!(Limit::read(&mut &[2, 0][..]), None, "a token bucket has a rate");
    /// ```
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::Unlimited,
            1 => Self::Closed,
            2 => Self::TokenBucket(Written::read_from(bytes)?),
            3 => Self::LeakyBucket(Written::read_from(bytes)?),
            4 => Self::FixedWindow(Written::read_from(bytes)?),
            5 => Self::SlidingLog(Written::read_from(bytes)?),
            6 => Self::SlidingWindow(Written::read_from(bytes)?),
            7 => Self::SmoothBursty(Written::read_from(bytes)?),
            8 => Self::WarmUp(Written::read_from(bytes)?),
            9 => Self::Cycle(Written::read_from(bytes)?),
            10 => Self::Concurrency(Written::read_from(bytes)?),
            11 => Self::Tally(Written::read_from(bytes)?),
            _ => return None,
        })
    }
}

// === impl Written for the algorithms ===

impl Written for TokenBucket {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        write_number(out, self.burst());
        write_number(out, self.initial());
        out.push(match self.refill() {
            Refill::Greedy => 0,
            Refill::Interval => 1,
            Refill::Aligned => 2,
        });
        self.forget_after().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let bucket = Self::new(Rate::read_from(bytes)?, read_number(bytes)?).ok()?;
        let bucket = bucket.with_initial(read_number(bytes)?).ok()?;
        let refill = match byte(bytes)? {
            0 => Refill::Greedy,
            1 => Refill::Interval,
            2 => Refill::Aligned,
            _ => return None,
        };
        bucket.with_refill(refill).ok()?.with_forget_after(Span::read_from(bytes)?).ok()
    }
}

impl Written for LeakyBucket {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        write_number(out, self.queue());
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Self::new(Rate::read_from(bytes)?, read_number(bytes)?).ok()
    }
}

impl Written for FixedWindow {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        match self.align() {
            Align::Clock => out.push(0),
            Align::FirstHit => out.push(1),
            Align::Calendar(edges) => with_kind(2, &edges, out),
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let rate = Rate::read_from(bytes)?;
        let align = match byte(bytes)? {
            0 => Align::Clock,
            1 => Align::FirstHit,
            2 => Align::Calendar(Edges::read_from(bytes)?),
            _ => return None,
        };
        Some(Self::new(rate, align))
    }
}

impl Written for Edges {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.longest().write_to(out);
        write_number(out, self.starts().len() as u64);
        let mut before = Timestamp::EPOCH;
        for start in self.starts() {
            start.since(before).write_to(out);
            before = *start;
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let longest = Span::read_from(bytes)?;
        let mut starts = Vec::new();
        let mut before = Timestamp::EPOCH;
        for _ in 0..count(bytes, EDGES_MAX as u64)? {
            before = before.after(Span::read_from(bytes)?);
            starts.push(before);
        }
        Self::new(starts, longest).ok()
    }
}

impl Written for SlidingLog {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.rates().count() as u64);
        for (most, length) in self.rates() {
            write_number(out, most);
            length.write_to(out);
        }
        out.push(u8::from(self.counts_denied()));
        self.min_gap().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let rates: Vec<Rate> = read_all(bytes, LOG_WINDOWS_MAX as u64)?;
        let log = Self::new(&rates).ok()?;
        let log = match byte(bytes)? {
            0 => log,
            1 => log.counting_denied().ok()?,
            _ => return None,
        };
        Some(log.with_min_gap(Span::read_from(bytes)?))
    }
}

impl Written for SlidingWindow {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        out.push(match self.rounding() {
            Rounding::Floor => 0,
            Rounding::Up => 1,
        });
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let rate = Rate::read_from(bytes)?;
        let rounding = match byte(bytes)? {
            0 => Rounding::Floor,
            1 => Rounding::Up,
            _ => return None,
        };
        Some(Self::new(rate, rounding))
    }
}

impl Written for SmoothBursty {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        self.max_burst().write_to(out);
        self.kernel.forget_after.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let smooth = Self::new(Rate::read_from(bytes)?, Span::read_from(bytes)?).ok()?;
        smooth.with_forget_after(Span::read_from(bytes)?).ok()
    }
}

impl Written for WarmUp {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.rate().write_to(out);
        self.warm_up().write_to(out);
        write_number(out, self.cold_factor());
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let (rate, warm_up) = (Rate::read_from(bytes)?, Span::read_from(bytes)?);
        Self::new(rate, warm_up, read_number(bytes)?).ok()
    }
}

impl Written for Cycle {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.permits());
        self.period().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let permits = read_number(bytes)?;
        Self::new(permits, Span::read_from(bytes)?).ok()
    }
}

impl Written for Concurrency {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.max());
        self.lease().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let max = read_number(bytes)?;
        Self::new(max, Span::read_from(bytes)?).ok()
    }
}

impl Written for Tally {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.limit());
        self.period().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let limit = read_number(bytes)?;
        Self::new(limit, Span::read_from(bytes)?).ok()
    }
}

// === impl Mode ===

impl Mode {
    /// Appends this mode to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hard => out.push(0),
            Self::Soft { percent } => {
                out.push(1);
                write_number(out, *percent);
            }
            Self::Elastic { up_to, gate } => {
                out.push(2);
                write_number(out, *up_to);
                write_number(out, gate.below());
                write_number(out, gate.above());
            }
            Self::Shadow => out.push(3),
        }
    }

    /// The mode at the front of `bytes`, which is taken away from them; `None` if there is none, or not
    /// one that any limit could have.
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let within =
            |number: u64, least: u64, most: u64| (least..=most).contains(&number).then_some(number);
        Some(match byte(bytes)? {
            0 => Self::Hard,
            1 => Self::Soft { percent: within(read_number(bytes)?, 1, SOFT_PERCENT_MAX)? },
            2 => Self::Elastic {
                up_to: within(read_number(bytes)?, 1_000, ELASTIC_FACTOR_MAX)?,
                gate: GateLevels::new(read_number(bytes)?, read_number(bytes)?).ok()?,
            },
            3 => Self::Shadow,
            _ => return None,
        })
    }
}
