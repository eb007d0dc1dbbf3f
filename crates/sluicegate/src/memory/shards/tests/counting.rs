//! Counters match the contents after any operation: a lane for every entry, no state without a
//! lane, no leaks.

use proptest::prelude::*;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::{GateLevels, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::time::Span;
use sluicegate_rules::limit::LimitConfig;

use super::{DAY, NOON, Overflow, SECOND, World, at, limit, rule, together, try_rule, who};
use crate::limit::{
    Concurrency, Cycle, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, SmoothBursty,
    TokenBucket, Unlimited, WarmUp,
};
use crate::memory::shard_set::SHARD_BITS;
use crate::memory::shards::{SHARED, Shards};
use crate::memory::tests::cases;
use crate::plan::LIMITS_MAX;

fn limits() -> Vec<LimitConfig> {
    vec![
        limit(TokenBucket::per_second(5).burst(2)),
        limit(TokenBucket::per_second(3).burst(9).initial(2)),
        limit(LeakyBucket::per_second(10).queue(3)),
        limit(FixedWindow::per_minute(5)),
        limit(FixedWindow::per_day(5).in_zone("Europe/Berlin")),
        limit(SlidingLog::per_minute(5)),
        limit(SlidingWindow::per_minute(7)),
        limit(SmoothBursty::per_second(5)),
        limit(WarmUp::per_second(5)),
        limit(Cycle::of(5)),
        limit(Concurrency::at_most(3)),
        limit(Unlimited),
    ]
}

fn plan() -> impl Strategy<Value = Vec<LimitConfig>> {
    prop::collection::vec(prop::sample::select(limits()), 1..5)
}

fn mode() -> impl Strategy<Value = Mode> {
    let gate = GateLevels::new(700, 850).unwrap();
    prop::sample::select(vec![
        Mode::Hard,
        Mode::Hard,
        Mode::Shadow,
        Mode::Elastic { up_to: 2_000, gate },
    ])
}

/// An operation on the identities of two limiters.
#[derive(Debug, Clone)]
enum Deed {
    Hit { one: u64, cost: u64 },
    Ask { one: u64, op: Op },
    Both { one: u64, other: u64, op: Op },
    Change { limits: Vec<LimitConfig>, carry: CarryOver },
    Sweep,
    Wait { us: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let ttl = Span::from_secs(60);
    let patience = Span::from_secs(5);
    (0..13u8, 0..6u64, (0..3u64).prop_map(Holder)).prop_map(
        move |(kind, cost, holder)| match kind {
            0 | 1 => Op::Hit { cost, holder: Some(holder) },
            2 => Op::Hit { cost, holder: None },
            3 => Op::Peek { cost },
            4 => Op::Take { cost },
            5 => Op::Charge { cost: cost * 20 },
            6 => Op::Refund { cost },
            7 => Op::Add { cost, force: true },
            8 => Op::Acquire { cost, max_wait: patience, holder: Some(holder) },
            9 => Op::Reserve { cost, ttl, holder },
            10 => Op::Commit { cost, holder },
            11 => Op::Cancel { holder },
            _ => Op::Reset,
        },
    )
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let (second, day) = (SECOND as i64, DAY as i64);
    let carry =
        prop::sample::select(vec![CarryOver::Used, CarryOver::Remaining, CarryOver::Nothing]);
    let wait = prop_oneof![
        8 => 0..second,
        4 => 0..100 * second,
        2 => 0..2 * day,
        1 => -second..0,
        1 => -3 * day..0,
        1 => -4_000 * day..4_000 * day,
    ];
    let deed = prop_oneof![
        12 => (0..12u64, 0..4u64).prop_map(|(one, cost)| Deed::Hit { one, cost }),
        8 => (0..12u64, op()).prop_map(|(one, op)| Deed::Ask { one, op }),
        4 => (0..12u64, 0..12u64, op()).prop_map(|(one, other, op)| Deed::Both { one, other, op }),
        1 => (plan(), carry).prop_map(|(limits, carry)| Deed::Change { limits, carry }),
        1 => Just(Deed::Sweep),
        6 => wait.prop_map(|us| Deed::Wait { us }),
    ];
    prop::collection::vec(deed, 1..120)
}

/// Three in one shard, so that they collide, and some elsewhere.
fn one_of(number: u64) -> u64 {
    if number == 11 { SHARED } else { who((number / 3) as u8, number) }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn what_is_counted_is_what_is_there(
        first in plan(),
        second in plan(),
        mode in mode(),
        max in prop_oneof![0..20usize, Just(1 << 40)],
        overflow in prop::sample::select(vec![Overflow::Shared, Overflow::Deny, Overflow::Allow]),
        deeds in deeds(),
    ) {
        // Some limits do not support some modes.
        prop_assume!(crate::plan::Rule::new(first.clone(), mode).is_ok());
        let mut one = World::new(vec![limit(Unlimited)], max, overflow);
        one.shards = Shards::new(one.store.clone(), &rule(first, mode), overflow, SHARD_BITS, at(NOON));
        let other = World {
            shards: Shards::new(one.store.clone(), &rule(second, Mode::Hard), overflow, SHARD_BITS, at(NOON)),
            store: one.store.clone(),
        };
        let check = || {
            let (kept, also) = (one.shards.audit(), other.shards.audit());
            prop_assert_eq!(one.entries(), kept.used + also.used);
            Ok(())
        };
        let mut now = NOON;
        for deed in deeds {
            match deed {
                Deed::Hit { one: who, cost } => {
                    one.hit(one_of(who), cost, now);
                }
                Deed::Ask { one: who, op } => {
                    let _ = one.ask(one_of(who), op, now);
                }
                Deed::Both { one: who, other: too, op } => {
                    let all = [(&one, one_of(who)), (&other, one_of(too)), (&one, one_of(too))];
                    let _ = together(&all, op, now);
                }
                Deed::Change { limits, carry } => {
                    if let Ok(new) = try_rule(limits, mode) {
                        one.shards.change(&new, carry, at(now));
                    }
                }
                Deed::Sweep => one.shards.sweep(at(now)),
                Deed::Wait { us } => now = now.saturating_add_signed(us),
            }
            check()?;
        }
        // Nothing lasts for ever.
        let end = now.max(NOON) + 30_000 * DAY;
        for world in [&one, &other] {
            world.shards.sweep(at(end));
        }
        check()?;
        prop_assert_eq!((one.entries(), one.shards.audit().whole), (0, 0));
    }
}

// === examples ===

#[test]
fn what_is_refused_leaves_nothing_set_aside() {
    let world = World::new(vec![limit(Concurrency::at_most(1))], 1, Overflow::Deny);
    for op in [
        Op::Charge { cost: 1 },
        Op::Cancel { holder: Holder(7) },
        Op::Commit { cost: 1, holder: Holder(7) },
        Op::Hit { cost: 1, holder: None },
    ] {
        assert!(world.ask(who(1, 1), op, NOON).is_err());
        assert_eq!(world.entries(), 0, "after {op:?}");
    }
    assert!(world.hit(who(1, 1), 1, NOON).is_allowed());
    assert!(world.ask(who(1, 1), Op::Charge { cost: 1 }, NOON).is_err());
    assert_eq!(world.audit().used, 1);
}

#[test]
fn what_is_denied_leaves_nothing_set_aside() {
    let world = World::roomy(vec![limit(FixedWindow::per_day(5)), limit(FixedWindow::per_day(9))]);
    assert!(!world.hit(who(1, 1), 6, NOON).is_allowed());
    assert!(!world.hit_long(who(1, 1), 6, NOON).is_allowed());
    assert_eq!(world.entries(), 0);
}

#[test]
fn an_identity_with_something_pending_has_one_lane_whatever_its_plan() {
    let limits = (1..=4).map(|n| limit(FixedWindow::per_day(10 * n))).collect();
    let world = World::roomy(limits);
    world.hit(who(1, 1), 1, NOON);
    assert_eq!(world.audit().used, 4);
    world.reserve(who(1, 1), 2, 7, NOON).unwrap();
    let kept = world.audit();
    assert_eq!((kept.used, kept.whole), (4, 1), "three lanes are gone, and can be used again");
    assert_eq!(world.shards.live(NOON), 1);
    assert_eq!(world.hit(who(1, 1), 1, NOON).remaining, Some(6), "by the long way");
    world.ask(who(1, 1), Op::Commit { cost: 1, holder: Holder(7) }, NOON).unwrap();
    let kept = world.audit();
    assert_eq!((kept.used, kept.whole), (4, 0));
    assert_eq!(world.hit(who(1, 1), 1, NOON).remaining, Some(6));
    // The same holds after it has expired.
    world.shards.sweep(at(NOON + 2 * DAY));
    assert_eq!(world.audit().used, 0);
}

#[test]
fn a_limit_is_changed_under_who_has_something_pending() {
    let world = World::roomy(vec![limit(FixedWindow::per_day(10))]);
    world.hit(who(1, 1), 1, NOON);
    world.reserve(who(1, 1), 4, 7, NOON).unwrap();
    let new = vec![limit(FixedWindow::per_day(20)), limit(FixedWindow::per_day(30))];
    world.shards.change(&rule(new, Mode::Hard), CarryOver::Used, at(NOON));
    world.audit();
    assert_eq!(world.peek(who(1, 1), 0, NOON).remaining, Some(15));
    let commit = Op::Commit { cost: 1, holder: Holder(7) };
    assert_eq!(world.ask(who(1, 1), commit, NOON).unwrap().returned, Some(3));
    assert_eq!(world.peek(who(1, 1), 0, NOON).remaining, Some(18));
    assert_eq!(world.audit().whole, 0);
}

#[test]
fn the_most_limits_that_there_can_be_with_a_boost_each_have_a_lane_each() {
    let gate = GateLevels::new(700, 850).unwrap();
    let mode = Mode::Elastic { up_to: 2_000, gate };
    let limits = (0..LIMITS_MAX as u64).map(|n| limit(FixedWindow::per_day(100 - n))).collect();
    let mut world = World::roomy(vec![limit(Unlimited)]);
    world.shards =
        Shards::new(world.store.clone(), &rule(limits, mode), Overflow::Deny, SHARD_BITS, at(NOON));
    for left in (60..69).rev() {
        assert_eq!(world.hit(who(1, 1), 1, NOON).remaining, Some(left));
        assert_eq!(world.audit().used, 2 * LIMITS_MAX);
    }
    assert_eq!(world.hit(who(1, 2), 1, NOON).remaining, Some(68), "another one beside it");
    assert_eq!(world.peek(who(1, 1), 0, NOON).remaining, Some(60));
    assert_eq!(world.audit().used, 4 * LIMITS_MAX);
}

#[test]
fn a_limiter_that_is_dropped_leaves_its_room_to_others() {
    let world = World::new(vec![limit(FixedWindow::per_day(5))], 10, Overflow::Deny);
    let other = World {
        shards: Shards::new(
            world.store.clone(),
            &rule(vec![limit(FixedWindow::per_day(5))], Mode::Hard),
            Overflow::Deny,
            SHARD_BITS,
            at(NOON),
        ),
        store: world.store.clone(),
    };
    for number in 0..10 {
        assert!(world.hit(who(1, number), 1, NOON).is_allowed());
    }
    assert!(!other.hit(who(1, 1), 1, NOON).is_allowed(), "no room");
    drop(world);
    assert_eq!(other.entries(), 0);
    assert!(other.hit(who(1, 1), 1, NOON).is_allowed());
}

#[test]
fn who_has_the_name_of_an_empty_lane_is_somebody_all_the_same() {
    // Also before the table's epoch, when an empty lane ends in the future.
    for now in [NOON, NOON - DAY - 1, NOON - DAY - SECOND, NOON - 3 * DAY] {
        let world = World::roomy(vec![limit(TokenBucket::per_second(1).burst(3))]);
        world.hit(who(0, 1), 1, NOON);
        for left in [2, 1, 0] {
            assert_eq!(world.hit(0, 1, now).remaining, Some(left));
            world.audit();
        }
        assert!(!world.hit(0, 1, now).is_allowed());
    }
}
