//! The bars: what we have promised ourselves, and whether it was reached.
//!
//! Each is a ratio of two times of the same round, or a number of megabytes; both sides of every ratio
//! are in the table.

use serde::Serialize;

use super::grid;
use super::speed::scaling;
use crate::cell::{Cell, DENIAL, HOT_1, HOT_2, K100_1, K100_2, M1_1, M10_1};
use crate::plan::LOG_USERS;
use crate::results::{Results, SpeedKey, WALL};
use crate::roster::{BASE, READ_IN_TURN};

/// `Limiter::hit`, the clock read, the remainder read, a listener counting: the headline.
pub(crate) const OURS: &str = "ours";
pub(crate) const GIVEN_NOW: &str = "ours-given-now";
pub(crate) const BATCH_16: &str = "ours-batch-16";
pub(crate) const TOKEN_BUCKET: &str = "ours-token_bucket";
pub(crate) const FIXED_WINDOW: &str = "ours-fixed_window";
pub(crate) const SLIDING_WINDOW: &str = "ours-sliding_window";
pub(crate) const SLIDING_LOG: &str = "ours-sliding_log";

/// Two threads that only read ids reach at least this if each has a CPU to itself.
const SCALING_OF_TWO_CPUS: f64 = 1.7;

/// What a measured number must be.
#[derive(Debug, Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// How a bar is measured.
#[derive(Debug, Clone, Copy)]
enum Measure {
    /// Governor's time over ours, in this cell.
    Faster(Cell, &'static str),
    /// Throughput of this cell over that of one thread.
    Scaling(Cell, &'static str),
    /// The first time over the second.
    Longer((Cell, &'static str), (Cell, &'static str)),
    /// Resident growth in millions of bytes.
    Megabytes(usize, &'static str),
}

struct Bar {
    name: &'static str,
    measure: Measure,
    goal: Goal,
}

/// A bar with what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) goal: String,
    pub(crate) measured: Option<f64>,
    pub(crate) verdict: &'static str,
}

const BARS: [Bar; 15] = [
    at_least("hot key, 1 thread", Measure::Faster(HOT_1, OURS), 1.0),
    at_least("hot key, 2 threads", Measure::Faster(HOT_2, OURS), 1.0),
    at_least("100k ids", Measure::Faster(K100_1, OURS), 1.3),
    at_least("1M ids", Measure::Faster(M1_1, OURS), 1.3),
    at_least("100k ids, given now", Measure::Faster(K100_1, GIVEN_NOW), 1.8),
    at_least("1M ids, given now", Measure::Faster(M1_1, GIVEN_NOW), 1.8),
    at_least("100k ids, batches of 16", Measure::Faster(K100_1, BATCH_16), 2.0),
    at_least("1M ids, batches of 16", Measure::Faster(M1_1, BATCH_16), 2.0),
    at_least("100k ids, 2 threads over 1", Measure::Scaling(K100_2, OURS), 1.7),
    at_most(
        "given now, 10M ids over 100k",
        Measure::Longer((M10_1, GIVEN_NOW), (K100_1, GIVEN_NOW)),
        3.0,
    ),
    // No dearer; five in a hundred are the machine's.
    at_most("denial over admission", Measure::Longer((DENIAL, OURS), (K100_1, OURS)), 1.05),
    at_most("MB per 1M ids, token bucket", Measure::Megabytes(1_000_000, TOKEN_BUCKET), 32.0),
    at_most("MB per 1M ids, fixed window", Measure::Megabytes(1_000_000, FIXED_WINDOW), 32.0),
    at_most("MB per 1M ids, sliding window", Measure::Megabytes(1_000_000, SLIDING_WINDOW), 56.0),
    at_most("MB of 100k logs of 500", Measure::Megabytes(LOG_USERS, SLIDING_LOG), 250.0),
];

/// Every bar with what was measured.
pub(crate) fn outcomes(results: &Results) -> Vec<Outcome> {
    BARS.iter().map(|bar| bar.outcome(results)).collect()
}

/// The list; nothing if we did not take part.
pub(crate) fn list(results: &Results) -> String {
    let outcomes = outcomes(results);
    if outcomes.iter().all(|outcome| outcome.measured.is_none()) {
        return String::new();
    }
    let rows: Vec<Vec<String>> = outcomes
        .into_iter()
        .map(|outcome| {
            let measured = outcome.measured.map_or(String::new(), |number| format!("{number:.2}"));
            vec![outcome.name.to_owned(), outcome.verdict.to_owned(), outcome.goal, measured]
        })
        .collect();
    grid::render(&["bar", "", "goal", "measured"], 2, &rows)
}

// === impl Bar ===

impl Bar {
    fn outcome(&self, results: &Results) -> Outcome {
        let measured = self.measure.of(results);
        let verdict = match measured {
            None => "not measured",
            Some(_) if self.measure.was_crowded(results) => "CROWDED",
            Some(number) if self.goal.reached(number) => "PASS",
            Some(_) => "NOT REACHED",
        };
        let unit = if matches!(self.measure, Measure::Megabytes(..)) { " MB" } else { "x" };
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {least}{unit}"),
            Goal::AtMost(most) => format!("≤ {most}{unit}"),
        };
        Outcome { name: self.name, goal, measured, verdict }
    }
}

const fn at_least(name: &'static str, measure: Measure, least: f64) -> Bar {
    Bar { name, measure, goal: Goal::AtLeast(least) }
}

const fn at_most(name: &'static str, measure: Measure, most: f64) -> Bar {
    Bar { name, measure, goal: Goal::AtMost(most) }
}

// === impl Goal ===

impl Goal {
    fn reached(self, number: f64) -> bool {
        match self {
            Self::AtLeast(least) => number >= least,
            Self::AtMost(most) => number <= most,
        }
    }
}

// === impl Measure ===

impl Measure {
    /// Whether two threads did not have two CPUs: then even reading ids does not scale.
    fn was_crowded(&self, results: &Results) -> bool {
        let (Self::Faster(cell, _) | Self::Scaling(cell, _)) = self else { return false };
        let reading = scaling(results, cell, READ_IN_TURN);
        reading.is_some_and(|reading| reading.median < SCALING_OF_TWO_CPUS)
    }

    fn of(&self, results: &Results) -> Option<f64> {
        let key = |cell: &Cell, contestant| SpeedKey { cell: cell.name, contestant };
        match self {
            Self::Faster(cell, who) => {
                Some(results.ratio(key(cell, BASE), key(cell, who), WALL)?.median)
            }
            Self::Scaling(cell, who) => Some(scaling(results, cell, who)?.median),
            Self::Longer((one, who), (other, whom)) => {
                Some(results.ratio(key(one, who), key(other, whom), WALL)?.median)
            }
            Self::Megabytes(ids, who) => {
                let mut all = results.memory.iter();
                let found = all.find(|(key, _)| key.ids == *ids && key.contestant == *who);
                found.map(|(_, growth)| growth.bytes as f64 / 1e6)
            }
        }
    }
}
