//! The result of a replay as JSON, and its decisions and differences as JSON lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluicegate::{Snapshot, descriptor_text};
use sluicegate_core::time::Span;
use sluicegate_rules::zone::show_moment;

use super::comparison::{Comparison, Difference, DifferenceTally, NamedVerdict};
use super::findings::findings;
use super::identities::IdentityTable;
use super::run::{ReplayResult, SideResult};
use super::series::Series;
use super::tally::{OutcomeCounts, Place, RuleTally};
use super::verdict::Decided;
use crate::log_input::counts::{LineCounts, LineErrors};

/// Identities that are listed of each rule.
pub(super) const LISTED_MAX: usize = 20;
/// Times that are listed of each rule.
pub(super) const TIMES_MAX: usize = 5;

/// Where decisions and differences are written, as JSON lines.
#[derive(Default)]
pub struct ReplayOutput<'a> {
    /// Every decision.
    pub decisions: Option<Box<dyn Write + 'a>>,
    /// Every request that two sets of rules decide differently.
    pub differences: Option<Box<dyn Write + 'a>>,
    /// The logs, as lines name them.
    pub logs: Vec<PathBuf>,
}

impl ReplayOutput<'_> {
    pub(super) const fn is_wanted(&self) -> bool {
        self.decisions.is_some() || self.differences.is_some()
    }

    pub(super) const fn wants_differences(&self) -> bool {
        self.differences.is_some()
    }

    pub(super) fn decided(
        &mut self,
        place: Place,
        rules: &Snapshot<'_>,
        decided: Decided,
    ) -> io::Result<()> {
        let Some(out) = &mut self.decisions else { return Ok(()) };
        let rule = decided.rule.map(|no| rules.rules().id(no));
        let verdict = NamedVerdict { verdict: decided.verdict, rule };
        let mut line = located(place, &self.logs);
        line.extend(named(&verdict));
        write_line(out, line)
    }

    pub(super) fn differs(&mut self, difference: &Difference) -> io::Result<()> {
        let line = difference_json(difference, &self.logs);
        match &mut self.differences {
            Some(out) => write_line(out, line),
            None => Ok(()),
        }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When that fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.decisions.iter_mut().chain(&mut self.differences).try_for_each(|out| out.flush())
    }
}

