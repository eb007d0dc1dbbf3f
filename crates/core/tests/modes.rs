//! Modes: what soft, shadow and elastic limits add to a hard one, and nothing else.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Gate, GateLevels, Mode};
use sluicegate_core::op::Op;
use support::limits::{
    bucket, counter, cycle, leaky, log, slices, small, smooth, stepped, warm_up, window,
    window_from_first_hit,
};
use support::{Fraction, SECOND, World, acquire, at, cases, hit, step};

fn gate() -> GateLevels {
    GateLevels::new(700, 850).expect("in order")
}

/// Calls: pause, cost, and max_wait if it waits.
fn calls() -> impl Strategy<Value = Vec<(u64, u64, Option<u64>)>> {
    prop::collection::vec((0u64..10, 1u64..6, prop::option::of(0u64..30)), 1..30)
}

fn op(cost: u64, max_wait: Option<u64>) -> Op {
    max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait))
}

fn answer(world: &mut World, op: Op, now: u64) -> Answer {
    world.answer(op, now).expect("no limit here refuses it")
}

/// Limits of one number, with the number.
fn numbered() -> impl Strategy<Value = (Limit, u64)> {
    (0u8..8, 1u64..5, 1u64..20, 1u64..30).prop_map(|(kind, n, p, size)| {
        let limit = match kind {
            0 => bucket(n, p, size),
            1 => stepped(n, p, size, Refill::Interval),
            2 => stepped(n, p, size, Refill::Aligned),
            3 => leaky(n, p, size - 1),
            4 => window(size, p),
            5 => window_from_first_hit(size, p),
            6 => slices(size, p, 2 + n),
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
            let decision = answer(&mut world, hit(cost), now).verdict;
            let left = decision.remaining.expect("a number");
            if decision.outcome.is_allowed() {
                // What is left counts from the plain limit: below nothing is above it.
                prop_assert_eq!(decision.soft, left < 0, "{:?}", decision);
                prop_assert!(left >= -room, "{} above {}", -left, room);
            } else {
                prop_assert!(!decision.soft);
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
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = world.ask(op(cost, max_wait), now);
            if decision.allowed() {
                *per_window.entry((now + decision.wait()) / p).or_insert(0) += cost;
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
        let max = Fraction::whole((burst + burst * percent / 100).into());
        for (i, &(from, _)) in uses.iter().enumerate() {
            let mut used = 0;
            for &(to, cost) in &uses[i..] {
                used += cost;
                let drips = Fraction::new(i128::from(to - from) * i128::from(n), p.into());
                prop_assert!(Fraction::whole(used.into()).at_most(max.plus(drips)));
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
            let decision = answer(&mut soft, hit(cost), now).verdict;
            prop_assert!(decision.outcome.is_allowed() && !decision.soft, "{:?}", decision);
        }
    }

    #[test]
    fn shadow_never_denies_and_says_what_its_hard_twin_says(limit in small(), calls in calls()) {
        let mut shadow = World::of(vec![step(limit, Mode::Shadow)]);
        let mut hard = World::hard(limit);
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = answer(&mut shadow, op(cost, max_wait), now).verdict;
            let twin = answer(&mut hard, op(cost, max_wait), now).verdict;
            prop_assert!(decision.outcome.is_allowed());
            prop_assert_eq!(decision.shadow, Some(twin.outcome));
            // With nothing else in the plan its numbers are the twin's too.
            prop_assert_eq!((decision.remaining, decision.reset_after), (twin.remaining, twin.reset_after));
        }
    }

    #[test]
    fn a_shadow_beside_an_enforced_limit_has_no_say(
        limit in small(), beside in small(), calls in calls(),
    ) {
        let mut both = World::of(vec![step(limit, Mode::Hard), step(beside, Mode::Shadow)]);
        let mut alone = World::hard(limit);
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = answer(&mut both, op(cost, max_wait), now).verdict;
            let twin = answer(&mut alone, op(cost, max_wait), now).verdict;
            prop_assert_eq!((decision.outcome, decision.remaining), (twin.outcome, twin.remaining));
            prop_assert!(decision.shadow.is_some());
        }
    }

    #[test]
    fn elastic_is_hard_while_there_is_no_spare_capacity(
        limit in small(), up_to in 1_000u64..4_000, calls in calls(),
    ) {
        let Ok(step) = EnforcedLimit::new(limit, Mode::Elastic { up_to, gate: gate() }) else {
            return Ok(());
        };
        let mut elastic = World::of(vec![step]);
        let mut hard = World::hard(limit);
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = answer(&mut elastic, op(cost, max_wait), now);
            let twin = answer(&mut hard, op(cost, max_wait), now);
            prop_assert_eq!(decision, twin);
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
            let decision = answer(&mut world, hit(cost), now).verdict;
            if decision.outcome.is_allowed() {
                prop_assert!(open || !decision.elastic, "closed, and above the limit");
                *all.entry(now / p).or_insert(0) += cost;
                if !decision.elastic {
                    *plain.entry(now / p).or_insert(0) += cost;
                }
            }
        }
        prop_assert!(all.values().all(|&used| used <= n * up_to / 1_000));
        prop_assert!(plain.values().all(|&used| used <= n), "unmarked above the plain limit");
    }

    #[test]
    fn an_elastic_limit_that_is_always_open_decides_as_the_boosted_one(
        kind in 0u8..13, (n, p, size) in (1u64..5, 1u64..20, 1u64..8), factor in 1u64..4, calls in calls(),
    ) {
        let mode = Mode::Elastic { up_to: factor * 1_000, gate: gate() };
        let mut elastic = World::of(vec![step(boosted(kind, n, p, size, 1), mode)]);
        elastic.open = true;
        let mut twin = World::hard(boosted(kind, n, p, size, factor));
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = elastic.ask(op(cost, max_wait), now);
            prop_assert_eq!(decision.outcome, twin.ask(op(cost, max_wait), now).outcome, "at {}", now);
        }
    }

    #[test]
    fn a_soft_log_marks_and_counts_each_of_its_windows(
        windows in prop::collection::vec((1u64..20, 1u64..40), 1..4), percent in 1u64..150,
        calls in prop::collection::vec((0u64..6, 1u64..4), 1..40),
    ) {
        let limit = Limit::SlidingLog(log(&windows));
        let mut world = World::of(vec![step(limit, Mode::Soft { percent })]);
        let mut now = 300;
        let mut used: Vec<(u64, u64)> = Vec::new();
        for (pause, cost) in calls {
            now += pause;
            let decision = answer(&mut world, hit(cost), now).verdict;
            let allowed = decision.outcome.is_allowed();
            if allowed {
                used.push((now, cost));
            }
            let held = |length: u64| {
                let inside = used.iter().filter(|(then, _)| then + length > now);
                inside.map(|(_, cost)| *cost as i64).sum::<i64>()
            };
            let left = windows.iter().map(|&(max, length)| max as i64 - held(length)).min();
            prop_assert_eq!((decision.remaining, decision.soft), (left, allowed && left < Some(0)), "{:?}", decision);
            // Each window has the percentage of its own number as room.
            let room = |max: u64| (max * percent / 100) as i64;
            for &(max, length) in &windows {
                prop_assert!(held(length) <= max as i64 + room(max), "{} in {}", held(length), length);
            }
        }
    }

    #[test]
    fn the_limits_of_a_rule_in_the_shadow_are_counted_all_or_nothing(
        limits in prop::collection::vec(small(), 2..4), calls in calls(),
    ) {
        let mut shadow = World::of(limits.iter().map(|limit| step(*limit, Mode::Shadow)).collect());
        let mut hard = World::of(limits.iter().map(|limit| step(*limit, Mode::Hard)).collect());
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = answer(&mut shadow, op(cost, max_wait), now).verdict;
            let twin = answer(&mut hard, op(cost, max_wait), now).verdict;
            prop_assert!(decision.outcome.is_allowed());
            // One that would have denied keeps the others from being charged, as if they were obeyed.
            prop_assert_eq!(decision.remaining, twin.remaining);
            prop_assert_eq!(decision.reset_after, twin.reset_after);
            prop_assert_eq!(decision.shadow, Some(twin.outcome));
        }
    }

    #[test]
    fn rules_in_the_shadow_do_not_see_each_other(
        limit in small(), other in small(), calls in calls(),
    ) {
        let plan = vec![step(limit, Mode::Shadow), step(other, Mode::Shadow).of_rule(1)];
        let mut both = World::of(plan);
        let mut alone = [limit, other].map(|limit| World::of(vec![step(limit, Mode::Shadow)]));
        let mut now = 300;
        for (pause, cost, max_wait) in calls {
            now += pause;
            let decision = answer(&mut both, op(cost, max_wait), now).verdict;
            let each = alone.each_mut().map(|world| answer(world, op(cost, max_wait), now).verdict);
            let decisive = each[decision.decided_by.unwrap()];
            prop_assert_eq!(decision.remaining, decisive.remaining);
            prop_assert_eq!(decision.reset_after, decisive.reset_after);
        }
    }
}

