//! Tables of servers under load.

use super::contestants::Endpoint;
use super::{Loaded, Phase};
use crate::frame::{Results, Row};
use crate::table;

/// A table for each endpoint; ratios are to the row `base` of the endpoint.
pub(super) fn tables(
    results: &Results<Loaded>,
    base: fn(Endpoint) -> &'static str,
    about: impl Fn(Endpoint) -> String,
    footer: impl Fn(&[&Row<Loaded>], Endpoint) -> String,
) -> String {
    let mut text = String::new();
    for endpoint in Endpoint::ALL {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.group == endpoint.name()).collect();
        if !rows.is_empty() {
            let base = base(endpoint);
            let table = table_of(&rows, base);
            let footer = footer(&rows, endpoint);
            text.push_str(&format!("\n{}\n\n{table}{footer}", about(endpoint)));
        }
    }
    text
}

fn table_of(rows: &[&Row<Loaded>], base_name: &str) -> String {
    let times = format!("x {base_name}");
    let mut head = vec!["server", "CPU µs/request", &times, "requests/s", &times];
    head.extend(["p50/p99 µs", "busy, load", "MB"]);
    let paced = rows.iter().any(|row| row.readings().any(|one| one.paced.is_some()));
    if paced {
        head.extend(["paced: p50 µs", "p99 µs", "p99.9 µs", "CPU µs"]);
    }
    let base = rows.iter().find(|row| row.name == base_name).copied();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = cells(row, base);
            if paced && cells.len() > 1 {
                cells.extend(paced_cells(row));
            }
            cells.resize(head.len(), "-".to_owned());
            cells
        })
        .collect();
    table::render(&head, 1, &cells)
}

fn cells(row: &Row<Loaded>, base: Option<&Row<Loaded>>) -> Vec<String> {
    if let Some(reason) = &row.absent {
        return vec![format!("{}: not measured: {reason}", row.name)];
    }
    if row.readings().next().is_none() {
        return vec![format!("{}: failed", row.name)];
    }
    let ratio = |number: fn(&Loaded) -> f64| {
        let ratio = base.and_then(|base| row.ratio(base, number));
        ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.spread.median))
    };
    let median = |number: fn(&Phase) -> f64| row.median(|one| number(&one.full));
    let mark = if row.is_disturbed() { "~" } else { "" };
    vec![
        format!("{mark}{}", row.name),
        row.shown(2, |one| one.full.cpu_us),
        ratio(|one| one.full.cpu_us),
        row.shown(0, |one| one.full.rate),
        ratio(|one| one.full.rate),
        format!("{:.0}/{:.0}", median(|full| full.p50_us), median(|full| full.p99_us)),
        format!(
            "{:.0} %, {:.0} %",
            100.0 * median(|full| full.busy),
            100.0 * median(|full| full.load_busy)
        ),
        format!("{:.0}", row.median(|one| one.resident as f64 / 1e6)),
    ]
}

fn paced_cells(row: &Row<Loaded>) -> [String; 4] {
    [
        format!("{:.0}", row.median(|one| paced(one, |phase| phase.p50_us))),
        row.shown(0, |one| paced(one, |phase| phase.p99_us)),
        format!("{:.0}", row.median(|one| paced(one, |phase| phase.p999_us))),
        format!("{:.1}", row.median(|one| paced(one, |phase| phase.cpu_us))),
    ]
}

/// A number of the open loop.
pub(super) fn paced(one: &Loaded, number: fn(&Phase) -> f64) -> f64 {
    one.paced.as_ref().map_or(f64::NAN, number)
}