fn write_line(out: &mut dyn Write, line: Map<String, Value>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

impl ReplayResult {
    /// The result as a JSON object.
    #[must_use]
    pub fn to_json(&self, logs: &[PathBuf]) -> Value {
        let mut all = json!({
            "findings": findings(self, logs),
            "lines": lines_json(&self.lines, logs),
            "from": self.lines.first.map(show_moment),
            "until": self.lines.last.map(show_moment),
        });
        merge(&mut all, side_json(&self.rules, logs));
        if let (Some(against), Some(comparison)) = (&self.against, &self.comparison) {
            merge(
                &mut all,
                json!({
                    "against": side_json(against, logs),
                    "comparison": comparison_json(comparison, logs),
                }),
            );
        }
        all
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn lines_json(lines: &LineCounts, logs: &[PathBuf]) -> Value {
    json!({
        "read": lines.read,
        "requests": lines.requests,
        "malformed": errors_json(&lines.malformed, logs),
        "invalid": errors_json(&lines.invalid, logs),
        "missing_part": lines.missing_part,
        "reordered": lines.reordered,
        "late": lines.late,
        "late_max_ms": millis(lines.late_max),
    })
}

fn errors_json(errors: &LineErrors, logs: &[PathBuf]) -> Value {
    let example = |example: &crate::log_input::counts::LineExample| {
        json!({
            "log": log_name(logs, example.log),
            "line": example.line,
            "reason": example.reason,
            "text": example.text,
        })
    };
    json!({
        "count": errors.count,
        "examples": errors.examples.iter().map(example).collect::<Vec<_>>(),
    })
}

fn side_json(side: &SideResult, logs: &[PathBuf]) -> Value {
    let tally = &side.tally;
    let rules: Vec<Value> = tally.ranked().iter().map(|rule| rule_json(rule, logs)).collect();
    json!({
        "requests": counts_json(&tally.requests),
        "rules": rules,
        "series": series_json(&tally.series),
    })
}

fn counts_json(counts: &OutcomeCounts) -> Value {
    json!({
        "requests": counts.requests,
        "allowed": counts.allowed,
        "delayed": counts.delayed,
        "shadow_denied": counts.shadow_denied,
        "denied": counts.denied,
        "deny_listed": counts.deny_listed,
        "allow_listed": counts.allow_listed,
        "unmatched": counts.unmatched,
    })
}

fn rule_json(rule: &RuleTally, logs: &[PathBuf]) -> Value {
    let counts = &rule.requests;
    let place = |place: &Place| Value::Object(located(*place, logs));
    let bucket_s = rule.series.width().as_micros() / 1_000_000;
    let worst_times = rule.series.worst(TIMES_MAX).into_iter().map(|(from, bucket)| {
        json!({
            "from": show_moment(from),
            "seconds": bucket_s,
            "requests": bucket.requests,
            "denied": bucket.denied,
            "shadow_denied": bucket.shadow_denied,
            "delayed": bucket.delayed,
        })
    });
    json!({
        "rule": rule.id,
        "requests": counts.requests,
        "allowed": counts.allowed,
        "delayed": counts.delayed,
        "shadow_denied": counts.shadow_denied,
        "denied": counts.denied,
        "hits": rule.hits,
        "denied_hits": rule.denied_hits,
        "delay_mean_ms": millis(rule.mean_delay()),
        "delay_max_ms": millis(rule.delay_max),
        "first_denied": rule.first_denied.as_ref().map(place),
        "last_denied": rule.last_denied.as_ref().map(place),
        "identities": identities_json(&rule.identities),
        "worst_times": worst_times.collect::<Vec<_>>(),
    })
}

fn identities_json(identities: &IdentityTable) -> Value {
    let worst = identities.worst(LISTED_MAX).into_iter().map(|(identity, tally)| {
        json!({
            "identity": descriptor_text(identity),
            "requests": tally.requests,
            "hits": tally.hits,
            "denied": tally.denied,
            "shadow_denied": tally.shadow_denied,
            "delayed": tally.delayed,
            "first_denied": tally.first_denied.map(show_moment),
            "last_denied": tally.last_denied.map(show_moment),
            "peak_hits_per_second": tally.peak,
        })
    });
    let others = identities.others_denied().into_iter().take(LISTED_MAX).map(|one| {
        json!({
            "identity": one.descriptor,
            "denied_at_most": one.hits,
            "denied_at_least": one.hits - one.over_estimate,
        })
    });
    json!({
        "count": identities.len(),
        "denied": identities.denied(),
        "worst": worst.collect::<Vec<_>>(),
        "others": {
            "requests": identities.others().requests,
            "denied": identities.others().denied,
            "worst": others.collect::<Vec<_>>(),
        },
    })
}

fn series_json(series: &Series) -> Value {
    let buckets = series.buckets().map(|(from, bucket)| {
        json!({
            "from": show_moment(from),
            "requests": bucket.requests,
            "denied": bucket.denied,
            "shadow_denied": bucket.shadow_denied,
            "delayed": bucket.delayed,
        })
    });
    json!({
        "bucket_seconds": series.width().as_micros() / 1_000_000,
        "buckets": buckets.collect::<Vec<_>>(),
    })
}

fn comparison_json(comparison: &Comparison, logs: &[PathBuf]) -> Value {
    let side = |tally: &DifferenceTally| {
        let rules = tally
            .rules
            .iter()
            .map(|(rule, requests)| json!({ "rule": rule, "requests": requests }));
        let examples = tally.examples.iter().map(|one| Value::Object(difference_json(one, logs)));
        json!({
            "requests": tally.requests,
            "rules": rules.collect::<Vec<_>>(),
            "identities": identities_json(&tally.identities),
            "examples": examples.collect::<Vec<_>>(),
        })
    };
    json!({
        "both_allow": comparison.both_allow,
        "both_deny": comparison.both_deny,
        "newly_denied": side(&comparison.newly_denied),
        "newly_allowed": side(&comparison.newly_allowed),
    })
}

fn difference_json(difference: &Difference, logs: &[PathBuf]) -> Map<String, Value> {
    let mut line = located(difference.place, logs);
    line.insert("before".to_owned(), Value::Object(named(&difference.before)));
    line.insert("after".to_owned(), Value::Object(named(&difference.after)));
    line.insert("identity".to_owned(), difference.identity.clone().into());
    line.insert("hits".to_owned(), difference.hits.into());
    line
}

fn named(verdict: &NamedVerdict) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("verdict".to_owned(), verdict.verdict.name().into());
    line.extend(verdict.rule.as_ref().map(|rule| ("rule".to_owned(), rule.clone().into())));
    line
}

fn located(place: Place, logs: &[PathBuf]) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("log".to_owned(), log_name(logs, place.log).into());
    line.insert("line".to_owned(), place.line.into());
    line.insert("time".to_owned(), show_moment(place.at).into());
    line
}

/// The name of a log, as it was given.
pub(super) fn log_name(logs: &[PathBuf], log: usize) -> String {
    logs.get(log).map(|path| Path::new(path).display().to_string()).unwrap_or_default()
}

fn millis(span: Span) -> f64 {
    span.as_micros() as f64 / 1e3
}
