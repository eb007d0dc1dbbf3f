//! The result of a replay as a report, and as a plot.

use std::path::PathBuf;

use sluicegate::descriptor_text;
use sluicegate_config::units::show_span;

use super::comparison::{Comparison, Difference, DifferenceTally};
use super::findings::{counted, findings, grouped, percent, place_text, rounded, shown_time};
use super::identities::IdentityTable;
use super::json::{LISTED_MAX, TIMES_MAX, log_name};
use super::run::{ReplayResult, SideResult};
use super::tally::RuleTally;
use crate::log_input::counts::LineExample;
use crate::report::{Column, Report, ReportPart, ReportTable, Section};

/// Rules with a section of their own.
const RULES_MAX: usize = 20;

impl ReplayResult {
    /// Requests and denials over time.
    ///
    /// # Errors
    /// When the plotting library fails.
    pub fn to_svg(&self) -> Result<String, String> {
        self.rules.tally.series.plot("Requests under the rules")
    }

    /// The report, with the command that makes it again.
    ///
    /// # Errors
    /// When the plotting library fails.
    pub fn to_report(&self, logs: &[PathBuf], command: &str) -> Result<Report, String> {
        let names: Vec<String> =
            (0..logs.len()).map(|log| format!("`{}`", log_name(logs, log))).collect();
        let mut subject = format!("{} of {}", counted(self.lines.read, "line"), names.join(", "));
        if let (Some(first), Some(last)) = (self.lines.first, self.lines.last) {
            let (from, until) = (shown_time(first), shown_time(last));
            subject += &format!(", {from} to {until} ({})", rounded(self.lines.span()));
        }
        let mut sections = vec![Section {
            title: "All requests".to_owned(),
            parts: vec![
                ReportPart::Plot {
                    svg: self.to_svg()?,
                    description: "requests over time, with those that are denied".to_owned(),
                },
                ReportPart::Table(rules_table(&self.rules, "Rules")),
            ],
        }];
        if let Some(against) = &self.against {
            let svg = against.tally.series.plot("Requests under the other rules")?;
            let description = "requests over time under the other rules".to_owned();
            sections[0].parts.push(ReportPart::Plot { svg, description });
            sections[0].parts.push(ReportPart::Table(rules_table(against, "The other rules")));
        }
        sections.extend(self.comparison.as_ref().map(|one| comparison_section(one, logs)));
        let restricted = |rule: &&RuleTally| rule.requests.all_denied() + rule.requests.delayed > 0;
        for side in std::iter::once(&self.rules).chain(&self.against) {
            for rule in side.tally.ranked().into_iter().filter(restricted).take(RULES_MAX) {
                sections.push(rule_section(rule, logs)?);
            }
        }
        let examples: Vec<&LineExample> =
            self.lines.malformed.examples.iter().chain(&self.lines.invalid.examples).collect();
        if !examples.is_empty() {
            sections.push(lines_section(&examples, logs));
        }
        let title = match self.comparison {
            Some(_) => "Two sets of rules on the same traffic",
            None => "Rules on recorded traffic",
        };
        Ok(Report {
            title: title.to_owned(),
            subject,
            command: command.to_owned(),
            findings: findings(self, logs),
            sections,
        })
    }
}

fn rules_table(side: &SideResult, caption: &str) -> ReportTable {
    let rows = side.tally.ranked().into_iter().map(|rule| {
        let counts = &rule.requests;
        vec![
            format!("`{}`", rule.id),
            grouped(counts.requests),
            grouped(counts.denied),
            percent(counts.denied, counts.requests),
            grouped(counts.shadow_denied),
            grouped(counts.delayed),
            grouped(rule.identities.len() as u64),
            grouped(rule.identities.denied()),
        ]
    });
    ReportTable {
        caption: caption.to_owned(),
        columns: vec![
            Column::text("rule"),
            Column::number("requests"),
            Column::number("denied"),
            Column::number("share"),
            Column::number("denied in shadow mode"),
            Column::number("wait"),
            Column::number("identities"),
            Column::number("of them denied"),
        ],
        rows: rows.collect(),
    }
}

fn rule_section(rule: &RuleTally, logs: &[PathBuf]) -> Result<Section, String> {
    let mut text = format!("Cost of all requests: {}.", grouped(rule.hits));
    if let (Some(first), Some(last)) = (rule.first_denied, rule.last_denied) {
        text += &format!(
            " The first denial is at {}, the last one at {}.",
            place_text(&first, logs),
            place_text(&last, logs)
        );
    }
    if rule.requests.delayed > 0 {
        text += &format!(
            " {} wait {} in the mean, {} at most.",
            grouped(rule.requests.delayed),
            rounded(rule.mean_delay()),
            rounded(rule.delay_max)
        );
    }
    let width = show_span(rule.series.width());
    if let Some((from, bucket)) = rule.series.busiest() {
        let requests = counted(bucket.requests, "request");
        text += &format!(" The busiest {width} began at {}, with {requests}.", shown_time(from));
    }
    let times = rule.series.worst(TIMES_MAX).into_iter().map(|(from, bucket)| {
        vec![
            shown_time(from),
            grouped(bucket.requests),
            grouped(bucket.denied),
            grouped(bucket.shadow_denied),
            grouped(bucket.delayed),
        ]
    });
    let times = ReportTable {
        caption: format!("The worst {width}"),
        columns: vec![
            Column::text("from"),
            Column::number("requests"),
            Column::number("denied"),
            Column::number("denied in shadow mode"),
            Column::number("wait"),
        ],
        rows: times.collect(),
    };
    Ok(Section {
        title: format!("Rule {}", rule.id),
        parts: vec![
            ReportPart::Text(text),
            ReportPart::Plot {
                svg: rule.series.plot(&format!("Requests under {}", rule.id))?,
                description: format!("requests over time under {}", rule.id),
            },
            ReportPart::Table(identities_table(&rule.identities, "Identities that are worst off")),
            ReportPart::Table(times),
        ],
    })
}

