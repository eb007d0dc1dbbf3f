//! Copies the nodes of entries that name a plan, one for each plan.

use std::collections::BTreeSet;

use sluicegate_rules::domain::{Counter, DescriptorConfig, Joint, Pattern};
use sluicegate_rules::overrides::extend_replaces;
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::{PlanName, PlanRules};
use crate::problem::{Position, Report, quoted};
use crate::rules::descriptor::Origin;
use crate::rules::glob::matches;
use crate::suggest;

/// Maximum number of descriptors that plans add to a domain.
const COPIES_MAX: usize = 200_000;

/// A node with its rules by plan.
#[derive(Clone)]
struct PlanNode<'a> {
    /// Without the nodes below it.
    config: DescriptorConfig,
    plans: Option<&'a PlanRules>,
    origin: &'a Origin,
    below: Vec<Self>,
}

/// Replaces limits by plan by nodes for each plan.
pub(in crate::rules) fn expand(
    configs: Vec<DescriptorConfig>,
    origins: &[Origin],
    names: &[PlanName],
    joint: Joint,
    reports: &mut [Report],
) -> Vec<DescriptorConfig> {
    fn any(origins: &[Origin]) -> bool {
        origins.iter().any(|origin| origin.plans.is_some() || any(&origin.below))
    }
    if names.is_empty() && !any(origins) {
        return configs;
    }
    let nodes = nodes_of(configs, origins);
    let mut expansion =
        Expansion { names, joint, reports, used: BTreeSet::new(), copies: 0, renamed: Vec::new() };
    expansion.check(&nodes, &mut Vec::new());
    expansion.unused();
    let mut expanded = expansion.level(nodes);
    extend_replaces(&mut expanded, &expansion.renamed);
    expanded
}

fn nodes_of(configs: Vec<DescriptorConfig>, origins: &[Origin]) -> Vec<PlanNode<'_>> {
    let node = |(mut config, origin): (DescriptorConfig, _)| {
        let origin: &Origin = origin;
        let below = nodes_of(std::mem::take(&mut config.descriptors), &origin.below);
        PlanNode { config, plans: origin.plans.as_deref(), origin, below }
    };
    configs.into_iter().zip(origins).map(node).collect()
}

struct Expansion<'a, 'r> {
    names: &'a [PlanName],
    joint: Joint,
    reports: &'r mut [Report],
    /// The plans that have limits.
    used: BTreeSet<String>,
    copies: usize,
    /// The names of copied rules, and those of the copies.
    renamed: Vec<(Box<str>, Box<str>)>,
}

