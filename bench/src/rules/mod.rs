//! Matching a descriptor among many rules, and loading many rules.
//!
//! A row is a number of rules of a *shape* ([`shapes`]), matched against descriptors of three
//! entries that lead to a random rule. Descriptors are written into the same buffer every time, as
//! in a server; that cost is measured alone and subtracted. Times are CPU times of the thread.

pub(crate) mod loading;
mod matching;
mod nested;
mod shapes;

use serde_json::json;

use crate::Common;
use crate::frame::{self, Report, Row, Schedule};
use matching::Case;
use shapes::SHAPES;

const ROUNDS: u32 = 9;
const ROUNDS_QUICK: u32 = 3;

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let mut cases: Vec<Case> = Vec::new();
    for shape in SHAPES {
        for count in shape.counts {
            if common.selects(&format!("{} {count}", shape.name)) {
                cases.push(Case::new(&shape, *count));
            }
        }
    }
    let rounds = common.rounds.unwrap_or(if common.quick { ROUNDS_QUICK } else { ROUNDS });
    // One batch: a slow minute is slow for all rows.
    let row =
        |case: &Case| Row::new(case.shape.name, case.count.to_string()).scheduled("", case.id());
    let rows = cases.iter().map(row).collect();
    let results =
        frame::run(rows, Schedule { rounds, attempts: 1 }, |row| Ok(cases[row].measure()));
    let mut text = results.heading("");
    if !cases.is_empty() {
        text.push_str(&format!("\n{}", matching::table(&results, &cases)));
    }
    let loading = common.selects("load").then(|| loading::run(common));
    if let Some(loading) = &loading {
        text.push_str(&format!("\n{}", loading.text));
    }
    let mut report = results.report(text, json!({}), &[]);
    if let Some(loading) = loading {
        report.json["loading"] = loading.json;
        report.failures.extend(loading.failures);
    }
    Ok(report)
}
