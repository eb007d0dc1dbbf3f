//! Binary format of limits and modes, validated when decoded.

use super::{Encode, byte, count, decode_list, encode_variant, read_varint, write_varint};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::cycle::Cycle;
use crate::algorithm::fixed_window::{Align, FixedWindow};
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::periodic::{EDGES_MAX, Edges};
use crate::algorithm::sliding_log::{LOG_WINDOWS_MAX, SlidingLog};
use crate::algorithm::sliding_slices::SlidingSlices;
use crate::algorithm::sliding_window::{Rounding, SlidingWindow};
use crate::algorithm::smooth::SmoothBursty;
use crate::algorithm::tally::Tally;
use crate::algorithm::token_bucket::{Refill, TokenBucket};
use crate::algorithm::warm_up::WarmUp;
use crate::limit::Limit;
use crate::mode::{ELASTIC_FACTOR_MAX, GateLevels, Mode, SOFT_PERCENT_MAX};
use crate::quota::Rate;
use crate::time::{Span, Timestamp};

/// The format of a limit: the parameters of its constructor, each with its decoder.
macro_rules! encode_parameters {
    ($type:ty { $($parameter:ident: $decode:path),+ }) => {
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$parameter().encode(out);)+
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Self::new($($decode(bytes)?),+).ok()
            }
        }
    };
}

impl Limit {
    /// Appends this limit to `out`, as written in the rule.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unlimited => out.push(0),
            Self::Closed => out.push(1),
            Self::TokenBucket(bucket) => encode_variant(2, bucket, out),
            Self::LeakyBucket(bucket) => encode_variant(3, bucket, out),
            Self::FixedWindow(window) => encode_variant(4, window, out),
            Self::SlidingLog(log) => encode_variant(5, log, out),
            Self::SlidingWindow(window) => encode_variant(6, window, out),
            Self::SmoothBursty(smooth) => encode_variant(7, smooth, out),
            Self::WarmUp(warm_up) => encode_variant(8, warm_up, out),
            Self::Cycle(cycle) => encode_variant(9, cycle, out),
            Self::Concurrency(slots) => encode_variant(10, slots, out),
            Self::Tally(tally) => encode_variant(11, tally, out),
            Self::SlidingSlices(window) => encode_variant(12, window, out),
        }
    }

    /// Decodes a limit from the front of `bytes` and advances them; `None` if they are malformed or
    /// the limit is invalid.
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
            2 => Self::TokenBucket(Encode::decode(bytes)?),
            3 => Self::LeakyBucket(Encode::decode(bytes)?),
            4 => Self::FixedWindow(Encode::decode(bytes)?),
            5 => Self::SlidingLog(Encode::decode(bytes)?),
            6 => Self::SlidingWindow(Encode::decode(bytes)?),
            7 => Self::SmoothBursty(Encode::decode(bytes)?),
            8 => Self::WarmUp(Encode::decode(bytes)?),
            9 => Self::Cycle(Encode::decode(bytes)?),
            10 => Self::Concurrency(Encode::decode(bytes)?),
            11 => Self::Tally(Encode::decode(bytes)?),
            12 => Self::SlidingSlices(Encode::decode(bytes)?),
            _ => return None,
        })
    }
}

encode_parameters!(Rate { count: read_varint, period: Span::decode });
encode_parameters!(LeakyBucket { rate: Rate::decode, queue: read_varint });
encode_parameters!(WarmUp { rate: Rate::decode, warm_up: Span::decode, cold_factor: read_varint });
encode_parameters!(Cycle { permits: read_varint, period: Span::decode });
encode_parameters!(Concurrency { max: read_varint, lease: Span::decode });
encode_parameters!(SlidingSlices { rate: Rate::decode, slices: read_varint });
encode_parameters!(Tally { limit: read_varint, period: Span::decode });

impl Encode for TokenBucket {
    fn encode(&self, out: &mut Vec<u8>) {
        self.rate().encode(out);
        write_varint(out, self.burst());
        write_varint(out, self.initial());
        out.push(match self.refill() {
            Refill::Greedy => 0,
            Refill::Interval => 1,
            Refill::Aligned => 2,
        });
        self.forget_after().encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let bucket = Self::new(Rate::decode(bytes)?, read_varint(bytes)?).ok()?;
        let bucket = bucket.with_initial(read_varint(bytes)?).ok()?;
        let refill = match byte(bytes)? {
            0 => Refill::Greedy,
            1 => Refill::Interval,
            2 => Refill::Aligned,
            _ => return None,
        };
        bucket.with_refill(refill).ok()?.with_forget_after(Span::decode(bytes)?).ok()
    }
}

