//! A request, explained for a program.

use serde_json::{Value, json};
use sluicegate_rules::explain::{End, Look};
use sluicegate_rules::plan::List;
use sluicegate_rules::set::How;

use super::told::{One, Told, UnderRule};
use crate::rule::json::{envoy, rule};

/// Everything, in one object.
pub(crate) fn explained(told: &Told<'_>) -> String {
    let listed = told.listed.as_ref().map(|listed| {
        let list = match listed.list {
            List::Allow => "allow",
            List::Deny => "deny",
        };
        json!({ "list": list, "descriptor": listed.descriptor, "entry": listed.entry })
    });
    let all = json!({
        "domain": told.domain,
        "hits": told.hits,
        "known_domain": told.unknown_domain.is_none(),
        "hint": told.unknown_domain,
        "descriptors": told.descriptors.iter().map(descriptor).collect::<Value>(),
        "listed": listed,
        "allowed": told.verdict.allowed,
        "why": told.verdict.why,
    });
    format!("{all}\n")
}

fn descriptor(one: &One<'_>) -> Value {
    json!({
        "descriptor": one.text,
        "looks": one.looks.iter().map(look).collect::<Value>(),
        "end": end(one.end),
        "why_not": one.why_not,
        "cost": one.cost,
        "under": one.under.as_ref().map(under),
    })
}

fn look(look: &Look<'_>) -> Value {
    let met = look.met.as_ref().map(|met| {
        let how = match met.how {
            How::Exact => "exact",
            How::Network => "network",
            How::Pattern => "pattern",
            How::AnyValue => "any_value",
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

const fn end(end: End) -> &'static str {
    match end {
        End::Rule(_) => "rule",
        End::Override => "override",
        End::UnknownDomain => "unknown_domain",
        End::NoEntries => "no_entries",
        End::NoMatch => "no_match",
        End::NoLimit => "no_limit",
        End::TooManyEntries => "too_many_entries",
    }
}

fn under(under: &UnderRule<'_>) -> Value {
    json!({
        "rule": under.placed.as_ref().map(rule),
        "override": under.came_with.map(|limit| envoy(limit.requests_per_unit, limit.unit)),
        "counter": under.counter,
        "replaced_by": under.replaced_by,
        "first": under.first.as_ref().map(|first| json!({
            "allowed": first.allowed,
            "remaining": first.remaining,
            "in_words": first.in_words(),
        })),
    })
}
