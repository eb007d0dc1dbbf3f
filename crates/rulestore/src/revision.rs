//! A revision: metadata, and with its files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sluicegate_config::rules::Source;

/// Metadata of a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// The revision that was active when it was written; none for the first.
    pub base: Option<u64>,
    /// Author.
    pub author: String,
    /// Time of the proposal.
    pub at: Timestamp,
    /// Why.
    pub note: String,
    /// Where it came from.
    pub kind: RevisionKind,
    /// What it is now.
    pub state: RevisionState,
    /// Hash of the compiled set, in hexadecimal: equal to that of the metric on each node.
    pub digest: String,
    /// The revision that a rollback restores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<u64>,
    /// When it is to be activated, or was scheduled for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activate_at: Option<Timestamp>,
    /// When it became active for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<Timestamp>,
    /// The person that approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Why its activation was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_because: Option<String>,
}

/// Identifies a revision, also when a database was replaced by another one, or by a backup.
pub(crate) type RevisionId = (u64, Timestamp, String);

impl Revision {
    pub(crate) fn id(&self) -> RevisionId {
        (self.number, self.at, self.digest.clone())
    }
}

/// Where a revision came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionKind {
    /// Edited through the API.
    Edit,
    /// An earlier revision, restored.
    Rollback,
    /// Imported as a whole, or found at the first start.
    Import,
    /// Edited past the store: an editor, Git, a mount.
    Outside,
}

/// What a revision is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionState {
    /// It waits for approval.
    Pending,
    /// It becomes active at a time.
    Scheduled,
    /// It was scheduled, and its base was not active any more at that time.
    Suspended,
    /// It is a candidate: stored, and not enforced.
    Shadow,
    /// It is enforced.
    Active,
    /// It was enforced, or a candidate.
    Superseded,
    /// It was withdrawn before it was enforced.
    Withdrawn,
}

impl RevisionState {
    /// Whether it can still change, apart from being superseded.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Scheduled | Self::Suspended | Self::Shadow)
    }

    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Scheduled,
        Self::Suspended,
        Self::Shadow,
        Self::Active,
        Self::Superseded,
        Self::Withdrawn,
    ];

    /// The state of a name; an unknown one, of a newer version, is final here.
    pub(crate) fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|one| one.name() == name).unwrap_or(Self::Superseded)
    }

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Suspended => "suspended",
            Self::Shadow => "shadow",
            Self::Active => "active",
            Self::Superseded => "superseded",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl RevisionKind {
    const ALL: [Self; 4] = [Self::Edit, Self::Rollback, Self::Import, Self::Outside];

    /// The kind of a name.
    pub(crate) fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|one| one.name() == name).unwrap_or(Self::Edit)
    }

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::Rollback => "rollback",
            Self::Import => "import",
            Self::Outside => "outside",
        }
    }
}

/// A revision with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRevision {
    /// Metadata.
    pub revision: Revision,
    /// Files, sorted by name; names are relative.
    pub sources: Vec<Source>,
}

/// A node that follows the same store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeInfo {
    /// Its id.
    pub node: String,
    /// Its name and addresses.
    pub name: String,
    /// The revision that it enforces.
    pub revision: Option<u64>,
    /// Hash of the set that it enforces.
    pub digest: String,
    /// Its last heartbeat.
    pub last_seen: Timestamp,
}
