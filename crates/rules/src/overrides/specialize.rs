//! Copies the nodes that an override changes.

use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::Timestamp;

use super::matching::{NodeChange, changes_of, products, single};
use super::{AppliedOverride, OverrideChange, OverrideError, TemporaryOverride};
use crate::domain::{Counter, DescriptorConfig, Domain, ListEntry, Pattern};
use crate::limit::LimitConfig;
use crate::rule::{Limits, RuleConfig, RuleExtras};

/// A node with the path that it has in the rules as they are written.
#[derive(Debug, Clone)]
pub(super) struct CopiedNode {
    /// Its part of that path.
    pub(super) segment: String,
    /// Without the nodes below it.
    pub(super) config: DescriptorConfig,
    below: Vec<Self>,
}

/// Applies overrides to the rules of a domain: wider ones first.
pub(crate) fn apply(
    domain: &mut Domain,
    overrides: &[TemporaryOverride],
) -> Result<(), OverrideError> {
    if overrides.iter().all(TemporaryOverride::is_listed) {
        return Ok(());
    }
    let name = domain.name.clone();
    let mut nodes = nodes_of(std::mem::take(&mut domain.descriptors));
    let mut renamed = Vec::new();
    for one in overrides.iter().filter(|one| !one.is_listed()) {
        let mut specialization = Specialization::new(one, &name);
        specialization.run(&mut nodes)?;
        renamed.append(&mut specialization.renamed);
    }
    domain.descriptors = configs_of(nodes);
    if !renamed.is_empty() {
        extend_replaces(&mut domain.descriptors, &renamed);
    }
    Ok(())
}

/// The paths of the rules that each override changes, if it can be applied alone.
pub fn affected<'o>(
    domain: &Domain,
    overrides: impl IntoIterator<Item = &'o TemporaryOverride>,
) -> Vec<Result<Vec<String>, OverrideError>> {
    let mut nodes = nodes_of(domain.descriptors.clone());
    let mut changed = |one| {
        let mut found = Specialization { is_dry: true, ..Specialization::new(one, &domain.name) };
        found.run(&mut nodes).map(|()| found.changed)
    };
    overrides.into_iter().map(&mut changed).collect()
}

fn nodes_of(configs: Vec<DescriptorConfig>) -> Vec<CopiedNode> {
    let node = |mut config: DescriptorConfig| {
        let below = nodes_of(std::mem::take(&mut config.descriptors));
        CopiedNode { segment: written(&config), config, below }
    };
    configs.into_iter().map(node).collect()
}

fn configs_of(nodes: Vec<CopiedNode>) -> Vec<DescriptorConfig> {
    let config =
        |node: CopiedNode| DescriptorConfig { descriptors: configs_of(node.below), ..node.config };
    nodes.into_iter().map(config).collect()
}

fn written(config: &DescriptorConfig) -> String {
    ListEntry { key: config.key.clone(), value: config.value.clone() }.to_string()
}

/// One override on its way through the tree.
struct Specialization<'a> {
    one: &'a TemporaryOverride,
    domain: &'a str,
    /// Whether the tree stays as it is.
    is_dry: bool,
    /// How often a rule was changed.
    changes: usize,
    /// The paths of the changed rules.
    changed: Vec<String>,
    /// The names of copied rules, and those of the copies.
    renamed: Vec<(Box<str>, Box<str>)>,
}

impl<'a> Specialization<'a> {
    fn new(one: &'a TemporaryOverride, domain: &'a str) -> Self {
        Self { one, domain, is_dry: false, changes: 0, changed: Vec::new(), renamed: Vec::new() }
    }

    fn run(&mut self, nodes: &mut Vec<CopiedNode>) -> Result<(), OverrideError> {
        let entries: Vec<ListEntry> = self.one.matches.iter().flat_map(single).collect();
        let mut by_key: Vec<Vec<&ListEntry>> = Vec::new();
        for entry in &entries {
            match by_key.iter_mut().find(|all| all.iter().any(|one| one.key == entry.key)) {
                Some(all) => all.push(entry),
                None => by_key.push(vec![entry]),
            }
        }
        // Of several networks each is applied on its own.
        for choice in products(&by_key) {
            self.level(nodes, &choice, "", "")?;
        }
        Ok(())
    }

