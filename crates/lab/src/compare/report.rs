//! The report of a comparison.

use super::figures::AlgorithmComparison;
use super::findings::findings;
use super::plot::{plot_admitted, plot_peaks, plot_trade_off};
use super::table::report_table;
use crate::report::{Column, Report, ReportPart, ReportTable, Section};

const MEASURES: [(&str, &str); 9] = [
    (
        "admitted, to exact",
        "The sum of the costs of admitted requests, and how much that is above or below what the exact log admits.",
    ),
    ("peak", "The most of one client in any rolling window of the rule's length."),
    (
        "over-admitted",
        "The part of the admitted that lies above the limit in the rolling window that ends with it.",
    ),
    (
        "mean excess",
        "By how much the rolling window that ends with an admitted request is above the limit, on average.",
    ),
    (
        "refused without need",
        "Denied requests that would have fitted: their cost and what this algorithm had admitted of the client in the last window are within the limit. In brackets, the part of its denials.",
    ),
    (
        "fairness",
        "Jain's index of what each client got of its quota (per window aligned to the clock, the lesser of its demand and the limit): 1 if all got the same part.",
    ),
    ("in 1/10, 1/100", "The most of one client in any rolling tenth and hundredth of the window."),
    (
        "dispersion",
        "Variance by mean of what passes of all clients in each tenth of a window: 0 is even, 1 are independent requests.",
    ),
    (
        "bytes/client",
        "Memory of a client in the embedded store: of one that has used half of its quota, and at most.",
    ),
];

/// The report: findings, plots, figures, limits and what the figures mean. `subject` names the
/// traffic, `command` makes the report again.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn report(
    comparison: &AlgorithmComparison,
    subject: &str,
    command: &str,
) -> Result<Report, String> {
    let plot = |svg: Result<String, String>, description: &str| {
        svg.map(|svg| ReportPart::Plot { svg, description: description.to_owned() })
    };
    let admitted = plot(
        plot_admitted(comparison),
        "Admitted requests per second over time, a panel for each algorithm; the demand is in grey",
    )?;
    let peaks = plot(
        plot_peaks(comparison),
        "The fullest rolling window of each algorithm beside the limit; red is above it",
    )?;
    let trade_off = plot(
        plot_trade_off(comparison),
        "Excess above the limit against denials without need, a point for each algorithm",
    )?;
    let limits = ReportTable {
        caption: "As they are written in a rule".to_owned(),
        columns: vec![Column::text("algorithm"), Column::text("limit")],
        rows: comparison
            .algorithms
            .iter()
            .map(|figures| vec![format!("`{}`", figures.algorithm), format!("`{}`", figures.limit)])
            .collect(),
    };
    let measures = ReportTable {
        caption: "What the columns mean; amounts are sums of costs".to_owned(),
        columns: vec![Column::text("column"), Column::text("meaning")],
        rows: MEASURES
            .iter()
            .map(|(name, meaning)| vec![(*name).to_owned(), (*meaning).to_owned()])
            .collect(),
    };
    let section = |title: &str, parts: Vec<ReportPart>| Section { title: title.to_owned(), parts };
    Ok(Report {
        title: format!("Algorithms at {} a client", comparison.rate),
        subject: subject.to_owned(),
        command: command.to_owned(),
        findings: findings(comparison),
        sections: vec![
            section("Above the limit", vec![peaks]),
            section("Too much and too little", vec![
                ReportPart::Text(
                    "The best are at the lower left: never above the limit, and never stricter than \
                     it. Buckets and smooth limiters spread requests within a window on purpose, \
                     which counts as denials without need here."
                        .to_owned(),
                ),
                trade_off,
            ]),
            section("Over time", vec![
                ReportPart::Text("Green is admitted, grey is the demand, cut where it is far above.".to_owned()),
                admitted,
            ]),
            section("Figures", vec![
                ReportPart::Table(report_table(comparison)),
                ReportPart::Table(measures),
                ReportPart::Table(limits),
            ]),
        ],
    })
}
