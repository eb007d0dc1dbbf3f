//! The throttle returns the verdicts of the naive one for any requests at any times.

use proptest::prelude::*;
use sluicegate_core::time::NOW_MAX;

use super::model::Model;
use super::{DAY, NOON, SECOND, ThrottleParams, World, apart, at, params};
use crate::memory::tests::cases;

/// Typical parameters, some with fractions too fine for a lane, and arbitrary ones.
fn any_terms() -> impl Strategy<Value = ThrottleParams> {
    let usual = (0..12i64, 1..20i64, prop_oneof![Just(1i64), Just(10), Just(60), Just(3_600)]);
    let fine = (0..1_000i64, 16_000..2_000_000i64, 1..100i64);
    let any = (0..i64::MAX, 1..i64::MAX, 1..i64::MAX);
    let any = any.prop_map(|(burst, count, period)| {
        (burst >> (count % 63), count >> (period % 53 + 10), period >> (burst % 40 + 23))
    });
    prop_oneof![6 => usual, 2 => fine, 1 => any]
        .prop_filter_map("cannot be held", |(burst, count, period)| {
            ThrottleParams::new(burst, count, period).ok()
        })
}

fn any_cost(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        6 => 1..4u64,
        3 => 0..=limit,
        1 => Just(limit.saturating_add(1)),
        1 => Just(u64::MAX),
    ]
}

/// Clock steps: mostly forward, sometimes back, small or large.
fn any_step() -> impl Strategy<Value = i64> {
    let second = SECOND as i64;
    prop_oneof![
        3 => Just(0),
        3 => 0..2 * second,
        3 => 0..100_000i64,
        2 => 0..100 * second,
        1 => -2 * second..0,
        1 => -200 * second..0,
        1 => -10 * DAY as i64..3_000 * DAY as i64,
    ]
}

/// One of a few parameters, so that some repeat.
fn calls(keys: usize) -> impl Strategy<Value = Vec<(usize, ThrottleParams, u64, i64)>> {
    let several = prop::collection::vec(any_terms(), 1..4);
    several.prop_flat_map(move |several| {
        let params = prop::sample::select(several);
        let call = (0..keys, params, any_step()).prop_flat_map(|(key, params, step)| {
            (Just(key), Just(params), any_cost(params.limit()), Just(step))
        });
        prop::collection::vec(call, 1..60)
    })
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn answers_are_those_of_an_account(
        calls in calls(3),
        start in prop_oneof![Just(NOON), Just(0), 0..NOON, Just(NOW_MAX.as_micros() - DAY)],
    ) {
        let (world, mut model, keys) = (World::roomy(), Model::default(), apart(3));
        let mut now = start;
        for (index, (key, params, cost, step)) in calls.into_iter().enumerate() {
            now = now.saturating_add_signed(step);
            let (key, said) = (keys[key], format!("{index}: {params:?} {cost} at {now}"));
            let expected = model.hit(key, &params, cost, at(now));
            prop_assert_eq!(world.hit(key, &params, cost, now), Ok(expected), "{}", said);
            if index % 16 == 0 {
                world.kept();
            }
        }
        world.kept();
    }

    /// Many colliding keys, reused lanes, and memory released meanwhile do not change a verdict
    /// while time advances.
    #[test]
    fn a_crowd_gets_the_same_answers(
        calls in prop::collection::vec((0..40u64, 0..5usize, 0..6u64, 0..3_000_000u64), 1..300),
    ) {
        let several = [params(3, 1, 1), params(3, 7, 1), params(0, 1, 60), params(9, 20_011, 7), params(3, 2, 2)];
        let (world, mut model) = (World::roomy(), Model::default());
        let (mut now, crowd) = (NOON, one_shard(40));
        for (index, (key, which, cost, step)) in calls.into_iter().enumerate() {
            now += step;
            let (key, params) = (crowd[key as usize], several[which]);
            let expected = model.hit(key, &params, cost, at(now));
            prop_assert_eq!(world.hit(key, &params, cost, now), Ok(expected), "call {}", index);
            if index % 37 == 0 {
                world.throttle.sweep(at(now));
            }
        }
        prop_assert!(world.kept().lanes <= 40);
        world.throttle.sweep(at(now + 700 * SECOND));
        prop_assert_eq!(world.kept(), super::ThrottleUsage::default(), "all are as good as new");
    }

    #[test]
    fn a_batch_is_one_after_the_other(
        rounds in prop::collection::vec(
            (prop::collection::vec((0..9u64, any_terms(), 0..5u64), 0..40), 0..DAY),
            1..5,
        ),
    ) {
        let (alone, together) = (World::roomy(), World::roomy());
        let mut now = NOON;
        for (round, step) in rounds {
            now += step;
            let keys: Vec<[u8; 8]> = round.iter().map(|(key, ..)| key.to_le_bytes()).collect();
            let hits = keys.iter().zip(&round);
            let hits = hits.map(|(key, (_, params, cost))| (key.as_slice(), params, *cost));
            let mut said = Vec::new();
            together.throttle.hit_batch(hits, at(now), |index, verdict| said.push((index, verdict)));
            let one = |(index, (key, params, cost)): (usize, &(u64, ThrottleParams, u64))| {
                (index, alone.hit(*key, params, *cost, now))
            };
            let expected: Vec<_> = round.iter().enumerate().map(one).collect();
            prop_assert_eq!(said, expected);
        }
        prop_assert_eq!(alone.kept(), together.kept());
    }
}

