//! Identities: the bytes that name a counter.
//!
//! An identity is the domain, then for each entry its key and its value or a substitute: the node
//! (values share a counter), or the node and a network (addresses share a counter).

use super::networks::address;
use super::{DomainNo, Kind, MatchPath, Node, RuleSet};
use crate::domain::Counter;
use crate::network::Network;
use crate::request::Entry;

/// The value itself.
pub(super) const VALUE: u8 = 0;
/// The node: all of its values share a counter.
pub(super) const NODE: u8 = 1;
/// The node and a network: other nodes may match other addresses of the same network.
pub(super) const NETWORK: u8 = 2;
/// No value: the part before it is the name of a pool, the last part of an identity.
const POOL: u8 = 3;

/// Bytes of most identities: a new buffer grows once.
const USUAL_BYTES: usize = 64;

impl RuleSet {
    /// Appends the identity of the entries that matched along this path.
    ///
    /// Every part is preceded by its length, so distinct identities have distinct bytes.
    ///
    /// # Panics
    /// When the domain or the path is of another set.
    pub fn write_identity(
        &self,
        domain: DomainNo,
        entries: &[Entry<'_>],
        path: &MatchPath,
        out: &mut Vec<u8>,
    ) {
        out.reserve(USUAL_BYTES);
        write_part(self.domains[domain.0 as usize].name.as_bytes(), out);
        for (entry, node) in entries.iter().zip(&path.nodes) {
            write_part(entry.key.as_bytes(), out);
            self.write_value(&self.nodes[*node as usize], entry.value, out);
        }
    }

    fn write_value(&self, node: &Node, value: &str, out: &mut Vec<u8>) {
        match node.counter {
            Counter::PerValue => {}
            Counter::Shared => {
                out.push(NODE);
                return self.write_node(node, out);
            }
            // A value that is not an address has its own counter.
            Counter::PerNetwork(prefix) => {
                if let Some(address) = address(value) {
                    out.push(NETWORK);
                    out.extend(prefix.network_of(address).to_bytes());
                    return self.write_node(node, out);
                }
            }
        }
        out.push(VALUE);
        write_part(value.as_bytes(), out);
    }

    /// Distinguishes a node from its siblings of one key, stable across reloads.
    fn write_node(&self, node: &Node, out: &mut Vec<u8>) {
        out.push(node.kind as u8);
        let text = self.text(node);
        let text = match node.kind {
            Kind::Text | Kind::Regex => text,
            // Nodes never share a network, so the first identifies the list after later additions.
            Kind::Networks => text.split(',').next().unwrap_or_default(),
        };
        write_part(text.as_bytes(), out);
    }

    /// What replaces a value in an identity, if anything does.
    pub(crate) fn counted_as(&self, node: u32, value: &str) -> Option<String> {
        match self.nodes[node as usize].counter {
            Counter::PerValue => None,
            Counter::Shared => Some(self.written_at(node)),
            Counter::PerNetwork(prefix) => {
                address(value).map(|address| prefix.network_of(address).to_string())
            }
        }
    }
}

/// Appends the identity of entries without a rule.
pub fn write_plain(domain: &str, entries: &[Entry<'_>], out: &mut Vec<u8>) {
    write_part(domain.as_bytes(), out);
    for entry in entries {
        write_part(entry.key.as_bytes(), out);
        out.push(VALUE);
        write_part(entry.value.as_bytes(), out);
    }
}

/// Appends the pool that an identity is counted in, unless it is the first of its rule.
pub(crate) fn write_pool(name: &str, out: &mut Vec<u8>) {
    write_part(name.as_bytes(), out);
    out.push(POOL);
}

fn write_part(part: &[u8], out: &mut Vec<u8>) {
    out.extend((part.len() as u32).to_le_bytes());
    out.extend(part);
}

/// Takes the part at the front of an identity.
pub(super) fn split_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(part)
}

pub(super) fn split_byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

/// Takes a node: its kind and its text.
pub(super) fn split_node<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let mut behind = *rest;
    let node = (split_byte(&mut behind)?, split_part(&mut behind)?);
    *rest = behind;
    Some(node)
}

pub(super) fn split_network(rest: &mut &[u8]) -> Option<Network> {
    let (network, behind) = rest.split_first_chunk()?;
    let network = Network::from_bytes(network)?;
    *rest = behind;
    Some(network)
}

/// What an identity has of the value of an entry.
pub(super) enum CountedValue<'a> {
    Value(&'a [u8]),
    /// The text of the node.
    Node(&'a [u8]),
    Network(Network),
}

/// Takes the value of an entry, behind its key.
pub(super) fn split_value<'a>(rest: &mut &'a [u8]) -> CountedValue<'a> {
    match split_byte(rest) {
        Some(NODE) => CountedValue::Node(split_node(rest).map_or(&[][..], |(_, text)| text)),
        Some(NETWORK) => {
            let network = split_network(rest);
            split_node(rest);
            network.map_or(CountedValue::Value(&[]), CountedValue::Network)
        }
        _ => CountedValue::Value(split_part(rest).unwrap_or_default()),
    }
}

