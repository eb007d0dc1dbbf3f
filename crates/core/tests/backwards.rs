//! Time running backwards: an unsteady clock may deny more and never admits more; a clock that was set
//! back locks nobody out.

mod support;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use support::limits::{
    bucket, calendar, counter, cycle, leaky, log, slices, slots, smooth, stepped, tally, warm_up,
    window, window_from_first_hit,
};
use support::{DAY, HOUR, MINUTE, SECOND, World, acquire, acquire_as, cases, hit, hit_as, us};

/// How much passed by each call, one unit a call.
fn passed(limit: Limit, times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut world = World::hard(limit);
    let mut passed = 0;
    let mut so_far = Vec::new();
    for now in times {
        // An id for those who hold a slot; a new one, or it would be renewed.
        passed += u64::from(world.allows(hit_as(1, so_far.len() as u64), now));
        so_far.push(passed);
    }
    so_far
}

fn running_maximum(times: &[u64]) -> impl Iterator<Item = u64> + '_ {
    times.iter().scan(0, |latest, &now| {
        *latest = now.max(*latest);
        Some(*latest)
    })
}

/// Times that mostly go on and now and then step back.
fn unsteady() -> impl Strategy<Value = Vec<u64>> {
    let pace = prop_oneof![4 => 0i64..15, 2 => -30i64..0, 1 => -200i64..60];
    prop::collection::vec(pace, 1..80).prop_map(|steps| {
        let walk = |now: &mut i64, step: i64| {
            *now = (*now + step).max(0);
            Some(*now as u64)
        };
        steps.into_iter().scan(1_000, |now, step| walk(now, step)).collect()
    })
}

/// All of them: a limit that knows one mark or one level takes a step back for standing still, and so does
/// one that keeps a list, by the latest time in it.
fn any_limit() -> impl Strategy<Value = Limit> {
    let (n, p, b) = (1u64..5, 1u64..30, 1u64..6);
    prop_oneof![
        (n.clone(), p.clone(), b.clone()).prop_map(|(n, p, b)| bucket(n, p, b)),
        (n.clone(), p.clone(), b.clone()).prop_map(|(n, p, b)| stepped(n, p, b, Refill::Interval)),
        (n.clone(), p.clone(), b).prop_map(|(n, p, b)| stepped(n, p, b, Refill::Aligned)),
        (n.clone(), p.clone()).prop_map(|(n, p)| window(n, p)),
        (n.clone(), p.clone()).prop_map(|(n, p)| window_from_first_hit(n, p)),
        (n.clone(), p.clone()).prop_map(|(n, p)| cycle(n, p)),
        (n.clone(), p.clone()).prop_map(|(n, p)| tally(n, p)),
        (n.clone(), p.clone(), 0u64..4).prop_map(|(n, p, q)| leaky(n, p, q)),
        (n.clone(), p.clone(), 0u64..40).prop_map(|(n, p, b)| smooth(n, p, b)),
        (n.clone(), p.clone(), 1u64..60).prop_map(|(n, p, w)| warm_up(n, p, w, 3_000)),
        (n.clone(), p.clone(), any::<bool>()).prop_map(|(n, p, up)| {
            counter(n, p, if up { Rounding::Up } else { Rounding::Floor })
        }),
        (prop::collection::vec((n.clone(), p.clone()), 1..4), 0u64..9)
            .prop_map(|(windows, gap)| { Limit::SlidingLog(log(&windows).with_min_gap(us(gap))) }),
        (n.clone(), p.clone(), 2u64..7).prop_map(|(n, p, k)| slices(n, p, k)),
        (n, p).prop_map(|(max, lease)| slots(max, lease)),
    ]
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn an_unsteady_clock_never_admits_more_than_one_that_waits_for_its_maximum(
        limit in any_limit(), times in unsteady(),
    ) {
        let unsteady = passed(limit, times.iter().copied());
        let steady = passed(limit, running_maximum(&times));
        for (call, (unsteady, steady)) in unsteady.iter().zip(&steady).enumerate() {
            prop_assert!(unsteady <= steady, "{} > {} by call {} of {:?}", unsteady, steady, call, times);
        }
    }
    #[test]
    fn a_log_judges_and_enters_at_the_latest_time_it_has_seen(
        windows in prop::collection::vec((1u64..5, 1u64..30), 1..4), gap in 0u64..6,
        calls in prop::collection::vec((1_000u64..1_100, 1u64..4, prop::option::of(0u64..40)), 1..20),
    ) {
        let limit = Limit::SlidingLog(log(&windows).with_min_gap(us(gap)));
        let mut world = World::hard(limit);
        let mut twin = World::hard(limit);
        let mut latest = 0;
        for (now, cost, max_wait) in calls {
            // What is as good as new has seen nothing.
            if world.account.is_new() {
                latest = 0;
            }
            let then = latest.max(now);
            let op = |max_wait: Option<u64>| max_wait.map_or(hit(cost), |wait| acquire(cost, wait));
            // Who comes early waits the longer for it, so the twin has less of a wait ahead.
            let decision = world.ask(op(max_wait.map(|wait| wait + (then - now))), now);
            let due = twin.ask(op(max_wait), then);
            prop_assert_eq!(decision.allowed(), due.allowed(), "{} at {}, seen {}", cost, now, latest);
            prop_assert_eq!(decision.remaining, due.remaining);
            if decision.allowed() {
                latest = then;
            }
        }
    }

    #[test]
    fn a_slot_taken_after_a_step_back_is_held_until_its_lease_ends_by_the_latest_time_seen(
        lease in 1u64..60, back in 0u64..60, ahead in 0u64..150,
    ) {
        let mut world = World::hard(slots(2, lease));
        world.ask(hit_as(1, 1), 1_000);
        prop_assert!(world.allows(hit_as(1, 2), 1_000 - back), "there is room");
        let held = world.would(hit_as(2, 3), 1_000 - back + ahead);
        prop_assert_eq!(held.allowed(), 1_000 - back + ahead >= 1_000 + lease);
    }
}

