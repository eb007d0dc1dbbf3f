//! Model of a fleet's load on the store and of its accuracy, for fleets that are too large to
//! simulate. `validate` compares it with the simulator.
//!
//! ```text
//!   q  requests per second of one identity on one node      l  its limit per second
//!
//!   strict    each admission calls the store; a denial is remembered until about the next token,
//!             at most 100 ms
//!   leased    a lease covers 0.5 s and is renewed at a quarter: min(q, 2.7) calls per second; at
//!             most 64 nodes hold leases of an identity, the others call the store
//!   eventual  an active identity is exchanged twice per interval, up to 32 in a call; one that was
//!             idle for longer is pulled first
//! ```
//! A lease serves a demand below the limit. Above it grants are small, hits go to the store as
//! under `strict`, and a node tries up to six times per second to lease again (measured).

use std::fmt;

use crate::figures::Figures;
use crate::run;
use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};

/// A fleet and its traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fleet {
    /// Nodes.
    pub nodes: f64,
    /// Requests per second of the whole fleet.
    pub rate: f64,
    /// Identities, each with the same share of requests.
    pub identities: f64,
    /// Limit of an identity per second.
    pub limit: f64,
    /// Sync interval of eventual rules, in seconds.
    pub sync: f64,
    /// Round trip to the store, in seconds.
    pub round_trip: f64,
    /// CPU time of the store for the decision on one identity, in microseconds.
    pub decision_us: f64,
    /// The same for the exchange of one identity.
    pub exchange_us: f64,
}

/// Consistency level of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetLevel {
    /// Every decision calls the store.
    Strict,
    /// Nodes lease quota ahead.
    Leased,
    /// Nodes exchange counts.
    Eventual,
}

/// What a fleet needs and promises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The level.
    pub level: FleetLevel,
    /// Calls of the store per second.
    pub calls: f64,
    /// Identities that the store handles per second: calls have several.
    pub operations: f64,
    /// Cores of the store.
    pub cores: f64,
    /// Expected amount above the limit of an identity, per window of a second.
    pub over: f64,
    /// The bound of that.
    pub over_bound: f64,
    /// Leased quota of an identity that may be unused, at most.
    pub short: f64,
}

/// Identities in a call of decisions.
const DECISIONS_PER_CALL: f64 = 16.0;
/// Calls of decisions in flight.
const CALLS_IN_FLIGHT: f64 = 3.0;
/// Identities in a call of exchanges.
const EXCHANGES_PER_CALL: f64 = 32.0;
/// A lease covers 0.5 s, and is renewed when a quarter of it is left.
const RENEWALS: f64 = 1.0 / 0.375;
/// Attempts per second to lease quota that is scarce.
const SCARCE_ATTEMPTS: f64 = 6.0;
/// Demand that a lease covers, in seconds.
const LEASE: f64 = 0.5;
/// Nodes that hold leases of one identity.
const LEASED_NODES: f64 = sluicegate_core::lease::NODES_MAX as f64;
/// Denials of a client are remembered for this long, in seconds.
const DENIAL: f64 = 0.1;
/// An identity is exchanged for this long after its last hit, in seconds, or two intervals.
const SYNCED_MIN: f64 = 0.1;

impl Fleet {
    /// The estimate of a level.
    ///
    /// ```
    /// use sluicegate_sim::capacity::{Fleet, FleetLevel};
    ///
    /// let fleet = Fleet { nodes: 10.0, rate: 10_000.0, identities: 1.0, limit: 20_000.0, ..Fleet::default() };
    /// let (strict, leased) = (fleet.estimate(FleetLevel::Strict), fleet.estimate(FleetLevel::Leased));
    /// assert!(leased.calls * 100.0 < strict.calls, "{leased:?} {strict:?}");
    /// ```
    #[must_use]
    pub fn estimate(&self, level: FleetLevel) -> Estimate {
        // Of one identity on one node.
        let offered = self.rate / (self.identities * self.nodes);
        let admitted = offered.min(self.limit / self.nodes);
        let denied = offered - admitted;
        let remembered = DENIAL.min(0.5 / self.limit);
        let decided = admitted + denied / (1.0 + denied * remembered);
        let counters = self.identities * self.nodes;
        let is_scarce = offered * self.nodes > self.limit;
        let (operations, per_call) = match level {
            FleetLevel::Strict => (counters * decided, DECISIONS_PER_CALL),
            FleetLevel::Leased => {
                let leased = (LEASED_NODES / self.nodes).min(1.0);
                let of_leased = match is_scarce {
                    true => decided + offered.min(SCARCE_ATTEMPTS),
                    false => offered.min(RENEWALS),
                };
                (counters * (leased * of_leased + (1.0 - leased) * decided), DECISIONS_PER_CALL)
            }
            FleetLevel::Eventual => {
                let active = 1.0 - self.idle(offered);
                (counters * active * 2.0 / self.sync, EXCHANGES_PER_CALL)
            }
        };
        let calls = self.calls(level, operations, per_call);
        let cost = match level {
            FleetLevel::Eventual => self.exchange_us,
            FleetLevel::Strict | FleetLevel::Leased => self.decision_us,
        };
        let (over, over_bound) = self.over(level, offered, is_scarce);
        let short = match level {
            FleetLevel::Leased => (offered * LEASE * self.nodes.min(LEASED_NODES)).min(self.limit),
            FleetLevel::Strict | FleetLevel::Eventual => 0.0,
        };
        Estimate {
            level,
            calls,
            operations,
            cores: operations * cost / 1e6,
            over,
            over_bound,
            short,
        }
    }

    /// Share of hits that find their identity idle.
    fn idle(&self, offered: f64) -> f64 {
        (-offered * SYNCED_MIN.max(2.0 * self.sync)).exp()
    }

