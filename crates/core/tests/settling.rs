//! Settling late: what a reservation did not use goes back where it was charged, and only there.
//!
//! By the time it is settled the limit has refilled, a window has ended, others have come. What is really
//! used, counted from the moment of the reservation, must stay within the bound all the same; and a limit
//! that was reset owes nobody anything any more.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::account::{Part, apply_to_all};
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::Op;
use support::limits::{
    bucket, counter, cycle, leaky, log, slots, small, small_counting, stepped, window,
    window_from_first_hit,
};
use support::uses::{Uses, dripped, in_every_span, per_period};
use support::{World, acquire, acquire_as, at, cancel, cases, commit, hit, peek, reserve};

/// What somebody does after a pause.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Hit {
        cost: u64,
    },
    Reserve {
        cost: u64,
    },
    /// Settles the oldest open reservation for so much less than it reserved.
    Settle {
        less: u64,
    },
    /// Cancels it.
    Cancel,
}

fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let deed = (0u8..8, 1u64..5).prop_map(|(kind, cost)| match kind {
        0..3 => Deed::Hit { cost },
        3..5 => Deed::Reserve { cost },
        5..7 => Deed::Settle { less: cost },
        _ => Deed::Cancel,
    });
    let pause = prop_oneof![2 => Just(0u64), 3 => 0u64..6, 1 => 0u64..25];
    prop::collection::vec((pause, deed), 1..20)
}

/// What was really used, at the moment it was reserved or hit. What is still open counts in full.
fn really_used(limit: Limit, deeds: &[(u64, Deed)]) -> Uses {
    let mut world = World::hard(limit);
    let mut now = 1_000;
    let mut uses = Uses::new();
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (id, &(pause, deed)) in deeds.iter().enumerate() {
        now += pause;
        match deed {
            // A queue lets in at once what it lets out later.
            Deed::Hit { cost } => {
                let decision = world.ask(hit(cost), now);
                if decision.allowed() {
                    uses.push((now + decision.wait(), cost));
                }
            }
            Deed::Reserve { cost } => {
                let decision = world.ask(reserve(cost, 1_000_000, id as u64), now);
                if decision.allowed() {
                    open.insert(id as u64, (now + decision.wait(), cost));
                }
            }
            Deed::Settle { less } => {
                if let Some((id, (moment, cost))) = open.pop_first() {
                    let actual = cost.saturating_sub(less);
                    world.ask(commit(actual, id), now);
                    uses.push((moment, actual));
                }
            }
            Deed::Cancel => {
                if let Some((id, _)) = open.pop_first() {
                    world.ask(cancel(id), now);
                }
            }
        }
    }
    uses.extend(open.into_values());
    uses.retain(|&(_, cost)| cost > 0);
    uses.sort_unstable();
    uses
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn a_greedy_bucket_settled_late_passes_its_burst_and_what_drips(
        n in 1u64..5, p in 1u64..12, burst in 1u64..7, deeds in deeds(),
    ) {
        let uses = really_used(bucket(n, p, burst), &deeds);
        in_every_span(&uses, |from, to, used| dripped(n, p, burst, to - from, used))?;
    }

    #[test]
    fn an_aligned_bucket_settled_late_passes_its_burst_and_one_refill_per_boundary(
        n in 1u64..5, p in 1u64..12, burst in 1u64..7, deeds in deeds(),
    ) {
        let uses = really_used(stepped(n, p, burst, Refill::Aligned), &deeds);
        in_every_span(&uses, |from, to, used| used <= burst + n * (to / p - from / p))?;
    }

    #[test]
    fn an_interval_bucket_settled_late_passes_its_burst_and_one_refill_per_period_begun(
        n in 1u64..5, p in 1u64..12, burst in 1u64..7, deeds in deeds(),
    ) {
        let uses = really_used(stepped(n, p, burst, Refill::Interval), &deeds);
        in_every_span(&uses, |from, to, used| used <= burst + n * (to - from).div_ceil(p))?;
    }

    #[test]
    fn a_window_or_cycle_settled_late_holds_no_more_than_its_number(
        is_cycle in any::<bool>(), n in 1u64..6, p in 1u64..12, deeds in deeds(),
    ) {
        // What was left of a window that is over is nobody's.
        let uses = really_used(if is_cycle { cycle(n, p) } else { window(n, p) }, &deeds);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n), "{:?}", uses);
    }

    #[test]
    fn a_window_from_the_first_hit_settled_late_holds_no_more_than_its_number(
        n in 1u64..6, p in 1u64..12, deeds in deeds(),
    ) {
        let uses = really_used(window_from_first_hit(n, p), &deeds);
        in_every_span(&uses, |from, to, used| used <= n * ((to - from).div_ceil(p) + 1))?;
    }

    #[test]
    fn a_sliding_counter_settled_late_holds_no_more_than_its_number_in_a_clock_window(
        n in 1u64..6, p in 1u64..12, up in any::<bool>(), deeds in deeds(),
    ) {
        let rounding = if up { Rounding::Up } else { Rounding::Floor };
        let uses = really_used(counter(n, p, rounding), &deeds);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n), "{:?}", uses);
    }

    #[test]
    fn a_log_settled_late_holds_no_more_than_its_number_in_any_window(
        windows in prop::collection::vec((1u64..6, 1u64..25), 1..4), deeds in deeds(),
    ) {
        let uses = really_used(Limit::SlidingLog(log(&windows)), &deeds);
        for (max, length) in windows {
            in_every_span(&uses, |from, to, used| to - from >= length || used <= max)?;
        }
    }

    #[test]
    fn a_queue_settled_late_still_lets_out_one_interval_apart(
        n in 1u64..5, p in 1u64..12, queue in 0u64..7, deeds in deeds(),
    ) {
        let uses = really_used(leaky(n, p, queue), &deeds);
        for two in uses.windows(2) {
            // Rounded up each on its own: less than a microsecond closer.
            prop_assert!((two[1].0 - two[0].0 + 1) * n > two[0].1 * p, "{:?}", uses);
        }
    }

    #[test]
    fn nothing_comes_back_from_before_a_reset(
        limit in small(), now in 300u64..330,
        pending in prop::collection::vec((any::<bool>(), 1u64..5), 1..6),
        used in 0u64..5, later in 0u64..20,
    ) {
        let mut world = World::hard(limit);
        for (id, (booked, cost)) in pending.iter().enumerate() {
            let id = id as u64;
            world.ask(if *booked { acquire_as(*cost, 1_000, id) } else { reserve(*cost, 1_000, id) }, now);
        }
        world.ask(Op::Reset, now);
        world.ask(hit(used), now);
        let now = now + later;
        let before = world.clone();
        for id in 0..pending.len() as u64 {
            // One that was denied is not known.
            if let Ok(answer) = world.answer(cancel(id), now) {
                prop_assert_eq!(answer.returned, Some(0));
            }
        }
        for step in [1, 7] {
            prop_assert_eq!(before.probe(now, step), world.probe(now, step));
        }
    }

    #[test]
    fn a_reservation_from_before_a_reset_is_charged_for_what_it_used(
        limit in small_counting(), cost in 1u64..5, actual in 0u64..7, later in 0u64..20,
    ) {
        let mut world = World::hard(limit);
        if world.allows(reserve(cost, 1_000, 1), 300) {
            world.ask(Op::Reset, 300);
            let mut charged = world.clone();
            world.ask(commit(actual, 1), 300 + later);
            charged.ask(Op::Charge { cost: actual }, 300 + later);
            prop_assert_eq!(charged.probe(300 + later, 3), world.probe(300 + later, 3));
        }
    }

    #[test]
    fn a_refund_never_takes_back_a_booking(
        limit in small_counting(),
        bookings in prop::collection::vec((0u64..6, 1u64..4), 1..6),
        extra in 1u64..4, pause in 0u64..6,
    ) {
        let mut before = World::hard(limit);
        let mut now = 300;
        for (pause, cost) in bookings {
            now += pause;
            before.ask(acquire(cost, 1_000), now);
        }
        now += pause;
        let mut after = before.clone();
        after.ask(Op::Charge { cost: extra }, now);
        after.ask(Op::Refund { cost: extra }, now);
        // Nobody may have more than before; a counter cannot tell a charge behind a booking from it.
        for later in now..now + 40 {
            for cost in [1, 2, 4] {
                let (was, is) = (before.would(acquire(cost, 5), later), after.would(acquire(cost, 5), later));
                prop_assert!(was.allowed() || !is.allowed(), "{} at +{}", cost, later - now);
            }
        }
    }

    #[test]
    fn bookings_of_a_log_outlive_charges_and_refunds_between_them(
        n in 1u64..5, p in 1u64..14,
        calls in prop::collection::vec((0u64..5, 1u64..5, any::<bool>()), 1..8),
    ) {
        let mut world = World::hard(Limit::SlidingLog(log(&[(n, p)])));
        let mut now = 300;
        let mut uses = Uses::new();
        for (pause, cost, detour) in calls {
            now += pause;
            if detour {
                world.ask(Op::Charge { cost: 1 }, now);
                world.ask(Op::Refund { cost: 1 }, now);
            }
            let decision = world.ask(acquire(cost, 1_000), now);
            if decision.allowed() {
                uses.push((now + decision.wait(), cost));
            }
        }
        in_every_span(&uses, |from, to, used| to - from >= p || used <= n)?;
    }
}

