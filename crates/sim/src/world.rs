//! A world: runs nodes, a store and clients through a scenario.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::net::{Net, OBSERVER, Synced};
use crate::node::{Node, Start};
use crate::rng::SimRng;
use crate::scenario::{Arrival, Fault, LevelPlan, LimitPlan, Scenario};
use crate::store::Store;
use crate::time::WorldClock;
use crate::trace::Trace;

/// A hit and its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Rule.
    pub rule: usize,
    /// Identity.
    pub identity: usize,
    /// Index of the node.
    pub node: usize,
    /// Process of the node.
    pub process: u64,
    /// Cost.
    pub cost: u64,
    /// True time of the request, in microseconds of the epoch.
    pub requested_us: u64,
    /// True time of the answer.
    pub answered_us: u64,
    /// Whether it was allowed.
    pub allowed: bool,
}

/// History of a world.
#[derive(Debug)]
pub struct History {
    /// All answered hits, in the order of the answers.
    pub hits: Vec<Hit>,
    /// Faults and their true times.
    pub faults: Vec<(u64, Fault)>,
    /// Unspent leases at data losses: time, rule, identity and amount.
    pub held: Vec<(u64, usize, usize, u64)>,
    /// Samples of the store's state.
    pub samples: Vec<Sample>,
    /// Sync calls.
    pub syncs: Vec<Synced>,
    /// Start and end.
    pub span_us: (u64, u64),
    /// Hash of the trace.
    pub hash: u64,
    /// Number of trace lines.
    pub lines: u64,
    /// Scripts that failed.
    pub errors: Vec<String>,
    /// Calls that the store executed.
    pub calls: u64,
    /// Script decisions that differ from the core's.
    pub disagreements: u64,
}

/// State of a limit at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Rule.
    pub rule: usize,
    /// Identity.
    pub identity: usize,
    /// Time.
    pub at_us: u64,
    /// Limit.
    pub limit: LimitPlan,
    /// Remaining quota in the store.
    pub left: i64,
    /// Quota certainly admitted in this window.
    pub passed: u64,
    /// Unspent leased quota.
    pub held: u64,
}

/// Sampling interval.
const SAMPLE_EVERY_MS: u64 = 53;
/// Wait for answers after the last hit.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

struct World<'a> {
    scenario: &'a Scenario,
    truth: Arc<WorldClock>,
    trace: Trace,
    net: Arc<Net>,
    rng: SimRng,
    /// Observer that reads the store under all faults.
    observer: Node,
    slots: Vec<NodeSlot>,
    hits: Arc<Mutex<Vec<Hit>>>,
    faults: Vec<(u64, Fault)>,
    held: Vec<(u64, usize, usize, u64)>,
    samples: Vec<Sample>,
    processes: u64,
    /// Whether the reloaded rules are active.
    is_later: Vec<bool>,
}

/// A slot of the fleet; `node` is `None` without a running process.
#[derive(Default)]
struct NodeSlot {
    node: Option<(u64, Node)>,
    clients: JoinSet<()>,
}

/// Runs a scenario.
///
/// # Errors
/// When it cannot be set up.
pub fn run(scenario: &Scenario, is_verbose: bool) -> anyhow::Result<History> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let truth = Arc::new(WorldClock::new(scenario.start_us));
        let trace = Trace::new(&truth, is_verbose);
        let store = Store::new().map_err(|error| anyhow::anyhow!("{error}"))?;
        let net = Net::new(&truth, &trace, store, SimRng::new(scenario.seed, "net"));
        net.set_conditions(scenario.fault_plan.conditions);
        let yaml = scenario.yaml(false);
        let mut rng = SimRng::new(scenario.seed, "onlooker");
        let start = Start {
            truth: &truth,
            net: &net,
            yaml: &yaml,
            clock: (0, 0),
            timeout: Duration::from_secs(1),
            rng: &mut rng,
        };
        let observer = Node::start("onlooker".to_owned(), OBSERVER, start)?;
        let mut world = World {
            observer,
            scenario,
            trace,
            net,
            rng: SimRng::new(scenario.seed, "world"),
            slots: scenario.clocks.iter().map(|_| NodeSlot::default()).collect(),
            hits: Arc::default(),
            faults: Vec::new(),
            held: Vec::new(),
            samples: Vec::new(),
            processes: 0,
            is_later: vec![false; scenario.clocks.len()],
            truth,
        };
        world.run_events().await
    })
}

