//! Scenarios of the simulator: nodes, store, network, traffic and events over time.
//!
//! The reader returns plain values that need no further check, apart from the rules: their text is
//! read by [`crate::rules`], at its own positions. Times are milliseconds, the resolution of the
//! simulator.
//!
//! ```yaml
//! name: store outage
//! duration: 20s
//! nodes: 3
//! rules: rules.yaml       # or the rules themselves
//! traffic:
//!   - { request: { tenant: acme }, rate: 300/s }
//! events:
//!   - { at: 5s, for: 5s, store: down }
//! ```

mod event;
mod inline;
mod network;
mod reader;
#[cfg(test)]
mod tests;
mod traffic;

use crate::problem::{Position, Problems};

/// The most nodes of a scenario, those that join later included.
pub const NODES_MAX: u64 = 64;
/// The most requests of a scenario.
pub const REQUESTS_MAX: u64 = 5_000_000;
/// The most clients of a stream.
pub const CLIENTS_MAX: u64 = 100_000;
/// The most store servers of a Cluster.
pub const SHARDS_MAX: u64 = 16;
/// The longest scenario.
pub const DURATION_MAX_MS: u64 = 3_600_000;

/// A scenario as it was written.
///
/// ```
/// use sluicegate_config::scenario::scenario;
///
/// let text = "duration: 2s\nnodes: 3\nrules: rules.yaml\ntraffic: [{ request: { user: ada }, rate: 50/s }]";
/// let read = scenario("scenario.yaml", text)?;
/// assert_eq!((read.duration_ms, read.nodes.len(), read.traffic.len()), (2_000, 3, 1));
/// let error = scenario("scenario.yaml", "duraton: 2s").unwrap_err().to_string();
/// assert!(error.contains("did you mean `duration`?"));
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioConfig {
    /// Its name, for reports.
    pub name: Option<String>,
    /// Seed of all random numbers.
    pub seed: Option<u64>,
    /// Duration.
    pub duration_ms: u64,
    /// The nodes at the beginning.
    pub nodes: Vec<NodeConfig>,
    /// The store.
    pub store: StoreConfig,
    /// The network of all nodes.
    pub network: NetworkConfig,
    /// The rules at the beginning.
    pub rules: RulesText,
    /// Streams of requests.
    pub traffic: Vec<StreamConfig>,
    /// Events, in the order of the file.
    pub events: Vec<EventConfig>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeConfig {
    /// Offset of its clock in milliseconds.
    pub clock_offset_ms: i64,
    /// Drift of its clock in microseconds per second.
    pub clock_drift_ppm: i64,
    /// Its network, if it differs.
    pub network: Option<NetworkConfig>,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Timeout of a call.
    pub timeout_ms: u64,
    /// Latency of the store beside the network: quantiles in percent, with milliseconds, ascending.
    pub latency: Vec<(u64, u64)>,
    /// Number of primaries: more than one is a Cluster.
    pub shards: u64,
    /// Whether nodes have a circuit breaker, as in production.
    pub circuit_breaker: bool,
}

/// Conditions of the network between a node and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkConfig {
    /// Delay in each direction.
    pub delay_ms: u64,
    /// Random delay on top, at most.
    pub jitter_ms: u64,
    /// Calls per thousand that are late, and by how much at most.
    pub late: (u64, u64),
    /// Lost calls per thousand.
    pub loss: u64,
    /// Lost replies per thousand.
    pub lost_replies: u64,
    /// Duplicated calls per thousand.
    pub duplicates: u64,
}

/// Rules of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesText {
    /// A file, relative to the scenario's.
    File(String, Position),
    /// Rules inside the scenario: their text at the lines and columns of the scenario.
    Inline(String),
}

/// A stream of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// Its name, for reports.
    pub name: Option<String>,
    /// Domain; that of the rules unless given.
    pub domain: Option<String>,
    /// Descriptors, each of entries; `{client}` is the client's number.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Where the request is written.
    pub at: Position,
    /// Requests per second, in thousandths, of all its clients.
    pub rate_milli: u64,
    /// Arrival pattern.
    pub pattern: PatternConfig,
    /// Number of clients, which send equally much.
    pub clients: u64,
    /// The nodes that it calls; all that run, if empty.
    pub nodes: Vec<u64>,
    /// Hits of a request.
    pub cost: u64,
    /// Begin and end.
    pub span_ms: (u64, u64),
    /// Admitted requests per thousand that are refunded.
    pub refunds: u64,
    /// Whether requests are reserved first, and committed or canceled later.
    pub is_reserved: bool,
}

/// Arrival pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternConfig {
    /// Evenly, with random gaps.
    Steady,
    /// All requests of an interval at once.
    Bursts {
        /// The interval.
        every_ms: u64,
    },
    /// On and off.
    Phases {
        /// Time on.
        on_ms: u64,
        /// Time off.
        off_ms: u64,
    },
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventConfig {
    /// When it happens.
    pub at_ms: u64,
    /// For how long, if it ends by itself.
    pub for_ms: Option<u64>,
    /// What happens.
    pub action: ActionConfig,
}

/// What happens at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionConfig {
    /// The store is unreachable; it keeps its data. One of its primaries, or all.
    StoreDown(Option<u64>),
    /// It is reachable again.
    StoreUp,
    /// It stalls: calls wait.
    Stall(u64),
    /// The primary is replaced by a replica that lacks the newest writes.
    Failover {
        /// Writes of this time are lost.
        lost_ms: u64,
        /// Time without a primary.
        down_ms: u64,
    },
    /// The store restarts without data.
    DataLoss {
        /// Time without a primary.
        down_ms: u64,
    },
    /// The clock of the store is stepped.
    StoreClock(i64),
    /// Nodes are partitioned from the store; all, if empty.
    Partition(Vec<u64>),
    /// The partition of nodes ends; of all, if empty.
    Heal(Vec<u64>),
    /// The network changes: of one node, or of all.
    Network(Option<u64>, NetworkConfig),
    /// A node ends without a word.
    Crash(u64),
    /// A node shuts down.
    Stop(u64),
    /// A node starts again.
    Start(u64),
    /// The clock of a node is stepped by milliseconds.
    Clock(u64, i64),
    /// Nodes join.
    AddNodes(u64),
    /// The last nodes leave.
    RemoveNodes(u64),
    /// All nodes load rules, one after the other within `for`.
    Reload(RulesText),
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { timeout_ms: 100, latency: Vec::new(), shards: 1, circuit_breaker: true }
    }
}

/// Reads a scenario.
///
/// # Errors
/// All problems of the text.
pub fn scenario(source_name: &str, text: &str) -> Result<ScenarioConfig, Problems> {
    reader::read(source_name, text)
}
