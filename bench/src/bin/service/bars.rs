//! The bars: what we have promised ourselves, and whether it was reached.

use serde::Serialize;

use crate::contestant::{Case, HELLO, SLUICEGATE, STUB, THROTTLECRAB, TONIC};
use crate::grid;
use crate::reading::Reading;
use crate::rounds::{Key, Results};
use crate::stats::Spread;

#[derive(Debug, Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

struct Bar {
    name: &'static str,
    goal: Goal,
    unit: &'static str,
    /// Ours in every round, or its ratio to somebody's.
    measured: fn(&Results) -> Vec<f64>,
    /// Whose readings it is judged by.
    whose: &'static [Key],
}

/// A bar with what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) goal: String,
    pub(crate) measured: Option<f64>,
    pub(crate) verdict: String,
    spread: Option<(f64, f64)>,
}

const RLS: Key = (Case::Rls, SLUICEGATE);
const HTTP: Key = (Case::Http, SLUICEGATE);

const BARS: [Bar; 6] = [
    Bar {
        name: "RLS: CPU per request, of the stub's",
        goal: Goal::AtMost(1.3),
        unit: "x",
        measured: |results| results.ratios(RLS, (Case::Rls, STUB), cpu),
        whose: &[RLS, (Case::Rls, STUB)],
    },
    Bar {
        name: "RLS: requests/s, of the same on tonic",
        goal: Goal::AtLeast(1.6),
        unit: "x",
        measured: |results| results.ratios(RLS, (Case::Rls, TONIC), rate),
        whose: &[RLS, (Case::Rls, TONIC)],
    },
    Bar {
        name: "RLS: requests/s, of throttlecrab-server's gRPC",
        goal: Goal::AtLeast(2.0),
        unit: "x",
        measured: |results| results.ratios(RLS, (Case::Rls, THROTTLECRAB), rate),
        whose: &[RLS, (Case::Rls, THROTTLECRAB)],
    },
    Bar {
        name: "HTTP: CPU per request",
        goal: Goal::AtMost(9.0),
        unit: " µs",
        measured: |results| results.numbers(HTTP, cpu),
        whose: &[HTTP],
    },
    Bar {
        // What 9 µs were on the machine on which axum's hello took 6.8.
        name: "HTTP: CPU per request, of axum's hello",
        goal: Goal::AtMost(1.32),
        unit: "x",
        measured: |results| results.ratios(HTTP, (Case::Http, HELLO), cpu),
        whose: &[HTTP, (Case::Http, HELLO)],
    },
    Bar {
        name: "HTTP: p99 at equal load, of throttlecrab-server's",
        goal: Goal::AtMost(1.0),
        unit: "x",
        measured: |results| results.ratios(HTTP, (Case::Http, THROTTLECRAB), p99),
        whose: &[HTTP, (Case::Http, THROTTLECRAB)],
    },
];

fn cpu(reading: &Reading) -> f64 {
    reading.full.cpu_us
}

fn rate(reading: &Reading) -> f64 {
    reading.full.rate()
}

fn p99(reading: &Reading) -> f64 {
    reading.paced.as_ref().map_or(f64::NAN, |paced| paced.p99_us)
}

/// Every bar with what was measured.
pub(crate) fn outcomes(results: &Results) -> Vec<Outcome> {
    BARS.iter().map(|bar| bar.outcome(results)).collect()
}

/// The list; nothing if none was measured.
pub(crate) fn list(results: &Results) -> String {
    let (measured, others): (Vec<_>, Vec<_>) =
        outcomes(results).into_iter().partition(|outcome| outcome.measured.is_some());
    let row = |outcome: &Outcome| {
        let (measured, (least, most)) =
            (outcome.measured.unwrap_or(f64::NAN), outcome.spread.unwrap_or_default());
        vec![
            outcome.name.to_owned(),
            outcome.verdict.clone(),
            outcome.goal.clone(),
            format!("{measured:.2} ({least:.2}-{most:.2})"),
        ]
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = grid::render(&["bar", "", "goal", "measured"], 2, &rows);
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|outcome| outcome.name).collect();
        text.push_str(&format!("\nNot measured in this run: {}.\n", names.join("; ")));
    }
    text
}

// === impl Bar ===

impl Bar {
    fn outcome(&self, results: &Results) -> Outcome {
        let spread = Spread::of((self.measured)(results));
        let disturbed = self.whose.iter().any(|key| results.is_disturbed(*key));
        let verdict = match spread {
            None => "not measured".to_owned(),
            Some(spread) => {
                let mut verdict = self.goal.verdict(spread.median);
                if self.goal.reached(spread.min) != self.goal.reached(spread.max) {
                    verdict.push_str("; rounds differ");
                }
                if disturbed {
                    verdict.push_str(" (disturbed)");
                }
                verdict
            }
        };
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {least}{}", self.unit),
            Goal::AtMost(most) => format!("≤ {most}{}", self.unit),
        };
        Outcome {
            name: self.name,
            goal,
            measured: spread.map(|spread| spread.median),
            verdict,
            spread: spread.map(|spread| (spread.min, spread.max)),
        }
    }
}

// === impl Goal ===

impl Goal {
    fn reached(self, number: f64) -> bool {
        match self {
            Self::AtLeast(least) => number >= least,
            Self::AtMost(most) => number <= most,
        }
    }

    /// How far it is from it, if it is not reached.
    fn verdict(self, number: f64) -> String {
        let (Self::AtLeast(bar) | Self::AtMost(bar)) = self;
        match self.reached(number) {
            true => "PASS".to_owned(),
            false => format!("not reached: {:.2} of the bar", number / bar),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_reached_on_its_own_side() {
        assert_eq!(Goal::AtMost(1.3).verdict(1.2), "PASS");
        assert_eq!(Goal::AtMost(1.0).verdict(1.5), "not reached: 1.50 of the bar");
        assert_eq!(Goal::AtLeast(2.0).verdict(2.0), "PASS");
        assert_eq!(Goal::AtLeast(2.0).verdict(1.5), "not reached: 0.75 of the bar");
    }
}
