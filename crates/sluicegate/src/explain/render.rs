//! Renders an explanation as text and as JSON.

use serde_json::{Value, json};
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::explain::{Lookup, LookupMatch, TraceEnd};
use sluicegate_rules::plan::List;
use sluicegate_rules::set::MatchKind;

use super::decision::CurrentDecision;
use super::explanation::{AppliedRule, DescriptorExplanation, Explanation};
use super::rule::text::{counted, grouped, plainly};

/// The explanation as text.
pub(super) fn to_text(explanation: &Explanation<'_>) -> String {
    let hits = counted(usize::try_from(explanation.hits).unwrap_or(usize::MAX), "hit");
    let mut out = format!("domain {}, {hits}\n", plainly(explanation.domain));
    if let Some(listed) = &explanation.listed {
        let (list, then) = match listed.list {
            List::Allow => ("allow", "it passes, and no limit is asked"),
            List::Deny => ("deny", "it does not pass, and no limit is asked"),
        };
        let entry = plainly(&listed.entry);
        out.push_str(&format!("\n  `{entry}` is on the {list} list: {then}\n"));
    }
    match &explanation.unknown_domain {
        Some(hint) => out.push_str(&format!("\n  {}\n", plainly(hint))),
        None => explanation.descriptors.iter().for_each(|one| out.push_str(&descriptor_text(one))),
    }
    out.push_str(&format!("\nnow: {}\n", plainly(&explanation.why)));
    out
}

fn descriptor_text(one: &DescriptorExplanation<'_>) -> String {
    let mut out = match one.text.as_str() {
        "" => "\na descriptor without entries\n\n".to_owned(),
        text => format!("\ndescriptor {}\n\n", plainly(text)),
    };
    for look in &one.looks {
        out.push_str(&lookup_text(look));
    }
    if !one.looks.is_empty() {
        out.push('\n');
    }
    let mut row =
        |name: &str, text: &str| out.push_str(&format!("  {name:<10}  {}\n", plainly(text)));
    if let Some(why) = &one.why_not {
        row("no rule", why);
    }
    let Some(applied) = &one.applied else { return out };
    row("rule", &applied.id);
    applied.limits.iter().for_each(|limit| row("limit", limit));
    applied.timing.iter().for_each(|line| row("time", line));
    if let Some(settings) = &applied.settings {
        row("settings", settings);
    }
    if !applied.pools.is_empty() {
        row("pools", &applied.pools.join(", then "));
    }
    if let Some(promise) = &applied.promise {
        row("promise", promise);
    }
    if let Some(outage) = &applied.outage {
        row("outage", outage);
    }
    row("cost", &grouped(one.cost));
    if !applied.counter.is_empty() {
        row("counter of", &applied.counter.join(" · "));
    }
    if let Some(by) = &applied.replaced_by {
        row("replaced", &format!("it does not count in this request: {by} replaces it"));
    }
    if let Some(decision) = &applied.decision {
        row("now", &decision.to_text());
    }
    out
}

fn lookup_text(look: &Lookup<'_>) -> String {
    let entry = look.entry;
    let (some, more) = &look.configured;
    let more = match more {
        0 => String::new(),
        more => format!(" and {} more", grouped(*more as u64)),
    };
    let configured = format!("{}{more}", some.join(", "));
    let taken = match &look.met {
        Some(met) => format!("{}: {}", met.node, reason(look, met)),
        None => "nothing".to_owned(),
    };
    let mut out = format!("  {}\n", plainly(&format!("{}={}", entry.key, entry.value)));
    for (name, text) in [("configured", configured), ("tried", tried(look)), ("taken", taken)] {
        out.push_str(&format!("    {name:<10}  {}\n", plainly(&text)));
    }
    out
}

/// The kinds of match tried, in order, up to the one found.
fn tried(look: &Lookup<'_>) -> String {
    let exact = format!("exactly `{}={}`", look.entry.key, look.entry.value);
    let all = [exact.as_str(), "networks", "patterns", "any value"];
    let count = match look.met.as_ref().map(|met| met.kind) {
        Some(MatchKind::Exact) => 1,
        Some(MatchKind::Network) => 2,
        Some(MatchKind::Pattern) => 3,
        Some(MatchKind::AnyValue) | None => 4,
    };
    all[..count].join(", ")
}

