//! Admission when the store is full.

use std::time::Duration;

use super::{NOON, NoRoom, SECOND, World, at, params};
use crate::clock::ManualClock;
use crate::limit::TokenBucket;
use crate::{Limiter, Memory, Outcome, throttle::Throttle};

#[test]
fn at_the_cap_a_newcomer_is_told_and_nobody_is_dropped_for_it() {
    let world = World::new(10);
    let hourly = params(1, 1, 3_600);
    for key in 0..10 {
        assert!(world.hit(key, &hourly, 1, NOON).unwrap().is_allowed());
    }
    for key in 10..2_000 {
        assert_eq!(world.hit(key, &hourly, 1, NOON), Err(NoRoom { max: 10 }));
    }
    // A request that needs no lane is decided.
    assert_eq!(world.hit(77, &hourly, 0, NOON).unwrap().remaining, Some(2));
    let never = world.hit(77, &hourly, 3, NOON).unwrap();
    assert_eq!(never.outcome, Outcome::Never { max_cost: 2 });
    for key in 0..10 {
        assert_eq!(world.hit(key, &hourly, 1, NOON).unwrap().remaining, Some(0));
        assert!(!world.hit(key, &params(1, 3, 3_600), 1, NOON).unwrap().is_allowed());
    }
    assert_eq!(world.kept().lanes, 10);
    let error = world.hit(77, &hourly, 1, NOON).unwrap_err().to_string();
    assert!(error.contains("`10` entries"), "{error}");
}

#[test]
fn what_has_run_out_makes_room() {
    let world = World::new(50);
    let quick = params(0, 1, 1);
    for round in 0..40 {
        let now = NOON + round * SECOND;
        let mut admitted = 0;
        // Each refusal reclaims from a few shards, so that repeated refusals cover all.
        for key in 0..200 {
            admitted += usize::from(world.hit(round * 1_000 + key, &quick, 1, now).is_ok());
        }
        assert_eq!(admitted, 50, "in round {round}");
        assert_eq!(world.kept().lanes, 50);
    }
}

#[test]
fn room_goes_from_one_part_of_the_store_to_the_other() {
    let (clock, memory) = (ManualClock::new(), Memory::with_entries(20));
    let limiter = Limiter::builder()
        .limit(TokenBucket::per_second(1))
        .clock(clock.clone())
        .memory(&memory)
        .build()
        .unwrap();
    let throttle = Throttle::new(&memory);
    let quick = params(0, 1, 1);
    let hit = |key: u64| throttle.hit(&key.to_le_bytes(), &quick, 1, limiter.now());
    for key in 0..20u64 {
        limiter.hit(key.to_le_bytes());
    }
    assert!(hit(0).is_err());
    clock.advance(Duration::from_secs(1));
    let admitted = (0..300).filter(|key| hit(*key).is_ok()).count();
    assert_eq!((admitted, throttle.entries()), (20, 20));
    // And back, once a sweep has advanced the throttle's time.
    clock.advance(Duration::from_secs(1));
    throttle.sweep(limiter.now());
    limiter.hit("alice");
    assert_eq!((memory.entries(), throttle.entries()), (1, 0));
}

#[test]
fn a_throttle_that_is_gone_takes_no_room() {
    let world = World::new(10);
    let throttle = world.throttle.clone();
    for key in 0..10u64 {
        throttle.hit(&key.to_le_bytes(), &params(0, 1, 60), 1, at(NOON)).unwrap();
    }
    let memory = world.memory.clone();
    drop((world, throttle));
    assert_eq!(memory.entries(), 0);
}
