//! Small plans of several steps in every mode, and everything that can be asked of them in the course of time.

use proptest::prelude::*;
use sluicegate_core::account::Moment;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::op::Op;

use super::limits::{calendar, log, slots, small, tally};
use super::{DAY, at, rate, us};

/// When the deeds begin.
pub(crate) const START: u64 = 1_000;

/// Something asked at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    pub(crate) op: Op,
    pub(crate) moment: Moment,
}

/// One to five steps of a few rules.
pub(crate) fn plan() -> impl Strategy<Value = Vec<EnforcedLimit>> {
    let without_slots = prop::collection::vec(step(any_limit()), 1..6);
    // A slot refuses most operations, for the whole plan.
    let with_slots = prop::collection::vec(step(prop_oneof![any_limit(), any_slots()]), 1..6);
    // So does a tally, and it counts what others deny.
    let with_tallies = prop_oneof![2 => any_limit(), 3 => any_tally(), 1 => any_slots()];
    let with_tallies = prop::collection::vec(step(with_tallies), 1..6);
    prop_oneof![4 => without_slots, 1 => with_slots, 1 => with_tallies]
}

fn step(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = EnforcedLimit> {
    (limit, mode(), 0usize..3).prop_map(|(limit, mode, rule)| {
        let step =
            EnforcedLimit::new(limit, mode).or_else(|_| EnforcedLimit::new(limit, Mode::Hard));
        step.expect("a hard limit fits always").of_rule(rule)
    })
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    let gate = GateLevels::new(700, 850).expect("in order");
    prop_oneof![
        4 => Just(Mode::Hard),
        1 => (1u64..200).prop_map(|percent| Mode::Soft { percent }),
        2 => (1_000u64..4_000).prop_map(move |up_to| Mode::Elastic { up_to, gate }),
        2 => Just(Mode::Shadow),
    ]
}

/// Any limit without slots, also those for which a new identity is not a full one.
pub(crate) fn any_limit() -> impl Strategy<Value = Limit> {
    let (n, p) = (1u64..5, 1u64..20);
    prop_oneof![
        8 => small(),
        2 => (n.clone(), p.clone(), 1u64..8, 0u64..8, 0u8..3, 1u64..60).prop_map(short_bucket),
        1 => (1u64..6, 1u64..25).prop_map(|window| {
            Limit::SlidingLog(log(&[window]).counting_denied().expect("a small number"))
        }),
        1 => (n, p).prop_map(|(n, p)| {
            calendar(n, [START - p, START, START + p + 2, START + 2 * p + 2], p + 2)
        }),
        1 => prop_oneof![Just(Limit::Unlimited), Just(Limit::Closed)],
    ]
}

pub(crate) fn any_slots() -> impl Strategy<Value = Limit> {
    (1u64..5, 1u64..30).prop_map(|(max, lease)| slots(max, lease))
}

pub(crate) fn any_tally() -> impl Strategy<Value = Limit> {
    (0u64..8, 1u64..20).prop_map(|(max, period)| tally(max, period))
}

fn short_bucket((n, p, burst, initial, refill, forget): (u64, u64, u64, u64, u8, u64)) -> Limit {
    let refill = [Refill::Greedy, Refill::Interval, Refill::Aligned][usize::from(refill)];
    let bucket = TokenBucket::new(rate(n, p), burst).expect("a small bucket");
    let bucket = bucket.with_initial(initial.min(burst)).and_then(|b| b.with_refill(refill));
    let bucket = bucket.and_then(|b| b.with_forget_after(us(forget)));
    Limit::TokenBucket(bucket.expect("a small bucket"))
}

/// Deeds one after the other; now and then the clock steps back, or a day goes by.
pub(crate) fn deeds(max: usize) -> impl Strategy<Value = Vec<Deed>> {
    let step = prop_oneof![
        8 => (0u64..8).prop_map(Move::On),
        2 => (0u64..60).prop_map(Move::On),
        1 => (0u64..20).prop_map(Move::Back),
        1 => (DAY - 30..DAY + 30).prop_map(Move::On),
    ];
    prop::collection::vec((op(), step, any::<bool>()), 1..max).prop_map(|deeds| {
        let mut now = START;
        let deed = |(op, step, spare_capacity)| {
            now = match step {
                Move::On(by) => now + by,
                Move::Back(by) => now - by.min(now),
            };
            Deed { op, moment: Moment { now: at(now), spare_capacity } }
        };
        deeds.into_iter().map(deed).collect()
    })
}

#[derive(Debug, Clone, Copy)]
enum Move {
    On(u64),
    Back(u64),
}

/// Anything that can be asked, for few units and under few ids.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    (0u8..28, 0u64..6, 0u64..40, 0u64..4, any::<bool>()).prop_map(|(kind, cost, time, id, flag)| {
        let holder = Holder(id);
        let maybe = flag.then_some(holder);
        match kind {
            0..5 => Op::Hit { cost, holder: maybe },
            5..9 => Op::Acquire { cost, max_wait: us(time), holder: maybe },
            9 => Op::Peek { cost },
            10 => Op::Take { cost },
            11 => Op::Charge { cost },
            12 => Op::Refund { cost },
            13 => Op::Add { cost, force: flag },
            14 => Op::Drain,
            15 if flag => Op::Reset,
            15..18 => Op::Reserve { cost, ttl: us(time), holder },
            18..21 => Op::Commit { cost, holder },
            24..26 => Op::CommitPart { cost, holder },
            26..28 => Op::Renew { ttl: us(time), holder },
            _ => Op::Cancel { holder },
        }
    })
}
