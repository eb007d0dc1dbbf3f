//! Deterministic simulation: nodes and their store in one thread, on virtual time, under faults.
//!
//! Engine and scripts are those of production. Clock, transport, the store's commands and
//! randomness are replaced. Everything follows from a seed, so failures are reproducible.
//!
//! | module | content |
//! |---|---|
//! | `scenario` | rules, traffic and faults of a seed |
//! | `world` | execution of a scenario |
//! | `client`, `node`, `time` | a request, a node, clocks |
//! | `net`, `conditions`, `store` | the network to the store, a Redis in memory |
//! | `oracle` | properties that a history must have |
//! | `capacity` | model of fleets that are too large to simulate |
//! | `figures` | figures of a run, for reports |
//! | `report` | text, JSON, plots and HTML of results |
//! | `spread` | several seeds, sweeps of a variable |
//! | `table` | measured excess of eventual rules |
//! | `accuracy` | accuracy of the consistency levels on several nodes |
//! | `rng`, `trace` | random numbers, event log |

pub mod accuracy;
pub mod capacity;
mod client;
mod conditions;
pub mod figures;
mod net;
mod node;
pub mod oracle;
pub mod report;
mod rng;
mod scenario;
pub mod spread;
pub mod store;
pub mod table;
mod time;
mod trace;
pub mod world;

pub use conditions::Conditions;
pub use net::Synced;
pub use rng::SimRng;
pub use scenario::{
    Arrival, Fault, FaultPlan, LevelPlan, LimitPlan, Pattern, Policy, RequestPlan, RulePlan,
    Scenario, ScenarioError, StepPlan, StorePlan, Stream, Usage, read,
};

/// A scenario, its history and the violations.
#[derive(Debug)]
pub struct Outcome {
    /// The scenario.
    pub scenario: Scenario,
    /// The history.
    pub history: world::History,
    /// Violated properties.
    pub violations: Vec<oracle::Violation>,
}

/// Runs and judges the scenario of a seed.
///
/// ```
/// let once = sluicegate_sim::simulate(7, false)?;
/// let again = sluicegate_sim::simulate(7, false)?;
/// assert_eq!(once.history.hash, again.history.hash);
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
/// When the scenario cannot be set up.
pub fn simulate(seed: u64, is_verbose: bool) -> anyhow::Result<Outcome> {
    run(Scenario::new(seed), is_verbose)
}

/// Runs and judges a scenario.
///
/// # Errors
/// When it cannot be set up.
pub fn run(scenario: Scenario, is_verbose: bool) -> anyhow::Result<Outcome> {
    let history = world::run(&scenario, is_verbose)?;
    let violations = oracle::judge(&scenario, &history);
    Ok(Outcome { scenario, history, violations })
}
