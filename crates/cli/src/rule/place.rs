//! Rules in the order of the files, each with the way to it.

use sluicegate::estimate::{Estimate, bytes_per_identity};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit as CoreLimit;
use sluicegate_rules::domain::{Counter, Domain, Node, Pattern};
use sluicegate_rules::limit::Limit;
use sluicegate_rules::rule::{Limits, Rule};

/// A rule, and the descriptors that lead to it.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) domain: &'a str,
    pub(crate) nodes: Vec<&'a Node>,
    pub(crate) rule: &'a Rule,
}

/// What stands in a domain, in the order of its files.
#[derive(Debug, Default)]
pub(crate) struct Contents<'a> {
    pub(crate) rules: Vec<Placed<'a>>,
    /// The ways to descriptors that match, limit nothing, and lead no further.
    pub(crate) exempt: Vec<String>,
}

/// All rules of a domain; one that others lie below comes before them.
pub(crate) fn contents(domain: &Domain) -> Contents<'_> {
    fn walk<'a>(
        domain: &'a str,
        nodes: &'a [Node],
        way: &mut Vec<&'a Node>,
        all: &mut Contents<'a>,
    ) {
        for node in nodes {
            way.push(node);
            match &node.rule {
                Some(rule) => all.rules.push(Placed { domain, nodes: way.clone(), rule }),
                None if node.descriptors.is_empty() => all.exempt.push(way_of(way)),
                None => {}
            }
            walk(domain, &node.descriptors, way, all);
            way.pop();
        }
    }
    let mut all = Contents::default();
    walk(&domain.name, &domain.descriptors, &mut Vec::new(), &mut all);
    all
}

/// The way through some descriptors: `user_id/path=/login*`.
pub(crate) fn way_of(nodes: &[&Node]) -> String {
    let written: Vec<String> = nodes.iter().map(|node| written(&node.key, &node.value)).collect();
    written.join("/")
}

/// A key and the values it stands for, in one text: `path=/login*`.
pub(crate) fn written(key: &str, value: &Pattern) -> String {
    match value {
        Pattern::Any => key.to_owned(),
        Pattern::Text(text) => format!("{key}={text}"),
        Pattern::Regex(regex) => format!("{key}={regex}"),
        Pattern::Networks(networks) => {
            let all: Vec<String> = networks.iter().map(ToString::to_string).collect();
            format!("{key}={}", all.join(","))
        }
    }
}

// === impl Placed ===

impl Placed<'_> {
    /// What it is called: `shop/user_id/path=/login*`, or by its name.
    pub(crate) fn id(&self) -> String {
        match &self.rule.name {
            Some(name) => format!("{}/{name}", self.domain),
            None => format!("{}/{}", self.domain, self.way()),
        }
    }

    /// The way to it inside its domain.
    pub(crate) fn way(&self) -> String {
        way_of(&self.nodes)
    }

    /// Whether everybody under it shares one counter.
    pub(crate) fn is_one_counter(&self) -> bool {
        !self.nodes.iter().any(|node| varies(node))
    }

    /// What a key under it takes in the embedded store.
    pub(crate) fn estimate(&self) -> Estimate {
        bytes_per_identity(&limits(&self.rule.limits), self.rule.mode)
    }
}

/// Whether a descriptor tells one counter from another.
pub(crate) fn varies(node: &Node) -> bool {
    let exact = matches!(&node.value, Pattern::Text(_)) && !node.value.is_glob();
    node.counter != Counter::Shared && !exact
}

/// What a rule limits, with Envoy's form as a limit of its own kind.
pub(crate) fn limits(limits: &Limits) -> Vec<Limit> {
    match limits {
        Limits::Unlimited => Vec::new(),
        Limits::Native(limits) => limits.to_vec(),
        Limits::Envoy { requests_per_unit, unit } => {
            let tally = Tally::new(u64::from(*requests_per_unit), unit.span());
            // Any number of 32 bits in any unit can be held.
            tally.into_iter().map(|tally| Limit::fixed(None, CoreLimit::Tally(tally))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_config::rules::{Options, Source, load};
    use sluicegate_rules::set::RuleSet;
    use std::collections::BTreeSet;

    #[test]
    fn rules_are_called_what_the_rule_set_calls_them() {
        let texts = [
            include_str!("../../../../docs/examples/shop.yaml"),
            include_str!("../../../../docs/examples/envoy.yaml"),
        ];
        let source = |text: &str| Source { name: "test".to_owned(), text: text.to_owned() };
        let loaded = load(&texts.map(source), &Options::default()).unwrap();
        let ours: BTreeSet<String> =
            loaded.domains.iter().flat_map(|d| contents(d).rules).map(|r| r.id()).collect();
        let set = RuleSet::new(loaded.domains.clone()).unwrap();
        assert_eq!(ours, set.rules().map(|no| set.id(no)).collect());
        assert_eq!(ours.len(), 8);
    }
}
