//! Everything there is to tell about a request, before it is written down.

use serde_json::Value;
use sluicegate_core::mode::Mode;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::explain::{DescriptorTrace, Lookup, TraceEnd};
use sluicegate_rules::plan::{DomainStatus, List, Plan, Step, Target};
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::hints::{unknown_domain, why_not};
use super::json::explained;
use super::now::{Now, Room};
use super::rule::{Placed, json, words};
use super::text;
use crate::engine::{Checked, Snapshot};

/// A request, explained: see [`explain`](super::explain).
#[derive(Debug)]
pub struct Told<'a> {
    pub(super) domain: &'a str,
    pub(super) hits: u64,
    /// What may have been meant, if nobody knows the domain.
    pub(super) unknown_domain: Option<String>,
    pub(super) listed: Option<OnList>,
    pub(super) descriptors: Vec<One<'a>>,
    pub(super) allowed: bool,
    pub(super) why: String,
}

/// An entry that is on a list.
#[derive(Debug)]
pub(super) struct OnList {
    pub(super) list: List,
    pub(super) descriptor: usize,
    pub(super) entry: String,
}

/// A descriptor, explained.
#[derive(Debug)]
pub(super) struct One<'a> {
    /// As it would be typed: `user_id=42,path=/login`.
    pub(super) text: String,
    pub(super) looks: Vec<Lookup<'a>>,
    pub(super) end: TraceEnd,
    /// Why there is no rule.
    pub(super) why_not: Option<String>,
    pub(super) applied: Option<AppliedRule>,
    pub(super) cost: u64,
}

/// What applies to a descriptor: a rule, or a limit that came with it.
#[derive(Debug)]
pub(super) struct AppliedRule {
    pub(super) id: String,
    /// The limits, in words.
    pub(super) limits: Vec<String>,
    /// How a rule is enforced, in words.
    pub(super) settings: Option<String>,
    /// What nodes that share it promise, if there is something to say.
    pub(super) promise: Option<String>,
    /// What passes while the store does not answer.
    pub(super) outage: Option<String>,
    /// The rule, or what came with the request in its place.
    pub(super) rule: Option<Value>,
    pub(super) came_with: Option<Value>,
    /// Whose counter it is, part by part; nothing without one.
    pub(super) counter: Vec<String>,
    /// The rule because of which it does not count.
    pub(super) replaced_by: Option<String>,
    pub(super) quota_mode: bool,
    /// What it says, if it is asked.
    pub(super) now: Option<Now>,
}

// === impl Told ===

impl Told<'_> {
    /// Whether the request would go now.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// Why, in words: "denied by shop/user_id: 0 left, and `burst` lets it pass after 100ms".
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Everything, in one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        explained(self)
    }

    /// Everything, from the first look to the verdict, in lines for a person.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::explained(self)
    }
}

/// Explains a request by the rules and the counters as they are at `now`.
pub(super) fn told<'a>(
    snapshot: &Snapshot<'_>,
    request: &Request<'a>,
    peek: impl FnOnce(&Snapshot<'_>, &Request<'_>) -> Checked,
) -> Told<'a> {
    let set = snapshot.rules();
    let mut plan = Plan::default();
    set.plan(request, &mut plan);
    let (checked, costs) = asked(snapshot, request, &plan, peek);
    let mut descriptors = Vec::with_capacity(request.descriptors.len());
    for (place, explained) in set.explain(request).into_iter().enumerate() {
        let (descriptor, step) = (&request.descriptors[place], &plan.steps()[place]);
        let domain = set.domain(request.domain);
        let why_not =
            domain.and_then(|domain| why_not(set, domain, &explained, descriptor.entries));
        let mut applied = match step.target {
            Target::None => None,
            Target::Override(limit) => Some(came_with(limit, request.domain, descriptor.entries)),
            Target::Rule(no) | Target::Replaced(no) => Some(by_rule(set, no, &explained)),
        };
        if let Some(applied) = &mut applied {
            match step.target {
                Target::Replaced(no) => {
                    applied.replaced_by = replaced_by(set, &plan, place, set.rule(no));
                }
                // A list decides before any limit is asked.
                _ if plan.listed().is_some() => {}
                _ => {
                    let verdict = checked.statuses[place].verdict;
                    applied.now = Some(said(set, step, verdict, costs[place]));
                }
            }
        }
        let DescriptorTrace { looks, end } = explained;
        let text = typed(descriptor.entries);
        descriptors.push(One { text, looks, end, why_not, applied, cost: step.cost });
    }
    let listed = plan.listed().map(|listed| {
        let (descriptor, place) = listed.at;
        let entry = request.descriptors[descriptor].entries[place];
        OnList { list: listed.list, descriptor, entry: format!("{}={}", entry.key, entry.value) }
    });
    let unknown_domain = match plan.domain() {
        DomainStatus::Known => None,
        DomainStatus::Unknown => Some(unknown_domain(set, request.domain)),
    };
    let why = why(checked.allowed, listed.as_ref(), &descriptors);
    let (domain, hits, allowed) = (request.domain, request.hits, checked.allowed);
    Told { domain, hits, unknown_domain, listed, descriptors, allowed, why }
}

