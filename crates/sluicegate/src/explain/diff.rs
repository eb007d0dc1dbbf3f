//! Two sets of rules compared: what a reload changes, and what becomes of the counters.
//!
//! ```text
//!   old rule ── same name, or same path ── new rule
//!      keys or sharing of its counters differ ──── every identity starts anew
//!      limit by limit (by name, or by index) ───── usage stays, unless the algorithm differs
//! ```
//!
//! [`Engine::reload`](crate::Engine::reload) joins rules and limits in the same way.

mod render;

use std::collections::HashMap;

use sluicegate_core::time::Timestamp;
use sluicegate_rules::domain::{Counter, Domain};
use sluicegate_rules::limit::{LimitConfig, continued, names};
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::{Configured, RuleSet};

use super::rule::timing::override_line;
use super::rule::{LocatedRule, contents, limits, text};

/// A set of rules, with the domains that it was compiled from.
#[derive(Debug, Clone, Copy)]
pub struct ComparedRules<'a> {
    /// The compiled set.
    pub set: &'a RuleSet,
    /// Its domains.
    pub domains: &'a [Domain],
}

/// The differences of two sets of rules.
#[derive(Debug, Clone, Default)]
pub struct RulesDiff<'a> {
    /// The domains that differ, in the order of the new set; removed ones are last.
    pub domains: Vec<DomainDiff<'a>>,
    /// Domains without a difference.
    pub same: usize,
}

/// The differences of a domain.
#[derive(Debug, Clone)]
pub struct DomainDiff<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it was added or removed as a whole.
    pub change: DiffKind,
    /// Its rules that differ, in file order; removed ones are last.
    pub rules: Vec<RuleDiff<'a>>,
    /// Rules without a difference.
    pub same: usize,
    /// Differences beside the rules: lists, forward auth, descriptors without a limit.
    pub settings: Vec<SettingDiff>,
}

/// A setting of a domain that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingDiff {
    /// Its name.
    pub name: &'static str,
    /// What only the old set has.
    pub removed: Vec<String>,
    /// What only the new set has.
    pub added: Vec<String>,
}

/// How a domain or a rule differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    /// Only the new set has it.
    Added,
    /// Only the old set has it.
    Removed,
    /// Both have it.
    Changed,
}

/// The difference of a rule.
#[derive(Debug, Clone)]
pub struct RuleDiff<'a> {
    /// The rule of the old set.
    pub old: Option<LocatedRule<'a>>,
    /// The rule of the new set.
    pub new: Option<LocatedRule<'a>>,
    /// What becomes of its counters.
    pub counters: CounterChange,
    /// The same for each limit of the new rule, where they differ.
    pub limits: Vec<(String, CounterChange)>,
    /// Whether counters in Redis start anew although those in memory do not: `eventual` rules store
    /// them elsewhere.
    pub restarts_in_redis: bool,
}

/// What becomes of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterChange {
    /// There were none.
    New,
    /// They are dropped.
    Dropped,
    /// They continue as they are.
    Continued,
    /// Usage stays, converted to the new limits.
    Converted,
    /// Some limits keep their usage, others start anew.
    Partly,
    /// Every identity starts anew: the algorithm differs.
    OtherAlgorithm,
    /// Every identity starts anew: requests are counted by other keys, or share counters otherwise.
    OtherCounters,
}

