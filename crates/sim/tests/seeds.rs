//! Some hundred worlds, and that a seed says everything about its world.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::ops::RangeInclusive;
use std::process::Command;

use sluicegate_sim::simulate;

/// Lives through some worlds. More of them: `cargo run -p sluicegate-sim -- --seeds 5000`.
fn all_is_well(seeds: RangeInclusive<u64>) {
    let mut wrong = Vec::new();
    for seed in seeds {
        let outcome = simulate(seed, false).unwrap();
        wrong.extend(outcome.violations.iter().map(|violation| {
            format!("{violation}\n  cargo run -p sluicegate-sim -- --seed {seed} --trace")
        }));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Two tests, for two processors.

#[test]
fn every_limit_is_kept_and_what_there_is_is_used() {
    all_is_well(1..=110);
}

#[test]
fn in_other_worlds_too() {
    all_is_well(111..=220);
}

/// A key of Redis is gone at the millisecond of its lifetime, which was that of its state rounded
/// up: a bucket was full again up to a millisecond too early.
#[test]
fn a_record_outlasts_its_state() {
    all_is_well(2193..=2193);
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1..=12 {
        let (once, again) = (simulate(seed, false).unwrap(), simulate(seed, false).unwrap());
        assert_eq!(once.history.hash, again.history.hash, "seed {seed}");
        assert_eq!(once.history.hits, again.history.hits, "seed {seed}");
    }
    let (one, other) = (simulate(1, false).unwrap(), simulate(2, false).unwrap());
    assert_ne!(one.history.hash, other.history.hash);
}

#[test]
fn in_another_process_too() {
    for seed in [3, 4, 5] {
        let program = Command::new(env!("CARGO_BIN_EXE_sluicegate-sim"))
            .args(["--seed", &seed.to_string(), "--trace"])
            .output()
            .unwrap();
        let shown = String::from_utf8(program.stdout).unwrap();
        let hash = simulate(seed, false).unwrap().history.hash;
        assert!(shown.contains(&format!("trace {hash:016x}")), "seed {seed}");
    }
}

#[test]
fn eventual_nodes_keep_what_is_promised() {
    let rows = sluicegate_sim::table::measure().unwrap();
    for row in &rows {
        assert!(row.over <= row.bound, "{row:?}");
        assert!(
            row.over > 0,
            "nodes that never know of each other's hits would be another level: {row:?}"
        );
    }
    assert_eq!(rows.len(), 9);
}
