//! Limits: by name, and generated.

use proptest::prelude::*;
use sluicegate_core::algorithm::concurrency::Concurrency;
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

use super::{at, rate, us};

const HELD: &str = "a limit within the bounds";

pub(crate) fn bucket(count: u64, period: u64, burst: u64) -> Limit {
    Limit::TokenBucket(TokenBucket::new(rate(count, period), burst).expect(HELD))
}

pub(crate) fn stepped(count: u64, period: u64, burst: u64, refill: Refill) -> Limit {
    let bucket = TokenBucket::new(rate(count, period), burst).expect(HELD);
    Limit::TokenBucket(bucket.with_refill(refill).expect(HELD))
}

pub(crate) fn leaky(count: u64, period: u64, queue: u64) -> Limit {
    Limit::LeakyBucket(LeakyBucket::new(rate(count, period), queue).expect(HELD))
}

pub(crate) fn window(count: u64, period: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(rate(count, period), Align::Clock))
}

pub(crate) fn window_from_first_hit(count: u64, period: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(rate(count, period), Align::FirstHit))
}

/// A calendar window; `starts` are the previous, current and next start and the next one's end.
pub(crate) fn calendar(count: u64, starts: [u64; 4], longest: u64) -> Limit {
    let edges = Edges::new(starts.map(at), us(longest)).expect(HELD);
    let rate = rate(count, longest);
    Limit::FixedWindow(FixedWindow::new(rate, Align::Calendar(edges)))
}

pub(crate) fn log(windows: &[(u64, u64)]) -> SlidingLog {
    let rates: Vec<_> = windows.iter().map(|&(n, p)| rate(n, p)).collect();
    SlidingLog::new(&rates).expect(HELD)
}

pub(crate) fn counter(count: u64, period: u64, rounding: Rounding) -> Limit {
    Limit::SlidingWindow(SlidingWindow::new(rate(count, period), rounding))
}

pub(crate) fn slices(count: u64, period: u64, slices: u64) -> Limit {
    Limit::SlidingSlices(SlidingSlices::new(rate(count, period), slices).expect(HELD))
}

pub(crate) fn smooth(count: u64, period: u64, max_burst: u64) -> Limit {
    Limit::SmoothBursty(SmoothBursty::new(rate(count, period), us(max_burst)).expect(HELD))
}

pub(crate) fn warm_up(count: u64, period: u64, warm_up: u64, cold: u64) -> Limit {
    Limit::WarmUp(WarmUp::new(rate(count, period), us(warm_up), cold).expect(HELD))
}

pub(crate) fn cycle(permits: u64, period: u64) -> Limit {
    Limit::Cycle(Cycle::new(permits, us(period)).expect(HELD))
}

pub(crate) fn slots(max: u64, lease: u64) -> Limit {
    Limit::Concurrency(Concurrency::new(max, us(lease)).expect(HELD))
}

pub(crate) fn tally(limit: u64, period: u64) -> Limit {
    Limit::Tally(Tally::new(limit, us(period)).expect(HELD))
}

/// Any limit that is held by nobody's id, small enough for a model that walks microsecond by microsecond.
pub(crate) fn small() -> impl Strategy<Value = Limit> {
    prop_oneof![small_smooth(), small_counting()]
}

/// The smooth ones, which grant any cost.
pub(crate) fn small_smooth() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1u64..5, 1u64..20, 0u64..30).prop_map(|(n, p, b)| smooth(n, p, b)),
        (1u64..5, 1u64..20, 1u64..60, 1_000u64..6_000).prop_map(|(n, p, w, c)| warm_up(n, p, w, c)),
    ]
}

/// Those that count, and know a largest cost.
pub(crate) fn small_counting() -> impl Strategy<Value = Limit> {
    let (n, p, b) = (1u64..5, 1u64..20, 1u64..8);
    let rounding = prop_oneof![Just(Rounding::Floor), Just(Rounding::Up)];
    prop_oneof![
        (n.clone(), p.clone(), b.clone()).prop_map(|(n, p, b)| bucket(n, p, b)),
        (n.clone(), p.clone(), b.clone()).prop_map(|(n, p, b)| stepped(n, p, b, Refill::Interval)),
        (n.clone(), p.clone(), b).prop_map(|(n, p, b)| stepped(n, p, b, Refill::Aligned)),
        (n.clone(), p.clone(), 0u64..6).prop_map(|(n, p, q)| leaky(n, p, q)),
        (1u64..8, p.clone()).prop_map(|(n, p)| window(n, p)),
        (1u64..8, p.clone()).prop_map(|(n, p)| window_from_first_hit(n, p)),
        (1u64..8, p.clone(), rounding).prop_map(|(n, p, r)| counter(n, p, r)),
        (1u64..8, p.clone()).prop_map(|(n, p)| cycle(n, p)),
        (1u64..8, p, 2u64..7).prop_map(|(n, p, k)| slices(n, p, k)),
        small_log().prop_map(Limit::SlidingLog),
    ]
}

pub(crate) fn small_log() -> impl Strategy<Value = SlidingLog> {
    let windows = prop::collection::vec((1u64..6, 1u64..25), 1..4);
    (windows, 0u64..8).prop_map(|(windows, gap)| log(&windows).with_min_gap(us(gap)))
}
