//! Keys that stay live for years, and clocks that are set: the table is rebased to another epoch.

use super::model::Model;
use super::{DAY, NOON, ThrottleParams, ThrottleUsage, World, at, params};

const YEAR: u64 = 365 * DAY;
const YEAR_S: i64 = 365 * 86_400;

/// Tokens of a year: a prime, so that the time of one has a fraction too fine for a lane.
const TOKENS: u64 = 1_000_003;

/// The tokens of `years` years at once.
fn yearly(years: u64) -> ThrottleParams {
    params((years * TOKENS) as i64, TOKENS as i64, YEAR_S)
}

/// A key that has used the tokens of so many years and one more, and the same in the model.
fn used(years: u64, params: &ThrottleParams) -> (World, Model) {
    let tokens = years * TOKENS + 1;
    let (world, mut model) = (World::roomy(), Model::default());
    let expected = model.hit(1, params, tokens, at(NOON));
    assert_eq!(world.hit(1, params, tokens, NOON), Ok(expected));
    assert_eq!(world.kept(), ThrottleUsage { lanes: 1, params: 1, wholes: 1 });
    (world, model)
}

#[test]
fn years_later_a_key_stands_where_it_should() {
    let params = yearly(30);
    let (world, mut model) = used(30, &params);
    for years in [4, 5, 11, 12, 18, 29] {
        let now = NOON + years * YEAR;
        // Without requests, sweeping alone moves the epoch.
        world.throttle.sweep(at(now));
        let expected = model.hit(1, &params, TOKENS, at(now));
        assert_eq!(world.hit(1, &params, TOKENS, now), Ok(expected), "after {years} years");
    }
    assert_eq!(world.kept().lanes, 1);
}

#[test]
fn whoever_is_as_good_as_new_is_forgotten_also_after_years() {
    // The longest expiry is too far ahead for a lane to store.
    for used_up in [8, 30, 40] {
        let (world, _) = used(used_up, &yearly(49));
        for years in (0..used_up).step_by(3) {
            world.throttle.sweep(at(NOON + years * YEAR));
            assert_eq!(world.kept().lanes, 1, "{years} of {used_up}");
        }
        world.throttle.sweep(at(NOON + used_up * YEAR + DAY));
        assert_eq!(world.kept(), ThrottleUsage::default(), "{used_up}");
    }
}

#[test]
fn a_clock_that_is_set_back_by_years_forgets_nothing() {
    let params = yearly(3);
    let (world, mut model) = used(3, &params);
    for years in [6, 20] {
        let now = NOON - years * YEAR;
        let expected = model.hit(1, &params, 1, at(now));
        assert!(!expected.is_allowed());
        assert_eq!(world.hit(1, &params, 1, now), Ok(expected), "{years} years back");
    }
    // Nor by a sweep before the next request.
    let (world, mut model) = used(3, &params);
    let now = NOON - 6 * YEAR;
    world.throttle.sweep(at(now));
    world.throttle.sweep(at(now + DAY));
    assert_eq!(world.hit(1, &params, 1, now + DAY), Ok(model.hit(1, &params, 1, at(now + DAY))));
}
