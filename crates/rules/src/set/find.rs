//! Matches the entries of a descriptor to a rule.

use super::patterns::Joined;
use super::table::hash;
use super::{DomainNo, LevelNo, NEAR, NONE, Node, RuleNo, RuleSet};
use crate::domain::Joint;
use crate::plan::{List, ListMatch};
use crate::request::{Descriptor, Entry};

/// The path of a descriptor through the tree. Reusing one needs no further allocation.
#[derive(Debug, Clone, Default)]
pub struct MatchPath {
    pub(super) nodes: Vec<u32>,
    joined: Vec<u8>,
}

/// The kind of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchKind {
    /// Its value is that of the entry.
    Exact,
    /// It has the longest network that holds the address.
    Network,
    /// It is the first pattern of the file that matches.
    Pattern,
    /// It takes any value.
    AnyValue,
}

impl RuleSet {
    /// The index of a domain.
    #[inline]
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<DomainNo> {
        let mut candidates = self.domain_table.candidates(hash(NONE, name.as_bytes()));
        candidates.find(|no| *self.domains[*no as usize].name == *name).map(DomainNo)
    }

    /// The index of the rule that these entries match, and the path to it.
    ///
    /// # Panics
    /// When the domain is of another set.
    #[inline]
    pub fn find_in(
        &self,
        domain: DomainNo,
        entries: &[Entry<'_>],
        path: &mut MatchPath,
    ) -> Option<RuleNo> {
        path.nodes.clear();
        let mut level = self.domains[domain.0 as usize].level;
        let mut rule = NONE;
        for entry in entries {
            // The entry before led to a leaf.
            if level == LevelNo::NONE {
                return None;
            }
            let (number, _) = self.step(level, entry, &mut path.joined)?;
            path.nodes.push(number);
            let node = &self.nodes[number as usize];
            (level, rule) = (node.level, node.rule);
        }
        if rule == NONE { None } else { Some(RuleNo(rule)) }
    }

    /// Whether all entries were matched, the last by a node with nothing below it.
    pub(crate) fn is_leaf(&self, entries: &[Entry<'_>], path: &MatchPath) -> bool {
        let last = path.nodes.last().filter(|_| path.nodes.len() == entries.len());
        last.is_some_and(|last| self.nodes[*last as usize].level == LevelNo::NONE)
    }

    /// The entry of a request that is on one of the lists.
    pub(crate) fn listed(
        &self,
        domain: DomainNo,
        descriptors: &[Descriptor<'_>],
        path: &mut MatchPath,
    ) -> Option<ListMatch> {
        let root = &self.domains[domain.0 as usize];
        let mut on = |list, level: Option<LevelNo>| {
            let level = level?;
            let entries = descriptors.iter().enumerate().flat_map(|(index, descriptor)| {
                descriptor.entries.iter().enumerate().map(move |(at, entry)| ((index, at), entry))
            });
            for (at, entry) in entries {
                if self.step(level, entry, &mut path.joined).is_some() {
                    return Some(ListMatch { list, at });
                }
            }
            None
        };
        on(List::Deny, root.deny).or_else(|| on(List::Allow, root.allow))
    }

    /// Whether any rule replaces others.
    pub(crate) const fn has_replacements(&self) -> bool {
        self.replacing
    }

    /// The node of a level that an entry matches.
    #[inline]
    pub(crate) fn step(
        &self,
        level: LevelNo,
        entry: &Entry<'_>,
        joined: &mut Vec<u8>,
    ) -> Option<(u32, MatchKind)> {
        joined.clear();
        joined.extend_from_slice(entry.key.as_bytes());
        joined.push(b'_');
        joined.extend_from_slice(entry.value.as_bytes());
        if let Some(node) = self.of_text(level, joined, entry.key.len()) {
            return Some((node, MatchKind::Exact));
        }
        if let Some(index) = level.tried() {
            let level = &self.levels[index];
            if let Some(node) = level.networks.longest(entry.key, entry.value) {
                return Some((node, MatchKind::Network));
            }
            let joined = Joined { text: joined, key: entry.key, value: entry.value };
            if let Some(node) = level.patterns.first(joined) {
                return Some((node, MatchKind::Pattern));
            }
        }
        let any = self.of_text(level, entry.key.as_bytes(), entry.key.len());
        any.map(|node| (node, MatchKind::AnyValue))
    }

    /// The node of a level that has this text, and if that matters, a key of this length.
    #[inline]
    fn of_text(&self, level: LevelNo, text: &[u8], key_length: usize) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        let fits = |node: &Node| {
            node.of_level == level
                && (level.joint() == Joint::Joined || node.key_length as usize == key_length)
                && self.has_text(node, text)
        };
        let mut candidates = self.table.candidates(hash(level.0, text));
        candidates.find(|number| fits(&self.nodes[*number as usize]))
    }

    #[inline]
    fn has_text(&self, node: &Node, text: &[u8]) -> bool {
        node.text_length as usize == text.len()
            && match node.near.get(..text.len()) {
                Some(near) => near == text,
                None => node.near == text[..NEAR] && self.text(node).as_bytes() == text,
            }
    }
}

impl MatchPath {
    /// The node that an entry matched.
    pub(crate) fn node(&self, index: usize) -> Option<u32> {
        self.nodes.get(index).copied()
    }
}
