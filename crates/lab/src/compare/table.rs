//! The figures as a table: of text for a terminal, and for a report.

use super::figures::{AlgorithmComparison, AlgorithmFigures};
use super::findings::{amount, decimal, duration, percent};
use crate::report::{Column, ReportTable};

/// A column: its heading and its cell.
type Figure = (&'static str, fn(&AlgorithmFigures) -> String);

const FIGURES: [Figure; 10] = [
    ("admitted", |figures| amount(figures.admitted)),
    ("to exact", |figures| figures.admitted_over_exact.map_or_else(|| "–".to_owned(), signed)),
    ("peak", |figures| amount(figures.peak.amount)),
    ("peak/limit", |figures| decimal(figures.peak.times_limit)),
    ("over-admitted", |figures| amount(figures.over_admitted)),
    ("mean excess", |figures| decimal(figures.excess_mean)),
    ("refused without need", |figures| {
        let part = percent(figures.refused_share());
        format!("{} ({part})", amount(figures.refused_without_need))
    }),
    ("fairness", |figures| figures.fairness.map_or_else(|| "–".to_owned(), |x| format!("{x:.3}"))),
    ("in 1/10, 1/100", |figures| {
        let shape = &figures.burst_shape;
        format!("{}, {}", amount(shape.tenth), amount(shape.hundredth))
    }),
    ("dispersion", |figures| {
        figures.burst_shape.dispersion.map_or_else(|| "–".to_owned(), decimal)
    }),
];

/// Columns that only some traffic has.
fn columns(comparison: &AlgorithmComparison) -> Vec<Figure> {
    let mut columns = FIGURES.to_vec();
    if comparison.demand_abuser_share.is_some() {
        columns.push(("abusers", |figures| percent(figures.abuser_share.unwrap_or(0.0))));
    }
    columns.push(("mean wait", |figures| match figures.mean_wait_us {
        0.0 => "–".to_owned(),
        wait => duration(wait as u64),
    }));
    columns.push(("bytes/client", |figures| {
        let [typical, max] = figures.state_bytes;
        format!("{}–{}", amount(typical), amount(max))
    }));
    columns
}

fn signed(part: f64) -> String {
    let text = percent(part);
    if part > 0.0 { format!("+{text}") } else { text }
}

/// The table for a terminal, one line for each algorithm.
#[must_use]
pub fn table(comparison: &AlgorithmComparison) -> String {
    let columns = columns(comparison);
    let mut rows = vec![vec!["algorithm".to_owned()]];
    rows[0].extend(columns.iter().map(|(name, _)| (*name).to_owned()));
    for figures in &comparison.algorithms {
        let mut row = vec![figures.algorithm.clone()];
        row.extend(columns.iter().map(|(_, cell)| cell(figures)));
        rows.push(row);
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..=columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The table of a report.
pub(super) fn report_table(comparison: &AlgorithmComparison) -> ReportTable {
    let columns = columns(comparison);
    let mut headings = vec![Column::text("algorithm")];
    headings.extend(columns.iter().map(|(name, _)| Column::number(name)));
    let row = |figures: &AlgorithmFigures| {
        let mut row = vec![format!("`{}`", figures.algorithm)];
        row.extend(columns.iter().map(|(_, cell)| cell(figures)));
        row
    };
    ReportTable {
        caption: format!("Limit of `{}` for each client", comparison.rate),
        columns: headings,
        rows: comparison.algorithms.iter().map(row).collect(),
    }
}
