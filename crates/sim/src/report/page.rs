//! HTML reports of runs, seeds and sweeps.

use crate::Outcome;
use crate::figures::{ClientFigures, Figures, RuleFigures};
use crate::spread::{RunFigures, Sweep};

use super::plot::{sweep_plot, timeline_plot};
use super::text::{events, origin_parts, percent, spread, spread_rows, worst};
use sluicegate_lab::report::{Column, Report, ReportPart, ReportTable, Section};

/// Clients in a report.
const CLIENTS_MAX: usize = 50;

/// The report of a run.
///
/// # Errors
/// When the plotting library fails.
pub fn run_report(
    outcome: &Outcome,
    figures: &Figures,
    source: &str,
    command: &str,
) -> Result<Report, String> {
    let Outcome { scenario, violations, .. } = outcome;
    let mut findings: Vec<String> = figures.rules.iter().map(rule_finding).collect();
    findings.extend(violations.iter().map(|one| format!("Violation: {one}.")));
    findings.push(format!(
        "The fleet admitted {} % of what one node admits of the same requests, with {:.2} store \
         calls per decision.",
        percent(figures.utilization_permille()),
        figures.calls_permille() as f64 / 1e3
    ));
    let (p50, p99, max) = figures.latency_ms;
    findings.push(format!(
        "An answer took {p50} ms in the median, {p99} ms at the 99th percentile and at most {max} \
         ms."
    ));
    let plot = ReportPart::Plot {
        svg: timeline_plot(outcome, figures)?,
        description: "requests per second over time, with events".to_owned(),
    };
    let origins = origin_parts(figures.origins);
    let total: u64 = origins.iter().map(|(_, count)| count).sum();
    let origins = origins.into_iter();
    let origins = origins.map(|(name, count)| {
        let share = count as f64 * 100.0 / total.max(1) as f64;
        vec![name.to_owned(), count.to_string(), format!("{share:.1}")]
    });
    let events = events(outcome).into_iter();
    let events = events.map(|(at, what)| vec![format!("{:.3}", at as f64 / 1e3), what]);
    Ok(Report {
        title: format!("Simulation: {}", scenario.name),
        subject: format!(
            "{} s, {} nodes, {} requests, seed {}",
            scenario.length_ms as f64 / 1e3,
            scenario.clocks.len(),
            figures.requests,
            scenario.seed
        ),
        command: command.to_owned(),
        findings,
        sections: vec![
            section(
                "Timeline",
                vec![plot, table("Events", &[("s", true), ("event", false)], events.collect())],
            ),
            section("Rules", vec![rules_table(&figures.rules)]),
            section("Clients", vec![clients_table(&figures.clients)]),
            section(
                "Decisions",
                vec![table(
                    "What decided",
                    &[("origin", false), ("requests", true), ("%", true)],
                    origins.collect(),
                )],
            ),
            section("Scenario", vec![ReportPart::Code(source.to_owned())]),
        ],
    })
}

/// The report of several seeds.
///
/// # Errors
/// When the plotting library fails.
pub fn seeds_report(
    (name, source): (&str, &str),
    runs: &[RunFigures],
    command: &str,
    repeat: &str,
) -> Result<Report, String> {
    let rows = spread_rows().into_iter().map(|(label, of)| {
        let values = spread(runs, of).map(|value| value.to_string());
        std::iter::once(label.to_owned()).chain(values).collect()
    });
    let wrong = runs.iter().filter(|run| !run.violations.is_empty()).count();
    let mut findings = vec![format!("{wrong} of {} seeds have violations.", runs.len())];
    if let Some(worst) = worst(runs) {
        findings.push(format!("The worst seed is {}: `{repeat}`.", worst.seed));
    }
    let columns = [("", false), ("least", true), ("median", true), ("most", true)];
    Ok(Report {
        title: format!("Simulation: {name}"),
        subject: format!("{} seeds", runs.len()),
        command: command.to_owned(),
        findings,
        sections: vec![
            section("Spread", vec![table("Over all seeds", &columns, rows.collect())]),
            section("Scenario", vec![ReportPart::Code(source.to_owned())]),
        ],
    })
}