    /// A node merges what waits while its calls are in flight.
    fn calls(&self, level: FleetLevel, operations: f64, per_call: f64) -> f64 {
        let of_node = operations / self.nodes;
        let calls = match level {
            FleetLevel::Eventual => {
                let offered = self.rate / (self.identities * self.nodes);
                let pulls = self.identities * offered * self.idle(offered);
                pulls + (2.0 / self.sync).min(of_node).max(of_node / per_call)
            }
            FleetLevel::Strict | FleetLevel::Leased => {
                of_node.min(CALLS_IN_FLIGHT / self.round_trip).max(of_node / per_call)
            }
        };
        calls * self.nodes
    }

    /// Peers' admissions that a node does not know of when the limit is reached: half an interval
    /// old in the mean, at most one and a half.
    fn over(&self, level: FleetLevel, offered: f64, is_scarce: bool) -> (f64, f64) {
        if level != FleetLevel::Eventual || !is_scarce {
            return (0.0, 0.0);
        }
        let of_peers = offered * (self.nodes - 1.0);
        let mean = of_peers * (self.sync / 2.0 + self.round_trip);
        let bound = of_peers * (1.5 * self.sync.max(0.05) + 2.0 * self.round_trip);
        (mean, bound)
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            nodes: 3.0,
            rate: 1_000.0,
            identities: 1_000.0,
            limit: 100.0,
            sync: 0.1,
            round_trip: 0.002,
            decision_us: 13.0,
            exchange_us: 13.0,
        }
    }
}

impl FleetLevel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Leased, Self::Eventual];

    /// As rule files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Leased => "leased",
            Self::Eventual => "eventual",
        }
    }
}

impl fmt::Display for FleetLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === validation ===

/// A comparison of the model with the simulator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// The fleet.
    pub fleet: Fleet,
    /// The level.
    pub level: FleetLevel,
    /// Calls per second: of the model, and simulated.
    pub calls: (f64, f64),
    /// Largest amount above the limit in a second: of the model, and simulated.
    pub over: (f64, f64),
}

impl Validation {
    /// Error of the model's calls, in percent of the simulated ones.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        (self.calls.0 - self.calls.1) * 100.0 / self.calls.1.max(1.0)
    }
}

/// Fleets that are simulated: nodes, identities, requests per second, limit per second.
const VALIDATED: [(u32, u32, u32, u32); 9] = [
    (2, 1, 200, 400),
    (4, 1, 800, 400),
    (4, 1, 1_600, 3_200),
    (8, 1, 1_600, 400),
    (8, 20, 1_600, 200),
    (8, 200, 1_600, 20),
    (16, 20, 3_200, 400),
    (16, 20, 3_200, 80),
    (32, 4, 3_200, 1_600),
];
/// Length of a simulated run, and its part that is not measured, in seconds.
const LENGTH: u64 = 8;
const DELAY_MS: u64 = 1;

/// Compares the model with simulated fleets.
///
/// # Errors
/// When a world cannot be set up.
pub fn validate() -> anyhow::Result<Vec<Validation>> {
    let mut rows = Vec::new();
    for (nodes, identities, rate, limit) in VALIDATED {
        for level in FleetLevel::ALL {
            let fleet = Fleet {
                nodes: nodes.into(),
                rate: rate.into(),
                identities: identities.into(),
                limit: limit.into(),
                round_trip: 2.0 * DELAY_MS as f64 / 1e3,
                ..Fleet::default()
            };
            rows.push(compare(fleet, level)?);
        }
    }
    Ok(rows)
}

fn compare(fleet: Fleet, level: FleetLevel) -> anyhow::Result<Validation> {
    let outcome = run(simulated(&fleet, level), false)?;
    let figures = Figures::of(&outcome);
    let calls = figures.calls as f64 / LENGTH as f64;
    let over = figures.rules.iter().map(|rule| rule.over).max().unwrap_or(0) as f64;
    let estimate = fleet.estimate(level);
    // Each node has a heartbeat.
    let heartbeats = fleet.nodes;
    Ok(Validation {
        fleet,
        level,
        calls: (estimate.calls + heartbeats, calls),
        over: (estimate.over, over),
    })
}

fn simulated(fleet: &Fleet, level: FleetLevel) -> Scenario {
    let count = fleet.limit as u64;
    let (level, limit) = match level {
        FleetLevel::Strict => {
            (LevelPlan::Strict, LimitPlan::Bucket { rate: count, per_ms: 1_000, burst: count })
        }
        FleetLevel::Leased => {
            (LevelPlan::Leased, LimitPlan::Bucket { rate: count, per_ms: 1_000, burst: count })
        }
        FleetLevel::Eventual => {
            let sync_ms = (fleet.sync * 1e3) as u64;
            (LevelPlan::Eventual { sync_ms }, LimitPlan::Window { count, per_ms: 1_000 })
        }
    };
    let identities = fleet.identities as usize;
    let rule = RulePlan {
        identities: (0..identities).map(|id| format!("id{id}")).collect(),
        ..RulePlan::fixed(vec![limit], level)
    };
    let nodes = fleet.nodes as usize;
    let mut scenario = Scenario::steady(nodes, rule, 1, 1, LENGTH * 1_000);
    let rate = (fleet.rate / fleet.nodes) as u64;
    scenario.streams.iter_mut().for_each(|stream| {
        stream.clients = identities;
        stream.pattern = crate::scenario::Pattern::Steady(rate.max(1));
    });
    scenario.store.timeout_ms = 100;
    scenario.fault_plan.conditions.least_ms = DELAY_MS;
    scenario.fault_plan.conditions.delay_ms = DELAY_MS;
    scenario.judges_usage = false;
    scenario
}
