//! Longest prefix match over the networks of one level: one table lookup for each prefix length
//! that occurs, the longest first.

use std::net::IpAddr;

use super::table::{Table, hash};
use crate::network::Network;

/// The networks of a level, by the key of the entry.
#[derive(Debug, Clone, Default)]
pub(super) struct Networks(Vec<(Box<str>, Routes)>);

#[derive(Debug, Clone, Default)]
struct Routes {
    /// Lengths that occur, the longest first.
    v4: Vec<u8>,
    v6: Vec<u8>,
    /// Networks and their nodes.
    nodes: Vec<(Network, u32)>,
    /// Finds indexes in `nodes`.
    table: Table,
}

impl Networks {
    pub(super) fn add(&mut self, key: &str, network: Network, node: u32) {
        let index = self.0.iter().position(|(known, _)| **known == *key).unwrap_or_else(|| {
            self.0.push((key.into(), Routes::default()));
            self.0.len() - 1
        });
        self.0[index].1.nodes.push((network, node));
    }

    /// Must be called when all have been added. The error is a key and a network of two nodes.
    pub(super) fn finish(&mut self) -> Result<(), (&str, Network)> {
        for (key, routes) in &mut self.0 {
            routes.nodes.sort_unstable();
            // A network named twice in one list is no conflict.
            routes.nodes.dedup();
            if let Some(twice) = routes.nodes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err((key, twice[0].0));
            }
            routes.finish();
        }
        Ok(())
    }

    /// The node of the longest prefix of this value, if it is an address.
    pub(super) fn longest(&self, key: &str, value: &str) -> Option<u32> {
        let (_, routes) = self.0.iter().find(|(known, _)| **known == *key)?;
        let address = address(value)?.to_canonical();
        let lengths = if address.is_ipv4() { &routes.v4 } else { &routes.v6 };
        lengths.iter().find_map(|length| routes.node(Network::of(address, *length)))
    }
}

impl Routes {
    fn finish(&mut self) {
        for (network, _) in &self.nodes {
            let lengths = if network.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
            lengths.push(network.length());
        }
        for lengths in [&mut self.v4, &mut self.v6] {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
            lengths.shrink_to_fit();
        }
        let nodes = self.nodes.iter().zip(0..);
        let hashes: Vec<_> =
            nodes.map(|((network, _), index)| (hash(0, &network.to_bytes()), index)).collect();
        self.table = Table::new(hashes.into_iter());
    }

    fn node(&self, wanted: Network) -> Option<u32> {
        let candidates = self.table.candidates(hash(0, &wanted.to_bytes()));
        let mut candidates = candidates.map(|index| self.nodes[index as usize]);
        candidates.find(|(network, _)| *network == wanted).map(|(_, node)| node)
    }
}

/// Parses a value as an address.
pub(super) fn address(value: &str) -> Option<IpAddr> {
    // The longest text of an address.
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
