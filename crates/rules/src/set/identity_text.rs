//! Identities as text: the prefix of envoyproxy/ratelimit's keys, and a readable form.

use super::identity::{NETWORK, NODE, VALUE, split_byte, split_network, split_node, split_part};

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
/// rules.plan(&Request { domain: "shop", descriptors: &[Descriptor::of(&entries)], hits: 1 }, &mut plan);
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
        match split_byte(&mut rest) {
            Some(NODE) => {
                let text = split_node(&mut rest).map_or(&[][..], |(_, text)| text);
                // The text of a node begins with its key, unless it was written for another key and
                // matches all the same.
                let value = text.strip_prefix(key).and_then(|text| text.strip_prefix(b"_"));
                out.extend(value.unwrap_or(text));
            }
            Some(NETWORK) => {
                if let Some(network) = split_network(&mut rest) {
                    out.extend(network.to_string().into_bytes());
                }
                split_node(&mut rest);
            }
            _ => out.extend(split_part(&mut rest).unwrap_or_default()),
        }
        out.push(b'_');
    }
}

/// Appends an identity (see [`RuleSet::write_identity`](super::RuleSet::write_identity)) as
/// readable text: `shop|user_id=42`. Values that share a counter are named by their rule:
/// `shop|path~/login*`.
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
/// rules.plan(&Request { domain: "shop", descriptors: &[Descriptor::of(&entries)], hits: 1 }, &mut plan);
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
