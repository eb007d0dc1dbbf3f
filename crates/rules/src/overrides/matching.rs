//! Which nodes of a level an override changes, and which it copies.

use std::net::IpAddr;

use super::specialize::CopiedNode;
use super::{OverrideError, matches_glob};
use crate::domain::{ListEntry, Pattern};
use crate::network::Network;

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeChange {
    /// None of its values is meant.
    Unchanged,
    /// All its values are meant.
    InPlace,
    /// Some are, and get a copy.
    Copied,
}

/// The entry, or one for each of its networks.
pub(super) fn single(entry: &ListEntry) -> Vec<ListEntry> {
    match &entry.value {
        Pattern::Networks(networks) => networks
            .iter()
            .map(|one| ListEntry { value: Pattern::Networks(vec![*one]), ..entry.clone() })
            .collect(),
        _ => vec![entry.clone()],
    }
}

/// Each choice of one entry of each key.
pub(super) fn products<'e>(by_key: &[Vec<&'e ListEntry>]) -> Vec<Vec<&'e ListEntry>> {
    let mut choices = vec![Vec::new()];
    for entries in by_key {
        let mut longer = Vec::new();
        for choice in &choices {
            longer.extend(entries.iter().map(|entry| [choice.as_slice(), &[*entry]].concat()));
        }
        choices = longer;
    }
    choices
}

/// What becomes of each node of a level; `None` for another key.
pub(super) fn changes_of(
    nodes: &[CopiedNode],
    entry: &ListEntry,
) -> Result<Vec<Option<NodeChange>>, OverrideError> {
    let of_key = |node: &CopiedNode| node.config.key == entry.key;
    if !nodes.iter().any(of_key) {
        return Ok(vec![None; nodes.len()]);
    }
    let mut changes: Vec<Option<NodeChange>> =
        nodes.iter().map(|node| of_key(node).then_some(NodeChange::Unchanged)).collect();
    let mut set = |index: usize, node_change: NodeChange| {
        if let Some(slot) = changes.get_mut(index) {
            *slot = Some(node_change);
        }
    };
    let same: Vec<(usize, &CopiedNode)> =
        nodes.iter().enumerate().filter(|(_, node)| of_key(node)).collect();
    let any = same.iter().find(|(_, node)| matches!(node.config.value, Pattern::Any));
    let overlap = |node: &CopiedNode| OverrideError::Overlap {
        entry: entry.to_string(),
        node: node.segment.clone(),
    };
    match &entry.value {
        Pattern::Text(text) if !text.contains('*') => {
            let exact = same.iter().find(|(_, node)| is_text(node, text));
            if let Some((index, _)) = exact {
                set(*index, NodeChange::InPlace);
            } else if let Some(index) = matched(&same, text) {
                set(index, NodeChange::Copied);
            }
        }
        Pattern::Text(text) if text.find('*') == Some(text.len() - 1) => {
            let prefix = text.trim_end_matches('*');
            let mut is_open = true;
            for (index, node) in &same {
                match &node.config.value {
                    Pattern::Any => {}
                    Pattern::Text(own) if !own.contains('*') => {
                        if own.starts_with(prefix) {
                            set(*index, NodeChange::InPlace);
                        }
                    }
                    Pattern::Text(own) => {
                        let head = own.split('*').next().unwrap_or_default();
                        if !is_open {
                        } else if own == text {
                            set(*index, NodeChange::InPlace);
                            is_open = false;
                        } else if head.starts_with(prefix) {
                            set(*index, NodeChange::InPlace);
                        } else if matches_glob(own, text) {
                            set(*index, NodeChange::Copied);
                            is_open = false;
                        } else if prefix.starts_with(head) {
                            return Err(overlap(node));
                        }
                    }
                    Pattern::Regex(_) | Pattern::Networks(_) => return Err(overlap(node)),
                }
            }
            if let Some((index, _)) = any.filter(|_| is_open) {
                set(*index, NodeChange::Copied);
            }
        }
        Pattern::Networks(networks) if networks.len() == 1 => {
            let network = networks[0];
            let mut longest: Option<(u8, usize)> = None;
            for (index, node) in &same {
                match &node.config.value {
                    Pattern::Any => {}
                    Pattern::Text(own) if !own.contains('*') => {
                        if own.parse().is_ok_and(|address: IpAddr| network.contains(address)) {
                            set(*index, NodeChange::InPlace);
                        }
                    }
                    Pattern::Networks(own) => {
                        let inside = own.iter().filter(|one| network.covers(one)).count();
                        if inside == own.len() {
                            set(*index, NodeChange::InPlace);
                            if own.contains(&network) {
                                longest = Some((u8::MAX, *index));
                            }
                        } else if inside > 0 {
                            return Err(overlap(node));
                        }
                        let around =
                            own.iter().filter(|one| one.covers(&network) && **one != network);
                        let length = around.map(Network::length).max();
                        if let Some(length) = length.filter(|n| longest.is_none_or(|(l, _)| *n > l))
                        {
                            longest = Some((length, *index));
                        }
                    }
                    Pattern::Text(_) | Pattern::Regex(_) => return Err(overlap(node)),
                }
            }
            match (longest, any) {
                (Some((u8::MAX, _)), _) => {}
                (Some((_, index)), _) => set(index, NodeChange::Copied),
                (None, Some((index, _))) => set(*index, NodeChange::Copied),
                (None, None) => {}
            }
        }
        _ => return Err(OverrideError::Values { entry: entry.to_string() }),
    }
    Ok(changes)
}

fn is_text(node: &CopiedNode, text: &str) -> bool {
    matches!(&node.config.value, Pattern::Text(own) if own == text)
}

/// The node that a value without one of its own matches: the longest network, then the first
/// pattern, then any value.
fn matched(nodes: &[(usize, &CopiedNode)], value: &str) -> Option<usize> {
    let address: Option<IpAddr> = value.parse().ok();
    let length = |node: &CopiedNode| match (&node.config.value, address) {
        (Pattern::Networks(all), Some(address)) => {
            all.iter().filter(|one| one.contains(address)).map(Network::length).max()
        }
        _ => None,
    };
    let network = nodes.iter().filter_map(|(index, node)| Some((length(node)?, *index))).max();
    let pattern = || {
        nodes.iter().find(|(_, node)| match &node.config.value {
            Pattern::Text(own) => own.contains('*') && matches_glob(own, value),
            Pattern::Regex(regex) => regex.is_match(value),
            Pattern::Any | Pattern::Networks(_) => false,
        })
    };
    let any = || nodes.iter().find(|(_, node)| matches!(node.config.value, Pattern::Any));
    let index = network.map(|(_, index)| index);
    index.or_else(|| pattern().or_else(any).map(|(index, _)| *index))
}