/// What the engine says, and what it was asked for at each descriptor.
///
/// A counter of Envoy's form that is named more than once counts each time, so the later ones find what the earlier ones left.
/// A look leaves nothing behind; so it is asked there for all that will have come by then. The other counters are asked once, for the
/// most that is wanted of them.
fn asked(
    snapshot: &Snapshot<'_>,
    request: &Request<'_>,
    plan: &Plan,
    peek: impl FnOnce(&Snapshot<'_>, &Request<'_>) -> Checked,
) -> (Checked, Vec<u64>) {
    let set = snapshot.rules();
    let descriptors = summed(set, request, plan);
    let request = Request { descriptors: &descriptors, ..*request };
    let checked = peek(snapshot, &request);
    let mut summed = Plan::default();
    set.plan(&request, &mut summed);
    let cost = |step: &Step| match is_tally(set, step) {
        true => step.cost,
        false => {
            let same = summed.steps().iter().filter(|other| is_same(&summed, other, step));
            same.map(|other| other.cost).max().unwrap_or(step.cost)
        }
    };
    let costs = summed.steps().iter().map(cost).collect();
    (checked, costs)
}

/// The descriptors of a request, each asked for all that will have come by then.
pub(super) fn summed<'a>(set: &RuleSet, request: &Request<'a>, plan: &Plan) -> Vec<Descriptor<'a>> {
    let hits = |descriptor: &Descriptor<'_>| descriptor.hits.unwrap_or(request.hits);
    let mut descriptors = request.descriptors.to_vec();
    for (place, step) in plan.steps().iter().enumerate().filter(|(_, step)| is_tally(set, step)) {
        let earlier = plan.steps()[..place].iter().zip(request.descriptors);
        let same = earlier.filter(|(other, _)| is_same(plan, other, step));
        let before = same.fold(0u64, |sum, (_, one)| sum.saturating_add(hits(one)));
        if before > 0 {
            descriptors[place].hits = Some(before.saturating_add(hits(&descriptors[place])));
        }
    }
    descriptors
}

/// Whether it counts whatever the others say, as often as it is named.
fn is_tally(set: &RuleSet, step: &Step) -> bool {
    match step.target {
        Target::Rule(no) => matches!(set.rule(no).limits, Limits::Envoy { .. }),
        Target::Override(_) => true,
        Target::None | Target::Replaced(_) => false,
    }
}

/// Whether they are about one counter.
fn is_same(plan: &Plan, one: &Step, other: &Step) -> bool {
    let same_limit = match (one.target, other.target) {
        // Whatever number came with it.
        (Target::Override(one), Target::Override(other)) => one.unit == other.unit,
        (one, other) => one == other,
    };
    same_limit && plan.identity(one) == plan.identity(other)
}

fn by_rule(set: &RuleSet, no: RuleNo, explained: &DescriptorTrace<'_>) -> AppliedRule {
    let placed = Placed::of(set, no);
    let rule = placed.rule();
    AppliedRule {
        id: placed.id(),
        limits: words::limits(&rule.limits),
        settings: Some(words::settings(rule).join(" · ")),
        promise: words::promise(rule),
        outage: words::outage(rule),
        rule: Some(json::rule(&placed)),
        came_with: None,
        counter: match rule.limits {
            Limits::Unlimited => Vec::new(),
            _ => counter(set.domain_of(no), &explained.looks),
        },
        replaced_by: None,
        quota_mode: rule.quota_mode,
        now: None,
    }
}

