//! `doors`: every endpoint of the service beside the peers that have one like it.

use std::process::ExitCode;

use serde_json::json;

use super::contestants::{self, Endpoint, OURS};
use super::programs::Programs;
use super::store::StoreMetrics;
use super::{Loaded, faults, measure, redis_memory, report, seconds};
use crate::Common;
use crate::frame::{Report, Row, Spread};

const ROUNDS: u32 = 3;

/// Runs the benchmark, or what `--only` names beside it.
pub(crate) fn command(common: &Common) -> anyhow::Result<ExitCode> {
    let named = |name: &str| common.only.iter().any(|text| text == name);
    let report = match () {
        () if named(faults::NAME) => faults::run(common)?,
        () if named(redis_memory::NAME) => redis_memory::run(common)?,
        () => run(common)?,
    };
    crate::print(common, report)
}

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let rounds = if common.quick { 1 } else { ROUNDS };
    let results = measure(common, &programs, contestants::doors(), rounds, None)?;
    let mut text =
        results.heading(&format!(" of {} s, {} live keys", seconds(common), common.keys));
    let about = |endpoint: Endpoint| endpoint.about().to_owned();
    text.push_str(&report::tables(&results, |_| OURS, about, about_stores));
    let settings = json!({ "seconds": seconds(common), "keys": common.keys });
    Ok(results.report(text, settings, &[]))
}

/// The Redis behind each row, fill and warm-up included.
fn about_stores(rows: &[&Row<Loaded>], endpoint: Endpoint) -> String {
    let lines: String = rows.iter().filter_map(|row| about_store(row, endpoint)).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn about_store(row: &Row<Loaded>, endpoint: Endpoint) -> Option<String> {
    let shares = row.readings().filter_map(|reading| reading.full.store_share).collect();
    let share = 100.0 * Spread::of(shares)?.median;
    let mut text = format!("- {}: Redis used {share:.0} % of the CPU time", row.name);
    let metrics: Vec<&StoreMetrics> =
        row.readings().filter_map(|reading| reading.store.as_ref()).collect();
    let sum = |number: fn(&StoreMetrics) -> u64| -> f64 {
        metrics.iter().map(|one| number(one)).sum::<u64>() as f64
    };
    let (requests, calls) = (sum(|one| one.requests), sum(|one| one.calls));
    if requests > 0.0 && calls > 0.0 {
        text.push_str(&match endpoint {
            Endpoint::Levels => {
                format!("; {:.5} Redis calls per decision", calls / sum(|one| one.decisions))
            }
            _ => {
                let known = sum(|one| one.known_denials);
                let share = 100.0 * known / (requests + known);
                format!("; {:.1} requests per call; {share:.0} % denied locally", requests / calls)
            }
        });
    }
    text.push('\n');
    Some(text)
}
