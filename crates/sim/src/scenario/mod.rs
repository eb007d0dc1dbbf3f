//! Scenarios: rules, nodes, traffic and faults, all generated from a seed.

mod faults;
mod rules;
mod traffic;

pub use faults::{Fault, FaultPlan};
pub use rules::{LevelPlan, LimitPlan, Policy, RulePlan};
pub use traffic::{Arrival, Pattern, Stream};

use crate::rng::SimRng;

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// Duration in milliseconds.
    pub length_ms: u64,
    /// Start in microseconds of the epoch.
    pub start_us: u64,
    /// Clocks of the nodes: offset in microseconds, and drift in microseconds per second.
    pub clocks: Vec<(i64, i64)>,
    /// Rules.
    pub rules: Vec<RulePlan>,
    /// Factor of the limits after a reload, in thousandths.
    pub reloaded: u64,
    /// Traffic.
    pub streams: Vec<Stream>,
    /// Faults.
    pub fault_plan: FaultPlan,
    /// Call timeout in milliseconds.
    pub timeout_ms: u64,
}

/// Duration after full recovery, in milliseconds.
const TAIL_MS: u64 = 1_000;
/// Time after which all late and duplicated calls have arrived, in milliseconds.
const LAST_WORD_MS: u64 = 1_500;
/// Time after which a stopped node has dropped out of the membership, in milliseconds: until then
/// the others may decide from their local shares.
const MEMBERSHIP_MS: u64 = 5_000;

impl Scenario {
    /// Generates the scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed, "scenario");
        let nodes = rng.choose(&[1, 2, 2, 3, 3, 4, 5]);
        let length_ms = rng.within(2_000, 4_000);
        let clocks = (0..nodes).map(|_| clock(&mut rng)).collect();
        let count = rng.choose(&[1, 1, 2]);
        let rules: Vec<_> = (0..count).map(|_| RulePlan::new(&mut rng)).collect();
        let streams = traffic::streams(&mut rng, &rules, nodes);
        let fault_plan = FaultPlan::new(&mut rng, nodes, length_ms);
        // Long enough to observe the recovery.
        let length_ms = match fault_plan.faults.is_empty() {
            true => length_ms,
            false => length_ms.max(recovered_ms(&rules, &fault_plan) + TAIL_MS),
        };
        Self {
            seed,
            length_ms,
            start_us: 1_700_000_000_000_000 + rng.within(0, 2_000_000),
            clocks,
            rules,
            reloaded: rng.choose(&[500, 800, 1_250, 2_000]),
            streams,
            fault_plan,
            timeout_ms: rng.choose(&[10, 10, 20, 50]),
        }
    }

    /// The rules as YAML, before or after the reload.
    #[must_use]
    pub fn yaml(&self, is_later: bool) -> String {
        let times = if is_later { self.reloaded } else { 1_000 };
        let each = self.rules.iter().enumerate().map(|(index, rule)| rule.yaml(index, times));
        format!("domain: sim\ndescriptors:\n{}", each.collect::<String>())
    }

    /// Time of full recovery, in milliseconds.
    #[must_use]
    pub fn recovered_ms(&self) -> u64 {
        recovered_ms(&self.rules, &self.fault_plan)
    }

    /// Whether there are no faults.
    #[must_use]
    pub fn is_fault_free(&self) -> bool {
        self.fault_plan.faults.is_empty()
    }
}

fn recovered_ms(rules: &[RulePlan], fault_plan: &FaultPlan) -> u64 {
    let recovery = rules.iter().map(RulePlan::recovery_ms).max().unwrap_or(0);
    let membership = if fault_plan.stops_nodes() { MEMBERSHIP_MS } else { 0 };
    fault_plan.over_ms + membership + LAST_WORD_MS + recovery
}

fn clock(rng: &mut SimRng) -> (i64, i64) {
    let off_ms = rng.choose(&[0, 0, 3, 50, 2_000, 600_000]);
    let off_us = i64::try_from(rng.within(0, off_ms * 1_000)).unwrap_or(0);
    let gain_us = rng.choose(&[0, 0, 20, -20, 200, -200]);
    (if rng.permille(500) { -off_us } else { off_us }, gain_us)
}
