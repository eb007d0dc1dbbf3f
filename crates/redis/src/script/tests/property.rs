//! Under random operations in any order, the answers and states of the store equal the core's.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use super::anything::{
    KEYS, Ruled, Turn, hit_on_an_edge, leasable, leased_turn, logs, ruled, slices, turn,
};
use super::corruption::{Step, VICTIM, step};
use super::world::Bench;
use crate::script::DISAGREEMENTS;

/// Deterministic cases unless configured otherwise, so that a failure is due to a change.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let fixed = ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(1), ..Default::default() };
    let config = if asked { ProptestConfig::default() } else { fixed };
    ProptestConfig { failure_persistence: None, ..config }
}

/// Nested windows, and hits at the moment when a window releases its last entry.
#[test]
fn logs_let_go_at_the_very_edge() {
    agree_at_edges(&logs());
}

#[test]
fn slices_end_at_the_very_edge() {
    agree_at_edges(&slices());
}

fn agree_at_edges(rules: &[Ruled; KEYS]) {
    let bench = Bench::start();
    let turns = prop::collection::vec(hit_on_an_edge(), 30..60);
    let config = ProptestConfig { cases: 60, ..config() };
    let checked = TestRunner::new(config).run(&(0..1_000_000u64, turns), |(start, turns)| {
        let mut world = bench.world(start, rules);
        for (index, turn) in turns.iter().enumerate() {
            let took: Result<(), String> = world.take(turn);
            took.map_err(|said| TestCaseError::fail(told(index, turn, said)))?;
        }
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

#[test]
fn the_store_answers_as_the_core_does_and_keeps_what_it_keeps() {
    let bench = Bench::start();
    let start = prop_oneof![0..20_000_000u64, 1_790_000_000_000_000..1_800_000_000_000_000u64];
    let input = (start, prop::collection::vec(ruled(), KEYS), prop::collection::vec(turn(), 1..40));
    let ways = std::cell::Cell::new((0, 0));
    let checked = TestRunner::new(config()).run(&input, |(start, rules, turns)| {
        let mut world = bench.world(start, &rules);
        for (index, turn) in turns.iter().enumerate() {
            let took: Result<(), String> = world.take(turn);
            let told = |said: String| told(index, turn, said);
            took.map_err(|said| TestCaseError::fail(told(said)))?;
        }
        ways.set((ways.get().0 + world.ways.0, ways.get().1 + world.ways.1));
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    script_and_core_agree();
    let (short, long) = ways.get();
    assert!(short > long, "{short} short, {long} long: hardly anything was decided by the script");
}

/// Corruption of one identity fails no call and changes no answer of the others.
#[test]
fn corruption_is_confined_to_its_identity() {
    let bench = Bench::start();
    let start = prop_oneof![0..20_000_000u64, 1_790_000_000_000_000..1_800_000_000_000_000u64];
    let steps = prop::collection::vec(step(), 1..40);
    let input = (start, prop::collection::vec(ruled(), KEYS), steps);
    let checked = TestRunner::new(config()).run(&input, |(start, rules, steps)| {
        let mut world = bench.world(start, &rules).with_victim(VICTIM);
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Damage(damage) => world.damage(damage),
                Step::Turn(turn) => {
                    let took: Result<(), String> = world.take(turn);
                    took.map_err(|said| TestCaseError::fail(told(index, turn, said)))?;
                }
            }
        }
        world.recover_victim().map_err(TestCaseError::fail)
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    script_and_core_agree();
}

/// Three nodes acquire, hold and release leases while all other operations run.
#[test]
fn leases_are_granted_and_kept_as_the_core_does() {
    let bench = Bench::start();
    let start = prop_oneof![0..20_000_000u64, 1_790_000_000_000_000..1_800_000_000_000_000u64];
    let rules = prop::collection::vec(leasable(), KEYS);
    let input = (start, rules, prop::collection::vec(leased_turn(), 1..50));
    let leased = std::cell::Cell::new((0, 0));
    let checked = TestRunner::new(config()).run(&input, |(start, rules, turns)| {
        let mut world = bench.world(start, &rules);
        for (index, turn) in turns.iter().enumerate() {
            let took: Result<(), String> = world.take(turn);
            took.map_err(|said| TestCaseError::fail(told(index, turn, said)))?;
        }
        leased.set((leased.get().0 + world.leased.0, leased.get().1 + world.leased.1));
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    script_and_core_agree();
    let (heard, long) = leased.get();
    assert!(heard > 2 * long, "{heard} heard, {long} long: hardly anything was leased");
}

fn told(index: usize, turn: &Turn, said: String) -> String {
    format!("turn {index}, {turn:?}: {said}")
}

/// Also covers decisions whose answers were not compared.
fn script_and_core_agree() {
    let disagreements = DISAGREEMENTS.load(Ordering::Relaxed);
    assert_eq!(disagreements, 0, "script and core have said something else");
}
