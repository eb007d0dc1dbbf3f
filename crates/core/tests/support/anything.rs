//! Numbers of any size, whatever limits and plans can be made of them, and whatever can be asked.

use proptest::prelude::*;
use sluicegate_core::algorithm::concurrency::{Concurrency, Holder};
use sluicegate_core::algorithm::cycle::Cycle;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::leaky_bucket::LeakyBucket;
use sluicegate_core::algorithm::periodic::Edges;
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::algorithm::smooth::SmoothBursty;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::algorithm::warm_up::WarmUp;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::quota::Rate;

use super::{DAY, EXACT_MAX, MINUTE, SECOND, at, us};

/// Any number, with those around powers of two and the usual spans more often.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    let near = (0u32..64, -2i64..3).prop_map(|(bits, off)| (1u64 << bits).wrapping_add_signed(off));
    prop_oneof![
        3 => 0u64..10,
        2 => near,
        2 => (0u64..3).prop_map(|less| EXACT_MAX - less),
        1 => (0u64..3).prop_map(|less| (1 << 52) - less),
        1 => Just(u64::MAX),
        2 => prop_oneof![Just(SECOND), Just(MINUTE), Just(DAY), Just(365 * DAY), Just(3_600 * SECOND)],
        2 => 0..=EXACT_MAX,
        2 => 0u64..100_000_000,
        1 => any::<u64>(),
    ]
}

/// Any limit that its constructors let pass.
pub(crate) fn limit() -> impl Strategy<Value = Option<Limit>> {
    let numbers = (number(), number(), number(), number(), number());
    (0u8..16, numbers, prop::collection::vec((number(), number()), 0..10)).prop_map(build)
}

pub(crate) type Numbers = (u64, u64, u64, u64, u64);

/// The limit of this kind with these numbers, if it can be held.
pub(crate) fn build(
    (kind, (a, b, c, d, e), many): (u8, Numbers, Vec<(u64, u64)>),
) -> Option<Limit> {
    let rate = Rate::new(a, us(b));
    Some(match kind {
        0 => Limit::TokenBucket(TokenBucket::new(rate.ok()?, c).ok()?),
        1 | 2 => {
            let refill = [Refill::Greedy, Refill::Interval, Refill::Aligned][(e % 3) as usize];
            let bucket = TokenBucket::new(rate.ok()?, c).ok()?.with_refill(refill).ok()?;
            let bucket = bucket.with_initial(d.min(c)).ok()?;
            Limit::TokenBucket(bucket.with_forget_after(us(e)).unwrap_or(bucket))
        }
        3 => Limit::LeakyBucket(LeakyBucket::new(rate.ok()?, c).ok()?),
        4 => Limit::FixedWindow(FixedWindow::new(rate.ok()?, Align::Clock)),
        5 => Limit::FixedWindow(FixedWindow::new(rate.ok()?, Align::FirstHit)),
        6 => {
            let mut starts = [b, c, d, e];
            starts.sort_unstable();
            let edges = Edges::new(starts.map(at), us(a.max(e))).ok()?;
            Limit::FixedWindow(FixedWindow::new(Rate::new(c, us(b)).ok()?, Align::Calendar(edges)))
        }
        7 | 8 => {
            let rates: Option<Vec<_>> =
                many.iter().map(|&(n, p)| Rate::new(n % 3_000, us(p)).ok()).collect();
            let log = SlidingLog::new(&rates?).ok()?.with_min_gap(us(e));
            let log = if kind == 8 { log.counting_denied().ok()? } else { log };
            Limit::SlidingLog(log)
        }
        9 => {
            let rounding = if c % 2 == 0 { Rounding::Floor } else { Rounding::Up };
            Limit::SlidingWindow(SlidingWindow::new(rate.ok()?, rounding))
        }
        10 => Limit::SmoothBursty(SmoothBursty::new(rate.ok()?, us(c)).ok()?),
        11 => {
            Limit::WarmUp(WarmUp::new(rate.ok()?, us(c % 4_000_000_000), 1_000 + d % 99_001).ok()?)
        }
        15 => Limit::SlidingSlices(SlidingSlices::new(rate.ok()?, 2 + c % 59).ok()?),
        14 => Limit::Tally(Tally::new(a, us(b)).ok()?),
        12 => Limit::Cycle(Cycle::new(a, us(b)).ok()?),
        _ => Limit::Concurrency(Concurrency::new(a % 2_000_000, us(b)).ok()?),
    })
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    (0u8..6, number(), number()).prop_map(|(kind, a, b)| match kind {
        0 => Mode::Shadow,
        1 => Mode::Soft { percent: a },
        2 => Mode::Soft { percent: 1 + a % 1_000 },
        3 => Mode::Elastic {
            up_to: 1_000 + a % 999_001,
            gate: GateLevels::new(a.min(b), a.max(b)).expect("in order"),
        },
        _ => Mode::Hard,
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    (0u8..18, number(), number(), 0u64..5, any::<bool>()).prop_map(
        |(kind, cost, time, id, flag)| {
            let holder = Holder(id);
            let maybe = flag.then_some(holder);
            match kind {
                0..3 => Op::Hit { cost, holder: maybe },
                3..6 => Op::Acquire { cost, max_wait: us(time), holder: maybe },
                6 => Op::Peek { cost },
                7 => Op::Take { cost },
                8 => Op::Charge { cost },
                9 => Op::Refund { cost },
                10 => Op::Add { cost, force: flag },
                11 => Op::Drain,
                12 => Op::Reset,
                13 => Op::Reserve { cost, ttl: us(time), holder },
                14 => Op::Commit { cost, holder },
                16 => Op::CommitPart { cost, holder },
                17 => Op::Renew { ttl: us(time), holder },
                _ => Op::Cancel { holder },
            }
        },
    )
}

pub(crate) fn plan() -> impl Strategy<Value = Vec<EnforcedLimit>> {
    prop::collection::vec((limit(), mode()), 1..4).prop_map(|limits| {
        let step = |(limit, mode): (Option<Limit>, Mode)| EnforcedLimit::new(limit?, mode).ok();
        limits.into_iter().filter_map(step).collect()
    })
}
