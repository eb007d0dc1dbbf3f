//! Modes: what soft, shadow and elastic limits add to a hard one, and nothing else.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{Gate, GateLevels, Mode, Step};
use sluicegate_core::op::Op;
use support::limits::{bucket, leaky, log, small, stepped, window, window_from_first_hit};
use support::{Fraction, SECOND, World, acquire, at, cases, hit, step};

fn gate() -> GateLevels {
    GateLevels::new(700, 850).expect("in order")
}

/// Calls: pause, cost, and patience if it waits.
fn calls() -> impl Strategy<Value = Vec<(u64, u64, Option<u64>)>> {
    prop::collection::vec((0u64..10, 1u64..6, prop::option::of(0u64..30)), 1..30)
}

fn op(cost: u64, patience: Option<u64>) -> Op {
    patience.map_or(hit(cost), |patience| acquire(cost, patience))
}

fn answer(world: &mut World, op: Op, now: u64) -> Answer {
    world.answer(op, now).expect("no limit here refuses it")
}

/// Limits of one number, with the number.
fn numbered() -> impl Strategy<Value = (Limit, u64)> {
    (0u8..7, 1u64..5, 1u64..20, 1u64..30).prop_map(|(kind, n, p, size)| {
        let limit = match kind {
            0 => bucket(n, p, size),
            1 => stepped(n, p, size, Refill::Interval),
            2 => stepped(n, p, size, Refill::Aligned),
            3 => leaky(n, p, size - 1),
            4 => window(size, p),
            5 => window_from_first_hit(size, p),
            _ => Limit::SlidingLog(log(&[(size, p)])),
        };
        (limit, size)
    })
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn soft_marks_exactly_what_is_above_the_plain_limit(
        (limit, size) in numbered(), percent in 1u64..150, calls in calls(),
    ) {
        let mut world = World::of(vec![step(limit, Mode::Soft { percent })]);
        let room = (size * percent / 100) as i64;
        let mut now = 300;
        for (pause, cost, _) in calls {
            now += pause;
            let said = answer(&mut world, hit(cost), now).verdict;
            let left = said.remaining.expect("a number");
            if said.outcome.is_allowed() {
                // What is left counts from the plain limit: below nothing is above it.
                prop_assert_eq!(said.soft, left < 0, "{:?}", said);
                prop_assert!(left >= -room, "{} above {}", -left, room);
            } else {
                prop_assert!(!said.soft);
            }
        }
    }

    #[test]
    fn soft_windows_hold_no_more_than_the_percentage_allows(
        n in 1u64..40, p in 1u64..30, percent in 1u64..150, calls in calls(),
    ) {
        let mut world = World::of(vec![step(window(n, p), Mode::Soft { percent })]);
        let mut now = 300;
        let mut per_window = std::collections::BTreeMap::new();
        for (pause, cost, patience) in calls {
            now += pause;
            let said = world.ask(op(cost, patience), now);
            if said.allowed() {
                *per_window.entry((now + said.wait()) / p).or_insert(0) += cost;
            }
        }
        prop_assert!(per_window.values().all(|&used| used <= n + n * percent / 100));
    }

    #[test]
    fn a_soft_bucket_owes_no_more_than_the_percentage_of_its_burst(
        n in 1u64..5, p in 1u64..20, burst in 1u64..40, percent in 1u64..150, calls in calls(),
    ) {
        let mut world = World::of(vec![step(bucket(n, p, burst), Mode::Soft { percent })]);
        let mut now = 300;
        let mut uses = Vec::new();
        for (pause, cost, _) in calls {
            now += pause;
            if world.allows(hit(cost), now) {
                uses.push((now, cost));
            }
        }
        let most = Fraction::whole((burst + burst * percent / 100).into());
        for (i, &(from, _)) in uses.iter().enumerate() {
            let mut used = 0;
            for &(to, cost) in &uses[i..] {
                used += cost;
                let drips = Fraction::new(i128::from(to - from) * i128::from(n), p.into());
                prop_assert!(Fraction::whole(used.into()).at_most(most.plus(drips)));
            }
        }
    }

    #[test]
    fn soft_never_denies_what_hard_would_admit(
        (limit, _) in numbered(), percent in 1u64..150, history in calls(),
    ) {
        // Side by side from the first call to the first that hard denies.
        let mut soft = World::of(vec![step(limit, Mode::Soft { percent })]);
        let mut hard = World::hard(limit);
        let mut now = 300;
        for (pause, cost, _) in history {
            now += pause;
            if !hard.allows(hit(cost), now) {
                break;
            }
            let said = answer(&mut soft, hit(cost), now).verdict;
            prop_assert!(said.outcome.is_allowed() && !said.soft, "{:?}", said);
        }
    }

    #[test]
    fn shadow_never_denies_and_says_what_its_hard_twin_says(limit in small(), calls in calls()) {
        let mut shadow = World::of(vec![step(limit, Mode::Shadow)]);
        let mut hard = World::hard(limit);
        let mut now = 300;
        for (pause, cost, patience) in calls {
            now += pause;
            let said = answer(&mut shadow, op(cost, patience), now).verdict;
            let twin = answer(&mut hard, op(cost, patience), now).verdict;
            prop_assert!(said.outcome.is_allowed());
            prop_assert_eq!(said.shadow, Some(twin.outcome));
            // With nothing else in the plan its numbers are the twin's too.
            prop_assert_eq!((said.remaining, said.reset_after), (twin.remaining, twin.reset_after));
        }
    }

    #[test]
    fn a_shadow_beside_an_enforced_limit_has_no_say(
        limit in small(), beside in small(), calls in calls(),
    ) {
        let mut both = World::of(vec![step(limit, Mode::Hard), step(beside, Mode::Shadow)]);
        let mut alone = World::hard(limit);
        let mut now = 300;
        for (pause, cost, patience) in calls {
            now += pause;
            let said = answer(&mut both, op(cost, patience), now).verdict;
            let twin = answer(&mut alone, op(cost, patience), now).verdict;
            prop_assert_eq!((said.outcome, said.remaining), (twin.outcome, twin.remaining));
            prop_assert!(said.shadow.is_some());
        }
    }

    #[test]
    fn elastic_is_hard_while_there_is_no_spare_capacity(
        limit in small(), up_to in 1_000u64..4_000, calls in calls(),
    ) {
        let Ok(step) = Step::new(limit, Mode::Elastic { up_to, gate: gate() }) else {
            return Ok(());
        };
        let mut elastic = World::of(vec![step]);
        let mut hard = World::hard(limit);
        let mut now = 300;
        for (pause, cost, patience) in calls {
            now += pause;
            let said = answer(&mut elastic, op(cost, patience), now);
            let twin = answer(&mut hard, op(cost, patience), now);
            prop_assert_eq!(said, twin);
        }
    }

    #[test]
    fn an_elastic_window_holds_at_most_the_factor_and_marks_what_is_above(
        n in 1u64..20, p in 1u64..30, up_to in 1_000u64..4_000,
        calls in prop::collection::vec((0u64..6, 1u64..6, any::<bool>()), 1..40),
    ) {
        let mut world = World::of(vec![step(window(n, p), Mode::Elastic { up_to, gate: gate() })]);
        let mut now = 300;
        let (mut all, mut plain) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
        for (pause, cost, open) in calls {
            now += pause;
            world.open = open;
            let said = answer(&mut world, hit(cost), now).verdict;
            if said.outcome.is_allowed() {
                prop_assert!(open || !said.elastic, "closed, and above the limit");
                *all.entry(now / p).or_insert(0) += cost;
                if !said.elastic {
                    *plain.entry(now / p).or_insert(0) += cost;
                }
            }
        }
        prop_assert!(all.values().all(|&used| used <= n * up_to / 1_000));
        prop_assert!(plain.values().all(|&used| used <= n), "unmarked above the plain limit");
    }

    #[test]
    fn an_elastic_log_that_is_always_open_is_the_boosted_one(
        n in 1u64..10, p in 1u64..30, factor in 1u64..4, calls in calls(),
    ) {
        let of = |n| Limit::SlidingLog(log(&[(n, p)]));
        let mode = Mode::Elastic { up_to: factor * 1_000, gate: gate() };
        let mut elastic = World::of(vec![step(of(n), mode)]);
        elastic.open = true;
        // The plain one admits nothing that the boosted one would not.
        let mut boosted = World::hard(of(n * factor));
        let mut now = 300;
        for (pause, cost, _) in calls {
            now += pause;
            let said = elastic.ask(hit(cost), now);
            let twin = boosted.ask(hit(cost), now);
            prop_assert_eq!(said.allowed(), twin.allowed());
        }
    }
}