/// Compares two sets of rules.
///
/// ```
/// use sluicegate::explain::diff::{ComparedRules, CounterChange, diff};
/// use sluicegate::rules_of;
///
/// let rules = |rate: &str| {
///     rules_of(&format!("
/// domain: shop
/// descriptors: [{{ key: user, limits: {{ algorithm: fixed_window, rate: {rate} }} }}]
/// "))
/// };
/// let (old, new) = (rules("10/m")?, rules("20/m")?);
/// let compared = |set| ComparedRules { set, domains: &[] };
/// let found = diff(compared(&old), compared(&new));
/// assert_eq!(found.domains[0].rules[0].counters, CounterChange::Converted, "what was used stays used");
/// # Ok::<(), sluicegate::RulesError>(())
/// ```
#[must_use]
pub fn diff<'a>(old: ComparedRules<'a>, new: ComparedRules<'a>) -> RulesDiff<'a> {
    let mut found = RulesDiff::default();
    let before: Vec<&str> = old.set.domains().collect();
    for name in new.set.domains() {
        let change = if before.contains(&name) { DiffKind::Changed } else { DiffKind::Added };
        let domain = domain_diff(old, new, name, change);
        match change == DiffKind::Changed && domain.rules.is_empty() && domain.settings.is_empty() {
            true => found.same += 1,
            false => found.domains.push(domain),
        }
    }
    let is_removed = |name: &&str| new.set.domain(name).is_none();
    let removed = before.into_iter().filter(is_removed);
    found.domains.extend(removed.map(|name| domain_diff(old, new, name, DiffKind::Removed)));
    found
}

fn domain_diff<'a>(
    old: ComparedRules<'a>,
    new: ComparedRules<'a>,
    name: &'a str,
    change: DiffKind,
) -> DomainDiff<'a> {
    let (before, after) = (contents(old.set, name), contents(new.set, name));
    let mut left: HashMap<String, LocatedRule<'a>> =
        before.rules.iter().map(|rule| (rule.stable_key(), rule.clone())).collect();
    let (mut rules, mut same) = (Vec::new(), 0);
    for rule in after.rules {
        let found = RuleDiff::new(left.remove(&rule.stable_key()), Some(rule));
        match found.is_same() {
            true => same += 1,
            false => rules.push(found),
        }
    }
    let is_left = |rule: &LocatedRule<'_>| left.contains_key(&rule.stable_key());
    let removed = before.rules.into_iter().filter(is_left);
    rules.extend(removed.map(|rule| RuleDiff::new(Some(rule), None)));
    let mut settings = Vec::new();
    let mut compare = |name, old: Vec<String>, new: Vec<String>| {
        let only = |some: &[String], others: &[String]| -> Vec<String> {
            some.iter().filter(|one| !others.contains(one)).cloned().collect()
        };
        let (removed, added) = (only(&old, &new), only(&new, &old));
        if !removed.is_empty() || !added.is_empty() {
            settings.push(SettingDiff { name, removed, added });
        }
    };
    compare("no limit", before.exempt, after.exempt);
    let (old, new) = (Lists::new(old.domain(name)), Lists::new(new.domain(name)));
    compare("allow list", old.allow, new.allow);
    compare("deny list", old.deny, new.deny);
    compare("forward auth", old.forward_auth, new.forward_auth);
    compare("override", old.overrides, new.overrides);
    DomainDiff { name, change, rules, same, settings }
}

/// What a domain has beside its rules, in words.
#[derive(Debug, Default)]
struct Lists {
    allow: Vec<String>,
    deny: Vec<String>,
    forward_auth: Vec<String>,
    overrides: Vec<String>,
}

impl Lists {
    fn new(domain: Option<&Domain>) -> Self {
        let Some(domain) = domain else { return Self::default() };
        let (descriptors, remarks) =
            domain.forward_auth.as_ref().map(text::forward_auth).unwrap_or_default();
        Self {
            allow: domain.allow.iter().map(ToString::to_string).collect(),
            deny: domain.deny.iter().map(ToString::to_string).collect(),
            forward_auth: [descriptors, remarks].concat(),
            overrides: domain.overrides.iter().map(override_line).collect(),
        }
    }
}

