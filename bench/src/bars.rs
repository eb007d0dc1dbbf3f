//! Bars: goals of the project and whether a run reached them.

use serde::Serialize;

use crate::frame::Statistic;
use crate::table;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal for a number of the results `T`.
pub(crate) struct Bar<T> {
    name: &'static str,
    goal: Goal,
    unit: &'static str,
    measured: fn(&T) -> Option<Statistic>,
}

/// A bar and its measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    name: &'static str,
    goal: String,
    measured: Option<f64>,
    verdict: String,
    #[serde(skip)]
    shown: String,
}

pub(crate) fn outcomes<T>(bars: &[Bar<T>], results: &T) -> Vec<Outcome> {
    bars.iter().map(|bar| bar.outcome(results)).collect()
}

/// A table of the bars that were measured; empty if none was.
pub(crate) fn list(outcomes: &[Outcome]) -> String {
    let (measured, others): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.measured.is_some());
    if measured.is_empty() {
        return String::new();
    }
    let row = |one: &&Outcome| {
        vec![one.name.to_owned(), one.verdict.clone(), one.goal.clone(), one.shown.clone()]
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    let mut text = table::render(&["bar", "", "goal", "measured"], 2, &rows);
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|one| one.name).collect();
        text.push_str(&format!("\nNot measured in this run: {}.\n", names.join("; ")));
    }
    text
}

// === impl Bar ===

impl<T> Bar<T> {
    pub(crate) const fn new(
        name: &'static str,
        goal: Goal,
        unit: &'static str,
        measured: fn(&T) -> Option<Statistic>,
    ) -> Self {
        Self { name, goal, unit, measured }
    }

    fn outcome(&self, results: &T) -> Outcome {
        let statistic = (self.measured)(results);
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {least}{}", self.unit),
            Goal::AtMost(max) => format!("≤ {max}{}", self.unit),
        };
        Outcome {
            name: self.name,
            goal,
            measured: statistic.map(|one| one.spread.median),
            verdict: statistic.map_or("not measured".to_owned(), |one| self.goal.verdict(&one)),
            // Three places: 1.998 is not 2.
            shown: statistic.map_or(String::new(), |one| one.spread.shown(3)),
        }
    }
}

// === impl Goal ===

impl Goal {
    fn is_reached(self, number: f64) -> bool {
        match self {
            Self::AtLeast(least) => number >= least,
            Self::AtMost(max) => number <= max,
        }
    }

    fn verdict(self, measured: &Statistic) -> String {
        let (Self::AtLeast(bar) | Self::AtMost(bar)) = self;
        let spread = &measured.spread;
        if measured.disturbed {
            return "DISTURBED".to_owned();
        }
        let mut verdict = match self.is_reached(spread.median) {
            true => "PASS".to_owned(),
            false => format!("NOT REACHED: {:.2} of the bar", spread.median / bar),
        };
        if self.is_reached(spread.min) != self.is_reached(spread.max) {
            verdict.push_str("; rounds differ");
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Spread;

    #[test]
    fn a_bar_is_reached_on_its_own_side() {
        let verdict = |goal: Goal, numbers: &[f64]| {
            let spread = Spread::of(numbers.to_vec()).unwrap();
            goal.verdict(&Statistic { spread, disturbed: false })
        };
        assert_eq!(verdict(Goal::AtMost(1.3), &[1.2]), "PASS");
        assert_eq!(verdict(Goal::AtMost(1.0), &[1.5]), "NOT REACHED: 1.50 of the bar");
        assert_eq!(verdict(Goal::AtLeast(2.0), &[2.0]), "PASS");
        assert_eq!(verdict(Goal::AtLeast(2.0), &[1.5]), "NOT REACHED: 0.75 of the bar");
        assert_eq!(verdict(Goal::AtLeast(2.0), &[1.5, 2.5, 2.5]), "PASS; rounds differ");
    }
}