#[test]
fn the_gate_opens_below_closes_above_and_holds_in_between() {
    let levels = gate();
    let now = at(1_000 * SECOND);
    let heard = |gate: Gate, load| gate.heard(&levels, load, now);
    let closed = Gate::default();
    assert!(!closed.is_open(now), "nothing heard");
    assert!(!heard(closed, 700).is_open(now), "not below 70 %");
    assert!(!heard(closed, 800).is_open(now), "in between it stays closed");
    let open = heard(closed, 699);
    assert!(open.is_open(now));
    for load in [700, 800, 850] {
        assert!(heard(open, load).is_open(now), "in between it stays open");
    }
    assert!(!heard(open, 851).is_open(now));
    assert!(!heard(heard(open, 851), 700).is_open(now), "and stays closed");
}

#[test]
fn a_gate_that_hears_nothing_for_ten_seconds_is_closed() {
    let levels = gate();
    let then = 1_000 * SECOND;
    let open = Gate::default().heard(&levels, 100, at(then));
    assert!(open.is_open(at(then + 10 * SECOND - 1)));
    assert!(!open.is_open(at(then + 10 * SECOND)));
    // What is stale holds nothing: a load in between finds a closed gate.
    let later = open.heard(&levels, 800, at(then + 10 * SECOND));
    assert!(!later.is_open(at(then + 10 * SECOND)));
    let kept = open.heard(&levels, 800, at(then + 9 * SECOND));
    assert!(kept.is_open(at(then + 18 * SECOND)));
}