impl<'a> Expansion<'a, '_> {
    fn report(&mut self, source: usize, at: Position, path: &str, message: String) {
        if let Some(report) = self.reports.get_mut(source) {
            report.add(at, path, message);
        }
    }

    /// Reports unknown plans, and entries that are not on the path.
    fn check(&mut self, nodes: &[PlanNode<'a>], keys: &mut Vec<String>) {
        for node in nodes {
            keys.push(node.config.key.clone());
            if let Some(plans) = node.plans {
                let source = node.origin.source;
                if !keys.contains(&plans.key) {
                    let (got, hint) =
                        (quoted(&plans.key), suggest::hint(&plans.key, keys.iter().map(|k| &**k)));
                    let known: Vec<&str> = keys.iter().map(String::as_str).collect();
                    let on_path = suggest::one_of(&known);
                    let message = format!(
                        "must be the key of an entry on the path to this descriptor, got {got}; \
                         {hint}write {on_path}, or put the descriptor below `key: {}`",
                        plans.key
                    );
                    self.report(source, plans.at, &plans.path, message);
                }
                for rule in &plans.rules {
                    self.used.insert(rule.name.clone());
                    if self.names.iter().any(|known| known.name == rule.name) {
                        continue;
                    }
                    let got = quoted(&rule.name);
                    let known: Vec<&str> = self.names.iter().map(|one| one.name.as_str()).collect();
                    let remedy = match known.is_empty() {
                        true => "name the plans at the top of the file, like `plans: [free, pro]`"
                            .to_owned(),
                        false => format!(
                            "{}the plans of the domain are {}; correct it, or add it to `plans` at the \
                             top of the file",
                            suggest::hint(&rule.name, known.iter().copied()),
                            suggest::all_of(&known)
                        ),
                    };
                    let message = format!("unknown plan, got {got}; {remedy}");
                    self.report(source, rule.at, &rule.path, message);
                }
            }
            self.check(&node.below, keys);
            keys.pop();
        }
    }

    fn unused(&mut self) {
        for name in self.names {
            if self.used.contains(&name.name) {
                continue;
            }
            let got = quoted(&name.name);
            let message = format!(
                "no limits are given for this plan, got {got}; give it some, like `limits: {{ by: plan, \
                 plans: {{ {}: … }}, others: deny }}`, or remove it",
                name.name
            );
            self.report(name.source, name.at, &name.path, message);
        }
    }

    fn level(&mut self, nodes: Vec<PlanNode<'a>>) -> Vec<DescriptorConfig> {
        let mut level = Vec::with_capacity(nodes.len());
        let plans: Vec<Vec<String>> = nodes.iter().map(|node| plans_by(node, true)).collect();
        for (index, found) in plans.iter().enumerate() {
            if let Some(node) = nodes.get(index).filter(|_| !found.is_empty()) {
                self.check_node(node, found, &nodes);
            }
        }
        for (mut node, plans) in nodes.into_iter().zip(plans) {
            let key = node.config.key.clone();
            for plan in plans {
                self.copies = self.copies.saturating_add(size(&node));
                if self.copies > COPIES_MAX {
                    let message = format!(
                        "plans add more than {COPIES_MAX} descriptors here; give the plans to fewer of \
                         them, or name fewer plans"
                    );
                    let (source, at) = (node.origin.source, node.origin.at);
                    self.report(source, at, "descriptors", message);
                    break;
                }
                let mut copy = node.clone();
                copy.config.value = Pattern::Text(plan.clone());
                choose(&mut copy, &key, Some(&plan));
                self.rename(&mut copy, &plan);
                level.push(self.node(copy));
            }
            choose(&mut node, &key, None);
            level.push(self.node(node));
        }
        level
    }

    fn node(&mut self, node: PlanNode<'a>) -> DescriptorConfig {
        DescriptorConfig { descriptors: self.level(node.below), ..node.config }
    }

    /// Reports a node that cannot be copied for its plans.
    fn check_node(&mut self, node: &PlanNode<'a>, plans: &[String], level: &[PlanNode<'a>]) {
        let (source, at) = (node.origin.source, node.origin.at);
        let (key, path) = (&node.config.key, "descriptors");
        if !matches!(node.config.value, Pattern::Any) {
            let message = format!(
                "limits below are by the plan in `{key}`, so it must match any value; remove `value`, \
                 `regex` or `cidr` here"
            );
            return self.report(source, at, path, message);
        }
        if node.config.counter != Counter::PerValue {
            let message = format!(
                "limits below are by the plan in `{key}`, so its values cannot share a counter; remove \
                 `shared` or `prefix` here"
            );
            return self.report(source, at, path, message);
        }
        let is_same = |plan: &str, other: &PlanNode<'_>| match (&other.config.value, self.joint) {
            (Pattern::Any | Pattern::Networks(_), _) => false,
            (Pattern::Text(text), _) => matches(text, plan),
            (Pattern::Regex(regex), _) => regex.is_match(plan),
        };
        let of_key = level.iter().filter(|other| other.config.key == *key);
        let found = of_key.into_iter().find_map(|other| {
            plans.iter().find(|plan| is_same(plan, other)).map(|plan| (plan.clone(), other.origin))
        });
        if let Some((plan, other)) = found {
            let message = format!(
                "matches the plan `{plan}`, whose limits are given by `by: {key}` on the descriptor for any \
                 value; keep one of them"
            );
            self.report(other.source, other.at, path, message);
        }
    }

    /// Names of native limits are unique in a domain.
    fn rename(&mut self, node: &mut PlanNode<'a>, plan: &str) {
        if let Some(RuleConfig { name: Some(name), limits, .. }) = &mut node.config.rule
            && !matches!(limits, Limits::Envoy { .. })
        {
            let new: Box<str> = format!("{name}@{plan}").into();
            self.renamed.push((std::mem::replace(name, new.clone()), new));
        }
        for below in &mut node.below {
            self.rename(below, plan);
        }
    }
}

/// The plans of the limits that are by the value of this node, in the order of the file.
fn plans_by(node: &PlanNode<'_>, is_itself: bool) -> Vec<String> {
    fn gather(node: &PlanNode<'_>, key: &str, names: &mut Vec<String>) {
        let plans = node.plans.filter(|plans| plans.key == key);
        for rule in plans.into_iter().flat_map(|plans| &plans.rules) {
            if !names.contains(&rule.name) {
                names.push(rule.name.clone());
            }
        }
        // A nearer entry of the key is the plan of the nodes below it.
        for below in node.below.iter().filter(|below| below.config.key != key) {
            gather(below, key, names);
        }
    }
    let mut names = Vec::new();
    if is_itself {
        gather(node, &node.config.key, &mut names);
    }
    names
}

/// Gives the rules by the value of a node the limits of a plan, or those of others.
fn choose(node: &mut PlanNode<'_>, key: &str, plan: Option<&str>) {
    if let Some(plans) = node.plans.filter(|plans| plans.key == key) {
        let rule = plans.rules.iter().find(|rule| Some(rule.name.as_str()) == plan);
        if let Some(rule) = rule {
            node.config.rule = Some(rule.rule.clone());
        }
        node.plans = None;
    }
    for below in node.below.iter_mut().filter(|below| below.config.key != key) {
        choose(below, key, plan);
    }
}

fn size(node: &PlanNode<'_>) -> usize {
    node.below.iter().fold(1, |sum, below| sum.saturating_add(size(below)))
}