    /// `suffix` distinguishes the names of copied rules.
    fn level(
        &mut self,
        nodes: &mut Vec<CopiedNode>,
        entries: &[&ListEntry],
        above: &str,
        suffix: &str,
    ) -> Result<(), OverrideError> {
        let mut changes = vec![None; nodes.len()];
        for entry in entries {
            for (node_change, found) in changes.iter_mut().zip(changes_of(nodes, entry)?) {
                *node_change = node_change.or(found.map(|found| (found, *entry)));
            }
        }
        let mut copies = Vec::new();
        for (index, (node, change)) in nodes.iter_mut().zip(changes).enumerate() {
            let path = |node: &CopiedNode| format!("{above}{}", node.segment);
            let Some((change, entry)) = change else {
                if !node.below.is_empty() {
                    let above = format!("{}/", path(node));
                    self.level(&mut node.below, entries, &above, suffix)?;
                }
                continue;
            };
            let rest: Vec<&ListEntry> =
                entries.iter().copied().filter(|other| other.key != entry.key).collect();
            match change {
                NodeChange::Unchanged => {}
                NodeChange::InPlace if self.is_dry => {
                    let path = path(node);
                    self.node(&mut node.clone(), &rest, &path, suffix)?;
                }
                NodeChange::InPlace => {
                    let path = path(node);
                    self.node(node, &rest, &path, suffix)?;
                }
                NodeChange::Copied => {
                    let copy = self.copy(node, entry, &rest, &path(node), suffix)?;
                    copies.extend(copy.filter(|_| !self.is_dry).map(|copy| (index, copy)));
                }
            }
        }
        // Before the node that it is a copy of: of two patterns the first decides.
        for (index, copy) in copies.into_iter().rev() {
            nodes.insert(index, copy);
        }
        Ok(())
    }

    /// A copy of a node for some of its values, if that changes a rule.
    fn copy(
        &mut self,
        node: &CopiedNode,
        entry: &ListEntry,
        rest: &[&ListEntry],
        path: &str,
        suffix: &str,
    ) -> Result<Option<CopiedNode>, OverrideError> {
        let mut copy = node.clone();
        copy.config.value = entry.value.clone();
        if !copy.config.value.is_glob() && matches!(entry.value, Pattern::Text(_)) {
            copy.config.counter = Counter::PerValue;
        }
        let before = self.changes;
        let suffix = format!("{suffix}@{}", shown(&entry.value));
        self.node(&mut copy, rest, path, &suffix)?;
        if self.changes == before {
            return Ok(None);
        }
        if node.config.counter == Counter::Shared {
            return Err(OverrideError::Shared { node: node.segment.clone() });
        }
        rename(&mut copy, &suffix, &mut self.renamed);
        Ok(Some(copy))
    }

    /// A node that has what was asked for, but for the rest.
    fn node(
        &mut self,
        node: &mut CopiedNode,
        rest: &[&ListEntry],
        path: &str,
        suffix: &str,
    ) -> Result<(), OverrideError> {
        if !rest.is_empty() {
            return self.level(&mut node.below, rest, &format!("{path}/"), suffix);
        }
        if let Some(rule) = &mut node.config.rule
            && self.is_meant(rule, path)
        {
            self.change(rule, path)?;
        }
        for below in &mut node.below {
            let path = format!("{path}/{}", below.segment);
            self.node(below, rest, &path, suffix)?;
        }
        Ok(())
    }

