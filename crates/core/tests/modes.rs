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
    bucket, counter, cycle, leaky, log, small, smooth, stepped, warm_up, window,
    window_from_first_hit,
};
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
        let Ok(step) = EnforcedLimit::new(limit, Mode::Elastic { up_to, gate: gate() }) else {
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
    fn an_elastic_limit_that_is_always_open_decides_as_the_boosted_one(
        kind in 0u8..12, (n, p, size) in (1u64..5, 1u64..20, 1u64..8), factor in 1u64..4, calls in calls(),
    ) {
        let mode = Mode::Elastic { up_to: factor * 1_000, gate: gate() };
        let mut elastic = World::of(vec![step(boosted(kind, n, p, size, 1), mode)]);
        elastic.open = true;
        let mut twin = World::hard(boosted(kind, n, p, size, factor));
        let mut now = 300;
        for (pause, cost, patience) in calls {
            now += pause;
            let said = elastic.ask(op(cost, patience), now);
            prop_assert_eq!(said.outcome, twin.ask(op(cost, patience), now).outcome, "at {}", now);
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
            let said = answer(&mut world, hit(cost), now).verdict;
            let allowed = said.outcome.is_allowed();
            if allowed {
                used.push((now, cost));
            }
            let held = |length: u64| {
                let inside = used.iter().filter(|(then, _)| then + length > now);
                inside.map(|(_, cost)| *cost as i64).sum::<i64>()
            };
            let left = windows.iter().map(|&(most, length)| most as i64 - held(length)).min();
            prop_assert_eq!((said.remaining, said.soft), (left, allowed && left < Some(0)), "{:?}", said);
            // Each window has the percentage of its own number as room.
            let room = |most: u64| (most * percent / 100) as i64;
            for &(most, length) in &windows {
                prop_assert!(held(length) <= most as i64 + room(most), "{} in {}", held(length), length);
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
        for (pause, cost, patience) in calls {
            now += pause;
            let said = answer(&mut shadow, op(cost, patience), now).verdict;
            let twin = answer(&mut hard, op(cost, patience), now).verdict;
            prop_assert!(said.outcome.is_allowed());
            // One that would have denied keeps the others from being charged, as if they were obeyed.
            prop_assert_eq!(said.remaining, twin.remaining);
            prop_assert_eq!(said.reset_after, twin.reset_after);
            prop_assert_eq!(said.shadow, Some(twin.outcome));
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
        for (pause, cost, patience) in calls {
            now += pause;
            let said = answer(&mut both, op(cost, patience), now).verdict;
            let [one, two] = alone.each_mut().map(|world| answer(world, op(cost, patience), now).verdict);
            prop_assert_eq!(said.remaining, one.remaining.min(two.remaining));
            prop_assert_eq!(said.reset_after, one.reset_after.max(two.reset_after));
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
        // What these store is a time, which yields more at a higher rate.
        10 => smooth(n * times, p, 3 * size),
        _ => warm_up(n * times, p, 3 * size, 3_000),
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
