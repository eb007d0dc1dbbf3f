//! The networks of one level: which is the longest that holds an address?
//!
//! For each length that occurs, the longest first, one look whether there is a network that begins like the address.

use std::net::IpAddr;

use super::table::{Table, hash};
use crate::network::{Family, Network, bits_of, mask};

/// The networks of a level, by the key of the entry.
#[derive(Debug, Default)]
pub(super) struct Networks(Vec<(Box<str>, Routes)>);

#[derive(Debug, Default)]
struct Routes {
    /// Lengths that occur, the longest first.
    v4: Vec<u8>,
    v6: Vec<u8>,
    /// Networks and the nodes that they lead to.
    nodes: Vec<(Network, u32)>,
    /// Finds the places of networks in `nodes`.
    table: Table,
}

impl Networks {
    pub(super) fn add(&mut self, key: &str, network: Network, node: u32) {
        let place = self.0.iter().position(|(known, _)| **known == *key).unwrap_or_else(|| {
            self.0.push((key.into(), Routes::default()));
            self.0.len() - 1
        });
        self.0[place].1.nodes.push((network, node));
    }

    /// To be called when all have been added; what it returns instead is a key and a network that lead to two nodes.
    pub(super) fn finish(&mut self) -> Result<(), (&str, Network)> {
        for (key, routes) in &mut self.0 {
            routes.nodes.sort_unstable();
            // One that is named twice in one list is no contradiction.
            routes.nodes.dedup();
            if let Some(twice) = routes.nodes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err((key, twice[0].0));
            }
            routes.finish();
        }
        Ok(())
    }

    /// The node of the longest network that holds this value, if it is an address.
    pub(super) fn longest(&self, key: &str, value: &str) -> Option<u32> {
        let (_, routes) = self.0.iter().find(|(known, _)| **known == *key)?;
        let (family, bits) = bits_of(address(value)?);
        let lengths = match family {
            Family::V4 => &routes.v4,
            Family::V6 => &routes.v6,
        };
        lengths.iter().find_map(|length| routes.node((family, bits & mask(*length), *length)))
    }
}

impl Routes {
    fn finish(&mut self) {
        for (network, _) in &self.nodes {
            let (family, _, length) = network.parts();
            match family {
                Family::V4 => self.v4.push(length),
                Family::V6 => self.v6.push(length),
            }
        }
        for lengths in [&mut self.v4, &mut self.v6] {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
            lengths.shrink_to_fit();
        }
        let places = self.nodes.iter().zip(0..);
        let hashes: Vec<_> =
            places.map(|((network, _), place)| (hashed(network.parts()), place)).collect();
        self.table = Table::new(hashes.into_iter());
    }

    fn node(&self, parts: (Family, u128, u8)) -> Option<u32> {
        let mut candidates = self.table.candidates(hashed(parts)).map(|no| self.nodes[no as usize]);
        candidates.find(|(network, _)| network.parts() == parts).map(|(_, node)| node)
    }
}

fn hashed((family, bits, length): (Family, u128, u8)) -> u64 {
    hash(u32::from(length) << 1 | family as u32, &bits.to_be_bytes())
}

/// The address that a value is.
pub(super) fn address(value: &str) -> Option<IpAddr> {
    // The longest that an address can be written; what is longer need not be looked at.
    const CHARS_MAX: usize = 45;
    if value.len() > CHARS_MAX { None } else { value.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_whatever_the_order() {
        let networks = [
            ("0.0.0.0/0", 0),
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("10.1.2.3/32", 3),
            ("::/0", 4),
            ("2001:db8::/32", 5),
        ];
        let look = [
            ("192.0.2.1", Some(0)),
            ("10.2.0.1", Some(1)),
            ("10.1.9.9", Some(2)),
            ("10.1.2.3", Some(3)),
            ("::ffff:10.1.2.3", Some(3)),
            ("2001:db8::7", Some(5)),
            ("2001:db9::7", Some(4)),
            ("10.1.2", None),
            ("", None),
        ];
        for reversed in [false, true] {
            let mut set = Networks::default();
            let mut order = networks;
            if reversed {
                order.reverse();
            }
            for (text, node) in order {
                set.add("ip", text.parse().unwrap(), node);
            }
            set.add("ip", "::/0".parse().unwrap(), 4);
            assert!(set.finish().is_ok(), "twice, but to the same node");
            for (value, node) in look {
                assert_eq!(set.longest("ip", value), node, "{value}");
            }
            assert_eq!(set.longest("other", "10.1.2.3"), None);
            let twice: Network = "10.1.0.0/16".parse().unwrap();
            set.add("ip", twice, 9);
            assert_eq!(set.finish(), Err(("ip", twice)));
        }
    }
}