fn identities_table(identities: &IdentityTable, caption: &str) -> ReportTable {
    let rows = identities.worst(LISTED_MAX).into_iter().map(|(identity, tally)| {
        vec![
            format!("`{}`", descriptor_text(identity)),
            grouped(tally.requests),
            grouped(tally.all_denied()),
            percent(tally.all_denied(), tally.requests),
            grouped(tally.delayed),
            grouped(tally.peak),
            tally.first_denied.map(shown_time).unwrap_or_default(),
            tally.last_denied.map(shown_time).unwrap_or_default(),
        ]
    });
    ReportTable {
        caption: caption.to_owned(),
        columns: vec![
            Column::text("identity"),
            Column::number("requests"),
            Column::number("denied"),
            Column::number("share"),
            Column::number("wait"),
            Column::number("peak (hits in 1 s)"),
            Column::text("first denied"),
            Column::text("last denied"),
        ],
        rows: rows.collect(),
    }
}

fn comparison_section(comparison: &Comparison, logs: &[PathBuf]) -> Section {
    let all = comparison.requests();
    let rows = [
        ("both allow", comparison.both_allow),
        ("only the other rules deny", comparison.newly_denied.requests),
        ("only these rules deny", comparison.newly_allowed.requests),
        ("both deny", comparison.both_deny),
    ];
    let outcomes = ReportTable {
        caption: "Outcomes".to_owned(),
        columns: vec![Column::text("outcome"), Column::number("requests"), Column::number("share")],
        rows: rows
            .iter()
            .map(|(name, count)| vec![(*name).to_owned(), grouped(*count), percent(*count, all)])
            .collect(),
    };
    let mut parts = vec![ReportPart::Table(outcomes)];
    let sides =
        [("newly denied", &comparison.newly_denied), ("newly allowed", &comparison.newly_allowed)];
    for (name, side) in sides.into_iter().filter(|(_, side)| side.requests > 0) {
        parts.push(ReportPart::Table(difference_rules(name, side)));
        parts.push(ReportPart::Table(difference_identities(name, side)));
        parts.push(ReportPart::Table(examples_table(name, &side.examples, logs)));
    }
    Section { title: "Differences".to_owned(), parts }
}

fn difference_rules(name: &str, side: &DifferenceTally) -> ReportTable {
    let mut rules: Vec<_> = side.rules.iter().collect();
    rules.sort_by_key(|(_, requests)| std::cmp::Reverse(**requests));
    let rows = rules.into_iter().map(|(rule, requests)| {
        let rule = rule.as_ref().map_or("a list".to_owned(), |rule| format!("`{rule}`"));
        vec![rule, grouped(*requests)]
    });
    ReportTable {
        caption: format!("Rules of {name} requests"),
        columns: vec![Column::text("rule"), Column::number("requests")],
        rows: rows.collect(),
    }
}

fn difference_identities(name: &str, side: &DifferenceTally) -> ReportTable {
    let rows = side.identities.worst(LISTED_MAX).into_iter().map(|(identity, tally)| {
        vec![
            format!("`{}`", descriptor_text(identity)),
            grouped(tally.requests),
            tally.first_denied.map(shown_time).unwrap_or_default(),
            tally.last_denied.map(shown_time).unwrap_or_default(),
        ]
    });
    ReportTable {
        caption: format!("Identities with the most {name} requests"),
        columns: vec![
            Column::text("identity"),
            Column::number("requests"),
            Column::text("first"),
            Column::text("last"),
        ],
        rows: rows.collect(),
    }
}

fn examples_table(name: &str, examples: &[Difference], logs: &[PathBuf]) -> ReportTable {
    let rows = examples.iter().map(|example| {
        let rule = example.after.rule.as_ref().or(example.before.rule.as_ref());
        vec![
            place_text(&example.place, logs),
            format!("`{}`", example.identity),
            example.before.verdict.name().to_owned(),
            example.after.verdict.name().to_owned(),
            rule.map(|rule| format!("`{rule}`")).unwrap_or_default(),
        ]
    });
    ReportTable {
        caption: format!("First {name} requests"),
        columns: ["request", "identity", "these rules", "other rules", "rule that denies"]
            .map(Column::text)
            .into(),
        rows: rows.collect(),
    }
}

fn lines_section(examples: &[&LineExample], logs: &[PathBuf]) -> Section {
    let lines: Vec<String> = examples
        .iter()
        .map(|one| {
            format!("{}:{}: {}\n  {}", log_name(logs, one.log), one.line, one.reason, one.text)
        })
        .collect();
    Section {
        title: "Lines that were left out".to_owned(),
        parts: vec![ReportPart::Code(lines.join("\n"))],
    }
}
