//! The bars: what we have promised ourselves, and whether it was reached.
//!
//! Each is a ratio of two times of the same round, or a number of megabytes; both sides of every ratio
//! are in the table.

use serde::Serialize;

use super::grid;
use super::speed::scaling;
use crate::cell::{Cell, DENIAL, HOT_1, HOT_2, K100_1, K100_2, K100_TURN, M1_1, M1_TURN, M10_1};
use crate::plan::LOG_USERS;
use crate::results::{Results, SpeedKey, WALL};
use crate::roster::BASE;

/// `Limiter::hit`, the clock read, the remainder read, a listener counting: the headline.
pub(crate) const OURS: &str = "ours";
pub(crate) const GIVEN_NOW: &str = "ours-given-now";
pub(crate) const BATCH_16: &str = "ours-batch-16";
pub(crate) const TOKEN_BUCKET: &str = "ours-token_bucket";
pub(crate) const FIXED_WINDOW: &str = "ours-fixed_window";
pub(crate) const SLIDING_WINDOW: &str = "ours-sliding_window";
pub(crate) const SLIDING_LOG: &str = "ours-sliding_log";

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

/// What was measured, and whether every round of it was disturbed.
#[derive(Debug, Clone, Copy)]
struct Measured {
    number: f64,
    disturbed: bool,
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

const BARS: [Bar; 21] = [
    at_least("hot key, 1 thread", Measure::Faster(HOT_1, OURS), 1.0),
    at_least("hot key, 2 threads", Measure::Faster(HOT_2, OURS), 1.0),
    at_least("100k ids", Measure::Faster(K100_1, OURS), 1.3),
    at_least("1M ids", Measure::Faster(M1_1, OURS), 1.3),
    at_least("100k ids, given now", Measure::Faster(K100_1, GIVEN_NOW), 1.8),
    at_least("1M ids, given now", Measure::Faster(M1_1, GIVEN_NOW), 1.8),
    at_least("100k ids, batches of 16", Measure::Faster(K100_1, BATCH_16), 2.0),
    at_least("1M ids, batches of 16", Measure::Faster(M1_1, BATCH_16), 2.0),
    at_least("100k ids at hand", Measure::Faster(K100_TURN, OURS), 1.3),
    at_least("1M ids at hand", Measure::Faster(M1_TURN, OURS), 1.3),
    at_least("100k ids at hand, given now", Measure::Faster(K100_TURN, GIVEN_NOW), 1.8),
    at_least("1M ids at hand, given now", Measure::Faster(M1_TURN, GIVEN_NOW), 1.8),
    at_least("100k ids at hand, batches of 16", Measure::Faster(K100_TURN, BATCH_16), 2.0),
    at_least("1M ids at hand, batches of 16", Measure::Faster(M1_TURN, BATCH_16), 2.0),
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

/// The list; nothing if none was measured.
pub(crate) fn list(results: &Results) -> String {
    let outcomes = outcomes(results);
    let mut rows = Vec::new();
    let mut others = Vec::new();
    for outcome in outcomes {
        let Some(measured) = outcome.measured else {
            others.push(outcome.name);
            continue;
        };
        // Three places: 1.998 is not 2.
        let measured = format!("{measured:.3}");
        rows.push(vec![
            outcome.name.to_owned(),
            outcome.verdict.to_owned(),
            outcome.goal,
            measured,
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = grid::render(&["bar", "", "goal", "measured"], 2, &rows);
    if !others.is_empty() {
        text.push_str(&format!("\nNot measured in this run: {}.\n", others.join("; ")));
    }
    text
}

// === impl Bar ===

impl Bar {
    fn outcome(&self, results: &Results) -> Outcome {
        let measured = self.measure.of(results);
        let verdict = match measured {
            None => "not measured",
            Some(measured) if measured.disturbed => "DISTURBED",
            Some(measured) if self.goal.reached(measured.number) => "PASS",
            Some(_) => "NOT REACHED",
        };
        let unit = if matches!(self.measure, Measure::Megabytes(..)) { " MB" } else { "x" };
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {least}{unit}"),
            Goal::AtMost(most) => format!("≤ {most}{unit}"),
        };
        Outcome {
            name: self.name,
            goal,
            measured: measured.map(|measured| measured.number),
            verdict,
        }
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
    fn of(&self, results: &Results) -> Option<Measured> {
        let key = |cell: &Cell, contestant| SpeedKey { cell: cell.name, contestant };
        let ratio = match self {
            Self::Faster(cell, who) => results.ratio(key(cell, BASE), key(cell, who), WALL)?,
            Self::Scaling(cell, who) => scaling(results, cell, who)?,
            Self::Longer((one, who), (other, whom)) => {
                results.ratio(key(one, who), key(other, whom), WALL)?
            }
            Self::Megabytes(ids, who) => {
                let mut all = results.memory.iter();
                let found = all.find(|(key, _)| key.ids == *ids && key.contestant == *who);
                let number = found?.1.bytes as f64 / 1e6;
                return Some(Measured { number, disturbed: false });
            }
        };
        Some(Measured { number: ratio.spread.median, disturbed: ratio.disturbed })
    }
}