fn reason(look: &Lookup<'_>, met: &LookupMatch) -> String {
    let text = match met.kind {
        MatchKind::Exact => "exactly this value".to_owned(),
        MatchKind::Network => format!("the longest network that holds {}", look.entry.value),
        MatchKind::Pattern => "the first pattern in the file that matches".to_owned(),
        MatchKind::AnyValue => "it takes any value".to_owned(),
    };
    match &met.counted_as {
        Some(shared) if *shared == met.node => format!("{text}; all its values share a counter"),
        Some(network) => format!("{text}; addresses of {network} share a counter"),
        None => text,
    }
}

/// The explanation as JSON.
pub(super) fn to_json(explanation: &Explanation<'_>) -> Value {
    let listed = explanation.listed.as_ref().map(|listed| {
        let list = match listed.list {
            List::Allow => "allow",
            List::Deny => "deny",
        };
        json!({ "list": list, "descriptor": listed.descriptor, "entry": listed.entry })
    });
    let why_not = explanation.descriptors.iter().find_map(|one| one.why_not.as_ref());
    json!({
        "domain": explanation.domain,
        "hits": explanation.hits,
        "known_domain": explanation.unknown_domain.is_none(),
        "hint": explanation.unknown_domain.as_ref().or(why_not),
        "descriptors": explanation.descriptors.iter().map(descriptor_json).collect::<Value>(),
        "listed": listed,
        "allowed": explanation.allowed,
        "why": explanation.why,
    })
}

fn descriptor_json(one: &DescriptorExplanation<'_>) -> Value {
    json!({
        "descriptor": one.text,
        "looks": one.looks.iter().map(lookup_json).collect::<Value>(),
        "end": end_name(one.end),
        "why_not": one.why_not,
        "cost": one.cost,
        "under": one.applied.as_ref().map(applied_json),
    })
}

fn lookup_json(look: &Lookup<'_>) -> Value {
    let met = look.met.as_ref().map(|met| {
        let kind = match met.kind {
            MatchKind::Exact => "exact",
            MatchKind::Network => "network",
            MatchKind::Pattern => "pattern",
            MatchKind::AnyValue => "any_value",
        };
        json!({ "node": met.node, "how": kind, "counted_as": met.counted_as })
    });
    json!({
        "key": look.entry.key,
        "value": look.entry.value,
        "configured": look.configured.0,
        "configured_more": look.configured.1,
        "met": met,
    })
}

const fn end_name(end: TraceEnd) -> &'static str {
    match end {
        TraceEnd::Rule(_) => "rule",
        TraceEnd::Override => "override",
        TraceEnd::UnknownDomain => "unknown_domain",
        TraceEnd::NoEntries => "no_entries",
        TraceEnd::NoMatch => "no_match",
        TraceEnd::NoLimit => "no_limit",
        TraceEnd::TooManyEntries => "too_many_entries",
    }
}

fn applied_json(applied: &AppliedRule) -> Value {
    json!({
        "rule": applied.rule,
        "pools": applied.pools,
        "promise": applied.promise,
        "outage": applied.outage,
        "override": applied.came_with,
        "counter": applied.counter,
        "replaced_by": applied.replaced_by,
        "now": applied.decision.as_ref().map(decision_json),
    })
}

/// State before the request, and the verdict that the request would get.
fn decision_json(decision: &CurrentDecision) -> Value {
    let Verdict { outcome, remaining, reset_after, .. } = decision.verdict;
    let (wait, retry_after, max_cost) = match outcome {
        Outcome::Allow { wait } => (Some(millis(wait)), None, None),
        Outcome::Deny { retry_after } => (None, Some(millis(retry_after)), None),
        Outcome::Never { max_cost } => (None, None, Some(max_cost)),
    };
    json!({
        "allowed": outcome.is_allowed(),
        "remaining": remaining,
        "wait_ms": wait,
        "retry_after_ms": retry_after,
        "estimated": decision.is_estimated.then_some(true),
        "max_cost": max_cost,
        "reset_after_ms": millis(reset_after),
        "in_words": decision.to_text(),
    })
}

/// Rounded up: an earlier retry would be denied.
const fn millis(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000)
}