/// Appends the prefix of envoyproxy/ratelimit's key for an identity: `shop_user_id_42_`. The start
/// of the window follows there.
///
/// As there, only `_` separates a key from its value, so distinct identities may share such a key,
/// and values that share a counter are named by the pattern they match. A regular expression or a
/// network is named by its own text.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::plan::Plan;
/// use sluicegate_rules::request::{Descriptor, Entry, Request};
/// use sluicegate_rules::rule::{Limits, RuleConfig};
/// use sluicegate_rules::set::{RuleSet, write_envoy_key};
/// use sluicegate_rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute }));
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
/// let (entries, mut plan, mut key) = ([Entry::new("user_id", "42")], Plan::default(), Vec::new());
/// let descriptors = [Descriptor::of(&entries)];
/// rules.plan(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }, &mut plan);
/// write_envoy_key(plan.identity(&plan.steps()[0]), &mut key);
/// assert_eq!(key, b"shop_user_id_42_");
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
pub fn write_envoy_key(identity: &[u8], out: &mut Vec<u8>) {
    let mut rest = identity;
    out.extend(split_part(&mut rest).unwrap_or_default());
    out.push(b'_');
    while let Some(key) = split_part(&mut rest) {
        out.extend(key);
        out.push(b'_');
        match split_value(&mut rest) {
            CountedValue::Node(text) => {
                // The text of a node begins with its key, unless it was written for another key and
                // matches all the same.
                let value = text.strip_prefix(key).and_then(|text| text.strip_prefix(b"_"));
                out.extend(value.unwrap_or(text));
            }
            CountedValue::Network(network) => out.extend(network.to_string().into_bytes()),
            CountedValue::Value(value) => out.extend(value),
        }
        out.push(b'_');
    }
}

/// Appends an identity (see [`RuleSet::write_identity`](super::RuleSet::write_identity)) as
/// readable text: `shop|user_id=42`. Values that share a counter are named by their rule:
/// `shop|path~/login*`. The name of a further pool comes last: `shop|user_id=42|pool:credits`.
///
/// Separators, braces and blanks are percent-encoded, so distinct identities have distinct texts.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::plan::Plan;
/// use sluicegate_rules::request::{Descriptor, Entry, Request};
/// use sluicegate_rules::rule::{Limits, RuleConfig};
/// use sluicegate_rules::set::{RuleSet, write_readable};
/// use sluicegate_rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute }));
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
/// let entries = [Entry::new("user_id", "a|b")];
/// let mut plan = Plan::default();
/// let descriptors = [Descriptor::of(&entries)];
/// rules.plan(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }, &mut plan);
/// let mut text = Vec::new();
/// write_readable(plan.identity(&plan.steps()[0]), &mut text);
/// assert_eq!(text, b"shop|user_id=a%7Cb");
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
pub fn write_readable(identity: &[u8], out: &mut Vec<u8>) {
    let mut rest = identity;
    if let Some(domain) = split_part(&mut rest) {
        write_escaped(domain, out);
    }
    while let Some(key) = split_part(&mut rest) {
        out.push(b'|');
        if rest == [POOL] {
            out.extend_from_slice(b"pool:");
            rest = &[];
        }
        write_escaped(key, out);
        write_value(&mut rest, out);
    }
    // Bytes that are not a valid identity remain distinct.
    if !rest.is_empty() {
        out.push(b'!');
        write_escaped(rest, out);
    }
}

fn write_value(rest: &mut &[u8], out: &mut Vec<u8>) {
    let mut behind = *rest;
    match split_byte(&mut behind) {
        Some(VALUE) => {
            *rest = behind;
            if let Some(value) = split_part(rest) {
                out.push(b'=');
                write_escaped(value, out);
            }
        }
        Some(NODE) => {
            *rest = behind;
            write_node(rest, out);
        }
        Some(NETWORK) => {
            let Some(network) = split_network(&mut behind) else { return };
            *rest = behind;
            out.push(b'=');
            out.extend_from_slice(network.to_string().as_bytes());
            write_node(rest, out);
        }
        _ => {}
    }
}

/// Writes the node that replaces its values: `~` and a text or pattern, `~~` and an expression,
/// `~~~` and networks.
fn write_node(rest: &mut &[u8], out: &mut Vec<u8>) {
    if let Some((kind, text)) = split_node(rest) {
        out.extend(std::iter::repeat_n(b'~', usize::from(kind) + 1));
        write_escaped(text, out);
    }
}

fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if matches!(byte, b'|' | b'=' | b'~' | b'{' | b'}' | b'%' | b'!' | b'"' | b'\\')
            || byte <= b' '
            || byte == 0x7f
        {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend([b'%', DIGITS[high], DIGITS[low]]);
        } else {
            out.push(byte);
        }
    }
}
