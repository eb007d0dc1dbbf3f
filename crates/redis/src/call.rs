//! Calls of scripts, and their errors.

use std::fmt;
use std::sync::OnceLock;

use sluicegate::backend::StoreFailure;

/// A Lua script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    sha: OnceLock<String>,
}

/// A call of a script with its `KEYS` and `ARGV`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// On a Cluster all of one slot.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No reply before the deadline. It may have been executed.
    TimedOut,
    /// Too many calls are waiting. It was not sent.
    Busy,
    /// There is no connection, or the circuit breaker is open. It was not sent.
    Down,
    /// The connection broke before the reply. It may have been executed.
    Broken,
    /// The store refused it: read-only, out of memory, no permission. Nothing has changed.
    Refused(Box<str>),
}

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, sha: OnceLock::new() }
    }

    /// The hash for `EVALSHA`.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| ::redis::Script::new(self.text).get_hash().to_owned())
    }
}

impl Call {
    /// The command: `EVAL` with the text, or `EVALSHA` with the hash.
    pub(crate) fn command(&self, name: &str, script: &str) -> ::redis::Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            command.arg(part);
        }
        command
    }
}

impl CallError {
    /// Whether the store may have executed the call.
    #[must_use]
    pub const fn may_have_executed(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Broken)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", StoreFailure::from(self))?;
        match self {
            Self::Refused(reason) => write!(f, ": {reason}"),
            _ => Ok(()),
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
