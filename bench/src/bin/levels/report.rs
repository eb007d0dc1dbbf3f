//! What is printed at the end.

use serde_json::{Value, json};

use crate::args::Args;
use crate::case::Case;
use crate::grid;
use crate::process;
use crate::reading::Reading;
use crate::stats::Spread;

/// Every reading of a case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) readings: Vec<Reading>,
}

pub(crate) fn markdown(args: &Args, rows: &[Row]) -> String {
    let head = [
        "level",
        "nodes",
        "passed",
        "over %",
        "under %",
        "p50 µs",
        "p99 µs",
        "calls below",
        "calls above",
        "sent late",
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    format!(
        "{}: {} requests/s on one key for {} s, of which {} may pass; medians of {} rounds (least to most). \
         Calls: of Redis for each decision, below the limit and from then on.\n\n{}",
        process::cpu(),
        args.rate,
        args.seconds,
        args.limit(),
        args.rounds,
        grid::render(&head, 1, &cells),
    )
}

pub(crate) fn json(args: &Args, rows: &[Row]) -> anyhow::Result<String> {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| json!({ "level": row.case.level.name(), "nodes": row.case.nodes, "readings": row.readings }))
        .collect();
    let whole = json!({
        "cpu": process::cpu(),
        "per_second": args.rate,
        "seconds": args.seconds,
        "limit": args.limit(),
        "rows": rows,
    });
    Ok(serde_json::to_string_pretty(&whole)?)
}

fn cells(row: &Row) -> Vec<String> {
    let spread = |number: fn(&Reading) -> f64, places: usize| match row.spread(number) {
        Some(Spread { median, min, max }) if max > min => {
            format!("{median:.places$} ({min:.places$}-{max:.places$})")
        }
        Some(Spread { median, .. }) => format!("{median:.places$}"),
        None => "-".to_owned(),
    };
    vec![
        row.case.level.name(),
        row.case.nodes.to_string(),
        spread(|reading| reading.passed as f64, 0),
        spread(|reading| reading.over, 1),
        spread(|reading| reading.under, 1),
        spread(|reading| reading.p50_us, 0),
        spread(|reading| reading.p99_us, 0),
        spread(|reading| reading.calls_below, 4),
        spread(|reading| reading.calls_above, 4),
        spread(|reading| reading.late as f64, 0),
    ]
}

// === impl Row ===

impl Row {
    fn spread(&self, number: fn(&Reading) -> f64) -> Option<Spread> {
        Spread::of(self.readings.iter().map(number).collect())
    }
}
