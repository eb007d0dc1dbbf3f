//! The compiled rules.
//!
//! Nodes of all trees are in one array and their texts in one string; a hash table finds a node by
//! level and text (`table`). Each entry of a descriptor is looked up below the node of the entry
//! before it, in this order:
//!
//! ```text
//!   1. exactly       user_id=42          one look into the table
//!   2. networks      cidr: 10.0.0.0/8    the longest that holds the address
//!   3. patterns      /login*, a regex    the first in the order of the file
//!   4. any value     user_id             one more look into the table
//! ```
//!
//! The first match is taken, without backtracking. The rule of the last entry's node applies; if it
//! has none, nothing is limited. A set is immutable: a reload compiles and swaps in another.

mod build;
mod digest;
mod error;
mod find;
mod identity;
mod networks;
mod patterns;
mod pools;
mod stat_key;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod trial;

use std::ops::Range;

pub use error::RuleSetError;
pub use find::{MatchKind, MatchPath};
pub(crate) use identity::write_pool;
pub use identity::{write_envoy_key, write_plain, write_readable};
pub use tree::Configured;

use self::networks::Networks;
use self::patterns::Patterns;
use self::table::Table;
use crate::domain::{Counter, Domain, ForwardAuth, Joint};
use crate::overrides::TemporaryOverride;
use crate::request::Entry;
use crate::rule::{Limits, RuleConfig, pool_id};

/// Maximum number of entries of a rule's descriptor.
pub const DEPTH_MAX: usize = 32;

/// The compiled rules of all domains.
///
/// ```
/// use sluicegate_rules::domain::{DescriptorConfig, Domain};
/// use sluicegate_rules::request::Entry;
/// use sluicegate_rules::rule::{Limits, RuleConfig};
/// use sluicegate_rules::set::RuleSet;
/// use sluicegate_rules::unit::Unit;
///
/// let limited = |node: DescriptorConfig, requests_per_unit| {
///     let rule = RuleConfig::new(Limits::Envoy { requests_per_unit, unit: Unit::Minute });
///     DescriptorConfig { rule: Some(rule), ..node }
/// };
/// let descriptors = vec![limited(DescriptorConfig::any("user_id"), 20), limited(DescriptorConfig::text("user_id", "42"), 500)];
/// let rules = RuleSet::new(vec![Domain { descriptors, ..Domain::new("shop") }])?;
///
/// let rule_of = |user| rules.find("shop", &[Entry::new("user_id", user)]).map(|found| found.rule.limits.clone());
/// assert_eq!(rule_of("42"), Some(Limits::Envoy { requests_per_unit: 500, unit: Unit::Minute }));
/// assert_eq!(rule_of("43"), Some(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute }));
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    domains: Box<[Root]>,
    domain_table: Table,
    levels: Box<[Level]>,
    nodes: Box<[Node]>,
    texts: Box<str>,
    table: Table,
    rules: Box<[RuleEntry]>,
    /// Length of the longest text of a node.
    longest: usize,
    /// Whether any rule replaces others.
    replacing: bool,
    /// Whether any rule has further pools.
    has_pools: bool,
    /// Hash of each domain.
    digests: Box<[u64]>,
}

/// Index of a rule in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleNo(u32);

/// Index of a domain in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainNo(u32);

/// The rule that a descriptor matches.
#[derive(Debug)]
pub struct MatchedRule<'a> {
    /// The rule.
    pub rule: &'a RuleConfig,
    /// Its index in the set.
    pub no: RuleNo,
    /// The path to it.
    pub path: MatchPath,
}

#[derive(Debug, Clone)]
struct Root {
    name: Box<str>,
    level: LevelNo,
    /// All nodes of its tree.
    nodes: Range<u32>,
    /// The lists, each a level of its own.
    allow: Option<LevelNo>,
    deny: Option<LevelNo>,
    forward_auth: Option<Box<ForwardAuth>>,
    /// The overrides in force.
    overrides: Box<[TemporaryOverride]>,
}

/// The number of a level: the nodes that may follow one node.
///
/// The number encodes what most levels need, so that no memory is read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelNo(u32);

/// The nodes of a level that the table does not hold. Few levels have any.
#[derive(Debug, Clone, Default)]
struct Level {
    patterns: Patterns,
    networks: Networks,
}

/// A compiled descriptor. It fills one cache line; for a short text, a lookup reads only this line
/// and a slot of the table.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Node {
    /// The first bytes of its text, padded with zeros.
    near: [u8; NEAR],
    /// Offset of its text: the key, and with a value, `_` and the value.
    text_start: u32,
    text_length: u32,
    key_length: u32,
    /// The level that it is on.
    of_level: LevelNo,
    parent: u32,
    /// The level that it leads to, or [`LevelNo::NONE`].
    level: LevelNo,
    /// Its rule, or [`NONE`].
    rule: u32,
    kind: Kind,
    counter: Counter,
    value_to_metric: bool,
}

