//! Which server has which slot of a Cluster.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;

use super::address::Host;
use super::reply::text;
use super::server::Server;
use super::slot::SLOTS;

/// More nodes than a Cluster is made for.
const NODES_MAX: usize = 1000;

/// No server: so far as is known, nobody has the slot.
const NOBODY: u16 = u16::MAX;

/// Which server has which slot.
#[derive(Debug, Clone)]
pub(super) struct Map {
    owners: Box<[u16]>,
    pub(super) servers: Vec<Arc<Server>>,
}

/// A range of slots as a node told it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    pub(super) primary: Host,
    pub(super) replicas: Vec<Host>,
}

// === impl Map ===

impl Map {
    pub(super) fn empty() -> Self {
        Self { owners: vec![NOBODY; SLOTS].into(), servers: Vec::new() }
    }

    pub(super) fn new(ranges: &[Range], mut server: impl FnMut(&Host) -> Arc<Server>) -> Self {
        let mut map = Self::empty();
        let mut places: HashMap<&Host, u16> = HashMap::new();
        for range in ranges {
            let next = map.servers.len();
            let place = *places.entry(&range.primary).or_insert_with(|| {
                map.servers.push(server(&range.primary));
                u16::try_from(next).unwrap_or(NOBODY)
            });
            map.owners[usize::from(range.first)..=usize::from(range.last)].fill(place);
        }
        map
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Server>> {
        self.servers.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    pub(super) fn has(&self, server: &Arc<Server>) -> bool {
        self.servers.iter().any(|known| Arc::ptr_eq(known, server))
    }

    /// The same, but for one slot.
    pub(super) fn with(&self, slot: u16, server: &Arc<Server>) -> Self {
        let mut map = self.clone();
        let known = map.servers.iter().position(|known| Arc::ptr_eq(known, server));
        let place = known.unwrap_or_else(|| {
            map.servers.push(server.clone());
            map.servers.len() - 1
        });
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(place).unwrap_or(NOBODY);
        }
        map
    }

    /// Whether every slot has an owner, and all owners are up.
    pub(super) fn is_well(&self) -> bool {
        !self.owners.contains(&NOBODY) && self.servers.iter().all(|server| server.shared.is_up())
    }
}

// === impl Range ===

impl Range {
    /// What `CLUSTER SLOTS` says: first and last slot, the primary, and its replicas. Who has no name is where we asked.
    pub(super) fn parse_all(value: &Value, asked: &Host) -> Option<Vec<Self>> {
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
            // Where nobody knows what to call a node, it cannot be reached.
            let Some(primary) = node(primary, asked) else { continue };
            let replicas: Vec<_> = replicas.iter().filter_map(|part| node(part, asked)).collect();
            hosts += 1 + replicas.len();
            if hosts > NODES_MAX * 16 {
                return None;
            }
            parsed.push(Self { first, last, primary, replicas });
        }
        let primaries: std::collections::HashSet<_> =
            parsed.iter().map(|range| &range.primary).collect();
        (!parsed.is_empty() && primaries.len() <= NODES_MAX).then_some(parsed)
    }
}

fn node(value: &Value, asked: &Host) -> Option<Host> {
    let Value::Array(parts) = value else { return None };
    let [name, Value::Int(port), ..] = parts.as_slice() else { return None };
    let port = u16::try_from(*port).ok()?;
    match name {
        Value::Nil => Some(Host::new(asked.name.clone(), port)),
        name => match text(name)? {
            "?" => None,
            "" => Some(Host::new(asked.name.clone(), port)),
            name => Some(Host::new(name, port)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(first: i64, last: i64, nodes: &[(Option<&str>, i64)]) -> Value {
        let nodes = nodes.iter().map(|(name, port)| {
            let name = name.map_or(Value::Nil, |name| Value::BulkString(name.into()));
            Value::Array(vec![name, Value::Int(*port), Value::BulkString(b"id".to_vec())])
        });
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    #[test]
    fn what_a_node_tells_is_read() {
        let asked = Host::new("asked", 1);
        let value = Value::Array(vec![
            told(0, 99, &[(Some("a"), 7), (Some("b"), 8), (Some("?"), 9)]),
            told(100, 16_383, &[(None, 9)]),
            told(7, 7, &[(Some("?"), 9)]),
        ]);
        let ranges = Range::parse_all(&value, &asked).unwrap();
        let expected = [
            Range {
                first: 0,
                last: 99,
                primary: Host::new("a", 7),
                replicas: vec![Host::new("b", 8)],
            },
            Range { first: 100, last: 16_383, primary: Host::new("asked", 9), replicas: vec![] },
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let asked = Host::new("asked", 1);
        for value in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![told(5, 4, &[(Some("a"), 1)])]),
            Value::Array(vec![told(0, 16_384, &[(Some("a"), 1)])]),
            Value::Array(vec![told(-1, 4, &[(Some("a"), 1)])]),
            Value::Array(vec![told(0, 4, &[])]),
        ] {
            assert_eq!(Range::parse_all(&value, &asked), None, "{value:?}");
        }
    }
}
