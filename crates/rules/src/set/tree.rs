//! The configured tree, read back from the compiled nodes. They are in file order, each before its
//! descendants.

use std::fmt::{self, Debug, Display};

use super::{DomainNo, Kind, MatchPath, NONE, Node, RuleNo, RuleSet};
use crate::domain::Counter;

/// A configured descriptor. As text it is the key and the values: `path=/login*`.
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

impl RuleSet {
    /// The top descriptors of a domain, in file order.
    ///
    /// # Panics
    /// When the domain is of another set.
    pub fn top(&self, domain: DomainNo) -> impl Iterator<Item = Configured<'_>> {
        let root = &self.domains[domain.0 as usize];
        let is_top = move |no: &u32| self.nodes[*no as usize].of_level == root.level;
        root.nodes.clone().filter(is_top).map(|no| Configured { set: self, no })
    }

    /// The descriptors on the path to a rule.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn descriptors_to(&self, no: RuleNo) -> Vec<Configured<'_>> {
        let mut path = Vec::new();
        let mut next = self.rules[no.0 as usize].node;
        while next != NONE {
            path.push(Configured { set: self, no: next });
            next = self.nodes[next as usize].parent;
        }
        path.reverse();
        path
    }

    /// The descriptors along a path.
    pub fn followed(&self, path: &MatchPath) -> impl Iterator<Item = Configured<'_>> {
        path.nodes.iter().map(|no| Configured { set: self, no: *no })
    }
}

impl<'a> Configured<'a> {
    /// The key that an entry must have.
    #[must_use]
    pub fn key(&self) -> &'a str {
        self.set.written(self.node()).0
    }

    /// The configured values; `None` for any.
    #[must_use]
    pub fn value(&self) -> Option<&'a str> {
        self.set.written(self.node()).1
    }

    /// Whether its value is a text; each `*` in it matches any number of characters.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.node().kind == Kind::Text && self.value().is_some()
    }

    /// Whether it matches one value only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_text() && self.value().is_some_and(|value| !value.contains('*'))
    }

    /// Which values share a counter.
    #[must_use]
    pub fn counter(&self) -> Counter {
        self.node().counter
    }

    /// The rule of a descriptor that ends here.
    #[must_use]
    pub fn rule(&self) -> Option<RuleNo> {
        Some(self.node().rule).filter(|no| *no != NONE).map(RuleNo)
    }

    /// Its children, in file order.
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
