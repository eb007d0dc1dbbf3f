//! What a caller proposes.

use jiff::Timestamp;
use sluicegate_config::rules::Source;

use crate::revision::RevisionKind;

/// A proposed revision.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The active revision that it changes; `None` in an empty store.
    pub base: Option<u64>,
    /// Author.
    pub author: String,
    /// Why; required.
    pub note: String,
    /// Where it came from.
    pub kind: RevisionKind,
    /// The revision that a rollback restores.
    pub restores: Option<u64>,
    /// All files, with relative names.
    pub sources: Vec<Source>,
    /// When it takes effect.
    pub activation: Activation,
}

/// When a revision takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// At once.
    #[default]
    Now,
    /// At a time, if its base is still active then.
    At(Timestamp),
    /// Not: it is the candidate that runs beside the enforced set.
    Shadow,
}
