//! How far the nodes that share a limit may diverge, and the guarantee of a decision.

use std::fmt;

/// How a rule's counters are shared between nodes.
///
/// ```
/// assert_eq!(sluicegate::Level::Leased.to_string(), "leased");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// The store decided, or there is no other node.
    #[default]
    Strict,
    /// This node held a lease and decided locally. The limit is never exceeded.
    Leased,
    /// This node decided locally; peers' counts arrive later.
    Eventual,
}

/// The guarantee of a decision.
///
/// ```
/// use sluicegate::{Level, Promise};
///
/// assert_eq!(Promise::default(), Promise { level: Level::Strict, over: 0 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// The consistency level of the decision.
    pub level: Level,
    /// Maximum excess over the limit, since peers were not consulted: their admissions between two
    /// syncs, as last pulled.
    pub over: u64,
}

impl Level {
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

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
