//! Unused memory is released, on request and incrementally.

use std::time::Duration;

use sluicegate_core::op::Op;
use sluicegate_core::time::Span;

use super::{DAY, NOON, Overflow, SECOND, World, anybody, at, limit, together, who};
use crate::limit::{Concurrency, FixedWindow, SlidingLog, TokenBucket};
use crate::memory::shard::ShardUsage;
use crate::memory::shard_set::SHARD_BITS;

const SHARDS: usize = 1 << SHARD_BITS;

/// Maximum usage of an empty limiter: one bucket per shard.
fn is_small(kept: ShardUsage) -> bool {
    kept.used == 0 && kept.whole == 0 && kept.lanes <= 4 * SHARDS
}

#[test]
fn a_sweep_gives_back_all_that_has_run_out_be_it_little_or_much() {
    for identities in [1, 5, 300, 3_000, 30_000] {
        let world =
            World::roomy(vec![limit(TokenBucket::per_second(1)), limit(SlidingLog::per_minute(9))]);
        for number in 0..identities {
            world.hit(anybody(number), 1, NOON);
        }
        assert_eq!(world.audit().used as u64, 2 * identities);
        world.shards.sweep(at(NOON + 60 * SECOND));
        assert!(is_small(world.audit()), "{identities}: {:?}", world.audit());
    }
}

#[test]
fn a_sweep_takes_nothing_from_who_is_live() {
    let world =
        World::roomy(vec![limit(FixedWindow::per_day(5)), limit(TokenBucket::per_second(1))]);
    for number in 0..1_000 {
        world.hit(anybody(number), 1, NOON);
        if number % 3 == 0 {
            world.reserve(anybody(number), 0, number, NOON).unwrap();
        }
    }
    world.shards.sweep(at(NOON + SECOND));
    world.audit();
    for number in 0..1_000 {
        assert_eq!(world.peek(anybody(number), 0, NOON + SECOND).remaining, Some(1));
        let day = world.ask(anybody(number), Op::Charge { cost: 1 }, NOON + SECOND).unwrap();
        assert_eq!(day.verdict.remaining, Some(0));
    }
}

#[test]
fn a_log_that_has_run_out_is_given_back_though_its_neighbours_live() {
    let log = SlidingLog::per(1_000, Duration::from_secs(1));
    let world = World::roomy(vec![limit(log), limit(FixedWindow::per_day(2_000))]);
    for number in 0..3 {
        world.hit(who(1, number), 1_000, NOON);
    }
    world.shards.sweep(at(NOON + SECOND));
    assert_eq!(world.audit().whole, 0, "the windows are packed");
}

/// Light traffic from the same few identities: the number of turns until memory has shrunk to their
/// need.
fn until_small(world: &World, from: u64, mut ask: impl FnMut(u64, u64)) -> u64 {
    let (few, max) = (64, 4_000_000);
    for turn in 0..max {
        ask(anybody(turn % few), from + turn * 10);
        let entries = world.entries() as u64;
        if entries < 4 * few && turn % 1_024 == 0 {
            let kept = world.audit();
            if kept.lanes <= 4 * SHARDS + 8 * few as usize {
                return turn;
            }
        }
    }
    max
}

#[test]
fn a_flood_of_a_million_leaves_nothing_behind_once_it_is_over() {
    let world = World::roomy(vec![limit(TokenBucket::per_minute(60).burst(1))]);
    for number in 0..1_000_000 {
        world.hit(anybody(number + 1_000), 1, NOON);
    }
    assert_eq!(world.audit().used, 1_000_000);
    let turns = until_small(&world, NOON + DAY, |who, now| {
        world.hit(who, 1, now);
    });
    assert!(turns < 2_500_000, "{turns}: {:?}", world.audit());
}

#[test]
fn traffic_of_any_kind_gives_memory_back() {
    let slots = || World::roomy(vec![limit(Concurrency::at_most(5).lease(Duration::from_secs(1)))]);
    let flooded = |world: &World| {
        for number in 0..50_000 {
            world.hit(anybody(number + 1_000), 1, NOON);
        }
        assert_eq!(world.audit().whole, 50_000);
    };
    let (permits, pairs) = (slots(), slots());
    flooded(&permits);
    let turns = until_small(&permits, NOON + DAY, |who, now| {
        permits.hit_long(who, 1, now);
    });
    assert!(turns < 1_000_000, "{turns} permits: {:?}", permits.audit());

    flooded(&pairs);
    let turns = until_small(&pairs, NOON + DAY, |who, now| {
        let hit =
            Op::Hit { cost: 1, holder: Some(sluicegate_core::algorithm::concurrency::Holder(now)) };
        together(&[(&pairs, who), (&pairs, !who)], hit, now).unwrap();
    });
    assert!(turns < 1_000_000, "{turns} pairs: {:?}", pairs.audit());
}

#[test]
fn a_table_is_not_looked_through_more_often_than_it_is_used() {
    let world = World::roomy(vec![limit(FixedWindow::per_day(5))]);
    for number in 0..20_000 {
        world.hit(anybody(number), 1, NOON);
    }
    let indices = world.shards.indices();
    for turn in 0..200_000 {
        world.hit(anybody(turn % 20_000), 1, NOON);
    }
    assert_eq!(world.shards.indices(), indices, "everything is live: no table was made anew");
}

#[test]
fn a_slab_that_has_become_sparse_is_packed_and_nobody_loses_by_it() {
    let lease = Duration::from_secs(100);
    let world =
        World::new(vec![limit(Concurrency::at_most(3).lease(lease))], 1 << 40, Overflow::Deny);
    let holder = |number| Some(sluicegate_core::algorithm::concurrency::Holder(number));
    for number in 0..200 {
        // Every tenth arrives later and stays live.
        let now = if number % 10 == 0 { NOON + 50 * SECOND } else { NOON };
        let hit = Op::Hit { cost: 1, holder: holder(number) };
        assert!(world.ask(who(9, number), hit, now).unwrap().verdict.is_allowed());
    }
    let then = NOON + Span::from_secs(120).as_micros();
    world.shards.sweep(at(then));
    assert_eq!(world.audit().whole, 20);
    for number in (0..200).step_by(10) {
        assert_eq!(world.peek(who(9, number), 1, then).remaining, Some(2));
        let cancel = Op::Cancel { holder: sluicegate_core::algorithm::concurrency::Holder(number) };
        assert_eq!(world.ask(who(9, number), cancel, then).unwrap().returned, Some(1));
    }
    assert_eq!(world.audit().whole, 0);
}

#[test]
fn what_was_too_far_ahead_to_be_told_is_given_back_all_the_same() {
    // The clock was in 1970 for a moment, and no earlier identity returns.
    let world = World::roomy(vec![limit(TokenBucket::per_second(1))]);
    world.hit(who(1, 1), 1, NOON);
    world.hit(who(1, 2), 1, 0);
    world.shards.sweep(at(NOON + DAY));
    assert!(is_small(world.audit()), "{:?}", world.audit());
}
