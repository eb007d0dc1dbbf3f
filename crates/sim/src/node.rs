//! A node: the production engine with its own clock and transport.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Holder, Level, Operation, Span, rules_of};
use sluicegate_redis::{Link, RedisBackend, Store, StoreOptions};

use crate::net::{Net, NodeWire};
use crate::rng::SimRng;
use crate::scenario::RequestPlan;
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
    pub(crate) fn held(&self, identity: &[u8]) -> u64 {
        let leases = self.engine.backend().leases(usize::MAX);
        let its = leases.iter().filter(|one| &*one.identity == identity);
        // Expired leases are listed until the next access.
        its.filter(|one| one.ttl > Span::ZERO).map(|one| one.unspent).sum()
    }

    /// Remaining quota of each limit of the first step.
    pub(crate) async fn left(&self, request: &RequestPlan) -> Vec<i64> {
        with_request(request, 1, async |request| {
            let rules = self.engine.snapshot();
            let call = self.engine.call(&rules, request);
            let status = self.engine.inspect(call).await.unwrap_or_default();
            let limits = status.iter().take(1).flat_map(|status| &status.limits);
            limits.filter_map(|limit| limit.remaining).collect()
        })
        .await
    }

    /// Sends a request.
    pub(crate) async fn check(&self, request: &RequestPlan, hits: u64) -> Answered {
        with_request(request, hits, async |request| {
            Answered::of(self.engine.check_async(request).await.ok().as_ref())
        })
        .await
    }

    /// Refunds an admitted request.
    pub(crate) async fn refund(&self, request: &RequestPlan, hits: u64) {
        with_request(request, hits, async |request| {
            let (rules, mut checked) = (self.engine.snapshot(), Checked::default());
            let call = self.engine.call(&rules, request);
            // A refund that fails leaves the charge: too little passes, never too much.
            let _ = self.engine.apply(Operation::Refund, call, &mut checked).await;
        })
        .await;
    }

    /// Reserves quota for a request.
    pub(crate) async fn reserve(
        &self,
        request: &RequestPlan,
        hits: u64,
        holder: Holder,
    ) -> Answered {
        with_request(request, hits, async |request| {
            let (rules, mut checked) = (self.engine.snapshot(), Checked::default());
            let call = self.engine.call(&rules, request);
            let held = self.engine.reserve(call, holder, RESERVED, &mut checked).await;
            Answered::of(held.is_ok().then_some(&checked))
        })
        .await
    }

    /// Settles a reservation.
    pub(crate) async fn settle(
        &self,
        request: &RequestPlan,
        hits: u64,
        (holder, is_used): (Holder, bool),
    ) {
        with_request(request, hits, async |request| {
            let (rules, mut checked) = (self.engine.snapshot(), Checked::default());
            let call = self.engine.call(&rules, request);
            // An unsettled reservation ends by itself, as a crash of its client would leave it.
            let _ = match is_used {
                true => self.engine.commit(call, holder, &mut checked).await,
                false => self.engine.cancel(call, holder, &mut checked).await,
            };
        })
        .await;
    }
}

/// How long a reservation lasts.
const RESERVED: Span = Span::from_secs(2);

/// The answer of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) allowed: bool,
    /// What decided: the least certain of its steps.
    pub(crate) level: Level,
}

impl Answered {
    fn of(checked: Option<&Checked>) -> Self {
        let denied = Self { allowed: false, level: Level::Strict };
        checked.map_or(denied, |checked| {
            let levels = checked.statuses.iter().map(|status| status.promise.level);
            let level = levels.max_by_key(|level| match level {
                Level::Strict => 0,
                Level::Leased => 1,
                Level::Eventual => 2,
            });
            Self { allowed: checked.allowed, level: level.unwrap_or(Level::Strict) }
        })
    }
}

/// Calls with the request of a plan, which borrows its texts.
pub(crate) async fn with_request<T>(
    plan: &RequestPlan,
    hits: u64,
    call: impl AsyncFnOnce(&Request<'_>) -> T,
) -> T {
    let entries: Vec<Vec<Entry<'_>>> = plan
        .descriptors
        .iter()
        .map(|entries| entries.iter().map(|(key, value)| Entry::new(key, value)).collect())
        .collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    call(&Request { domain: &plan.domain, descriptors: &descriptors, hits }).await
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
