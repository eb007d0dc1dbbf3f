//! The schedule: rounds, and in each round every contestant once in every cell.
//!
//! The machine's speed may change by a factor of two within minutes, so what is compared is measured side by
//! side: a contestant runs the cells of a family in one go (two threads right after one, a denial right after an
//! admission), then the next contestant runs them. The order of the contestants rotates from round to
//! round, and they are compared within the round: nobody is always first, and a slow minute is slow for all.

use crate::child;
use crate::plan::{Plan, Turn};
use crate::progress::Progress;
use crate::results::{Results, SpeedKey};

/// Carries out the plan. What fails is kept in words, and the rest goes on.
pub(crate) fn run(plan: &Plan) -> Results {
    let mut results = Results { rounds: plan.rounds, ..Results::default() };
    let mut progress = Progress::new(plan.steps());
    for round in 0..plan.rounds {
        for turns in &plan.families {
            for Turn { entry, cells } in rotated(turns, round as usize) {
                for cell in cells {
                    let (now, all) = (round + 1, plan.rounds);
                    progress.step(format_args!("{} {}, round {now}/{all}", entry.name, cell.name));
                    let key = SpeedKey { cell: cell.name, contestant: entry.name };
                    match child::cell(entry.name, cell.name, plan.checks(cell, entry)) {
                        Ok(sample) => results.add(key, round, sample),
                        Err(error) => results.failures.push(format!("{error:#}")),
                    }
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

/// The same turns, beginning with another one.
fn rotated(turns: &[Turn], by: usize) -> impl Iterator<Item = &Turn> {
    let (head, tail) = turns.split_at(by % turns.len().max(1));
    tail.iter().chain(head)
}
