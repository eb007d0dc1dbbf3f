//! What of a rule depends on the time: its schedule, and the override that it is under.

use serde_json::{Value, json};
use sluicegate_rules::overrides::TemporaryOverride;
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::schedule::{InForce, Schedule};
use sluicegate_rules::zone::{Zone, show_moment};

use super::{json, text};

/// Which part of the schedule holds and until when, the other parts, and the override.
///
/// ```
/// use sluicegate::explain::rule::timing::timing;
/// use sluicegate::rules::rule::{Limits, RuleConfig};
///
/// assert!(timing(&RuleConfig::new(Limits::Unlimited)).is_empty());
/// ```
#[must_use]
pub fn timing(rule: &RuleConfig) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(schedule) = rule.schedule() {
        let part = schedule.in_force.and_then(|now| now.part);
        lines.push(format!("now: {}{}", times(schedule, part), changes(schedule)));
        let parts = (0..schedule.parts.len()).map(Some).chain([None]);
        for other in parts.filter(|other| *other != part) {
            let limits = in_words(schedule.limits(other));
            lines.push(format!("{}: {limits}", times(schedule, other)));
        }
    }
    if let Some(one) = rule.overridden() {
        let (until, note) = (show_moment(one.until), &one.note);
        let before = in_words(&one.before);
        lines.push(format!("override until {until}: {note}; without it: {before}"));
    }
    lines
}

fn in_words(limits: &Limits) -> String {
    text::limits(limits).join(", and ")
}

fn times(schedule: &Schedule, part: Option<usize>) -> String {
    let part = part.and_then(|part| schedule.parts.get(part));
    part.map_or_else(|| "at other times".to_owned(), |part| part.period.to_string())
}

/// `, changes 2026-11-20 18:00 Europe/Berlin`.
fn changes(schedule: &Schedule) -> String {
    let Some(InForce { part, until: Some(until) }) = schedule.in_force else {
        return String::new();
    };
    let part = part.and_then(|part| schedule.parts.get(part)).or_else(|| schedule.parts.first());
    let zone = part.map_or_else(Zone::utc, |part| part.period.zone.clone());
    format!(", changes {}", zone.show(until))
}

/// The schedule of a rule as JSON.
pub(super) fn schedule_json(rule: &RuleConfig) -> Option<Value> {
    let schedule = rule.schedule()?;
    let parts = schedule.parts.iter().map(
        |part| json!({ "when": part.period.to_string(), "limits": json::limits(&part.limits) }),
    );
    Some(json!({
        "parts": parts.collect::<Value>(),
        "otherwise": json::limits(&schedule.otherwise),
        "now": schedule.in_force.and_then(|now| now.part),
        "changes_at": schedule.in_force.and_then(|now| now.until).map(show_moment),
    }))
}

/// The override of a rule as JSON.
pub(super) fn override_json(rule: &RuleConfig) -> Option<Value> {
    rule.overridden().map(|one| {
        json!({
            "note": one.note,
            "until": show_moment(one.until),
            "limits_before": json::limits(&one.before),
        })
    })
}

/// An override of a domain in one line: `user_id=mallory blocked until 2026-12-01T00:00:00Z:
/// ticket 4711`.
#[must_use]
pub fn override_line(one: &TemporaryOverride) -> String {
    let matches: Vec<String> = one.matches.iter().map(ToString::to_string).collect();
    let rule = one.rule.as_ref().map(|rule| format!(" under {rule}")).unwrap_or_default();
    let (change, until, note) = (&one.change, show_moment(one.until), &one.note);
    format!("{}{rule} {change} until {until}: {note}", matches.join(","))
}

/// An override of a domain as JSON.
#[must_use]
pub fn override_entry(one: &TemporaryOverride) -> Value {
    json!({
        "match": one.matches.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rule": one.rule,
        "change": one.change.to_string(),
        "until": show_moment(one.until),
        "note": one.note,
    })
}
