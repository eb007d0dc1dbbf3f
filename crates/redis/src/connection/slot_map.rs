//! Slots of a Cluster: the slot of a key, and the server that owns each slot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use redis::Value;

use super::address::Host;
use super::reply::as_str;
use super::server::Server;

/// Slots of a Cluster.
pub const SLOTS: usize = 16_384;

/// Upper bound on primaries, above the maximum of a Cluster.
const PRIMARIES_MAX: usize = 1000;

/// Index of no server.
const UNASSIGNED: u16 = u16::MAX;

/// Owners of all slots.
#[derive(Debug, Clone)]
pub(super) struct SlotMap {
    /// For each slot an index into `servers`.
    owners: Box<[u16]>,
    pub(super) servers: Vec<Arc<Server>>,
}

/// A range of slots in a reply to `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    first: u16,
    last: u16,
    pub(super) primary: Host,
    pub(super) replicas: Vec<Host>,
}

/// The slot of a key: the CRC-16 of its hash tag (the text between the first `{` and the next `}`),
/// or of the whole key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % 16_384
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

impl SlotMap {
    pub(super) fn empty() -> Self {
        Self { owners: vec![UNASSIGNED; SLOTS].into(), servers: Vec::new() }
    }

    pub(super) fn new(ranges: &[SlotRange], mut server: impl FnMut(&Host) -> Arc<Server>) -> Self {
        let mut map = Self::empty();
        let mut indices: HashMap<&Host, u16> = HashMap::new();
        for range in ranges {
            let next = map.servers.len();
            let index = *indices.entry(&range.primary).or_insert_with(|| {
                map.servers.push(server(&range.primary));
                u16::try_from(next).unwrap_or(UNASSIGNED)
            });
            map.owners[usize::from(range.first)..=usize::from(range.last)].fill(index);
        }
        map
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Server>> {
        self.servers.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    pub(super) fn contains(&self, server: &Arc<Server>) -> bool {
        self.servers.iter().any(|known| Arc::ptr_eq(known, server))
    }

    /// A copy in which one slot has another owner.
    pub(super) fn with_owner(&self, slot: u16, server: &Arc<Server>) -> Self {
        let mut map = self.clone();
        let known = map.servers.iter().position(|known| Arc::ptr_eq(known, server));
        let index = known.unwrap_or_else(|| {
            map.servers.push(server.clone());
            map.servers.len() - 1
        });
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(index).unwrap_or(UNASSIGNED);
        }
        map
    }

    /// Slots without an owner, or whose owner is down.
    pub(super) fn unserved(&self) -> usize {
        let up: Vec<bool> = self.servers.iter().map(|server| server.state.is_up()).collect();
        let is_served = |owner: &u16| up.get(usize::from(*owner)).copied().unwrap_or(false);
        self.owners.iter().filter(|owner| !is_served(owner)).count()
    }

    /// Whether every slot has an owner, and all owners are up.
    pub(super) fn is_healthy(&self) -> bool {
        !self.owners.contains(&UNASSIGNED) && self.servers.iter().all(|server| server.state.is_up())
    }
}

impl SlotRange {
    /// Parses the reply to `CLUSTER SLOTS`. A node without a name is the replying one.
    pub(super) fn parse_all(value: &Value, replying: &Host) -> Option<Vec<Self>> {
        let Value::Array(ranges) = value else { return None };
        let mut hosts = 0;
        let mut parsed = Vec::new();
        for range in ranges.iter().take(SLOTS) {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = parts.as_slice()
            else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if first > last || usize::from(last) >= SLOTS {
                return None;
            }
            // A primary with an unknown name cannot be reached.
            let Some(primary) = parse_node(primary, replying) else { continue };
            let replicas: Vec<_> =
                replicas.iter().filter_map(|part| parse_node(part, replying)).collect();
            hosts += 1 + replicas.len();
            if hosts > PRIMARIES_MAX * 16 {
                return None;
            }
            parsed.push(Self { first, last, primary, replicas });
        }
        let primaries: HashSet<_> = parsed.iter().map(|range| &range.primary).collect();
        (!parsed.is_empty() && primaries.len() <= PRIMARIES_MAX).then_some(parsed)
    }
}

fn parse_node(value: &Value, replying: &Host) -> Option<Host> {
    let Value::Array(parts) = value else { return None };
    let [name, Value::Int(port), ..] = parts.as_slice() else { return None };
    let port = u16::try_from(*port).ok()?;
    let name = if let Value::Nil = name { "" } else { as_str(name)? };
    match name {
        "?" => None,
        "" => Some(Host::new(replying.name.clone(), port)),
        name => Some(Host::new(name, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_specification() {
        // Check value of CRC-16/XMODEM.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"a{user1000}{b}"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        assert_eq!(slot_of(b"foo{bar"), crc16(b"foo{bar") % 16_384);
        assert_eq!(slot_of(b""), 0);
    }

    fn range(first: i64, last: i64, nodes: &[(Option<&str>, i64)]) -> Value {
        let nodes = nodes.iter().map(|(name, port)| {
            let name = name.map_or(Value::Nil, |name| Value::BulkString(name.into()));
            Value::Array(vec![name, Value::Int(*port), Value::BulkString(b"id".to_vec())])
        });
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    #[test]
    fn cluster_slots_are_parsed() {
        let replying = Host::new("replying", 1);
        let value = Value::Array(vec![
            range(0, 99, &[(Some("a"), 7), (Some("b"), 8), (Some("?"), 9)]),
            range(100, 16_383, &[(None, 9)]),
            range(7, 7, &[(Some("?"), 9)]),
        ]);
        let ranges = SlotRange::parse_all(&value, &replying).unwrap();
        let expected = [
            SlotRange {
                first: 0,
                last: 99,
                primary: Host::new("a", 7),
                replicas: vec![Host::new("b", 8)],
            },
            SlotRange {
                first: 100,
                last: 16_383,
                primary: Host::new("replying", 9),
                replicas: vec![],
            },
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        let replying = Host::new("replying", 1);
        for value in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(5, 4, &[(Some("a"), 1)])]),
            Value::Array(vec![range(0, 16_384, &[(Some("a"), 1)])]),
            Value::Array(vec![range(-1, 4, &[(Some("a"), 1)])]),
            Value::Array(vec![range(0, 4, &[])]),
        ] {
            assert_eq!(SlotRange::parse_all(&value, &replying), None, "{value:?}");
        }
    }
}
