//! The result of a replay as text for a terminal.

use std::path::PathBuf;

use sluicegate::descriptor_text;
use sluicegate_config::units::show_span;

use super::comparison::Difference;
use super::findings::{findings, grouped, percent, place_text, rounded, shown_time};
use super::run::{ReplayResult, SideResult};
use super::tally::RuleTally;

/// Identities that are shown of each rule, by default.
pub const TOP_DEFAULT: usize = 5;
/// Times that are shown of each rule.
const TIMES_MAX: usize = 3;

impl ReplayResult {
    /// The result as text, with so many identities of each rule.
    #[must_use]
    pub fn to_text(&self, logs: &[PathBuf], top: usize) -> String {
        let lines = &self.lines;
        let mut text = format!("{} lines", grouped(lines.read));
        if let (Some(first), Some(last)) = (lines.first, lines.last) {
            let (from, until) = (shown_time(first), shown_time(last));
            text += &format!(", {from} to {until} ({})", rounded(lines.span()));
        }
        text.push_str("\n\n");
        for finding in findings(self, logs) {
            text += &format!("- {}\n", finding.replace('`', ""));
        }
        side(&self.rules, logs, top, &mut text);
        if let Some(against) = &self.against {
            text.push_str("\nthe other rules\n");
            side(against, logs, top, &mut text);
        }
        if let Some(comparison) = &self.comparison {
            let rows = [
                ["".to_owned(), "other allow".to_owned(), "other deny".to_owned()],
                [
                    "allowed".to_owned(),
                    grouped(comparison.both_allow),
                    grouped(comparison.newly_denied.requests),
                ],
                [
                    "denied".to_owned(),
                    grouped(comparison.newly_allowed.requests),
                    grouped(comparison.both_deny),
                ],
            ];
            text.push('\n');
            text += &table(&rows.map(Vec::from));
            examples("newly denied", &comparison.newly_denied.examples, logs, &mut text);
            examples("newly allowed", &comparison.newly_allowed.examples, logs, &mut text);
        }
        for example in lines.malformed.examples.iter().chain(&lines.invalid.examples) {
            let name = super::json::log_name(logs, example.log);
            text += &format!("\n{name}:{}: {}\n  {}\n", example.line, example.reason, example.text);
        }
        text
    }
}

fn side(side: &SideResult, logs: &[PathBuf], top: usize, text: &mut String) {
    let rules = side.tally.ranked();
    if rules.is_empty() {
        return;
    }
    let head =
        ["rule", "requests", "denied", "", "shadow", "waited", "identities", "of them denied"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(rules.iter().map(|rule| {
        let counts = &rule.requests;
        vec![
            rule.id.clone(),
            grouped(counts.requests),
            grouped(counts.denied),
            percent(counts.denied, counts.requests),
            grouped(counts.shadow_denied),
            grouped(counts.delayed),
            grouped(rule.identities.len() as u64),
            grouped(rule.identities.denied()),
        ]
    }));
    text.push('\n');
    *text += &table(&rows);
    for rule in rules.into_iter().filter(|rule| is_restricted(rule)) {
        *text += &details(rule, logs, top);
    }
}

fn is_restricted(rule: &RuleTally) -> bool {
    rule.requests.all_denied() + rule.requests.delayed > 0
}

fn details(rule: &RuleTally, logs: &[PathBuf], top: usize) -> String {
    let mut text = format!("\n{}\n", rule.id);
    if let (Some(first), Some(last)) = (rule.first_denied, rule.last_denied) {
        text += &format!("  first denied {}\n", place_text(&first, logs));
        text += &format!("  last denied  {}\n", place_text(&last, logs));
    }
    for (from, bucket) in rule.series.worst(TIMES_MAX) {
        text += &format!(
            "  {} from {}: {} of {} requests did not pass at once\n",
            show_span(rule.series.width()),
            shown_time(from),
            grouped(bucket.restricted()),
            grouped(bucket.requests)
        );
    }
    let head = ["identity", "requests", "denied", "", "waited", "peak/s", "last denied"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let worst = rule.identities.worst(top).into_iter();
    let worst = worst.filter(|(_, tally)| tally.all_denied() + tally.delayed > 0);
    rows.extend(worst.map(|(identity, tally)| {
        vec![
            descriptor_text(identity),
            grouped(tally.requests),
            grouped(tally.all_denied()),
            percent(tally.all_denied(), tally.requests),
            grouped(tally.delayed),
            grouped(tally.peak),
            tally.last_denied.map(shown_time).unwrap_or_default(),
        ]
    }));
    if rows.len() > 1 {
        for line in table(&rows).lines() {
            text += &format!("  {line}\n");
        }
    }
    for one in rule.identities.others_denied().iter().take(top) {
        text += &format!(
            "  {} (not counted exactly): {} to {} denied\n",
            one.descriptor,
            grouped(one.hits - one.over_estimate),
            grouped(one.hits)
        );
    }
    text
}

fn examples(name: &str, examples: &[Difference], logs: &[PathBuf], text: &mut String) {
    if examples.is_empty() {
        return;
    }
    *text += &format!("\nfirst {name}\n");
    for example in examples {
        let rule = example.after.rule.as_ref().or(example.before.rule.as_ref());
        let rule = rule.map(|rule| format!(" by {rule}")).unwrap_or_default();
        *text += &format!("  {} {}{rule}\n", place_text(&example.place, logs), example.identity);
    }
}

/// Rows with aligned columns; the first to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match index {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
