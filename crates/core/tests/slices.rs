//! The sliding window of slices beside an exact log: never above it, at most one slice stricter.

mod support;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::Op;
use support::limits::{counter, log, slices};
use support::uses::{Uses, in_every_span};
use support::{World, acquire, at, cases, hit, peek};

/// A caller: the time since the one before, its cost, how long it waits.
type Callers = Vec<(u64, u64, Option<u64>)>;

fn callers() -> impl Strategy<Value = Callers> {
    let max_wait = prop_oneof![Just(None), (0u64..60).prop_map(Some)];
    prop::collection::vec((prop_oneof![Just(0), 0u64..4, 0u64..40], 1u64..6, max_wait), 1..40)
}

/// Charges of any size, as a history that every limit has in common.
fn charges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..12, 1u64..4), 1..20)
}

fn charged(limit: Limit, charges: &[(u64, u64)]) -> (World, u64) {
    let (mut world, mut now) = (World::hard(limit), 300);
    for (pause, cost) in charges {
        now += pause;
        world.ask(Op::Charge { cost: *cost }, now);
    }
    (world, now)
}

/// When a hit of `cost` would be admitted.
fn admitted_at(world: &World, cost: u64, now: u64) -> u64 {
    let reply = world.would(peek(cost), now);
    if reply.allowed() { now } else { now + reply.retry_after().expect("a cost that can pass") }
}

fn changed(world: &World, new: Limit, carry: CarryOver, now: u64) -> World {
    let mut changed = world.clone();
    let plan = World::hard(new).plan;
    changed.account.change(&world.plan, &plan, &[Some(0)], carry, at(now));
    World { plan, ..changed }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_rolling_window_ever_holds_more_than_its_number(
        n in 1u64..8, p in 1u64..60, k in 2u64..13, callers in callers(),
    ) {
        let (mut world, mut now, mut uses) = (World::hard(slices(n, p, k)), 1_000, Uses::new());
        for (pause, cost, max_wait) in callers {
            now += pause;
            let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait));
            let decision = world.ask(op, now);
            if decision.allowed() {
                uses.push((now + decision.wait(), cost));
            }
        }
        in_every_span(&uses, |from, to, used| to - from >= p || used <= n)?;
    }

    #[test]
    fn a_denied_hit_waits_at_most_one_slice_longer_than_under_a_log(
        n in 1u64..8, p in 1u64..60, k in 2u64..13, charges in charges(), pause in 0u64..60,
        cost in 1u64..8,
    ) {
        let (sliced, now) = charged(slices(n, p, k), &charges);
        let (exact, _) = charged(Limit::SlidingLog(log(&[(n, p)])), &charges);
        let (now, cost) = (now + pause, cost.min(n));
        let (slow, fast) = (admitted_at(&sliced, cost, now), admitted_at(&exact, cost, now));
        prop_assert!(fast <= slow, "{slow}, exactly {fast}");
        // A window that the slices do not divide is rounded up to whole microseconds.
        let (slice, rounded) = (p.div_ceil(k), p.div_ceil(k) * k - p);
        prop_assert!(slow <= fast + slice + rounded, "{slow}, exactly {fast}, slices of {slice}");
    }

    #[test]
    fn more_slices_come_closer_to_a_log(
        n in 1u64..8, slice in 1u64..6, k in 2u64..6, times in 2u64..5, charges in charges(),
        pause in 0u64..60, cost in 1u64..8,
    ) {
        let p = slice * k * times;
        let (coarse, now) = charged(slices(n, p, k), &charges);
        let (fine, _) = charged(slices(n, p, k * times), &charges);
        let (now, cost) = (now + pause, cost.min(n));
        prop_assert!(admitted_at(&fine, cost, now) <= admitted_at(&coarse, cost, now));
    }

    #[test]
    fn a_change_of_slices_admits_nothing_more(
        n in 1u64..8, p in 1u64..8, (k, other) in (2u64..7, 2u64..7), callers in callers(),
        (before, pause) in (1usize..20, 0u64..8),
    ) {
        // Windows that all of these numbers of slices divide.
        let p = 60 * p;
        let (mut world, mut now, mut uses) = (World::hard(slices(n, p, k)), 1_000, Uses::new());
        for (index, (gap, cost, max_wait)) in callers.into_iter().enumerate() {
            now += gap * 8;
            if index == before {
                now += pause;
                world = changed(&world, slices(n, p, other), CarryOver::Used, now);
            }
            let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, 20 * max_wait));
            let decision = world.ask(op, now);
            if decision.allowed() {
                uses.push((now + decision.wait(), cost));
            }
        }
        in_every_span(&uses, |from, to, used| to - from >= p || used <= n)?;
    }

    #[test]
    fn usage_stays_between_two_counts_and_slices(
        n in 1u64..8, p in 1u64..30, k in 2u64..7, charges in charges(), pause in 0u64..20,
        up in any::<bool>(),
    ) {
        let counts = counter(n, p, if up { Rounding::Up } else { Rounding::Floor });
        for (old, new) in [(counts, slices(n, p, k)), (slices(n, p, k), counts)] {
            let (world, now) = charged(old, &charges);
            let now = now + pause;
            for carry in [CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion] {
                let after = changed(&world, new, carry, now);
                let left = |world: &World| world.would(peek(1), now).remaining;
                prop_assert_eq!(left(&after), left(&world), "{:?}", carry);
            }
        }
    }
}

#[test]
fn entries_are_as_few_as_slices() {
    let mut world = World::hard(slices(1_000_000, 600, 60));
    for now in 0..100_000 {
        world.ask(hit(1 + now % 3), now);
        let Some(sluicegate_core::limit::State::Log(log)) = world.account.state(0) else {
            panic!("a state");
        };
        assert!(log.entries.len() <= 61, "{} entries", log.entries.len());
        assert!(log.entries.capacity_bytes() <= 400, "{} bytes", log.entries.capacity_bytes());
    }
}
