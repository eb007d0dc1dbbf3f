//! Clients that send different parameters with every call.

use super::{NOON, SECOND, ThrottleUsage, World, params};

#[test]
fn one_key_under_ever_other_terms_takes_one_place() {
    let world = World::roomy();
    for call in 0..20_000i64 {
        // Slow ones, so that the key never expires: in the end a debt, which is stored whole.
        world.hit(1, &params(call % 4_001, 1 + call % 13, 1_000_000 + call), 1, NOON).unwrap();
    }
    assert_eq!(world.kept(), ThrottleUsage { lanes: 1, params: 1, wholes: 1 });
}

#[test]
fn terms_are_kept_while_an_entry_was_made_by_them() {
    let world = World::roomy();
    for key in 0..20_000 {
        world.hit(key, &params(key as i64, 1, 1), 1, NOON).unwrap();
    }
    assert_eq!(world.kept(), ThrottleUsage { lanes: 20_000, params: 20_000, wholes: 0 });
    // One in a hundred stays.
    let later = NOON + SECOND / 2;
    for key in (0..20_000).step_by(100) {
        world.hit(key, &params(key as i64 + 10, 1, 3), 2, later).unwrap();
    }
    world.throttle.sweep(super::at(NOON + SECOND));
    assert_eq!(world.kept(), ThrottleUsage { lanes: 200, params: 200, wholes: 0 });
    for key in (0..20_000).step_by(100) {
        let left = world.hit(key, &params(key as i64 + 10, 1, 3), 0, later).unwrap();
        assert_eq!(left.remaining, Some(key as i64 + 8));
    }
    world.throttle.sweep(super::at(NOON + 60 * SECOND));
    assert_eq!(world.kept(), ThrottleUsage::default());
}

#[test]
fn traffic_alone_forgets_terms() {
    let world = World::roomy();
    for call in 0..400_000u64 {
        // A new key every four calls, that is, every 400 µs.
        let now = NOON + call * 100;
        world.hit(call / 4, &params((call / 4) as i64, 1_000, 1), 1, now).unwrap();
    }
    let kept = world.kept();
    // About ten keys are live at a time; the others have expired.
    assert!(kept.params < 5_000, "{kept:?}");
    assert!(kept.lanes < 5_000, "{kept:?}");
}

#[test]
fn terms_do_not_grow_at_the_cap() {
    let world = World::new(100);
    for key in 0..5_000 {
        let _ = world.hit(key, &params(key as i64, 1, 3_600), 1, NOON);
    }
    assert_eq!(world.kept(), ThrottleUsage { lanes: 100, params: 100, wholes: 0 });
}