#[test]
fn a_booking_voided_by_a_reset_does_not_fill_the_bucket_twice() {
    let mut world = World::hard(bucket(1, 10, 5));
    world.ask(hit(5), 0);
    world.ask(acquire_as(3, 1_000, 1), 0);
    world.ask(Op::Reset, 0);
    assert!(world.allows(hit(5), 0), "full again");
    assert_eq!(world.answer(cancel(1), 0).map(|answer| answer.returned), Ok(Some(0)));
    assert_eq!(world.ask(hit(3), 0).retry_after(), Some(30));
}

#[test]
fn a_reservation_beside_a_slot_is_settled_and_the_slot_freed() {
    let mut parts = [World::hard(window(900, 100)), World::hard(slots(1, 1_000))];
    let costs = [Some(500), Some(1)];
    let left = |world: &World, now| world.would(peek(1), now).remaining;
    let ask = |parts: &mut [World], op, costs: [Option<u64>; 2], now| {
        let mut parts: Vec<Part<'_>> = parts
            .iter_mut()
            .zip(costs)
            .map(|(World { plan, account, .. }, cost)| Part {
                plan,
                account,
                spare_capacity: false,
                cost,
            })
            .collect();
        apply_to_all(&mut parts, op, at(now)).expect("no limit here refuses it")
    };
    assert!(ask(&mut parts, reserve(0, 60, 7), costs, 0).verdict.is_allowed());
    assert!(!ask(&mut parts, reserve(0, 60, 8), costs, 0).verdict.is_allowed(), "the slot is held");
    assert_eq!(left(&parts[0], 0), Some(400), "and a denied one takes nothing");
    let answer = ask(&mut parts, commit(0, 7), [Some(120), Some(1)], 10);
    assert_eq!(answer.returned, Some(380));
    assert_eq!(parts.each_ref().map(|part| left(part, 10)), [Some(780), Some(1)]);
}