/// The kind of a node's text. Nodes of different kinds may have the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A key, or a key and a value: the table finds it.
    Text,
    /// A key and an expression.
    Regex,
    /// A key and networks with commas between them.
    Networks,
}

/// No node or rule has this number.
const NONE: u32 = u32::MAX;

/// Bytes of a text that are in the node itself.
const NEAR: usize = 28;

const _: () = assert!(size_of::<Node>() == 64);

/// A rule, followed by its further pools.
#[derive(Debug, Clone)]
struct RuleEntry {
    rule: RuleConfig,
    node: u32,
    domain: u32,
    /// Its place among the pools of its rule; 0 for the rule itself.
    pool: u32,
}

impl RuleSet {
    /// Compiles the rules of some domains.
    ///
    /// # Errors
    /// When two of them conflict, or they are nested too deeply.
    pub fn new(domains: Vec<Domain>) -> Result<Self, RuleSetError> {
        if let Some(domain) = domains.iter().find(|one| one.is_timed() && !one.is_resolved) {
            return Err(RuleSetError::TimeDependent { domain: domain.name.clone() });
        }
        let digests = domains.iter().map(digest::of).collect();
        Ok(Self { digests, ..build::build(domains)? })
    }

    /// The rule that a descriptor with these entries matches.
    #[must_use]
    pub fn find(&self, domain: &str, entries: &[Entry<'_>]) -> Option<MatchedRule<'_>> {
        let mut path = MatchPath::default();
        let no = self.find_in(self.domain(domain)?, entries, &mut path)?;
        Some(MatchedRule { rule: self.rule(no), no, path })
    }

    /// A rule.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn rule(&self, no: RuleNo) -> &RuleConfig {
        &self.rules[no.0 as usize].rule
    }

    /// The indexes of all rules, in file order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = RuleNo> + use<> {
        (0..self.rules.len()).map(|no| RuleNo(no as u32))
    }

    /// The names of all domains, in the order of the files.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.iter().map(|root| &*root.name)
    }

    /// The domains with forward auth and their settings, in file order.
    pub fn forward_auths(&self) -> impl Iterator<Item = (&str, &ForwardAuth)> {
        self.domains.iter().filter_map(|root| Some((&*root.name, root.forward_auth.as_deref()?)))
    }

    /// The forward auth settings of a domain, if it has any.
    #[must_use]
    pub fn forward_auth(&self, domain: &str) -> Option<(&str, &ForwardAuth)> {
        let root = self.domains.get(self.domain(domain)?.0 as usize)?;
        Some((&root.name, root.forward_auth.as_deref()?))
    }

    /// The overrides in force in a domain, in the order of the file.
    ///
    /// # Panics
    /// When the domain is of another set.
    #[must_use]
    pub fn overrides(&self, domain: DomainNo) -> &[TemporaryOverride] {
        &self.domains[domain.0 as usize].overrides
    }

    /// The domain that a rule belongs to.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn domain_of(&self, no: RuleNo) -> &str {
        &self.domains[self.rules[no.0 as usize].domain as usize].name
    }

    /// The id of a rule: its name, or its path, `shop/user_id/path=/login*`; with the name of the
    /// pool if it is a further one, `shop/user_id:credits`.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn id(&self, no: RuleNo) -> String {
        match (&self.rule(no).name, self.pool_of(no)) {
            (Some(name), _) => format!("{}/{name}", self.domain_of(no)),
            (None, Some(pool)) => pool_id(&self.path_of(no), pool),
            (None, None) => self.path_of(no),
        }
    }

    /// The path of a rule, which its pools share: `shop/user_id/path=/login*`.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn path_of(&self, no: RuleNo) -> String {
        let mut path = self.domain_of(no).to_owned();
        for node in self.nodes_to(self.rules[no.0 as usize].node) {
            let (key, value) = self.written(node);
            path.push('/');
            path.push_str(key);
            if let Some(value) = value {
                path.push('=');
                path.push_str(value);
            }
        }
        path
    }

    /// The entries on the path to a rule, as metrics name them: `user_id`, `path_/login*`.
    ///
    /// ```
    /// use sluicegate_rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate_rules::rule::{Limits, RuleConfig};
    /// use sluicegate_rules::set::RuleSet;
    ///
    /// let login = DescriptorConfig { rule: Some(RuleConfig::new(Limits::Unlimited)), ..DescriptorConfig::text("path", "/login*") };
    /// let user = DescriptorConfig { descriptors: vec![login], ..DescriptorConfig::any("user_id") };
    /// let rules = RuleSet::new(vec![Domain { descriptors: vec![user], ..Domain::new("shop") }])?;
    /// let no = rules.rules().next().unwrap();
    /// assert!(rules.metric_path(no).eq(["user_id", "path_/login*"]));
    /// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
    /// ```
    ///
    /// # Panics
    /// When the number is of another set.
    pub fn metric_path(&self, no: RuleNo) -> impl Iterator<Item = &str> {
        self.nodes_to(self.rules[no.0 as usize].node).map(|node| self.text(node))
    }

    /// The key that identifies a rule across reloads: its name, or its path. Unique in a set; not
    /// meant for display.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn stable_key(&self, no: RuleNo) -> String {
        if let Some(pool) = self.pool_of(no) {
            return format!("{}p{}:{pool}", self.stable_key(self.first_pool(no)), pool.len());
        }
        let mut key = String::new();
        let mut add = |mark: char, text: &str| {
            key.push(mark);
            key.push_str(&text.len().to_string());
            key.push(':');
            key.push_str(text);
        };
        add('d', self.domain_of(no));
        if let (Some(name), Limits::Native(_)) = (&self.rule(no).name, &self.rule(no).limits) {
            // A rule for one identity has less capacity than one for many.
            add(if self.is_one_identity(no) { 'o' } else { 'n' }, name);
            return key;
        }
        for node in self.nodes_to(self.rules[no.0 as usize].node) {
            let (name, value) = self.written(node);
            add('k', name);
            if let Some(value) = value {
                let mark = match node.kind {
                    Kind::Text => 'v',
                    Kind::Regex => 'r',
                    Kind::Networks => 'c',
                };
                add(mark, value);
            }
        }
        key
    }

    /// Whether a rule has a single identity: no node on its path distinguishes requests.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn is_one_identity(&self, no: RuleNo) -> bool {
        let node = self.rules[no.0 as usize].node;
        self.nodes_to(node).all(|node| {
            let value = self.written(node).1;
            let exact = value.is_some_and(|value| !value.contains('*')) && node.kind == Kind::Text;
            // Where key and value are one text, several keys find the same node and count apart.
            let joined = node.of_level.joint() == Joint::Joined;
            !joined && (node.counter == Counter::Shared || exact)
        })
    }

    /// Approximate size in bytes, without the heap data of rules.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.nodes)
            + size_of_val(&*self.levels)
            + size_of_val(&*self.rules)
            + self.texts.len()
            + self.table.bytes()
    }
}

