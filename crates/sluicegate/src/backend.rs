//! What a backend that keeps counters elsewhere builds on: steps of a request, their counters in
//! this node's memory, and state attached to rules.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

#[cfg(feature = "tokio")]
pub use crate::clock::sleep_until;
pub use crate::engine::check::{Manner, Want, first_alike, most_of};
pub use crate::engine::live::{Kept, decides_here, limits_of, tally};
pub use crate::limiter::{Asked, ask_each};
pub use crate::memory::UNCOUNTED;
pub use crate::plan::{ResolvedRule, Rule};

/// State that a backend attaches to a rule, created on first use.
#[derive(Default)]
pub struct Extension(OnceLock<Box<dyn Any + Send + Sync>>);

/// Why a request got no answer: the store gave none, and a rule that applies to it has
/// `on_store_failure: error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreError {
    /// What happened.
    pub failure: StoreFailure,
    /// The descriptor whose rule it is, by its index.
    pub descriptor: usize,
}

/// Why the store gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The call timed out. It may have been executed.
    TimedOut,
    /// Too many calls are waiting. It was not sent.
    Busy,
    /// There is no connection, or the circuit breaker is open. It was not sent.
    Down,
    /// The connection broke before the reply. It may have been executed.
    Broken,
    /// The store refused: read-only, out of memory, not permitted.
    Refused,
}

// === impl Extension ===

impl Extension {
    /// The state, created now if there is none.
    ///
    /// # Panics
    /// When state of another type is attached already: an engine has one backend.
    #[inline]
    pub fn get_or_init<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> &T {
        let state = self.0.get_or_init(|| Box::new(new()));
        state.downcast_ref().expect("state of this backend")
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extension").field(&self.0.get().is_some()).finish()
    }
}

// === impl StoreError, StoreFailure ===

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (descriptors[{}])", self.failure, self.descriptor)
    }
}

impl std::error::Error for StoreError {}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the store did not answer in time",
            Self::Busy => "too many calls wait for the store",
            Self::Down => "the store cannot be reached",
            Self::Broken => "the connection to the store broke",
            Self::Refused => "the store refused",
        })
    }
}