impl<'a> ComparedRules<'a> {
    fn domain(self, name: &str) -> Option<&'a Domain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}

impl RulesDiff<'_> {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

impl<'a> RuleDiff<'a> {
    fn new(old: Option<LocatedRule<'a>>, new: Option<LocatedRule<'a>>) -> Self {
        let (Some(before), Some(after)) = (&old, &new) else {
            let is_new = new.is_some();
            let counters = if is_new { CounterChange::New } else { CounterChange::Dropped };
            return Self { old, new, counters, limits: Vec::new(), restarts_in_redis: false };
        };
        let (counters, limits) = changes(before, after);
        let is_eventual = |rule: &LocatedRule<'_>| {
            matches!(rule.rule().effective_consistency(), Consistency::Eventual { .. })
        };
        let restarts_in_redis =
            counters.is_continued() && is_eventual(before) != is_eventual(after);
        Self { old, new, counters, limits, restarts_in_redis }
    }

    /// How it differs.
    #[must_use]
    pub const fn change(&self) -> DiffKind {
        match (&self.old, &self.new) {
            (None, _) => DiffKind::Added,
            (_, None) => DiffKind::Removed,
            _ => DiffKind::Changed,
        }
    }

    /// Its identifier, the new one if it changed.
    #[must_use]
    pub fn id(&self) -> String {
        let rule = self.new.as_ref().or(self.old.as_ref());
        rule.map(LocatedRule::id).unwrap_or_default()
    }

    fn is_same(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return false };
        old.rule() == new.rule() && old.path() == new.path() && counted_by(old) == counted_by(new)
    }
}

impl CounterChange {
    /// Whether some usage counts under the new rules.
    const fn is_continued(self) -> bool {
        matches!(self, Self::Continued | Self::Converted | Self::Partly)
    }
}

/// What becomes of the counters of a rule that both sets have, and of each limit if they differ.
fn changes(
    old: &LocatedRule<'_>,
    new: &LocatedRule<'_>,
) -> (CounterChange, Vec<(String, CounterChange)>) {
    let (before, after) = (limits(&old.rule().limits), limits(&new.rule().limits));
    let is_counted =
        |limits: &[LimitConfig]| limits.iter().any(|one| one.algorithm() != "unlimited");
    match (is_counted(&before), is_counted(&after)) {
        (false, false) => return (CounterChange::Continued, Vec::new()),
        (false, true) => return (CounterChange::New, Vec::new()),
        (true, false) => return (CounterChange::Dropped, Vec::new()),
        (true, true) => {}
    }
    if counted_by(old) != counted_by(new) {
        return (CounterChange::OtherCounters, Vec::new());
    }
    let at = Timestamp::EPOCH;
    let change = |(limit, from): (&LimitConfig, &Option<usize>)| match from
        .and_then(|from| before.get(from))
    {
        None => CounterChange::New,
        Some(old) if old == limit => CounterChange::Continued,
        Some(old) if limit.at(at).keeps_usage_of(&old.at(at)) => CounterChange::Converted,
        Some(_) => CounterChange::OtherAlgorithm,
    };
    let from = continued(&after, &before);
    let each: Vec<CounterChange> = after.iter().zip(&from).map(change).collect();
    let all = |changes: &[CounterChange]| each.iter().all(|change| changes.contains(change));
    let whole = if all(&[CounterChange::Continued]) {
        CounterChange::Continued
    } else if all(&[CounterChange::Continued, CounterChange::Converted]) {
        CounterChange::Converted
    } else if all(&[CounterChange::New, CounterChange::OtherAlgorithm]) {
        CounterChange::OtherAlgorithm
    } else {
        CounterChange::Partly
    };
    let is_mixed = each.windows(2).any(|two| two.first() != two.last());
    let named = is_mixed.then(|| names(&after).into_iter().zip(each).collect());
    (whole, named.unwrap_or_default())
}

/// Identity of the counters of a rule: keys, and the nodes of values that share a counter.
fn counted_by<'a>(rule: &LocatedRule<'a>) -> Vec<(&'a str, Counter, Option<&'a str>)> {
    let of_node = |node: &Configured<'a>| {
        let is_shared = node.counter() != Counter::PerValue;
        (node.key(), node.counter(), node.value().filter(|_| is_shared))
    };
    rule.nodes().iter().map(of_node).collect()
}

#[cfg(test)]
mod tests;
