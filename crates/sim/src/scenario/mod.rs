//! Scenarios: rules, nodes, traffic and faults. Generated from a seed, or written.

mod compiled;
mod faults;
mod features;
mod rules;
mod traffic;
mod written;

pub use faults::{Fault, FaultPlan};
pub use rules::{LevelPlan, LimitPlan, Policy, RulePlan};
pub use traffic::{Arrival, Pattern, RequestPlan, StepPlan, Stream, Usage};
pub use written::{ScenarioError, read};

use crate::conditions::Conditions;
use crate::rng::SimRng;

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name; empty for generated ones.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Duration in milliseconds.
    pub length_ms: u64,
    /// Start in microseconds of the epoch.
    pub start_us: u64,
    /// Clocks of the nodes: offset in microseconds, and drift in microseconds per second.
    pub clocks: Vec<(i64, i64)>,
    /// Number of nodes that run at the beginning; the others join later.
    pub initial: usize,
    /// Rules.
    pub rules: Vec<RulePlan>,
    /// The text of the rules, and of those that are loaded later.
    pub revisions: Vec<String>,
    /// The requests of clients.
    pub requests: Vec<RequestPlan>,
    /// Traffic.
    pub streams: Vec<Stream>,
    /// Faults.
    pub fault_plan: FaultPlan,
    /// The store.
    pub store: StorePlan,
    /// Whether too little use of the quota is a violation: a property of generated traffic.
    pub judges_usage: bool,
}

/// The store of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlan {
    /// Call timeout in milliseconds.
    pub timeout_ms: u64,
    /// Quantiles of its latency: thousandths and milliseconds, ascending.
    pub latency: Vec<(u64, u64)>,
    /// Number of primaries.
    pub shards: usize,
    /// Whether nodes have a circuit breaker.
    pub has_breaker: bool,
}

/// Duration after full recovery, in milliseconds.
const TAIL_MS: u64 = 1_000;
/// Time after which all late and duplicated calls have arrived, in milliseconds.
const LAST_WORD_MS: u64 = 1_500;
/// Time after which a stopped node has dropped out of the membership, in milliseconds: until then
/// the others may decide from their local shares.
const MEMBERSHIP_MS: u64 = 5_000;
/// Longest time between probes of an open circuit breaker, in milliseconds.
const BREAKER_MS: u64 = 2_000;