/// Nodes.
impl RuleSet {
    fn text(&self, node: &Node) -> &str {
        let start = node.text_start as usize;
        &self.texts[start..start + node.text_length as usize]
    }

    /// The configured key and value of a node.
    fn written(&self, node: &Node) -> (&str, Option<&str>) {
        let (key, rest) = self.text(node).split_at(node.key_length as usize);
        (key, rest.get(1..))
    }

    /// The key and the value of a node in one text: `path=/login*`.
    pub(crate) fn written_at(&self, node: u32) -> String {
        let (key, value) = self.written(&self.nodes[node as usize]);
        value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
    }

    pub(crate) fn first_level(&self, domain: DomainNo) -> LevelNo {
        self.domains[domain.0 as usize].level
    }

    /// The level that a node leads to.
    pub(crate) fn level_after(&self, node: u32) -> Option<LevelNo> {
        Some(self.nodes[node as usize].level).filter(|level| *level != LevelNo::NONE)
    }

    /// The nodes on the path to one, including itself.
    fn nodes_to(&self, last: u32) -> impl Iterator<Item = &Node> {
        let mut path: Vec<&Node> = Vec::new();
        let mut next = self.nodes.get(last as usize);
        while let Some(node) = next {
            path.push(node);
            next = self.nodes.get(node.parent as usize);
        }
        path.into_iter().rev()
    }
}

impl LevelNo {
    /// No level has this number.
    const NONE: Self = Self(u32::MAX);
    /// Set for a level with patterns or networks; the remaining bits are its index in `levels`.
    const TRIED: u32 = 1 << 31;
    /// Set for a level where key and value are one text.
    const JOINED: u32 = 1 << 30;

    /// The number of the level at this index among those with patterns, or among the others.
    fn new(index: usize, joint: Joint, tried: bool) -> Option<Self> {
        let index = u32::try_from(index).ok().filter(|index| *index < Self::JOINED - 1)?;
        let joined = if joint == Joint::Joined { Self::JOINED } else { 0 };
        Some(Self(index | joined | if tried { Self::TRIED } else { 0 }))
    }

    #[inline]
    const fn joint(self) -> Joint {
        if self.0 & Self::JOINED == 0 { Joint::Apart } else { Joint::Joined }
    }

    /// Its index in `levels`, if any.
    #[inline]
    const fn tried(self) -> Option<usize> {
        if self.0 & Self::TRIED == 0 { None } else { Some((self.0 & (Self::JOINED - 1)) as usize) }
    }
}

impl DomainNo {
    /// Its index among the domains of its set.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl RuleNo {
    /// Its index among all rules of its set.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
