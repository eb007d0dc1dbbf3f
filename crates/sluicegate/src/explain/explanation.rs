//! The explanation of a request, before it is rendered.

use serde_json::Value;
use sluicegate_core::mode::Mode;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::explain::{DescriptorTrace, Lookup, TraceEnd};
use sluicegate_rules::overrides::{OverrideChange, TemporaryOverride};
use sluicegate_rules::plan::{DomainStatus, List, Plan, Step, Target};
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::decision::{Capacity, CurrentDecision};
use super::hints::{unknown_domain, why_not};
use super::render;
use super::rule::timing::{override_line, timing};
use super::rule::{LocatedRule, json, text};
use crate::engine::{Checked, Snapshot, Status};

/// An explained request: see [`explain`](super::explain).
#[derive(Debug)]
pub struct Explanation<'a> {
    pub(super) domain: &'a str,
    pub(super) hits: u64,
    /// The hint for an unknown domain.
    pub(super) unknown_domain: Option<String>,
    pub(super) listed: Option<ListedEntry>,
    pub(super) descriptors: Vec<DescriptorExplanation<'a>>,
    pub(super) allowed: bool,
    pub(super) why: String,
}

/// An entry on the allow or deny list.
#[derive(Debug)]
pub(super) struct ListedEntry {
    pub(super) list: List,
    pub(super) descriptor: usize,
    pub(super) entry: String,
    /// The override that put it there.
    pub(super) by: Option<String>,
}

/// An explained descriptor.
#[derive(Debug)]
pub(super) struct DescriptorExplanation<'a> {
    /// As the command line takes it: `user_id=42,path=/login`.
    pub(super) text: String,
    pub(super) looks: Vec<Lookup<'a>>,
    pub(super) end: TraceEnd,
    /// Why no rule matches.
    pub(super) why_not: Option<String>,
    pub(super) applied: Option<AppliedRule>,
    pub(super) cost: u64,
}

/// The rule that applies to a descriptor, or the limit sent with it.
#[derive(Debug)]
pub(super) struct AppliedRule {
    pub(super) id: String,
    /// The limits, as text.
    pub(super) limits: Vec<String>,
    /// What depends on the time, as text.
    pub(super) timing: Vec<String>,
    /// The settings of the rule, as text.
    pub(super) settings: Option<String>,
    /// The pools of the rule, in their order, where it has more than one.
    pub(super) pools: Vec<String>,
    /// The guarantee across nodes, where it is not the default.
    pub(super) promise: Option<String>,
    /// Behaviour while the store is unavailable.
    pub(super) outage: Option<String>,
    /// The rule as JSON, or the override sent with the request.
    pub(super) rule: Option<Value>,
    pub(super) came_with: Option<Value>,
    /// The parts of the counter's identity; empty without a counter.
    pub(super) counter: Vec<String>,
    /// The rule that replaces it.
    pub(super) replaced_by: Option<String>,
    pub(super) quota_mode: bool,
    /// Its decision; `None` if it is replaced or a list decides.
    pub(super) decision: Option<CurrentDecision>,
}

impl Explanation<'_> {
    /// Whether the request would be allowed now.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// The reason: "denied by shop/user_id: 0 left, and `burst` lets it pass after 100ms".
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The whole explanation as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        render::to_json(self)
    }

    /// The whole explanation as text, from the first lookup to the verdict.
    #[must_use]
    pub fn to_text(&self) -> String {
        render::to_text(self)
    }
}

