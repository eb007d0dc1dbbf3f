//! A world: runs nodes, a store and clients through a scenario.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::set::write_readable;
use sluicegate::{Level, rules_of};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::net::{Net, OBSERVER, Synced};
use crate::node::{Node, Start, with_request};
use crate::rng::SimRng;
use crate::scenario::{
    Arrival, Fault, LevelPlan, LimitPlan, RequestPlan, Scenario, StepPlan, Usage,
};
use crate::time::WorldClock;
use crate::trace::Trace;

/// A step of a request and its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Request, an index of the scenario's list.
    pub request: usize,
    /// Whether it is the first step of its request.
    pub is_first: bool,
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
    /// What decided.
    pub origin: Level,
    /// Time of a refund: until then and from then on it may have counted.
    pub refunded_us: Option<u64>,
}

/// History of a world.
#[derive(Debug, Clone)]
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
    /// Names of the keys of each rule's identities.
    pub keys: Vec<Vec<String>>,
    /// Counters of all processes.
    pub totals: Totals,
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
/// Identities of each rule whose state is sampled.
const SAMPLED: usize = 8;
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
    requests: Arc<[Arc<RequestPlan>]>,
    /// Choices of the load balancer.
    balancer: SimRng,
    hits: Arc<Mutex<Vec<Hit>>>,
    faults: Vec<(u64, Fault)>,
    held: Vec<(u64, usize, usize, u64)>,
    samples: Vec<Sample>,
    processes: u64,
    /// The revision of the rules of each node.
    revisions: Vec<usize>,
    /// The identities of each rule, as nodes have them.
    identities: Vec<Vec<Vec<u8>>>,
    totals: Totals,
}

/// Counters of all processes of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Decisions without the store: of a local share, allowed, denied, errors.
    pub fallbacks: [u64; 4],
    /// Denials from the cache.
    pub cached_denials: u64,
    /// Admissions journaled for the store.
    pub journaled: u64,
    /// Counters re-asserted after a loss of data.
    pub reasserted: u64,
    /// Calls that missed their deadline.
    pub timed_out: u64,
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
    // The jitter of circuit breakers.
    fastrand::seed(scenario.seed);
    runtime.block_on(async {
        let truth = Arc::new(WorldClock::new(scenario.start_us));
        let trace = Trace::new(&truth, is_verbose);
        let net = Net::new(&truth, &trace, &scenario.store, SimRng::new(scenario.seed, "net"))?;
        net.set_conditions(scenario.fault_plan.conditions);
        let mut rng = SimRng::new(scenario.seed, "onlooker");
        let start = Start {
            truth: &truth,
            net: &net,
            yaml: &scenario.revisions[0],
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
            requests: scenario.requests.iter().cloned().map(Arc::new).collect(),
            balancer: SimRng::new(scenario.seed, "balancer"),
            hits: Arc::default(),
            faults: Vec::new(),
            held: Vec::new(),
            samples: Vec::new(),
            processes: 0,
            revisions: vec![0; scenario.clocks.len()],
            identities: identities(scenario).await?,
            totals: Totals::default(),
            truth,
        };
        world.run_events().await
    })
}

