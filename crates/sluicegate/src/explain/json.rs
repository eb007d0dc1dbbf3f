//! A request, explained for a program.

use serde_json::{Value, json};
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::explain::{Lookup, TraceEnd};
use sluicegate_rules::plan::List;
use sluicegate_rules::set::MatchKind;

use super::now::Now;
use super::told::{AppliedRule, One, Told};

/// Everything, in one object.
pub(super) fn explained(told: &Told<'_>) -> Value {
    let listed = told.listed.as_ref().map(|listed| {
        let list = match listed.list {
            List::Allow => "allow",
            List::Deny => "deny",
        };
        json!({ "list": list, "descriptor": listed.descriptor, "entry": listed.entry })
    });
    json!({
        "domain": told.domain,
        "hits": told.hits,
        "known_domain": told.unknown_domain.is_none(),
        "hint": told.unknown_domain,
        "descriptors": told.descriptors.iter().map(descriptor).collect::<Value>(),
        "listed": listed,
        "allowed": told.allowed,
        "why": told.why,
    })
}

fn descriptor(one: &One<'_>) -> Value {
    json!({
        "descriptor": one.text,
        "looks": one.looks.iter().map(look).collect::<Value>(),
        "end": end(one.end),
        "why_not": one.why_not,
        "cost": one.cost,
        "under": one.applied.as_ref().map(applied),
    })
}

fn look(look: &Lookup<'_>) -> Value {
    let met = look.met.as_ref().map(|met| {
        let how = match met.how {
            MatchKind::Exact => "exact",
            MatchKind::Network => "network",
            MatchKind::Pattern => "pattern",
            MatchKind::AnyValue => "any_value",
        };
        json!({ "node": met.node, "how": how, "counted_as": met.counted_as })
    });
    json!({
        "key": look.entry.key,
        "value": look.entry.value,
        "configured": look.configured.0,
        "configured_more": look.configured.1,
        "met": met,
    })
}

const fn end(end: TraceEnd) -> &'static str {
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

fn applied(applied: &AppliedRule) -> Value {
    json!({
        "rule": applied.rule,
        "promise": applied.promise,
        "outage": applied.outage,
        "override": applied.came_with,
        "counter": applied.counter,
        "replaced_by": applied.replaced_by,
        "now": applied.now.as_ref().map(now),
    })
}

/// What stands there now, before the request, and what the request would be told.
fn now(now: &Now) -> Value {
    let Verdict { outcome, remaining, reset_after, .. } = now.verdict;
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
        "max_cost": max_cost,
        "reset_after_ms": millis(reset_after),
        "in_words": now.in_words(),
    })
}

/// Rounded up: whoever comes earlier comes too early.
const fn millis(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000)
}
