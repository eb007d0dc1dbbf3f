//! A node: the production engine with its own clock and transport.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, Span, rules_of};
use sluicegate_redis::{Link, RedisBackend, Store, StoreOptions};

use crate::net::{Net, NodeWire};
use crate::rng::SimRng;
use crate::time::{NodeClock, WorldClock};

/// A process of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Name in traces.
    pub(crate) name: String,
    /// The engine.
    pub(crate) engine: Engine<RedisBackend>,
    /// The transport.
    pub(crate) wire: Arc<NodeWire>,
    /// Its clock.
    pub(crate) clock: Arc<NodeClock>,
}

/// Start parameters of a node.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The world clock.
    pub(crate) truth: &'a Arc<WorldClock>,
    /// The network.
    pub(crate) net: &'a Arc<Net>,
    /// The rules as a file.
    pub(crate) yaml: &'a str,
    /// Clock offset in microseconds, and drift in microseconds per second.
    pub(crate) clock: (i64, i64),
    /// Call timeout.
    pub(crate) timeout: Duration,
    /// Its randomness.
    pub(crate) rng: &'a mut SimRng,
}

impl Node {
    /// Starts a process.
    ///
    /// # Errors
    /// When the rules are invalid.
    pub(crate) fn start(name: String, process: u64, start: Start<'_>) -> anyhow::Result<Self> {
        let Start { truth, net, yaml, clock: (off, gain), timeout, rng } = start;
        let clock = Arc::new(NodeClock::new(truth, off, gain, rng.within(0, 1 << 40)));
        let wire = net.wire(name.clone(), process, timeout);
        let options = StoreOptions {
            own_clock: Some(clock.clone()),
            seed: Some(rng.number()),
            ..StoreOptions::default()
        };
        let store = Store::new(Link::with_transport(wire.as_wire()), options);
        let rules = rules_of(yaml).map_err(|error| anyhow::anyhow!("{error}\n{yaml}"))?;
        let engine = Engine::builder(rules).clock(ArcClock(clock.clone())).build()?;
        Ok(Self { name, engine: RedisBackend::attach(engine, store), wire, clock })
    }

    /// Loads new rules.
    ///
    /// # Errors
    /// When the rules are invalid.
    pub(crate) fn reload(&self, yaml: &str) -> anyhow::Result<()> {
        let rules = rules_of(yaml).map_err(|error| anyhow::anyhow!("{error}\n{yaml}"))?;
        self.engine.reload(rules)?;
        Ok(())
    }

    /// Unspent leased quota of an identity.
    pub(crate) fn held(&self, rule: usize, identity: usize) -> u64 {
        let names = [format!("rule{rule}"), format!("id{identity}")];
        let has = |bytes: &[u8], name: &str| {
            bytes.windows(name.len()).any(|part| part == name.as_bytes())
        };
        let leases = self.engine.backend().leases(usize::MAX);
        let its = leases.iter().filter(|one| names.iter().all(|name| has(&one.identity, name)));
        // Expired leases are listed until the next access.
        its.filter(|one| one.ttl > Span::ZERO).map(|one| one.unspent).sum()
    }

    /// Remaining quota of each limit.
    pub(crate) async fn left(&self, rule: usize, identity: usize) -> Vec<i64> {
        let (key, value) = (format!("rule{rule}"), format!("id{identity}"));
        let entries = [Entry::new(&key, &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "sim", descriptors: &descriptors, hits: 1 };
        let rules = self.engine.snapshot();
        let status =
            self.engine.inspect(self.engine.call(&rules, &request)).await.unwrap_or_default();
        let limits = status.iter().flat_map(|status| &status.limits);
        limits.filter_map(|limit| limit.remaining).collect()
    }

    /// Sends a hit; whether it is allowed.
    pub(crate) async fn hit(&self, rule: usize, identity: usize, cost: u64) -> bool {
        let (key, value) = (format!("rule{rule}"), format!("id{identity}"));
        let entries = [Entry::new(&key, &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "sim", descriptors: &descriptors, hits: cost };
        self.engine.check_async(&request).await.is_ok_and(|checked| checked.allowed)
    }
}

/// A clock that the world can adjust while the engine owns it.
#[derive(Debug)]
struct ArcClock(Arc<NodeClock>);

impl sluicegate::clock::Clock for ArcClock {
    fn now(&self) -> sluicegate::Timestamp {
        self.0.now()
    }

    fn ticks(&self) -> sluicegate::Timestamp {
        self.0.ticks()
    }
}