impl World<'_> {
    async fn run_events(&mut self) -> anyhow::Result<History> {
        let (begin, begin_us) = (Instant::now(), self.truth.now_us());
        let disagreed = self.disagreements();
        for index in 0..self.scenario.initial.min(self.slots.len()) {
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
                self.send(*arrival);
            }
        }
        tokio::time::sleep(LAST_ANSWERS).await;
        let (errors, calls) = self.net.errors();
        Ok(History {
            totals: self.totals_at_end(),
            keys: self.keys(),
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
        let mut arrivals: Vec<Arrival> = Vec::new();
        for stream in &self.scenario.streams {
            arrivals.extend(stream.arrivals(&mut rng));
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
            yaml: &self.scenario.revisions[self.revisions[index]],
            clock: self.scenario.clocks[index],
            timeout: Duration::from_millis(self.scenario.store.timeout_ms),
            rng: &mut self.rng,
        };
        let node = Node::start(name, self.processes, start)?;
        self.slots[index].node = Some((self.processes, node));
        Ok(())
    }

    /// Sends a client's request. An ended process does not answer.
    fn send(&mut self, arrival: Arrival) {
        let index = arrival.node.or_else(|| self.pick());
        let Some(index) = index else { return };
        let slot = &mut self.slots[index];
        while slot.clients.try_join_next().is_some() {}
        let Some((process, node)) = slot.node.clone() else { return };
        let request = self.requests[arrival.request].clone();
        let client = Client {
            truth: self.truth.clone(),
            trace: self.trace.clone(),
            hits: self.hits.clone(),
            node,
            place: (index, process),
            arrival,
            // Only of those that need one, so that others have the same numbers without.
            returned_after: (arrival.usage != Usage::default())
                .then(|| (self.rng.permille(arrival.usage.refunds), self.rng.within(20, 400))),
        };
        slot.clients.spawn(client.run(request));
    }

    /// One of the running nodes, as a load balancer picks it.
    fn pick(&mut self) -> Option<usize> {
        let running: Vec<usize> =
            (0..self.slots.len()).filter(|index| self.slots[*index].node.is_some()).collect();
        (!running.is_empty()).then(|| self.balancer.choose(&running))
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
                    self.totals.add(&node);
                    node.wire.end();
                }
                self.slots[index].clients.shutdown().await;
            }
            Fault::Stop(index) => {
                let node = self.slots[index].node.take();
                while self.slots[index].clients.join_next().await.is_some() {}
                if let Some((_, node)) = node {
                    node.engine.backend().close().await;
                    self.totals.add(&node);
                    node.wire.end();
                }
            }
            Fault::Start(index) => {
                if self.slots[index].node.is_none() {
                    if index >= self.scenario.initial {
                        // A node that joins has the newest rules.
                        self.revisions[index] = self.revisions.iter().copied().max().unwrap_or(0);
                    }
                    self.start(index)?;
                }
            }
            Fault::Step(index, ms) => self.with(index, |node| node.clock.step(ms * 1_000)),
            Fault::Reload(index, revision) => {
                self.revisions[index] = revision;
                if let Some((_, node)) = &self.slots[index].node {
                    node.reload(&self.scenario.revisions[revision])?;
                }
            }
            Fault::Link(index, conditions) => {
                self.with(index, |node| node.wire.set_link(conditions))
            }
            Fault::Down(shard) => self.net.set_down(shard),
            Fault::StoreStep(ms) => {
                self.record_leases();
                self.net.step_clock(ms * 1_000);
            }
        }
        Ok(())
    }

    /// Records unspent leases at a data loss.
    fn record_leases(&mut self) {
        let at = self.truth.now_us();
        for (rule, identities) in self.identities.iter().enumerate() {
            for (identity, key) in identities.iter().enumerate() {
                let held = self.held(key);
                if held > 0 || self.scenario.judges_usage {
                    self.held.push((at, rule, identity, held));
                }
            }
        }
    }

    /// Samples the state of the limits of the first identities of each rule.
    async fn sample(&mut self) {
        let at_us = self.truth.now_us();
        for request in &*self.requests {
            // A sample of one counter takes no time.
            let [StepPlan { rule, identity, .. }] = *request.steps else { continue };
            let plan = &self.scenario.rules[rule];
            let is_eventual = matches!(plan.level, LevelPlan::Eventual { .. });
            if is_eventual || identity >= SAMPLED || !plan.is_judged {
                continue;
            }
            let left = self.observer.left(request).await;
            let held = self.held(&self.identities[rule][identity]);
            for (limit, left) in plan.limits.iter().zip(left) {
                let passed = self.passed(rule, identity, *limit, at_us);
                let limit = *limit;
                self.samples.push(Sample { rule, identity, at_us, limit, left, passed, held });
            }
        }
    }

    fn held(&self, identity: &[u8]) -> u64 {
        let nodes = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        nodes.map(|(_, node)| node.held(identity)).sum()
    }

    fn totals_at_end(&self) -> Totals {
        let mut totals = self.totals;
        let nodes = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        nodes.for_each(|(_, node)| totals.add(node));
        totals
    }

    fn keys(&self) -> Vec<Vec<String>> {
        let key = |identity: &Vec<u8>| {
            let mut key = Vec::new();
            write_readable(identity, &mut key);
            String::from_utf8_lossy(&key).into_owned()
        };
        self.identities.iter().map(|identities| identities.iter().map(key).collect()).collect()
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

impl Totals {
    fn add(&mut self, node: &Node) {
        let stats = node.engine.backend().store().stats();
        for (total, (_, count)) in self.fallbacks.iter_mut().zip(stats.fallbacks()) {
            *total += count;
        }
        self.cached_denials += stats.cached_denials;
        self.journaled += stats.journaled;
        self.reasserted += stats.reasserted;
        self.timed_out += node.engine.backend().store().link().stats().timed_out;
    }
}

/// The identities of each rule, as nodes have them.
async fn identities(scenario: &Scenario) -> anyhow::Result<Vec<Vec<Vec<u8>>>> {
    let rules = rules_of(&scenario.revisions[0]).map_err(|error| anyhow::anyhow!("{error}"))?;
    let count = |plan: &crate::scenario::RulePlan| vec![Vec::new(); plan.identities.len()];
    let mut identities: Vec<Vec<Vec<u8>>> = scenario.rules.iter().map(count).collect();
    let mut plan = Plan::default();
    for request in &scenario.requests {
        with_request(request, 1, async |request| rules.plan(request, &mut plan)).await;
        let steps = plan.steps().iter().filter(|step| matches!(step.target, Target::Rule(_)));
        let mut known: Vec<&[u8]> = Vec::new();
        for step in steps {
            let identity = plan.identity(step);
            // Steps of one counter are one.
            if !known.contains(&identity) {
                known.push(identity);
            }
        }
        for (StepPlan { rule, identity, .. }, key) in request.steps.iter().zip(known) {
            identities[*rule][*identity] = key.to_vec();
        }
    }
    Ok(identities)
}