/// Explains a request by the verdicts of `peek`.
pub(super) fn explain_with<'a>(
    snapshot: &Snapshot<'_>,
    request: &Request<'a>,
    peek: impl FnOnce(&Snapshot<'_>, &Request<'_>) -> Checked,
) -> Explanation<'a> {
    let set = snapshot.rules();
    let mut plan = Plan::default();
    set.plan(request, &mut plan);
    let (checked, costs) = peek_counters(snapshot, request, &plan, peek);
    let mut descriptors = Vec::with_capacity(request.descriptors.len());
    for (index, trace) in set.explain(request).into_iter().enumerate() {
        let (descriptor, mut step) = (&request.descriptors[index], plan.steps()[index].clone());
        if let (Target::Rule(_), Some(Status { target: target @ Target::Rule(_), .. })) =
            (step.target, checked.statuses.get(index))
        {
            // The pool that decides.
            step.target = *target;
        }
        let domain = set.domain(request.domain);
        let why_not = domain.and_then(|domain| why_not(set, domain, &trace, descriptor.entries));
        let mut applied = match step.target {
            Target::None(_) => None,
            Target::Override(limit) => Some(by_override(limit, request.domain, descriptor.entries)),
            Target::Rule(no) | Target::Replaced(no) => Some(by_rule(set, no, &trace)),
        };
        if let Some(applied) = &mut applied {
            match step.target {
                Target::Replaced(no) => {
                    applied.replaced_by = replaced_by(set, &plan, index, set.rule(no));
                }
                // A list decides before any limit.
                _ if plan.listed().is_some() => {}
                _ => {
                    let verdict = checked.statuses[index].verdict;
                    applied.decision = Some(decision_of(set, &step, verdict, costs[index]));
                }
            }
        }
        let DescriptorTrace { looks, end } = trace;
        let text = typed(descriptor.entries);
        descriptors.push(DescriptorExplanation {
            text,
            looks,
            end,
            why_not,
            applied,
            cost: step.cost,
        });
    }
    let listed = plan.listed().map(|listed| {
        let (descriptor, index) = listed.at;
        let entry = request.descriptors[descriptor].entries[index];
        ListedEntry {
            list: listed.list,
            descriptor,
            entry: format!("{}={}", entry.key, entry.value),
            by: override_of(set, request.domain, listed.list, &entry),
        }
    });
    let unknown_domain = match plan.domain() {
        DomainStatus::Known => None,
        DomainStatus::Unknown => Some(unknown_domain(set, request.domain)),
    };
    let why = why(checked.allowed, listed.as_ref(), &descriptors);
    let (domain, hits, allowed) = (request.domain, request.hits, checked.allowed);
    Explanation { domain, hits, unknown_domain, listed, descriptors, allowed, why }
}

/// The override that put an entry on a list.
fn override_of(set: &RuleSet, domain: &str, list: List, entry: &Entry<'_>) -> Option<String> {
    let all = set.domain(domain).map(|domain| set.overrides(domain)).unwrap_or_default();
    let is_of_list = |one: &&TemporaryOverride| {
        one.is_listed() && (one.change == OverrideChange::Block) == (list == List::Deny)
    };
    let found = all.iter().filter(is_of_list).find(|one| one.matches_entry(entry.key, entry.value));
    found.map(override_line)
}

/// Peeks the counters; returns the verdicts and the cost peeked for each descriptor.
///
/// A counter of Envoy's form that is named more than once counts each time. A peek charges
/// nothing, so each is peeked for the sum up to it. Other counters are peeked once, for the
/// largest cost.
fn peek_counters(
    snapshot: &Snapshot<'_>,
    request: &Request<'_>,
    plan: &Plan,
    peek: impl FnOnce(&Snapshot<'_>, &Request<'_>) -> Checked,
) -> (Checked, Vec<u64>) {
    let set = snapshot.rules();
    let descriptors = accumulate_hits(set, request, plan);
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

/// The descriptors of a request, each with the hits accumulated up to it.
pub(super) fn accumulate_hits<'a>(
    set: &RuleSet,
    request: &Request<'a>,
    plan: &Plan,
) -> Vec<Descriptor<'a>> {
    let hits = |descriptor: &Descriptor<'_>| descriptor.hits.unwrap_or(request.hits);
    let mut descriptors = request.descriptors.to_vec();
    for (index, step) in plan.steps().iter().enumerate().filter(|(_, step)| is_tally(set, step)) {
        let earlier = plan.steps()[..index].iter().zip(request.descriptors);
        let same = earlier.filter(|(other, _)| is_same(plan, other, step));
        let before = same.fold(0u64, |sum, (_, one)| sum.saturating_add(hits(one)));
        if before > 0 {
            descriptors[index].hits = Some(before.saturating_add(hits(&descriptors[index])));
        }
    }
    descriptors
}

/// Whether it counts unconditionally, once per mention.
fn is_tally(set: &RuleSet, step: &Step) -> bool {
    match step.target {
        Target::Rule(no) => matches!(set.rule(no).limits, Limits::Envoy { .. }),
        Target::Override(_) => true,
        Target::None(_) | Target::Replaced(_) => false,
    }
}

/// Whether two steps use one counter.
fn is_same(plan: &Plan, one: &Step, other: &Step) -> bool {
    let same_limit = match (one.target, other.target) {
        // The limit of the override does not matter.
        (Target::Override(one), Target::Override(other)) => one.unit == other.unit,
        (one, other) => one == other,
    };
    same_limit && plan.identity(one) == plan.identity(other)
}

