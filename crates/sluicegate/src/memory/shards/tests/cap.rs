//! The cap: admitted identities stay, a new one enters when another has expired, and the cost of a
//! flood is bounded.

use std::time::Duration;

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::Op;

use super::{DAY, NOON, Overflow, SECOND, World, anybody, at, limit, rule, together, who};
use crate::limit::{Concurrency, FixedWindow, SlidingLog, TokenBucket};
use crate::memory::shards::SHARED;

fn daily(count: u64, max: usize, overflow: Overflow) -> World {
    World::new(vec![limit(FixedWindow::per_day(count))], max, overflow)
}

#[test]
fn exactly_so_many_newcomers_get_in() {
    for max in [0, 1, 2, 255, 256, 1_000] {
        let world = daily(1, max, Overflow::Deny);
        let long = daily(1, max, Overflow::Deny);
        let admitted = (0..3_000).filter(|n| world.hit(anybody(*n), 1, NOON).is_allowed());
        assert_eq!(admitted.count(), max);
        let admitted = (0..3_000).filter(|n| long.hit_long(anybody(*n), 1, NOON).is_allowed());
        assert_eq!(admitted.count(), max, "by the long way");
        assert_eq!((world.audit().used, long.audit().used), (max, max));
    }
}

#[test]
fn whoever_is_in_stays_in_however_many_come() {
    for overflow in [Overflow::Deny, Overflow::Shared, Overflow::Allow] {
        let world = daily(2, 100, overflow);
        for number in 0..100 {
            assert!(world.hit(anybody(number), 2, NOON).is_allowed());
        }
        for number in 100..5_000 {
            world.hit(anybody(number), 1, NOON);
        }
        for number in 0..100 {
            assert!(
                !world.hit(anybody(number), 1, NOON).is_allowed(),
                "{number} is over its limit"
            );
        }
        world.audit();
    }
}

#[test]
fn newcomers_share_one_more_identity() {
    let world = daily(3, 10, Overflow::Shared);
    let admitted = (0..100).filter(|n| world.hit(anybody(*n), 1, NOON).is_allowed()).count();
    assert_eq!(admitted, 10 + 3);
    assert_eq!(world.audit().used, 10 + 1, "the shared one has room of its own");
    assert_eq!(world.peek(SHARED, 0, NOON).remaining, Some(0));
    assert_eq!(world.peek(anybody(5), 0, NOON).remaining, Some(2), "who is in has its own");
    assert_eq!(
        world.peek(anybody(50), 0, NOON).remaining,
        Some(0),
        "who is not has the shared one"
    );
}

#[test]
fn newcomers_pass_uncounted() {
    let world = daily(3, 10, Overflow::Allow);
    for turn in 0..5 {
        for number in 0..100 {
            let verdict = world.hit(anybody(number), 1, NOON);
            assert_eq!(verdict.is_allowed(), number >= 10 || turn < 3);
            assert_eq!(verdict.remaining.is_none(), number >= 10);
        }
    }
    assert_eq!(world.audit().used, 10);
}

#[test]
fn a_cost_of_nothing_passes_also_where_newcomers_are_denied() {
    let world = daily(3, 0, Overflow::Deny);
    assert!(world.hit(anybody(1), 0, NOON).is_allowed());
    assert!(!world.hit(anybody(1), 1, NOON).is_allowed());
}

#[test]
fn what_was_held_by_the_shared_identity_can_be_given_back_by_it() {
    let slots = vec![limit(Concurrency::at_most(1).lease(Duration::from_secs(60)))];
    let world = World::new(slots, 1, Overflow::Shared);
    let (alice, bob) = (who(1, 1), who(2, 2));
    let hit = |holder| Op::Hit { cost: 1, holder: Some(Holder(holder)) };
    assert!(world.ask(alice, hit(1), NOON).unwrap().verdict.is_allowed());
    assert!(world.ask(bob, hit(2), NOON).unwrap().verdict.is_allowed(), "as the shared one");
    assert!(!world.ask(who(3, 3), hit(3), NOON).unwrap().verdict.is_allowed());
    // Alice frees a lane, so that Bob would now get one.
    world.ask(alice, Op::Cancel { holder: Holder(1) }, NOON).unwrap();
    world.shards.sweep(at(NOON));
    assert_eq!(world.ask(bob, Op::Cancel { holder: Holder(2) }, NOON).unwrap().returned, Some(1));
    assert_eq!(world.peek(SHARED, 0, NOON).remaining, Some(1));
}

