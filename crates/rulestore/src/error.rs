//! Errors of the store.

use std::fmt;

use sluicegate_config::problem::Problem;

use crate::revision::Revision;

/// Why an operation of the store failed; nothing has changed then, unless it says so.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The store accepts no changes.
    ReadOnly(ReadOnly),
    /// Another revision became active meanwhile.
    Conflict(Box<Conflict>),
    /// The rules are invalid; warnings beside.
    Invalid {
        /// All errors.
        problems: Vec<Problem>,
        /// Likely mistakes.
        warnings: Vec<Problem>,
    },
    /// The request itself is wrong; the remedy.
    BadRequest(String),
    /// There is no such revision.
    NotFound(u64),
    /// The revision's state, or its author, does not permit it.
    NotAllowed(String),
    /// The store cannot be reached, read or written.
    Unavailable(String),
}

/// Why a store accepts no changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnly {
    /// A stable name of the reason.
    pub code: &'static str,
    /// The reason, with the place where rules are changed instead.
    pub reason: String,
}

/// Another revision than the base is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The base of the refused change.
    pub base: Option<u64>,
    /// The active revision.
    pub newer: Option<Revision>,
}

impl StoreError {
    pub(crate) fn unavailable(step: &str, reason: impl fmt::Display) -> Self {
        Self::Unavailable(format!("cannot {step}: {reason}"))
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.base.map_or_else(|| "no revision".to_owned(), |n| format!("revision {n}"));
        match &self.newer {
            Some(newer) => write!(
                f,
                "the change is based on {base}, and revision {} of `{}` is active since ({}); compare both, and \
                 base the change on {}",
                newer.number, newer.author, newer.note, newer.number
            ),
            None => write!(f, "the change is based on {base}, and no revision is active"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly(read_only) => f.write_str(&read_only.reason),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Invalid { problems, .. } => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::NotFound(number) => write!(f, "there is no revision {number}"),
            Self::BadRequest(message) | Self::NotAllowed(message) | Self::Unavailable(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl serde::Serialize for ReadOnly {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;

        let mut fields = serializer.serialize_struct("ReadOnly", 2)?;
        fields.serialize_field("code", self.code)?;
        fields.serialize_field("reason", &self.reason)?;
        fields.end()
    }
}