    /// Whether a rule is the one that is named, or below it.
    fn is_meant(&self, rule: &RuleConfig, path: &str) -> bool {
        let Some(meant) = self.one.rule.as_deref() else { return true };
        let prefix = meant.strip_prefix(self.domain).and_then(|rest| rest.strip_prefix('/'));
        [Some(meant), prefix].into_iter().flatten().any(|meant| {
            let name = rule.name.as_deref();
            let is_named = name.is_some_and(|name| {
                name == meant || name.strip_prefix(meant).is_some_and(|rest| rest.starts_with('@'))
            });
            let below = path.strip_prefix(meant);
            is_named || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn change(&mut self, rule: &mut RuleConfig, path: &str) -> Result<(), OverrideError> {
        let unfit = |reason: String| OverrideError::Unfit { rule: path.to_owned(), reason };
        let before = rule.overridden().map_or_else(|| rule.limits.clone(), |o| o.before.clone());
        // The limits at other times have to fit too.
        let scheduled = rule.schedule().map_or(&[][..], |schedule| &schedule.parts);
        let others = scheduled.iter().map(|part| part.limits.clone());
        for limits in others.collect::<Vec<_>>() {
            let mut other = rule.clone();
            set_limits(&mut other, self.changed_limits(&limits).map_err(unfit)?);
            check(&other).map_err(unfit)?;
        }
        set_limits(rule, self.changed_limits(&before).map_err(unfit)?);
        check(rule).map_err(unfit)?;
        let (note, until) = (self.one.note.clone(), self.one.until);
        let extras: &mut RuleExtras = rule.rare.get_or_insert_default();
        extras.overridden = Some(AppliedOverride { note, until, before });
        self.changes += 1;
        if !self.changed.iter().any(|known| known == path) {
            self.changed.push(path.to_owned());
        }
        Ok(())
    }

    fn changed_limits(&self, limits: &Limits) -> Result<Limits, String> {
        match &self.one.change {
            OverrideChange::Block | OverrideChange::Unlimited => Ok(Limits::Unlimited),
            OverrideChange::Limits(other) => Ok(other.clone()),
            OverrideChange::Factor(factor) => scaled(limits, *factor),
        }
    }
}

/// Replaces the limits; what has no meaning without limits is removed with them.
pub fn set_limits(rule: &mut RuleConfig, limits: Limits) {
    if let (Limits::Unlimited, Some(rare)) = (&limits, &mut rule.rare) {
        (rare.pools, rare.notify) = (Vec::new(), Vec::new());
    }
    rule.limits = limits;
}

fn scaled(limits: &Limits, factor: u64) -> Result<Limits, String> {
    match limits {
        Limits::Unlimited => Ok(Limits::Unlimited),
        Limits::Envoy { requests_per_unit, unit } => {
            let times = u128::from(*requests_per_unit).saturating_mul(factor.into()) / 1_000;
            let requests_per_unit = u32::try_from(times)
                .map_err(|_| "the limit is too large; write a smaller factor".to_owned())?
                .max((*requests_per_unit).min(1));
            Ok(Limits::Envoy { requests_per_unit, unit: *unit })
        }
        Limits::Native(limits) => {
            let scaled: Result<Vec<LimitConfig>, _> =
                limits.iter().map(|limit| limit.scaled(factor)).collect();
            scaled.map(|limits| Limits::Native(limits.into())).map_err(|error| error.to_string())
        }
    }
}

/// Whether a rule with changed limits can be enforced.
fn check(rule: &RuleConfig) -> Result<(), String> {
    if let Some(reason) = rule.refused_pools().or_else(|| rule.refused_notify()) {
        return Err(reason.to_owned());
    }
    let Limits::Native(limits) = &rule.limits else { return Ok(()) };
    for limit in limits {
        let at: Limit = limit.at(Timestamp::EPOCH);
        EnforcedLimit::new(at, rule.mode).map_err(|error| error.to_string())?;
        let consistency = rule.effective_consistency();
        if let Some(needs) = consistency.unsupported(&at, limit.algorithm()) {
            return Err(format!("`{}` needs {needs}", consistency.name()));
        }
    }
    Ok(())
}

// === names ===

fn shown(value: &Pattern) -> String {
    let entry = ListEntry { key: String::new(), value: value.clone() }.to_string();
    entry.trim_start_matches('=').to_owned()
}

/// Names of native limits are unique in a domain.
fn rename(node: &mut CopiedNode, suffix: &str, renamed: &mut Vec<(Box<str>, Box<str>)>) {
    if let Some(RuleConfig { name: Some(name), .. }) = &mut node.config.rule {
        let new: Box<str> = format!("{name}{suffix}").into();
        renamed.push((std::mem::replace(name, new.clone()), new));
    }
    node.below.iter_mut().for_each(|below| rename(below, suffix, renamed));
}

/// Rules that replace a copied rule replace its copy too: `renamed` are the names of copied rules,
/// and those of the copies.
pub fn extend_replaces(nodes: &mut [DescriptorConfig], renamed: &[(Box<str>, Box<str>)]) {
    for node in nodes {
        let rare = node.rule.as_mut().and_then(|rule| rule.rare.as_mut());
        if let Some(rare) = rare.filter(|rare| !rare.replaces.is_empty()) {
            for (name, copy) in renamed {
                if rare.replaces.contains(name) && !rare.replaces.contains(copy) {
                    rare.replaces.push(copy.clone());
                }
            }
        }
        extend_replaces(&mut node.descriptors, renamed);
    }
}
