//! One call of a script.

use std::fmt;
use std::sync::OnceLock;

use sluicegate::backend::StoreFailure;

/// A script that the store runs.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    sha: OnceLock<String>,
}

/// A script, the keys that it touches, and what it is told.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// All of one slot, where the store is a Cluster; the first says which.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
}

/// Why the store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Not in time. It may have happened all the same.
    TimedOut,
    /// Too many calls wait already. It was not sent.
    Busy,
    /// There is no connection, or the breaker is open. It was not sent.
    Down,
    /// The connection broke while the answer was awaited. It may have happened all the same.
    Broken,
    /// The store said no: read-only, out of memory, not allowed. Nothing has changed.
    Refused(Box<str>),
}

// === impl Script ===

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, sha: OnceLock::new() }
    }

    /// The name under which the store knows it.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| ::redis::Script::new(self.text).get_hash().to_owned())
    }
}

// === impl Call ===

impl Call {
    /// The call as `EVAL` of a text or `EVALSHA` of a hash.
    pub(crate) fn command(&self, name: &str, script: &str) -> ::redis::Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            command.arg(part);
        }
        command
    }
}

// === impl CallError ===

impl CallError {
    /// Whether the store may have executed the call.
    #[must_use]
    pub const fn may_have_executed(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Broken)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the store did not answer in time"),
            Self::Busy => f.write_str("too many calls wait for the store"),
            Self::Down => f.write_str("the store cannot be reached"),
            Self::Broken => f.write_str("the connection to the store broke"),
            Self::Refused(why) => write!(f, "the store refused: {why}"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<&CallError> for StoreFailure {
    fn from(error: &CallError) -> Self {
        match error {
            CallError::TimedOut => Self::TimedOut,
            CallError::Busy => Self::Busy,
            CallError::Down => Self::Down,
            CallError::Broken => Self::Broken,
            CallError::Refused(_) => Self::Refused,
        }
    }
}