/// Every algorithm as it stands at `now`, with its own span: how long it takes to be as new, debts aside.
fn all(now: u64) -> Vec<(Limit, u64)> {
    // The calendar that a node hands in goes with its clock.
    let today = now.min((1 << 52) - 1) / DAY * DAY;
    let days = [today.saturating_sub(DAY), today, today + DAY, today + 2 * DAY];
    let days = if today == 0 { [0, DAY, 2 * DAY, 3 * DAY] } else { days };
    vec![
        (bucket(5, SECOND, 50), 10 * SECOND),
        (bucket(1, HOUR, 24), DAY),
        (stepped(5, MINUTE, 50, Refill::Interval), 10 * MINUTE),
        (stepped(5, MINUTE, 50, Refill::Aligned), 10 * MINUTE),
        (leaky(1, SECOND, 20), 21 * SECOND),
        (window(5, MINUTE), MINUTE),
        (window(5, 30 * DAY), 30 * DAY),
        (window_from_first_hit(5, HOUR), HOUR),
        (calendar(5, days, DAY), DAY),
        (Limit::SlidingLog(log(&[(10, MINUTE), (2, 3 * SECOND)])), MINUTE),
        (slices(10, MINUTE, 6), MINUTE + 10 * SECOND),
        (slices(10, MINUTE, 7), MINUTE + 9 * SECOND),
        (Limit::SlidingLog(log(&[(10, MINUTE)]).counting_denied().expect("small")), MINUTE),
        (counter(7, MINUTE, Rounding::Floor), 2 * MINUTE),
        (counter(7, HOUR, Rounding::Up), 2 * HOUR),
        (smooth(5, SECOND, SECOND), SECOND),
        (warm_up(2, SECOND, 4 * SECOND, 3_000), 4 * SECOND),
        (cycle(50, SECOND), SECOND),
        (slots(3, 30 * SECOND), 30 * SECOND),
    ]
}

/// The limit at this place, used up at `then`, with bookings on top if asked for.
fn exhausted(index: usize, then: u64, bookings: bool) -> World {
    let mut world = World::hard(all(then)[index].0);
    let mut id = 0;
    while id < 200 && world.allows(hit_as(1, id), then) {
        id += 1;
    }
    if bookings {
        for more in 1_000..1_003 {
            let _ = world.answer(acquire_as(1, HOUR, more), then);
        }
    }
    world
}

/// The same identity under the limit as it stands at another time.
fn at_time(world: World, index: usize, now: u64) -> World {
    let fresh = World::hard(all(now)[index].0);
    World { plan: fresh.plan, ..world }
}

#[test]
fn a_clock_set_back_by_an_hour_a_day_a_year_or_from_the_far_future_locks_nobody_out() {
    let far_future = (1 << 52) - 1;
    let today = 20_000 * DAY + 12_345;
    let jumps = [
        (today, today - HOUR),
        (today, today - DAY),
        (today, today - 365 * DAY),
        (far_future, today),
        (u64::MAX, today),
        (today, 0),
        (today, 1),
    ];
    for index in 0..all(today).len() {
        for (then, now) in jumps {
            for bookings in [false, true] {
                let mut world = at_time(exhausted(index, then, bookings), index, now);
                let (limit, span) = all(now)[index];
                // Somebody comes by once the clock is set; then nobody for a while. Three bookings may
                // lie ahead of a new caller, each at most a span.
                world.ask(hit_as(1, 8_888), now);
                let spans = if bookings { 5 } else { 2 };
                let later = now + span.max(MINUTE) + spans * span;
                let mut world = at_time(world, index, later);
                let back = world.ask(hit_as(1, 9_999), later);
                assert!(back.allowed(), "{limit:?} from {then} to {now}: {back:?}");
            }
        }
    }
}

#[test]
fn the_denied_after_a_clock_was_set_back_are_told_when_and_it_is_true() {
    let today = 20_000 * DAY + 12_345;
    for index in 0..all(today).len() {
        for back in [1, SECOND, MINUTE, HOUR, DAY, 400 * DAY] {
            let now = today - back;
            let mut world = at_time(exhausted(index, today, false), index, now);
            let (limit, span) = all(now)[index];
            let decision = world.ask(hit_as(1, 9_999), now);
            let Some(retry) = decision.retry_after() else {
                continue;
            };
            assert!(retry <= span.max(MINUTE) + span, "{limit:?} back by {back}: {decision:?}");
            let mut world = at_time(world, index, now + retry);
            assert!(
                world.allows(hit_as(1, 9_999), now + retry),
                "{limit:?} back by {back}: {decision:?}"
            );
        }
    }
}

#[test]
fn a_step_back_within_a_minute_gives_nothing_back() {
    let today = 20_000 * DAY + 59 * SECOND;
    for index in 0..all(today).len() {
        for back in [1, 1_000, SECOND, 30 * SECOND, MINUTE] {
            let world = at_time(exhausted(index, today, false), index, today - back);
            let decision = world.would(hit_as(1, 9_999), today - back);
            assert!(!decision.allowed(), "{:?} back by {back}: {decision:?}", world.plan);
        }
    }
}
