//! An identity as a text that a person can read and no other identity has.

use super::identity::{NETWORK, NODE, VALUE, split_part};
use crate::network::Network;

/// Appends an identity (see [`RuleSet::write_identity`](super::RuleSet::write_identity)) as text: `shop|user_id=42`. Where values share a
/// counter, the rule stands for them: `shop|path~/login*`.
///
/// What could be taken for a joint, for a brace or for an end of the text is written as `%` and two digits, so that two identities are never one text.
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
    // Nothing, unless the bytes are no identity; then they count all the same.
    if !rest.is_empty() {
        out.push(b'!');
        write_escaped(rest, out);
    }
}

fn write_value(rest: &mut &[u8], out: &mut Vec<u8>) {
    match rest.split_first() {
        Some((&VALUE, behind)) => {
            *rest = behind;
            if let Some(value) = split_part(rest) {
                out.push(b'=');
                write_escaped(value, out);
            }
        }
        Some((&NODE, behind)) => {
            *rest = behind;
            write_node(rest, out);
        }
        Some((&NETWORK, behind)) => {
            let Some((network, behind)) = network(behind) else { return };
            *rest = behind;
            out.push(b'=');
            out.extend_from_slice(network.to_string().as_bytes());
            write_node(rest, out);
        }
        _ => {}
    }
}

/// The rule that stands for its values: how it is written, and what.
fn write_node(rest: &mut &[u8], out: &mut Vec<u8>) {
    let Some((&kind, behind)) = rest.split_first() else { return };
    let mut behind = behind;
    if let Some(text) = split_part(&mut behind) {
        *rest = behind;
        // `~` for a text or a pattern, `~~` for an expression, `~~~` for networks.
        out.extend(std::iter::repeat_n(b'~', usize::from(kind) + 1));
        write_escaped(text, out);
    }
}

fn network(bytes: &[u8]) -> Option<(Network, &[u8])> {
    let ([family, length, bits @ ..], behind) = bytes.split_first_chunk::<18>()?;
    Some((Network::of_parts(*family, u128::from_be_bytes(*bits), *length)?, behind))
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