/// Keys of one shard.
fn one_shard(count: usize) -> Vec<u64> {
    let memory = crate::memory::Memory::with_key(1, [1, 2]);
    let here = |key: &u64| memory.store.hash(&key.to_le_bytes()) >> 56 == 0;
    (0..).filter(here).take(count).collect()
}

#[test]
fn other_terms_keep_what_was_used_in_units() {
    let world = World::roomy();
    let remaining =
        |params: &ThrottleParams, cost| world.hit(7, params, cost, NOON).unwrap().remaining;
    assert_eq!(remaining(&params(9, 10, 60), 8), Some(2));
    assert_eq!(remaining(&params(19, 3, 60), 1), Some(11), "9 of 20 are used");
    assert_eq!(remaining(&params(4, 3, 60), 1), Some(-4), "denied: 9 of 5 are used");
    assert_eq!(remaining(&params(4, 3, 60), 0), Some(-4), "nothing is always allowed");
    assert!(world.hit(7, &params(4, 3, 60), 0, NOON).unwrap().is_allowed());
    assert_eq!(world.kept().wholes, 1, "a debt does not fit into a lane");
    assert_eq!(remaining(&params(19, 3, 60), 1), Some(10), "and back");
    assert_eq!((world.kept().wholes, world.kept().params), (0, 1));
}

#[test]
fn nothing_leaves_no_trace() {
    let world = World::roomy();
    let (ten, five) = (params(9, 10, 60), params(4, 1, 60));
    assert_eq!(world.hit(1, &ten, 0, NOON).unwrap().remaining, Some(10));
    assert_eq!(world.kept().lanes, 0);
    world.hit(1, &ten, 4, NOON).unwrap();
    assert_eq!(world.hit(1, &five, 0, NOON).unwrap().remaining, Some(1));
    // Under the first parameters one token refills in six seconds; under the others in a minute.
    assert_eq!(world.hit(1, &ten, 0, NOON + 6 * SECOND).unwrap().remaining, Some(7));
}

#[test]
fn any_bytes_are_a_key() {
    let world = World::roomy();
    let once = params(0, 1, 3_600);
    let long = vec![0xff; 100_000];
    for key in [&b""[..], b"\0", b"\0\0", &[0xff, 0xfe], &long] {
        let allowed = || world.throttle.hit(key, &once, 1, at(NOON)).unwrap().is_allowed();
        assert!(allowed());
        assert!(!allowed());
    }
    assert_eq!(world.kept().lanes, 5);
}