fn came_with(limit: Override, domain: &str, entries: &[Entry<'_>]) -> AppliedRule {
    let Override { requests_per_unit, unit } = limit;
    let mut counter = vec![domain.to_owned()];
    counter.extend(entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)));
    AppliedRule {
        id: "the limit that came with it".to_owned(),
        limits: vec![words::envoy(requests_per_unit, unit)],
        settings: None,
        promise: None,
        outage: None,
        rule: None,
        came_with: Some(json::envoy(requests_per_unit, unit)),
        counter,
        replaced_by: None,
        quota_mode: false,
        now: None,
    }
}

/// What the engine said, in words.
fn said(set: &RuleSet, step: &Step, verdict: Verdict, cost: u64) -> Now {
    match step.target {
        Target::Rule(no) | Target::Replaced(no) => {
            let rule = set.rule(no);
            Now::of(&rule.limits, rule.mode, verdict, cost)
        }
        Target::Override(Override { requests_per_unit, unit }) => {
            Now::of(&Limits::Envoy { requests_per_unit, unit }, Mode::Hard, verdict, cost)
        }
        Target::None => Now::of(&Limits::Unlimited, Mode::Hard, verdict, cost),
    }
}

/// Whose counter it is, as far as a person wants to know.
fn counter(domain: &str, looks: &[Lookup<'_>]) -> Vec<String> {
    let mut parts = vec![domain.to_owned()];
    for look in looks {
        let (key, value) = (look.entry.key, look.entry.value);
        let part = match look.met.as_ref().map(|met| (&met.counted_as, &met.node)) {
            Some((Some(shared), node)) if shared == node => format!("{node} (shared by all of it)"),
            Some((Some(network), _)) => format!("{key} in {network}"),
            _ => format!("{key}={value}"),
        };
        parts.push(part);
    }
    parts
}

/// The rule of the request that replaces this one.
fn replaced_by(set: &RuleSet, plan: &Plan, place: usize, rule: &RuleConfig) -> Option<String> {
    let name = rule.name.as_ref()?;
    let others = plan.steps().iter().enumerate().filter(|(other, _)| *other != place);
    let mut rules = others.filter_map(|(_, step)| match step.target {
        Target::Rule(no) | Target::Replaced(no) => Some(no),
        Target::None | Target::Override(_) => None,
    });
    rules.find(|no| set.rule(*no).replaces().contains(name)).map(|no| set.id(no))
}

/// Entries as the command line takes them: `user_id=42,path=/login`, with a backslash before what would be taken for something
/// else.
fn typed(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for entry in entries {
        if !text.is_empty() {
            text.push(',');
        }
        for letter in entry.key.chars() {
            text.extend(matches!(letter, ',' | '=' | '\\').then_some('\\'));
            text.push(letter);
        }
        text.push('=');
        for letter in entry.value.chars() {
            text.extend(matches!(letter, ',' | '\\').then_some('\\'));
            text.push(letter);
        }
    }
    text
}

/// Who decided. That it is allowed or not is the engine's word; this only finds whose.
fn why(allowed: bool, listed: Option<&OnList>, descriptors: &[One<'_>]) -> String {
    match listed {
        Some(OnList { list: List::Deny, entry, .. }) => {
            return format!("denied: `{entry}` is on the deny list");
        }
        Some(OnList { list: List::Allow, entry, .. }) => {
            return format!("allowed, not counted: `{entry}` is on the allow list");
        }
        None => {}
    }
    let asked = || {
        let applied = descriptors.iter().filter_map(|one| one.applied.as_ref());
        applied.filter_map(|applied| Some((applied, applied.now.as_ref()?)))
    };
    if !allowed {
        // Those in quota mode deny together or not at all: where another denies, it is that one.
        let denials = || asked().filter(|(_, now)| !now.verdict.is_allowed());
        let mut alone = denials().filter(|(applied, _)| !applied.quota_mode);
        let decided = alone.next().or_else(|| denials().next());
        let why =
            decided.map(|(applied, now)| format!("{} by {}: {}", now.word, applied.id, now.more));
        return why.unwrap_or_else(|| "denied".to_owned());
    }
    let counted = asked().any(|(_, now)| now.verdict.remaining.is_some());
    let no_room = asked().any(|(_, now)| now.room == Room::None);
    let why = match (counted, no_room, asked().next()) {
        (true, ..) => "allowed",
        (false, true, _) => "allowed, not counted: there is no room, and newcomers pass",
        (false, false, Some(_)) => "allowed, not counted: it is unlimited",
        (false, false, None) => "allowed, not counted: nothing limits it",
    };
    why.to_owned()
}