// === admission of new identities ===

#[test]
fn a_newcomer_gets_in_once_the_only_entry_has_run_out() {
    // Wherever both are.
    for (one, other) in [(1, 1), (1, 2), (0, 255), (255, 0)] {
        for long in [false, true] {
            let world = World::new(vec![limit(TokenBucket::per_second(1))], 1, Overflow::Deny);
            assert!(world.hit(who(one, 1), 1, NOON).is_allowed());
            let later = NOON + SECOND;
            let hit = |_: &u32| match long {
                true => world.hit_long(who(other, 2), 1, later).is_allowed(),
                false => world.hit(who(other, 2), 1, later).is_allowed(),
            };
            let tries = (1..=1_000).find(hit);
            assert!(tries.is_some_and(|tries| tries <= 257), "{one} and {other}: {tries:?} tries");
        }
    }
}

#[test]
fn newcomers_get_in_as_others_run_out() {
    // Identities expire one after another while new ones keep arriving.
    for limits in [
        vec![limit(TokenBucket::per_second(1).burst(1_000))],
        vec![limit(SlidingLog::per(1_000, Duration::from_secs(500)))],
    ] {
        let world = World::new(limits, 2_000, Overflow::Deny);
        for number in 0..2_000 {
            assert!(
                world.hit(anybody(number), 1 + number / 4, NOON + number * 250_000).is_allowed()
            );
        }
        let (mut admitted, mut next) = (0, 10_000);
        for second in 500..1_500 {
            for _ in 0..20 {
                let verdict = world.hit(anybody(next), 1, NOON + second * SECOND);
                admitted += u64::from(verdict.is_allowed());
                next += 1;
            }
            assert!(world.audit().used <= 2_000);
        }
        assert!(admitted > 1_500, "{admitted} of 20,000");
    }
}

#[test]
fn limits_that_are_changed_to_shorter_ones_let_newcomers_in_sooner() {
    let two = |length| {
        let window = |count| limit(FixedWindow::per(count, Duration::from_secs(length)));
        vec![window(5), window(9)]
    };
    let world = World::new(two(86_400), 1_000, Overflow::Deny);
    for number in 0..3_000 {
        world.hit(anybody(number), 1, NOON);
    }
    // Every shard has searched for room and cached that none is free today.
    world.shards.change(&rule(two(1), Mode::Hard), CarryOver::Used, at(NOON));
    let later = NOON + 2 * SECOND;
    let admitted = (10_000..13_000).filter(|n| world.hit(anybody(*n), 1, later).is_allowed());
    assert!(admitted.count() >= 450, "of 500 that have room");
}

#[test]
fn whoever_is_in_gets_what_it_needs_though_there_is_no_room() {
    let limits = || vec![limit(TokenBucket::per_second(1)), limit(FixedWindow::per_day(9))];
    for long in [false, true] {
        let world = World::new(limits(), 1, Overflow::Deny);
        for left in [8, 7, 6] {
            // The bucket has expired each time; the window shows that the identity is known.
            let now = NOON + (9 - left) * 2 * SECOND;
            world.shards.sweep(at(now));
            let verdict = match long {
                true => world.hit_long(who(1, 1), 1, now),
                false => world.hit(who(1, 1), 1, now),
            };
            assert!(verdict.is_allowed());
            assert_eq!(world.audit().used, 2);
        }
        assert!(!world.hit(who(1, 2), 1, NOON).is_allowed());
    }
}

// === cost of a new identity ===

#[test]
fn a_flood_at_the_cap_does_not_look_through_the_tables_again_and_again() {
    for (limits, long) in [
        (vec![limit(FixedWindow::per_day(5))], false),
        (vec![limit(FixedWindow::per_day(5)), limit(FixedWindow::per_day(9))], false),
        (vec![limit(SlidingLog::per(5, Duration::from_secs(86_400)))], true),
    ] {
        let world = World::new(limits, 20_000, Overflow::Deny);
        for number in 0..20_000 {
            world.hit(anybody(number), 1, NOON);
        }
        let mut indices = world.shards.indices();
        let mut renewed = 0;
        for number in 20_000..60_000 {
            let now = NOON + number;
            match long {
                true => world.hit_long(anybody(number), 1, now),
                false => world.hit(anybody(number), 1, now),
            };
            if number % 500 == 0 {
                let now_at = world.shards.indices();
                renewed += now_at.iter().zip(&indices).filter(|(new, old)| new != old).count();
                indices = now_at;
            }
        }
        // Each shard searches once and caches that nothing expires before the end of the day.
        assert!(renewed <= 256, "{renewed} times");
        world.audit();
    }
}

