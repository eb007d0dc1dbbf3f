//! The rules of a domain in file order, as text for people ([`text`]) and as JSON ([`json`]).

pub mod json;

use std::borrow::Cow;

use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_rules::domain::Counter;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{Configured, RuleNo, RuleSet};

use crate::estimate::{Estimate, bytes_per_identity};

pub mod text;
pub mod timing;

/// A rule, and the descriptors that lead to it.
#[derive(Debug, Clone)]
pub struct LocatedRule<'a> {
    set: &'a RuleSet,
    no: RuleNo,
    nodes: Vec<Configured<'a>>,
}

/// The contents of a domain, in file order.
#[derive(Debug, Clone, Default)]
pub struct Contents<'a> {
    /// The rules.
    pub rules: Vec<LocatedRule<'a>>,
    /// Paths of leaf descriptors that match but have no limit.
    pub exempt: Vec<String>,
}

/// All rules of a domain, parents before children.
///
/// ```
/// use sluicegate::explain::rule::contents;
///
/// let rules = sluicegate::rules_of(
///     "
/// domain: shop
/// descriptors:
///   - key: user_id
///     limits: { algorithm: fixed_window, rate: 10/m }
///     descriptors: [{ key: path, value: /health }]
/// ",
/// )?;
/// let shop = contents(&rules, "shop");
/// assert_eq!(shop.rules[0].id(), "shop/user_id");
/// assert_eq!(shop.exempt, ["user_id/path=/health"]);
/// # Ok::<(), sluicegate::RulesError>(())
/// ```
#[must_use]
pub fn contents<'a>(set: &'a RuleSet, domain: &str) -> Contents<'a> {
    fn walk<'a>(
        set: &'a RuleSet,
        nodes: Vec<Configured<'a>>,
        path: &mut Vec<Configured<'a>>,
        all: &mut Contents<'a>,
    ) {
        for node in nodes {
            let below: Vec<Configured<'a>> = node.below().collect();
            path.push(node);
            match node.rule() {
                Some(no) => all.rules.extend(set.pools(no).map(|no| LocatedRule {
                    set,
                    no,
                    nodes: path.clone(),
                })),
                None if below.is_empty() => all.exempt.push(path_of(path)),
                None => {}
            }
            walk(set, below, path, all);
            path.pop();
        }
    }
    let mut all = Contents::default();
    if let Some(domain) = set.domain(domain) {
        walk(set, set.top(domain).collect(), &mut Vec::new(), &mut all);
    }
    all
}

/// Path through the descriptors: `user_id/path=/login*`.
pub(crate) fn path_of(nodes: &[Configured<'_>]) -> String {
    let written: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    written.join("/")
}

impl<'a> LocatedRule<'a> {
    /// A rule of a set.
    ///
    /// # Panics
    /// When the number belongs to another set.
    #[must_use]
    pub fn of(set: &'a RuleSet, no: RuleNo) -> Self {
        Self { set, no, nodes: set.descriptors_to(no) }
    }

    /// The rule and its further pools, in the order that requests draw from them; nothing if it has
    /// none.
    #[must_use]
    pub fn pools(&self) -> Vec<String> {
        let all: Vec<RuleNo> = self.set.pools(self.set.first_pool(self.no)).collect();
        let all = if all.len() > 1 { all } else { Vec::new() };
        all.into_iter().map(|no| self.set.id(no)).collect()
    }

    /// The rule itself.
    #[must_use]
    pub fn rule(&self) -> &'a RuleConfig {
        self.set.rule(self.no)
    }

    /// The descriptors that lead to it.
    #[must_use]
    pub fn nodes(&self) -> &[Configured<'a>] {
        &self.nodes
    }

    /// Its identifier: `shop/user_id/path=/login*`, or its name.
    #[must_use]
    pub fn id(&self) -> String {
        self.set.id(self.no)
    }

    /// The key that identifies it across reloads; not meant for display.
    #[must_use]
    pub fn stable_key(&self) -> String {
        self.set.stable_key(self.no)
    }

    /// Its path inside the domain.
    #[must_use]
    pub fn path(&self) -> String {
        path_of(&self.nodes)
    }

    /// Whether all requests under it share one counter.
    #[must_use]
    pub fn is_one_counter(&self) -> bool {
        !self.nodes.iter().any(varies)
    }

    /// Memory of one key under it in the embedded store.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        bytes_per_identity(&limits(&self.rule().limits), self.rule().mode)
    }
}

/// Whether a descriptor distinguishes counters.
pub(crate) fn varies(node: &Configured<'_>) -> bool {
    node.counter() != Counter::Shared && !node.is_exact()
}

/// The limits of a rule, with Envoy's form converted to a limit.
pub(super) fn limits(limits: &Limits) -> Cow<'_, [LimitConfig]> {
    match limits {
        Limits::Unlimited => Cow::Borrowed(&[]),
        Limits::Native(limits) => Cow::Borrowed(limits),
        Limits::Envoy { requests_per_unit, unit } => {
            let tally = Tally::new(u64::from(*requests_per_unit), unit.span());
            // Every 32-bit number is valid in every unit.
            tally.into_iter().map(|tally| LimitConfig::fixed(None, Limit::Tally(tally))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_the_set_in_the_order_of_the_file() {
        let text = include_str!("../../../../../docs/examples/shop.yaml");
        let set = crate::rules_of(text).unwrap();
        let ours: Vec<String> = contents(&set, "shop").rules.iter().map(LocatedRule::id).collect();
        let first = ["shop/user_id", "shop/user_id/path=/login*", "shop/partners"];
        assert_eq!(ours[..3], first, "the one above before the one below");
        let (mut ours, mut theirs) = (ours, set.rules().map(|no| set.id(no)).collect::<Vec<_>>());
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
        assert!(contents(&set, "nowhere").rules.is_empty());
    }
}