fn by_rule(set: &RuleSet, no: RuleNo, trace: &DescriptorTrace<'_>) -> AppliedRule {
    let located = LocatedRule::of(set, no);
    let rule = located.rule();
    AppliedRule {
        id: located.id(),
        limits: text::limits(&rule.limits),
        timing: timing(rule),
        settings: Some(text::settings(rule).join(" · ")),
        pools: located.pools(),
        promise: text::promise(rule),
        outage: text::outage(rule),
        rule: Some(json::rule(&located)),
        came_with: None,
        counter: match rule.limits {
            Limits::Unlimited => Vec::new(),
            _ => {
                let pool = set.pool_of(no).map(|pool| format!("pool {pool}"));
                let mut parts = counter(set.domain_of(no), &trace.looks);
                parts.extend(pool);
                parts
            }
        },
        replaced_by: None,
        quota_mode: rule.quota_mode,
        decision: None,
    }
}

fn by_override(limit: Override, domain: &str, entries: &[Entry<'_>]) -> AppliedRule {
    let Override { requests_per_unit, unit } = limit;
    let mut counter = vec![domain.to_owned()];
    counter.extend(entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)));
    AppliedRule {
        id: "the limit that came with it".to_owned(),
        limits: vec![text::envoy(requests_per_unit, unit)],
        timing: Vec::new(),
        settings: None,
        pools: Vec::new(),
        promise: None,
        outage: None,
        rule: None,
        came_with: Some(json::envoy(requests_per_unit, unit)),
        counter,
        replaced_by: None,
        quota_mode: false,
        decision: None,
    }
}

/// The decision of one step.
fn decision_of(set: &RuleSet, step: &Step, verdict: Verdict, cost: u64) -> CurrentDecision {
    match step.target {
        Target::Rule(no) | Target::Replaced(no) => {
            let rule = set.rule(no);
            CurrentDecision::of(&rule.limits, rule.mode, verdict, cost)
        }
        Target::Override(Override { requests_per_unit, unit }) => CurrentDecision::of(
            &Limits::Envoy { requests_per_unit, unit },
            Mode::Hard,
            verdict,
            cost,
        ),
        Target::None(_) => CurrentDecision::of(&Limits::Unlimited, Mode::Hard, verdict, cost),
    }
}

/// The parts of a counter's identity, readable.
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
fn replaced_by(set: &RuleSet, plan: &Plan, index: usize, rule: &RuleConfig) -> Option<String> {
    let name = rule.name.as_ref()?;
    let others = plan.steps().iter().enumerate().filter(|(other, _)| *other != index);
    let mut rules = others.filter_map(|(_, step)| match step.target {
        Target::Rule(no) | Target::Replaced(no) => Some(no),
        Target::None(_) | Target::Override(_) => None,
    });
    rules.find(|no| set.rule(*no).replaces().contains(name)).map(|no| set.id(no))
}

/// Entries as the command line takes them: `user_id=42,path=/login`, with separators escaped by
/// backslashes.
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

/// Reason of a denial that no limit has decided.
const UNMATCHED: &str =
    "denied: no rule matches it, and such requests are not allowed (`--unmatched`)";

/// Names the deciding rule or list; the engine has decided already.
fn why(
    allowed: bool,
    listed: Option<&ListedEntry>,
    descriptors: &[DescriptorExplanation<'_>],
) -> String {
    if let Some(ListedEntry { list, entry, by, .. }) = listed {
        let (verdict, list) = match list {
            List::Deny => ("denied", "deny"),
            List::Allow => ("allowed, not counted", "allow"),
        };
        let by = by.as_ref().map(|by| format!(" by an override: {by}")).unwrap_or_default();
        return format!("{verdict}: `{entry}` is on the {list} list{by}");
    }
    let decisions = || {
        let applied = descriptors.iter().filter_map(|one| one.applied.as_ref());
        applied.filter_map(|applied| Some((applied, applied.decision.as_ref()?)))
    };
    if !allowed {
        // Rules in quota mode deny only together: another denial decides first.
        let denials = || decisions().filter(|(_, decision)| !decision.verdict.is_allowed());
        let mut alone = denials().filter(|(applied, _)| !applied.quota_mode);
        let decided = alone.next().or_else(|| denials().next());
        let why = decided.map(|(applied, decision)| {
            format!("{} by {}: {}", decision.word, applied.id, decision.reason)
        });
        // Otherwise it is the policy of requests without a rule.
        return why.unwrap_or_else(|| UNMATCHED.to_owned());
    }
    let counted = decisions().any(|(_, decision)| decision.verdict.remaining.is_some());
    let no_room = decisions().any(|(_, decision)| decision.capacity == Capacity::None);
    let why = match (counted, no_room, decisions().next()) {
        (true, ..) => "allowed",
        (false, true, _) => "allowed, not counted: there is no room, and newcomers pass",
        (false, false, Some(_)) => "allowed, not counted: it is unlimited",
        (false, false, None) => "allowed, not counted: nothing limits it",
    };
    why.to_owned()
}
