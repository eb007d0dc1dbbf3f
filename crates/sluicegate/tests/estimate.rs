//! What is estimated for an identity is what it really takes.

// Counting what is allocated is possible in no other way; the counter only passes on what it is asked.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::estimate::{Estimate, bytes_per_identity};
use sluicegate::limit::{
    Concurrency, Cycle, FixedWindow, IntoLimit, LeakyBucket, LimitConfig, Refill, SlidingLog,
    SlidingWindow, SmoothBursty, TokenBucket, Unlimited, WarmUp,
};
use sluicegate::{GateLevels, Limiter, Mode, Timestamp};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::time::Span;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator, as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const IDENTITIES: u64 = 50_000;
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_123_457);

/// How much of what it may use each identity uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Used {
    Half,
    All,
}

/// The bytes that each of so many identities takes.
fn measured(limits: &[LimitConfig], mode: Mode, identities: u64, used: Used) -> u64 {
    let clock = ManualClock::at(NOW);
    let limiter = Limiter::builder()
        .limits(limits.iter().cloned())
        .mode(mode)
        .clock(clock.clone())
        .build()
        .unwrap();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let turns = turns(&limits[0], used);
    for turn in 0..turns.count {
        for identity in 0..identities {
            let key = identity.to_le_bytes();
            let ask = limiter.of(&key).cost(turns.cost);
            let ask = if turns.held { ask.id(turn.to_le_bytes()) } else { ask };
            assert!(ask.hit().is_allowed(), "{limits:?}: turn {turn}");
        }
        clock.advance(turns.apart);
    }
    (ALLOCATED.load(Ordering::Relaxed) - before) as u64 / identities
}

struct Turns {
    count: u64,
    cost: u64,
    apart: Duration,
    held: bool,
}

/// How an identity comes to have used that much: of a log and of slots hit by hit, of the others at once.
fn turns(limit: &LimitConfig, used: Used) -> Turns {
    let part = |all: u64| if used == Used::Half { all.div_ceil(2) } else { all };
    match limit.at(NOW) {
        Limit::SlidingLog(log) => {
            let (max, length) = log.rates().next().unwrap();
            let apart = Duration::from_micros(length.as_micros() / max);
            Turns { count: part(max), cost: 1, apart, held: false }
        }
        Limit::SlidingSlices(window) => {
            let max = window.rate().count();
            let apart = Duration::from_micros(window.rate().period().as_micros() / max);
            Turns { count: part(max), cost: 1, apart, held: false }
        }
        Limit::Concurrency(slots) => {
            Turns { count: part(slots.max()), cost: 1, apart: Duration::ZERO, held: true }
        }
        limit => {
            let mut fresh = State::New;
            limit.open(&mut fresh, NOW);
            let cost = part(limit.left(&fresh, NOW).unwrap_or(1).max(1));
            Turns { count: 1, cost, apart: Duration::ZERO, held: false }
        }
    }
}

fn each() -> Vec<(&'static str, Vec<LimitConfig>, Mode)> {
    let tally = Limit::Tally(Tally::new(20, Span::from_secs(60)).unwrap());
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let one = |limit: Result<LimitConfig, _>| vec![limit.unwrap()];
    let levels = GateLevels::new(700, 850).unwrap();
    let elastic = Mode::Elastic { up_to: 2_000, gate: levels };
    let bucket = || TokenBucket::per_minute(20).burst(50).into_limit().unwrap();
    let day = || FixedWindow::per_day(10_000).in_zone("Europe/Berlin").into_limit().unwrap();
    let hard = vec![
        ("token bucket", vec![bucket()]),
        ("token bucket, fractions", one(TokenBucket::per_minute(7).burst(50).into_limit())),
        (
            "token bucket, interval",
            one(TokenBucket::per_minute(5).refill(Refill::Interval).into_limit()),
        ),
        (
            "token bucket, aligned",
            one(TokenBucket::per_minute(5).refill(Refill::Aligned).into_limit()),
        ),
        ("token bucket, empty at first", one(TokenBucket::per_minute(50).initial(30).into_limit())),
        ("leaky bucket", one(LeakyBucket::per_minute(10).queue(20).into_limit())),
        ("fixed window", one(FixedWindow::per_hour(1_000).into_limit())),
        ("fixed window, first hit", one(FixedWindow::per_hour(100).from_first_hit().into_limit())),
        ("many from first hit", one(FixedWindow::per_hour(900_000).from_first_hit().into_limit())),
        ("calendar", vec![day()]),
        ("sliding window", one(SlidingWindow::per_hour(1_000).into_limit())),
        ("six slices", one(SlidingWindow::per_hour(600).slices(6).into_limit())),
        ("sixty slices", one(SlidingWindow::per_hour(120).slices(60).into_limit())),
        ("sliding log", one(SlidingLog::per_hour(16).into_limit())),
        ("smooth bursty", one(SmoothBursty::per_minute(5).max_burst(minute).into_limit())),
        ("warm up", one(WarmUp::per_minute(5).over(10 * second).into_limit())),
        ("cycle", one(Cycle::of(50).every(minute).into_limit())),
        ("concurrency", one(Concurrency::at_most(6).into_limit())),
        ("Envoy's form", vec![LimitConfig::fixed(None, tally)]),
        ("three at once", vec![LimitConfig::fixed(None, tally), bucket(), day()]),
    ];
    let mut all: Vec<_> = hard.into_iter().map(|(name, all)| (name, all, Mode::Hard)).collect();
    all.push(("elastic", vec![bucket()], elastic));
    all.push(("soft", vec![bucket()], Mode::Soft { percent: 10 }));
    all.push(("shadow", vec![bucket()], Mode::Shadow));
    all
}

fn assert_near(name: &str, estimated: u64, measured: u64) {
    let off = estimated.abs_diff(measured);
    let message = format!("{name}: {estimated} bytes estimated, {measured} measured");
    assert!(off * 4 <= measured, "{message}");
    println!("{message}");
}

/// One test, so that nobody else allocates meanwhile.
#[test]
fn an_estimate_is_near_what_is_allocated() {
    for (name, limits, mode) in each() {
        let Estimate { typical, max } = bytes_per_identity(&limits, mode);
        assert_near(name, typical, measured(&limits, mode, IDENTITIES, Used::Half));
        let all = measured(&limits, mode, 20_000, Used::All);
        assert!(max >= all, "{name}: {all} bytes measured, {max} are said to be the most");
        assert!(max <= all * 2, "{name}: {all} bytes measured, and at most {max} say little");
    }

    let log = [SlidingLog::per_hour(500).into_limit().unwrap()];
    let Estimate { typical, max } = bytes_per_identity(&log, Mode::Hard);
    assert_near("a long log, half", typical, measured(&log, Mode::Hard, 500, Used::Half));
    assert_near("a long log, full", max, measured(&log, Mode::Hard, 500, Used::All));

    let nothing = [Unlimited.into_limit().unwrap()];
    assert_eq!(bytes_per_identity(&nothing, Mode::Hard), Estimate::default());
    assert!(measured(&nothing, Mode::Hard, IDENTITIES, Used::All) < 2, "a limiter, and nobody");
}