impl Encode for FixedWindow {
    fn encode(&self, out: &mut Vec<u8>) {
        self.rate().encode(out);
        match self.align() {
            Align::Clock => out.push(0),
            Align::FirstHit => out.push(1),
            Align::Calendar(edges) => encode_variant(2, &edges, out),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let rate = Rate::decode(bytes)?;
        let align = match byte(bytes)? {
            0 => Align::Clock,
            1 => Align::FirstHit,
            2 => Align::Calendar(Edges::decode(bytes)?),
            _ => return None,
        };
        Some(Self::new(rate, align))
    }
}

impl Encode for Edges {
    fn encode(&self, out: &mut Vec<u8>) {
        self.longest().encode(out);
        write_varint(out, self.starts().len() as u64);
        let mut before = Timestamp::EPOCH;
        for start in self.starts() {
            start.since(before).encode(out);
            before = *start;
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let longest = Span::decode(bytes)?;
        let mut starts = Vec::new();
        let mut before = Timestamp::EPOCH;
        for _ in 0..count(bytes, EDGES_MAX as u64)? {
            before = before.after(Span::decode(bytes)?);
            starts.push(before);
        }
        Self::new(starts, longest).ok()
    }
}

impl Encode for SlidingLog {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.rates().count() as u64);
        for (max, length) in self.rates() {
            write_varint(out, max);
            length.encode(out);
        }
        out.push(u8::from(self.counts_denied()));
        self.min_gap().encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let rates: Vec<Rate> = decode_list(bytes, LOG_WINDOWS_MAX as u64)?;
        let log = Self::new(&rates).ok()?;
        let log = match byte(bytes)? {
            0 => log,
            1 => log.counting_denied().ok()?,
            _ => return None,
        };
        Some(log.with_min_gap(Span::decode(bytes)?))
    }
}

impl Encode for SlidingWindow {
    fn encode(&self, out: &mut Vec<u8>) {
        self.rate().encode(out);
        out.push(match self.rounding() {
            Rounding::Floor => 0,
            Rounding::Up => 1,
        });
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let rate = Rate::decode(bytes)?;
        let rounding = match byte(bytes)? {
            0 => Rounding::Floor,
            1 => Rounding::Up,
            _ => return None,
        };
        Some(Self::new(rate, rounding))
    }
}

impl Encode for SmoothBursty {
    fn encode(&self, out: &mut Vec<u8>) {
        self.rate().encode(out);
        self.max_burst().encode(out);
        self.kernel.forget_after.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let smooth = Self::new(Rate::decode(bytes)?, Span::decode(bytes)?).ok()?;
        smooth.with_forget_after(Span::decode(bytes)?).ok()
    }
}

impl Mode {
    /// Appends this mode to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hard => out.push(0),
            Self::Soft { percent } => {
                out.push(1);
                write_varint(out, *percent);
            }
            Self::Elastic { up_to, gate } => {
                out.push(2);
                write_varint(out, *up_to);
                write_varint(out, gate.below());
                write_varint(out, gate.above());
            }
            Self::Shadow => out.push(3),
        }
    }

    /// Decodes a mode from the front of `bytes` and advances them; `None` if they are malformed or
    /// the mode is invalid.
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let in_range =
            |number: u64, min: u64, max: u64| (min..=max).contains(&number).then_some(number);
        Some(match byte(bytes)? {
            0 => Self::Hard,
            1 => Self::Soft { percent: in_range(read_varint(bytes)?, 1, SOFT_PERCENT_MAX)? },
            2 => Self::Elastic {
                up_to: in_range(read_varint(bytes)?, 1_000, ELASTIC_FACTOR_MAX)?,
                gate: GateLevels::new(read_varint(bytes)?, read_varint(bytes)?).ok()?,
            },
            3 => Self::Shadow,
            _ => return None,
        })
    }
}