/// The report of a sweep.
///
/// # Errors
/// When the plotting library fails.
pub fn sweep_report(
    (name, source): (&str, &str),
    sweep: &Sweep,
    runs: &[RunFigures],
    command: &str,
) -> Result<Report, String> {
    let (variable, unit) = sweep.variable.name();
    let rows = runs.iter().map(|run| {
        let figures = &run.figures;
        vec![
            format!("{}{unit}", run.value),
            percent(figures.over_permille()),
            percent(figures.utilization_permille()),
            format!("{:.2}", figures.calls_permille() as f64 / 1e3),
            run.violations.len().to_string(),
        ]
    });
    let columns = [
        (variable, true),
        ("% above the limit", true),
        ("% of the possible", true),
        ("calls per decision", true),
        ("violations", true),
    ];
    let most = runs.iter().max_by_key(|run| run.figures.over_permille());
    let findings = most.map(|run| {
        format!(
            "At most {} % above a limit passed, at `{variable}` = {}{unit}.",
            percent(run.figures.over_permille()),
            run.value
        )
    });
    let plot = ReportPart::Plot {
        svg: sweep_plot(name, sweep, runs)?,
        description: format!("amount above the limit and use of the quota against {variable}"),
    };
    Ok(Report {
        title: format!("Simulation: {name}"),
        subject: format!("sweep of {sweep}"),
        command: command.to_owned(),
        findings: findings.into_iter().collect(),
        sections: vec![
            section("Sweep", vec![plot, table("", &columns, rows.collect())]),
            section("Scenario", vec![ReportPart::Code(source.to_owned())]),
        ],
    })
}

fn rule_finding(rule: &RuleFigures) -> String {
    let RuleFigures { name, over, bound, .. } = rule;
    match (over, bound) {
        (0, Some(0)) => format!("`{name}` was never above its limit."),
        (0, _) => format!("`{name}` was not above its limit in this run."),
        (over, Some(bound)) => {
            format!("`{name}` admitted up to {over} above its limit; the bound is {bound}.")
        }
        (over, None) => {
            format!("`{name}` admitted up to {over} above its limit; no bound is stated for it.")
        }
    }
}

fn rules_table(rules: &[RuleFigures]) -> ReportPart {
    let rows = rules.iter().map(|rule| {
        let bound = rule.bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string());
        let used = rule.admitted * 1_000 / rule.possible.max(1);
        vec![
            rule.name.clone(),
            rule.level.to_owned(),
            rule.admitted.to_string(),
            rule.denied.to_string(),
            rule.possible.to_string(),
            percent(used),
            rule.over.to_string(),
            bound,
        ]
    });
    let columns = [
        ("rule", false),
        ("level", false),
        ("admitted", true),
        ("denied", true),
        ("one node admits", true),
        ("%", true),
        ("above the limit", true),
        ("bound", true),
    ];
    table("Quota of each rule", &columns, rows.collect())
}

fn clients_table(clients: &[ClientFigures]) -> ReportPart {
    let mut clients: Vec<&ClientFigures> = clients.iter().collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.longest_denial_ms));
    let caption = match clients.len() {
        count @ ..=CLIENTS_MAX => format!("{count} clients"),
        count => format!("{CLIENTS_MAX} of {count} clients, the longest denied first"),
    };
    let rows = clients.into_iter().take(CLIENTS_MAX).map(|client| {
        vec![
            client.name.clone(),
            client.allowed.to_string(),
            client.denied.to_string(),
            client.longest_denial_ms.to_string(),
        ]
    });
    let columns =
        [("client", false), ("admitted", true), ("denied", true), ("longest denial, ms", true)];
    table(&caption, &columns, rows.collect())
}

fn section(title: &str, parts: Vec<ReportPart>) -> Section {
    Section { title: title.to_owned(), parts }
}

fn table(caption: &str, columns: &[(&str, bool)], rows: Vec<Vec<String>>) -> ReportPart {
    let columns = columns
        .iter()
        .map(|(name, is_number)| Column { name: (*name).to_owned(), is_number: *is_number });
    ReportPart::Table(ReportTable { caption: caption.to_owned(), columns: columns.collect(), rows })
}