/// A limit of each kind whose rate and size are `times` those of one.
fn boosted(kind: u8, n: u64, p: u64, size: u64, times: u64) -> Limit {
    match kind {
        0 => bucket(n * times, p, size * times),
        1 => stepped(n * times, p, size * times, Refill::Interval),
        2 => stepped(n * times, p, size * times, Refill::Aligned),
        3 => leaky(n * times, p, size * times - 1),
        4 => window(size * times, p),
        5 => window_from_first_hit(size * times, p),
        6 => Limit::SlidingLog(log(&[(size * times, p), (n * times, p.div_ceil(2))])),
        7 => counter(size * times, p, Rounding::Floor),
        8 => counter(size * times, p, Rounding::Up),
        9 => cycle(size * times, p),
        12 => slices(size * times, p, 3),
        // What these store is a time, which yields more at a higher rate.
        10 => smooth(n * times, p, 3 * size),
        _ => warm_up(n * times, p, 3 * size, 3_000),
    }
}

#[test]
fn the_gate_opens_below_closes_above_and_holds_in_between() {
    let levels = gate();
    let now = at(1_000 * SECOND);
    let observe = |gate: Gate, load| gate.observe(&levels, load, now);
    let closed = Gate::default();
    assert!(!closed.is_open(now), "nothing heard");
    assert!(!observe(closed, 700).is_open(now), "not below 70 %");
    assert!(!observe(closed, 800).is_open(now), "in between it stays closed");
    let open = observe(closed, 699);
    assert!(open.is_open(now));
    for load in [700, 800, 850] {
        assert!(observe(open, load).is_open(now), "in between it stays open");
    }
    assert!(!observe(open, 851).is_open(now));
    assert!(!observe(observe(open, 851), 700).is_open(now), "and stays closed");
}

#[test]
fn a_gate_that_hears_nothing_for_ten_seconds_is_closed() {
    let levels = gate();
    let then = 1_000 * SECOND;
    let open = Gate::default().observe(&levels, 100, at(then));
    assert!(open.is_open(at(then + 10 * SECOND - 1)));
    assert!(!open.is_open(at(then + 10 * SECOND)));
    // What is stale holds nothing: a load in between finds a closed gate.
    let later = open.observe(&levels, 800, at(then + 10 * SECOND));
    assert!(!later.is_open(at(then + 10 * SECOND)));
    let kept = open.observe(&levels, 800, at(then + 9 * SECOND));
    assert!(kept.is_open(at(then + 18 * SECOND)));
}