impl World<'_> {
    async fn run_events(&mut self) -> anyhow::Result<History> {
        let (begin, begin_us) = (Instant::now(), self.truth.now_us());
        let disagreed = self.disagreements();
        for index in 0..self.slots.len() {
            self.start(index)?;
        }
        let disagreed = disagreed.max(self.disagreements());
        let arrivals = self.arrivals();
        let mut arrivals = arrivals.iter().peekable();
        let mut faults = self.scenario.fault_plan.faults.iter().peekable();
        let mut next_sample = SAMPLE_EVERY_MS;
        loop {
            let next_arrival = arrivals.peek().map(|arrival| arrival.at_ms);
            let next_fault = faults.peek().map(|(at, _)| *at);
            let Some(at) = next_arrival.into_iter().chain(next_fault).min() else { break };
            while next_sample < at {
                sleep_until(begin + Duration::from_millis(next_sample)).await;
                self.sample().await;
                next_sample += SAMPLE_EVERY_MS;
            }
            sleep_until(begin + Duration::from_millis(at)).await;
            while let Some((_, fault)) = faults.next_if(|(then, _)| *then <= at) {
                self.inject(*fault).await?;
            }
            while let Some(arrival) = arrivals.next_if(|arrival| arrival.at_ms <= at) {
                self.send(arrival);
            }
        }
        tokio::time::sleep(LAST_ANSWERS).await;
        let (errors, calls) = self.net.errors();
        Ok(History {
            hits: std::mem::take(&mut *self.hits.lock()),
            faults: std::mem::take(&mut self.faults),
            held: std::mem::take(&mut self.held),
            samples: std::mem::take(&mut self.samples),
            syncs: self.net.syncs(),
            span_us: (begin_us, self.truth.now_us()),
            hash: self.trace.hash(),
            lines: self.trace.count(),
            errors,
            calls,
            disagreements: self.disagreements().saturating_sub(disagreed),
        })
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let mut rng = SimRng::new(self.scenario.seed, "traffic");
        let length = self.scenario.length_ms;
        let mut arrivals: Vec<Arrival> = Vec::new();
        for stream in &self.scenario.streams {
            arrivals.extend(stream.arrivals(&mut rng, length));
        }
        arrivals.sort_by_key(|arrival| arrival.at_ms);
        arrivals
    }

    fn start(&mut self, index: usize) -> anyhow::Result<()> {
        self.processes += 1;
        let name = format!("n{index}.{}", self.processes);
        let start = Start {
            truth: &self.truth,
            net: &self.net,
            yaml: &self.scenario.yaml(self.is_later[index]),
            clock: self.scenario.clocks[index],
            timeout: Duration::from_millis(self.scenario.timeout_ms),
            rng: &mut self.rng,
        };
        let node = Node::start(name, self.processes, start)?;
        self.slots[index].node = Some((self.processes, node));
        Ok(())
    }

    /// Sends a client's hit. An ended process does not answer.
    fn send(&mut self, arrival: &Arrival) {
        let Arrival { node: index, rule, identity, cost, .. } = *arrival;
        let at = &mut self.slots[index];
        while at.clients.try_join_next().is_some() {}
        let Some((process, node)) = at.node.clone() else { return };
        let (truth, trace, hits) = (self.truth.clone(), self.trace.clone(), self.hits.clone());
        at.clients.spawn(async move {
            let requested_us = truth.event_us();
            let allowed = node.hit(rule, identity, cost).await;
            let answered_us = truth.event_us();
            let verdict = if allowed { "allowed" } else { "denied" };
            trace.line(format_args!("{} rule{rule} id{identity} {cost} {verdict}", node.name));
            hits.lock().push(Hit {
                rule,
                identity,
                node: index,
                process,
                cost,
                requested_us,
                answered_us,
                allowed,
            });
        });
    }

    async fn inject(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.trace.line(format_args!("{fault:?}"));
        self.faults.push((self.truth.event_us(), fault));
        match fault {
            Fault::Conditions(conditions) => self.net.set_conditions(conditions),
            Fault::Cut(index) => self.with(index, |node| node.wire.set_cut(true)),
            Fault::Heal(index) => self.with(index, |node| node.wire.set_cut(false)),
            Fault::Stall(ms) => self.net.stall(ms),
            Fault::FailOver(lost_ms) => {
                self.record_leases();
                self.net.lose(lost_ms);
            }
            Fault::LoseAll => {
                self.record_leases();
                self.net.lose_all();
            }
            Fault::Back => self.net.is_back(),
            Fault::Reconnect(index) => self.with(index, |node| node.wire.reconnect()),
            Fault::Crash(index) => {
                if let Some((_, node)) = self.slots[index].node.take() {
                    node.wire.end();
                }
                self.slots[index].clients.shutdown().await;
            }
            Fault::Stop(index) => {
                let node = self.slots[index].node.take();
                while self.slots[index].clients.join_next().await.is_some() {}
                if let Some((_, node)) = node {
                    node.engine.backend().close().await;
                    node.wire.end();
                }
            }
            Fault::Start(index) => {
                if self.slots[index].node.is_none() {
                    self.start(index)?;
                }
            }
            Fault::Step(index, ms) => self.with(index, |node| node.clock.step(ms * 1_000)),
            Fault::Reload(index) => {
                self.is_later[index] = true;
                let yaml = self.scenario.yaml(true);
                if let Some((_, node)) = &self.slots[index].node {
                    node.reload(&yaml)?;
                }
            }
        }
        Ok(())
    }

    /// Records unspent leases at a data loss.
    fn record_leases(&mut self) {
        let at = self.truth.now_us();
        for (rule, plan) in self.scenario.rules.iter().enumerate() {
            for identity in 0..plan.identities {
                let nodes = self.slots.iter().filter_map(|index| index.node.as_ref());
                let held = nodes.map(|(_, node)| node.held(rule, identity)).sum();
                self.held.push((at, rule, identity, held));
            }
        }
    }

    /// Samples the state of all limits.
    async fn sample(&mut self) {
        let at_us = self.truth.now_us();
        for (rule, plan) in self.scenario.rules.iter().enumerate() {
            if matches!(plan.level, LevelPlan::Eventual { .. }) {
                continue;
            }
            for identity in 0..plan.identities {
                let left = self.observer.left(rule, identity).await;
                let nodes = self.slots.iter().filter_map(|index| index.node.as_ref());
                let held = nodes.map(|(_, node)| node.held(rule, identity)).sum();
                for (limit, left) in plan.limits.iter().zip(left) {
                    let passed = self.passed(rule, identity, *limit, at_us);
                    let limit = *limit;
                    self.samples.push(Sample { rule, identity, at_us, limit, left, passed, held });
                }
            }
        }
    }

    /// Quota admitted in the current window, for windowed limits.
    fn passed(&self, rule: usize, identity: usize, limit: LimitPlan, at_us: u64) -> u64 {
        let per_us = match limit {
            LimitPlan::Bucket { .. } => return 0,
            LimitPlan::Window { per_ms, .. } | LimitPlan::Sliding { per_ms, .. } => per_ms * 1_000,
        };
        let is_in_it = |hit: &&Hit| {
            let is_its = (hit.rule, hit.identity) == (rule, identity);
            hit.allowed && is_its && hit.requested_us >= at_us / per_us * per_us
        };
        // Hits are in the order of their answers.
        let hits = self.hits.lock();
        let latest = hits.iter().rev().take_while(|hit| hit.answered_us >= at_us / per_us * per_us);
        latest.filter(is_in_it).map(|hit| hit.cost).sum()
    }

    fn with(&self, index: usize, act: impl FnOnce(&Node)) {
        if let Some((_, node)) = &self.slots[index].node {
            act(node);
        }
    }

    fn disagreements(&self) -> u64 {
        let node = self.slots.iter().find_map(|slot| slot.node.as_ref());
        node.map_or(0, |(_, node)| node.engine.backend().store().stats().disagreements)
    }
}
