//! Nodes and their store in one thread, on virtual time, under faults.
//!
//! The engine and the scripts are those of production. What is replaced is what lies around them: the clock, the way to the store, the store's commands and
//! randomness. Everything follows from a seed, so whatever goes wrong goes wrong again.
//!
//! | room | what it keeps |
//! |---|---|
//! | `scenario` | what happens: rules, traffic, faults |
//! | `world` | a scenario lived through |
//! | `node`, `net`, `store`, `time` | a process of the fleet, the ways to the store, a Redis in memory, clocks |
//! | `oracle` | whether what happened may happen |
//! | `table` | how far eventual nodes go above a limit, in figures |
//! | `chance`, `trace` | numbers of a seed; what happened, line by line |

mod chance;
mod net;
mod node;
pub mod oracle;
mod scenario;
pub mod store;
pub mod table;
mod time;
mod trace;
pub mod world;

pub use chance::Chance;
pub use net::{Synced, Weather};
pub use scenario::{
    Ask, Fault, LevelPlan, LimitPlan, Pattern, Policy, RulePlan, Scenario, Stream, Trouble,
};

/// A world that was lived through, and what is wrong with it.
#[derive(Debug)]
pub struct Outcome {
    /// What was to happen.
    pub scenario: Scenario,
    /// What happened.
    pub history: world::History,
    /// What must not have happened.
    pub violations: Vec<oracle::Violation>,
}

/// Lives through the world of a seed, and judges it.
///
/// ```
/// let once = sluicegate_sim::live(7, false)?;
/// let again = sluicegate_sim::live(7, false)?;
/// assert_eq!(once.history.hash, again.history.hash);
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
/// When a world cannot be set up.
pub fn live(seed: u64, is_shown: bool) -> anyhow::Result<Outcome> {
    let scenario = Scenario::new(seed);
    let history = world::run(&scenario, is_shown)?;
    let violations = oracle::judge(&scenario, &history);
    Ok(Outcome { scenario, history, violations })
}
