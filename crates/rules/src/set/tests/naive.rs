//! Naive matcher after the documentation, without tables or indexes: it visits every node of a
//! level for every entry. It shares no code with the set and uses only the public API, because the
//! fuzzer uses it too.

use std::collections::HashSet;
use std::net::IpAddr;

use super::rules::domain::{Counter, DescriptorConfig, Domain, Joint, ListEntry, Pattern};
use super::rules::network::Network;
use super::rules::plan::List;
use super::rules::request::Entry;
use super::rules::set::MatchKind;

/// The node that an entry leads to, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<'a> {
    pub(super) node: &'a DescriptorConfig,
    pub(super) how: MatchKind,
}

/// The part of a counter's identity that one entry contributes; nodes are compared by address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counted {
    Value(String, String),
    Shared(String, usize),
    Network(String, Network, usize),
}

/// The nodes that entries lead to, as far as they lead anywhere.
pub(super) fn way<'a>(domain: &'a Domain, entries: &[Entry<'_>]) -> Vec<Taken<'a>> {
    let mut way = Vec::new();
    follow(&domain.descriptors, domain.joint, entries, &mut way);
    way
}

fn follow<'a>(
    level: &'a [DescriptorConfig],
    joint: Joint,
    entries: &[Entry<'_>],
    way: &mut Vec<Taken<'a>>,
) {
    let Some((entry, rest)) = entries.split_first() else { return };
    let Some(taken) = step(level, joint, entry) else { return };
    way.push(taken);
    follow(&taken.node.descriptors, joint, rest, way);
}

/// The node of the last entry, if all entries match and it has a rule.
pub(super) fn find<'a>(domain: &'a Domain, entries: &[Entry<'_>]) -> Option<&'a DescriptorConfig> {
    let way = way(domain, entries);
    let last = way.last().filter(|_| way.len() == entries.len())?;
    last.node.rule.as_ref().map(|_| last.node)
}

/// The identity of the counter, for entries that match a rule.
pub(super) fn identity(domain: &Domain, entries: &[Entry<'_>]) -> Option<Vec<Counted>> {
    find(domain, entries)?;
    let counted = |(taken, entry): (&Taken<'_>, &Entry<'_>)| {
        let (key, place) = (entry.key.to_owned(), std::ptr::from_ref(taken.node) as usize);
        match (taken.node.counter, address(entry.value)) {
            (Counter::Shared, _) => Counted::Shared(key, place),
            (Counter::PerNetwork(prefix), Some(address)) => {
                let length = if address.is_ipv4() { prefix.v4 } else { prefix.v6 };
                Counted::Network(key, Network::of(address, length), place)
            }
            _ => Counted::Value(key, entry.value.to_owned()),
        }
    };
    Some(way(domain, entries).iter().zip(entries).map(counted).collect())
}

/// The first listed entry; all of `deny` precedes `allow`.
pub(super) fn listed(
    domain: &Domain,
    descriptors: &[Vec<Entry<'_>>],
) -> Option<(List, (usize, usize))> {
    for (list, listed) in [(List::Deny, &domain.deny), (List::Allow, &domain.allow)] {
        for (place, entries) in descriptors.iter().enumerate() {
            for (at, entry) in entries.iter().enumerate() {
                if listed.iter().any(|listed| is_on(listed, entry)) {
                    return Some((list, (place, at)));
                }
            }
        }
    }
    None
}

fn is_on(listed: &ListEntry, entry: &Entry<'_>) -> bool {
    listed.key == entry.key
        && match &listed.value {
            Pattern::Any => true,
            Pattern::Text(text) => glob(text.as_bytes(), entry.value.as_bytes()),
            Pattern::Regex(regex) => regex.is_match(entry.value),
            Pattern::Networks(networks) => address(entry.value)
                .is_some_and(|address| networks.iter().any(|network| network.contains(address))),
        }
}

fn step<'a>(level: &'a [DescriptorConfig], joint: Joint, entry: &Entry<'_>) -> Option<Taken<'a>> {
    let exact = level.iter().find(|node| is_exactly(node, joint, entry));
    let network = || longest(level, entry);
    let pattern = || level.iter().find(|node| is_like(node, joint, entry));
    let any = || level.iter().find(|node| takes_any(node, joint, entry));
    let taken = |node, how| Some(Taken { node, how });
    None.or_else(|| taken(exact?, MatchKind::Exact))
        .or_else(|| taken(network()?, MatchKind::Network))
        .or_else(|| taken(pattern()?, MatchKind::Pattern))
        .or_else(|| taken(any()?, MatchKind::AnyValue))
}

fn is_exactly(node: &DescriptorConfig, joint: Joint, entry: &Entry<'_>) -> bool {
    match (joint, &node.value) {
        (Joint::Apart, Pattern::Text(text)) => node.key == entry.key && text == entry.value,
        (Joint::Joined, Pattern::Text(_) | Pattern::Any) => joined(node) == both(entry),
        _ => false,
    }
}

fn longest<'a>(level: &'a [DescriptorConfig], entry: &Entry<'_>) -> Option<&'a DescriptorConfig> {
    let address = address(entry.value)?;
    let mut longest: Option<(u8, &DescriptorConfig)> = None;
    for node in level.iter().filter(|node| node.key == entry.key) {
        let Pattern::Networks(networks) = &node.value else { continue };
        for network in networks.iter().filter(|network| network.contains(address)) {
            if longest.is_none_or(|(length, _)| length < network.length()) {
                longest = Some((network.length(), node));
            }
        }
    }
    longest.map(|(_, node)| node)
}

fn is_like(node: &DescriptorConfig, joint: Joint, entry: &Entry<'_>) -> bool {
    match (joint, &node.value) {
        (_, Pattern::Regex(regex)) => node.key == entry.key && regex.is_match(entry.value),
        (Joint::Apart, Pattern::Text(text)) => {
            node.key == entry.key && glob(text.as_bytes(), entry.value.as_bytes())
        }
        (Joint::Joined, Pattern::Text(_) | Pattern::Any) => {
            glob(joined(node).as_bytes(), both(entry).as_bytes())
        }
        _ => false,
    }
}

fn takes_any(node: &DescriptorConfig, joint: Joint, entry: &Entry<'_>) -> bool {
    match (joint, &node.value) {
        (Joint::Apart, Pattern::Any) => node.key == entry.key,
        (Joint::Joined, Pattern::Text(_) | Pattern::Any) => joined(node) == entry.key,
        _ => false,
    }
}

fn joined(node: &DescriptorConfig) -> String {
    match &node.value {
        Pattern::Text(text) => format!("{}_{text}", node.key),
        _ => node.key.clone(),
    }
}

fn both(entry: &Entry<'_>) -> String {
    format!("{}_{}", entry.key, entry.value)
}

fn address(value: &str) -> Option<IpAddr> {
    value.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Tries every expansion of a star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        // Of several stars in a row one does as much.
        (Some((b'*', after)), _) if after.first() == Some(&b'*') => glob(after, text),
        (Some((b'*', after)), _) => (0..=text.len()).any(|length| glob(after, &text[length..])),
        (Some((a, pattern)), Some((b, text))) => a == b && glob(pattern, text),
        _ => false,
    }
}

// === twins ===

/// Whether two nodes at one place, anywhere in the domain, are for the same.
pub(super) fn has_twins(domain: &Domain) -> bool {
    let leaf = |listed: &ListEntry| DescriptorConfig::new(listed.key.clone(), listed.value.clone());
    let lists = [&domain.allow, &domain.deny];
    let mut lists = lists.map(|list| list.iter().map(leaf).collect::<Vec<_>>()).into_iter();
    level_has_twins(&domain.descriptors, domain.joint)
        || lists.any(|list| level_has_twins(&list, Joint::Apart))
}

fn level_has_twins(level: &[DescriptorConfig], joint: Joint) -> bool {
    let mut level = level.to_vec();
    let all = level.len();
    drop_twins(&mut level, joint);
    level.len() < all || level.iter().any(|node| level_has_twins(&node.descriptors, joint))
}

/// Leaves the first of several nodes that are for the same.
pub(super) fn drop_twins(level: &mut Vec<DescriptorConfig>, joint: Joint) {
    let mut seen = HashSet::new();
    level.retain(|node| {
        let mut names = names(node, joint);
        names.sort();
        names.dedup();
        let new = names.iter().all(|name| !seen.contains(name));
        if new {
            seen.extend(names);
        }
        new
    });
}

/// What no two nodes of a level may have in common.
fn names(node: &DescriptorConfig, joint: Joint) -> Vec<(String, Option<String>)> {
    match (&node.value, joint) {
        (Pattern::Regex(regex), _) => vec![(node.key.clone(), Some(format!("like {regex}")))],
        (Pattern::Networks(networks), _) => networks
            .iter()
            .map(|network| (node.key.clone(), Some(format!("in {network}"))))
            .collect(),
        (_, Joint::Joined) => vec![(joined(node), None)],
        (Pattern::Text(text), Joint::Apart) => vec![(node.key.clone(), Some(format!("is {text}")))],
        (Pattern::Any, Joint::Apart) => vec![(node.key.clone(), None)],
    }
}
