//! The schedule: rounds, and in each round every contestant once in every cell.
//!
//! The machine's speed may change by a factor of two within minutes. So the contestants of a cell run
//! one right after the other, in an order that rotates from round to round, and are compared within
//! the round; nobody is always first, and a slow minute is slow for all.

use crate::child;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::results::{Results, SpeedKey};
use crate::roster::Entry;

/// Carries out the plan. What fails is kept in words, and the rest goes on.
pub(crate) fn run(plan: &Plan) -> Results {
    let mut results = Results { rounds: plan.rounds, ..Results::default() };
    let mut progress = Progress::new(plan.steps());
    for round in 0..plan.rounds {
        for (cell, entries) in &plan.cells {
            for entry in rotated(entries, round as usize) {
                let rounds = plan.rounds;
                progress.step(format_args!(
                    "{} {}, round {}/{rounds}",
                    entry.name,
                    cell.name,
                    round + 1
                ));
                let key = SpeedKey { cell: cell.name, contestant: entry.name };
                match child::cell(entry.name, cell.name, plan.checks(cell, entry)) {
                    Ok(sample) => results.add(key, round, sample),
                    Err(error) => results.failures.push(format!("{error:#}")),
                }
            }
        }
    }
    // Memory hardly varies: once is enough.
    for (entry, key) in &plan.fills {
        progress.step(format_args!("{} {}", entry.name, key.cell));
        match child::fill(entry.name, key.ids) {
            Ok(growth) => _ = results.memory.insert(*key, growth),
            Err(error) => results.failures.push(format!("{error:#}")),
        }
    }
    progress.done();
    results
}

/// The same entries, beginning with another one.
fn rotated(entries: &[Entry], by: usize) -> impl Iterator<Item = &Entry> {
    let (head, tail) = entries.split_at(by % entries.len().max(1));
    tail.iter().chain(head)
}