impl Scenario {
    /// Generates the scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed, "scenario");
        let nodes = rng.choose(&[1, 2, 2, 3, 3, 4, 5]);
        let length_ms = rng.within(2_000, 4_000);
        let clocks: Vec<_> = (0..nodes).map(|_| clock(&mut rng)).collect();
        let count = rng.choose(&[1, 1, 2]);
        let mut rules: Vec<_> = (0..count).map(|index| RulePlan::new(&mut rng, index)).collect();
        let streams = traffic::streams(&mut rng, &rules, nodes, length_ms);
        let fault_plan = FaultPlan::new(&mut rng, nodes, length_ms);
        let start_us = 1_700_000_000_000_000 + rng.within(0, 2_000_000);
        let reloaded = rng.choose(&[500, 800, 1_250, 2_000]);
        let store = StorePlan {
            timeout_ms: rng.choose(&[10, 10, 20, 50]),
            latency: Vec::new(),
            shards: 1,
            has_breaker: false,
        };
        let revisions = [1_000, reloaded].map(|times| yaml(&rules, times)).to_vec();
        for rule in &mut rules {
            let loosest = rule.limits.iter().map(|limit| limit.times(reloaded.max(1_000)));
            rule.loosest = loosest.collect();
        }
        let mut scenario = Self {
            name: String::new(),
            seed,
            length_ms,
            start_us,
            initial: clocks.len(),
            clocks,
            requests: traffic::requests(&rules),
            rules,
            revisions,
            streams,
            fault_plan,
            store,
            judges_usage: true,
        };
        features::add(&mut scenario);
        // Long enough to observe the recovery.
        if !scenario.fault_plan.faults.is_empty() {
            scenario.length_ms = length_ms.max(scenario.recovered_ms() + TAIL_MS);
        }
        let length_ms = scenario.length_ms;
        scenario.streams.iter_mut().for_each(|stream| stream.span_ms = (0, length_ms));
        scenario
    }

    /// A world without faults: one rule of one identity, and steady clients, one on each node.
    #[must_use]
    pub fn steady(nodes: usize, rule: RulePlan, rate: u64, cost: u64, length_ms: u64) -> Self {
        let rules = vec![rule];
        let stream = |node| Stream::steady(node, 0, cost, rate, length_ms);
        Self {
            length_ms,
            start_us: 1_700_000_000_000_000,
            clocks: vec![(0, 0); nodes],
            initial: nodes,
            requests: traffic::requests(&rules),
            revisions: vec![yaml(&rules, 1_000)],
            rules,
            streams: (0..nodes).map(stream).collect(),
            fault_plan: FaultPlan::none(),
            store: StorePlan { timeout_ms: 20, latency: Vec::new(), shards: 1, has_breaker: false },
            name: String::new(),
            seed: 1,
            judges_usage: true,
        }
    }

    /// Time of full recovery, in milliseconds.
    #[must_use]
    pub fn recovered_ms(&self) -> u64 {
        let Self { rules, fault_plan, store, .. } = self;
        let recovery = rules.iter().map(RulePlan::recovery_ms).max().unwrap_or(0);
        let membership = if fault_plan.stops_nodes() { MEMBERSHIP_MS } else { 0 };
        let breaker = if store.has_breaker { BREAKER_MS } else { 0 };
        fault_plan.over_ms + membership + LAST_WORD_MS + breaker + recovery
    }

    /// Whether there are no faults, and each call is answered in time.
    #[must_use]
    pub fn is_fault_free(&self) -> bool {
        let latency = self.store.latency.last().map_or(0, |(_, ms)| *ms);
        let is_reliable = |conditions: &Conditions| {
            let Conditions { delay_ms, late, lost, unanswered, twice, .. } = *conditions;
            (late.0, lost, unanswered, twice) == (0, 0, 0, 0)
                && 2 * delay_ms + latency < self.store.timeout_ms
        };
        let are_links = self.fault_plan.faults.iter().all(|(_, fault)| match fault {
            Fault::Link(_, Some(conditions)) => is_reliable(conditions),
            _ => false,
        });
        are_links && is_reliable(&self.fault_plan.conditions)
    }

    /// Longest delay of a reliable network in one direction, in milliseconds.
    #[must_use]
    pub fn delay_max_ms(&self) -> u64 {
        let of_links = self.fault_plan.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::Link(_, Some(conditions)) => Some(conditions.delay_ms),
            _ => None,
        });
        of_links.max().unwrap_or(0).max(self.fault_plan.conditions.delay_ms)
    }

    /// Whether each request is charged to one counter, and stays charged.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let stays_charged = |stream: &Stream| stream.usage == Usage::default();
        self.requests.iter().all(|request| request.steps.len() == 1)
            && self.streams.iter().all(stays_charged)
    }
}

/// The rules as YAML, scaled by thousandths.
fn yaml(rules: &[RulePlan], thousandths: u64) -> String {
    let each = rules.iter().map(|rule| rule.yaml(thousandths));
    format!("domain: sim\ndescriptors:\n{}", each.collect::<String>())
}

fn clock(rng: &mut SimRng) -> (i64, i64) {
    let off_ms = rng.choose(&[0, 0, 3, 50, 2_000, 600_000]);
    let off_us = i64::try_from(rng.within(0, off_ms * 1_000)).unwrap_or(0);
    let gain_us = rng.choose(&[0, 0, 20, -20, 200, -200]);
    (if rng.permille(500) { -off_us } else { off_us }, gain_us)
}