#[test]
fn a_flood_at_the_cap_over_entries_that_run_out_one_by_one_looks_a_few_times_only() {
    let world =
        World::new(vec![limit(TokenBucket::per_second(1).burst(10_000))], 4_000, Overflow::Deny);
    // All in one shard, expiring a millisecond apart.
    for number in 0..4_000 {
        assert!(world.hit(who(1, number), 1, NOON + number * 1_000).is_allowed());
    }
    let mut index = world.shards.indices()[1];
    let (mut looks, mut admitted) = (0, 0);
    for turn in 0..5_000 {
        // A new long-lived identity every millisecond.
        let now = NOON + SECOND + turn * 1_000;
        admitted += u32::from(world.hit(who(1, 10_000 + turn), 5_000, now).is_allowed());
        let now_at = world.shards.indices()[1];
        looks += u32::from(now_at != index);
        index = now_at;
    }
    assert!(admitted >= 3_500, "{admitted} got in");
    assert!(looks <= 40, "{looks} looks for {admitted} of 5,000");
}

// === several at once ===

#[test]
fn nobody_gets_in_on_the_lane_of_one_who_is_asked_beside_him() {
    // Alice's log is taken out of its lane while Bob, in the same shard, needs a lane.
    let world = World::new(vec![limit(SlidingLog::per_minute(5))], 1, Overflow::Deny);
    let (alice, bob) = (who(1, 1), who(1, 2));
    assert!(world.hit(alice, 1, NOON).is_allowed());
    let hit = Op::Hit { cost: 1, holder: None };
    for turn in 0..3 {
        let answered = together(&[(&world, alice), (&world, bob)], hit, NOON + turn).unwrap();
        assert!(answered.overflowed && !answered.answer.verdict.is_allowed());
        assert_eq!(world.audit().used, 1);
    }
    assert_eq!(world.peek(alice, 0, NOON).remaining, Some(4), "and Alice was not charged");
}

#[test]
fn one_without_room_is_denied_and_nobody_is_charged() {
    let (roomy, full) = (daily(5, 100, Overflow::Deny), daily(5, 0, Overflow::Deny));
    let hit = Op::Hit { cost: 1, holder: None };
    let answered = together(&[(&roomy, who(1, 1)), (&full, who(1, 1))], hit, NOON).unwrap();
    assert!(answered.overflowed && !answered.answer.verdict.is_allowed());
    assert_eq!((roomy.audit().used, full.audit().used), (0, 0));
}

#[test]
fn one_who_passes_uncounted_does_not_keep_others_from_counting() {
    let (counts, full) = (daily(1, 100, Overflow::Deny), daily(5, 0, Overflow::Allow));
    let hit = Op::Hit { cost: 1, holder: None };
    let all = [(&full, who(1, 1)), (&counts, who(1, 1))];
    assert!(together(&all, hit, NOON).unwrap().answer.verdict.is_allowed());
    let denied = together(&all, hit, NOON).unwrap().answer.verdict;
    assert!(!denied.is_allowed());
    assert_eq!(denied.decided_by, Some(1), "a place in the row of all that were asked");
    assert_eq!((counts.audit().used, full.audit().used), (1, 0));
}

#[test]
fn the_shared_identity_is_no_one_of_its_shard() {
    let world = daily(2, 10, Overflow::Shared);
    for number in 0..10 {
        assert!(world.hit(who(255, number), 2, NOON).is_allowed());
    }
    let admitted = (10..20).filter(|n| world.hit(who(255, *n), 1, NOON).is_allowed()).count();
    assert_eq!(admitted, 2);
    for number in 0..10 {
        assert!(!world.peek(who(255, number), 1, NOON).is_allowed());
    }
    world.shards.sweep(at(NOON + DAY));
    assert_eq!(world.audit().used, 0);
}
