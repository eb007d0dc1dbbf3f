//! The tree as it was written, read back from what was compiled: for whoever explains it.
//!
//! Nodes lie in the order of the files, each before all that is below it; so what is below a node follows it in the list.

use std::fmt::{self, Debug, Display};

use super::{DomainNo, Kind, MatchPath, NONE, Node, RuleNo, RuleSet};
use crate::domain::Counter;

/// A descriptor of the tree, as it was configured. As text it is the key and the values: `path=/login*`.
///
/// ```
/// use sluicegate_rules::domain::{DescriptorConfig, Domain};
/// use sluicegate_rules::set::RuleSet;
///
/// let users = DescriptorConfig { descriptors: vec![DescriptorConfig::text("path", "/login*")], ..DescriptorConfig::any("user_id") };
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
/// let top: Vec<_> = rules.domain("shop").into_iter().flat_map(|shop| rules.top(shop)).collect();
/// assert_eq!(top[0].to_string(), "user_id");
/// assert_eq!(top[0].below().next().map(|one| one.to_string()), Some("path=/login*".to_owned()));
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Configured<'a> {
    set: &'a RuleSet,
    no: u32,
}

// === impl RuleSet ===

impl RuleSet {
    /// The descriptors that a domain begins with, in the order of the files.
    ///
    /// # Panics
    /// When the domain is of another set.
    pub fn top(&self, domain: DomainNo) -> impl Iterator<Item = Configured<'_>> {
        let root = &self.domains[domain.0 as usize];
        let here = move |no: &u32| self.nodes[*no as usize].of_level == root.level;
        root.nodes.clone().filter(here).map(|no| Configured { set: self, no })
    }

    /// The descriptors that lead to a rule.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn descriptors_to(&self, no: RuleNo) -> Vec<Configured<'_>> {
        let mut way = Vec::new();
        let mut next = self.rules[no.0 as usize].node;
        while next != NONE {
            way.push(Configured { set: self, no: next });
            next = self.nodes[next as usize].parent;
        }
        way.reverse();
        way
    }

    /// The descriptors that a way leads through.
    pub fn followed(&self, way: &MatchPath) -> impl Iterator<Item = Configured<'_>> {
        way.nodes.iter().map(|no| Configured { set: self, no: *no })
    }
}

// === impl Configured ===

impl<'a> Configured<'a> {
    /// The key that an entry must have.
    #[must_use]
    pub fn key(&self) -> &'a str {
        self.set.written(self.node()).0
    }

    /// The values that it may have, as they are written; `None` for any.
    #[must_use]
    pub fn value(&self) -> Option<&'a str> {
        self.set.written(self.node()).1
    }

    /// Whether its value is a text, in which each `*` stands for any number of characters.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.node().kind == Kind::Text && self.value().is_some()
    }

    /// Whether it takes one value only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_text() && self.value().is_some_and(|value| !value.contains('*'))
    }

    /// Who shares a counter.
    #[must_use]
    pub fn counter(&self) -> Counter {
        self.node().counter
    }

    /// What is enforced when it is the last.
    #[must_use]
    pub fn rule(&self) -> Option<RuleNo> {
        Some(self.node().rule).filter(|no| *no != NONE).map(RuleNo)
    }

    /// What may come next, in the order of the files.
    pub fn below(&self) -> impl Iterator<Item = Self> + use<'a> {
        let Self { set, no } = *self;
        let level = self.node().level;
        let after = set.nodes.get(no as usize + 1..).unwrap_or_default();
        let is_below = move |node: &(u32, &Node)| node.1.parent != NONE && node.1.parent >= no;
        let all = (no.saturating_add(1)..).zip(after).take_while(is_below);
        all.filter(move |(_, node)| node.of_level == level).map(move |(no, _)| Self { set, no })
    }

    fn node(&self) -> &'a Node {
        &self.set.nodes[self.no as usize]
    }
}

impl Display for Configured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())?;
        self.value().map_or(Ok(()), |value| write!(f, "={value}"))
    }
}

impl Debug for Configured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Configured({self})")
    }
}
