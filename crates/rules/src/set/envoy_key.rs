//! An identity in the words of envoyproxy/ratelimit's keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::identity::{NETWORK, NODE};
use crate::network::{Family, Network};

/// Appends what envoyproxy/ratelimit's key of an identity begins with: `shop_user_id_42_`. The start of the window follows there.
///
/// As there, nothing divides a key from its value but `_`, so identities that are apart in other stores may be one in such a key; and all values
/// that share a counter are called by the pattern they match. What is ours alone (a regular expression, a network) is
/// called by its own text.
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
    let mut rest = Rest(identity);
    out.extend(rest.part());
    out.push(b'_');
    while !rest.0.is_empty() {
        let key = rest.part();
        out.extend(key);
        out.push(b'_');
        match rest.byte() {
            NODE => {
                let _kind = rest.byte();
                let text = rest.part();
                // The text of a node is its key too, unless it was written for another key and matches all the same.
                let value = text.strip_prefix(key).and_then(|text| text.strip_prefix(b"_"));
                out.extend(value.unwrap_or(text));
            }
            NETWORK => {
                out.extend(rest.network().to_string().into_bytes());
                let _kind = rest.byte();
                rest.part();
            }
            _ => out.extend(rest.part()),
        }
        out.push(b'_');
    }
}

/// What is still to be read. Bytes that are no identity end early, and are no reason to panic.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn part(&mut self) -> &'a [u8] {
        let length = self.take(4).try_into().map_or(0, u32::from_le_bytes);
        self.take(length as usize)
    }

    fn network(&mut self) -> Network {
        let (family, length) = (self.byte(), self.byte());
        let bits = self.take(16).try_into().map_or(0, u128::from_be_bytes);
        let address = if family == Family::V4 as u8 {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap_or_default()))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        };
        Network::of(address, length)
    }
}
