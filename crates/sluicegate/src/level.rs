//! How far nodes that share a limit may be apart, and what that means for an answer.

use std::fmt;

/// How a rule's counters are shared between nodes.
///
/// ```
/// assert_eq!(sluicegate::Level::Leased.to_string(), "leased");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// The store was asked, or there is no other node.
    #[default]
    Strict,
    /// This node had bought ahead, and decided by itself. Never more passes than the limit allows.
    Leased,
    /// This node decided by itself, and hears of the others afterwards.
    Eventual,
}

/// What an answer promises.
///
/// ```
/// use sluicegate::{Level, Promise};
///
/// assert_eq!(Promise::default(), Promise { level: Level::Strict, over: 0 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// Who decided.
    pub level: Level,
    /// How much more than the limit may have passed, since other nodes were not asked: what they
    /// admitted between two syncs, as last heard.
    pub over: u64,
}

// === impl Level ===

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
