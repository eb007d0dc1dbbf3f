//! The rules of the store: which command is permitted on which state, and what it changes.
//!
//! Both backends read the state, decide here, and write the change in one atomic step, so that
//! there is one meaning of every operation. Nothing here reads a clock or does I/O.
//!
//! ```text
//!   propose ─┬─> pending ──approve──┐
//!            ├──────────────────────┼─> active ──> superseded
//!            ├─> scheduled ──due────┘      ^
//!            │      └─base changed─> suspended
//!            └─> shadow (candidate) ──activate──┘        each open one ──withdraw──> withdrawn
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluicegate_config::rules::Source;

use crate::edit::{Activation, Proposal};
use crate::error::{Conflict, StoreError};
use crate::revision::{Revision, RevisionState, StoredRevision};

/// Open revisions: what waits for a person or for a time.
const OPEN_MAX: usize = 100;

/// The state that decisions depend on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// Number of the newest revision.
    pub(crate) last: u64,
    /// The active revision.
    pub(crate) active: Option<Revision>,
    /// Open revisions, the candidate among them.
    pub(crate) open: BTreeMap<u64, Revision>,
}

/// An operation.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Appends a revision. Its digest is that of the validated set.
    Propose { proposal: Proposal, digest: String },
    /// Approves a pending revision.
    Approve { number: u64, by: String },
    /// Activates the candidate.
    Activate { number: u64, by: String },
    /// Withdraws an open revision.
    Withdraw { number: u64 },
    /// Activates what is due, or suspends it.
    ActivateDue,
}

/// Options of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Policy {
    /// Whether another person than the author must approve.
    pub(crate) require_approval: bool,
}

/// What a command changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The appended revision.
    pub(crate) insert: Option<StoredRevision>,
    /// Revisions in a new state.
    pub(crate) updates: Vec<Revision>,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.insert.is_none() && self.updates.is_empty()
    }

    /// All revisions that change, the appended one first.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = &Revision> {
        self.insert.iter().map(|stored| &stored.revision).chain(&self.updates)
    }

    /// The revision that becomes active.
    pub(crate) fn activated(&self) -> Option<&Revision> {
        self.revisions().find(|revision| revision.state == RevisionState::Active)
    }
}

impl Ledger {
    /// The candidate.
    pub(crate) fn candidate(&self) -> Option<&Revision> {
        self.open.values().find(|revision| revision.state == RevisionState::Shadow)
    }

    /// The next time at which a scheduled revision is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let scheduled = self.open.values().filter(|one| one.state == RevisionState::Scheduled);
        scheduled.filter_map(|one| one.activate_at).min()
    }

    /// Decides a command; the change is to be written and applied.
    pub(crate) fn decide(
        &self,
        command: Command,
        policy: Policy,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        match command {
            Command::Propose { proposal, digest } => self.propose(proposal, digest, policy, now),
            Command::Approve { number, by } => self.approve(number, by, now),
            Command::Activate { number, by } => self.activate_candidate(number, by, policy, now),
            Command::Withdraw { number } => {
                let mut revision = self.open(number, "withdrawn")?.clone();
                revision.state = RevisionState::Withdrawn;
                Ok(Change { insert: None, updates: vec![revision] })
            }
            Command::ActivateDue => Ok(self.activate_due(now)),
        }
    }

    /// Takes over the latest state of a revision.
    pub(crate) fn restore(&mut self, revision: Revision) {
        let number = revision.number;
        self.last = self.last.max(number);
        self.open.remove(&number);
        if revision.state == RevisionState::Active {
            self.active = Some(revision);
        } else if revision.state.is_open() {
            self.open.insert(number, revision);
        }
    }

    fn propose(
        &self,
        proposal: Proposal,
        digest: String,
        policy: Policy,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        let Proposal { base, author, note, kind, restores, sources, activation } = proposal;
        self.require_base(base)?;
        let state = match activation {
            Activation::Shadow => RevisionState::Shadow,
            Activation::At(at) if at <= now => {
                return Err(StoreError::BadRequest(format!(
                    "the time of the activation, `{at}`, has passed; it is `{now}`"
                )));
            }
            _ if policy.require_approval => RevisionState::Pending,
            Activation::At(_) => RevisionState::Scheduled,
            Activation::Now => RevisionState::Active,
        };
        if state.is_open() && self.open.len() >= OPEN_MAX {
            return Err(StoreError::NotAllowed(format!(
                "{OPEN_MAX} revisions wait for approval, a time or an activation; withdraw some"
            )));
        }
        let activate_at = match activation {
            Activation::At(at) => Some(at),
            Activation::Now | Activation::Shadow => None,
        };
        let revision = Revision {
            number: self.last + 1,
            base,
            author,
            at: now,
            note,
            kind,
            state,
            digest,
            restores,
            activate_at,
            activated_at: (state == RevisionState::Active).then_some(now),
            approved_by: None,
            suspended_because: None,
        };
        let updates = match state {
            RevisionState::Active => self.superseded(),
            RevisionState::Shadow => self.without_candidate(),
            _ => Vec::new(),
        };
        Ok(Change { insert: Some(StoredRevision { revision, sources }), updates })
    }

    fn approve(&self, number: u64, by: String, now: Timestamp) -> Result<Change, StoreError> {
        let revision = self.open(number, "approved")?;
        if revision.state != RevisionState::Pending {
            return Err(not_allowed(revision, "approved"));
        }
        if revision.author == by {
            return Err(StoreError::NotAllowed(format!(
                "revision {number} is by `{by}`; another person must approve it"
            )));
        }
        self.require_base(revision.base)?;
        let mut revision = Revision { approved_by: Some(by), ..revision.clone() };
        match revision.activate_at {
            Some(at) if at > now => {
                revision.state = RevisionState::Scheduled;
                Ok(Change { insert: None, updates: vec![revision] })
            }
            _ => Ok(self.activate(revision, now)),
        }
    }

    fn activate_candidate(
        &self,
        number: u64,
        by: String,
        policy: Policy,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        let revision = self.open(number, "activated")?;
        if revision.state != RevisionState::Shadow {
            return Err(not_allowed(revision, "activated"));
        }
        self.require_base(revision.base)?;
        if policy.require_approval && revision.author == by {
            return Err(StoreError::NotAllowed(format!(
                "revision {number} is by `{by}`; another person must activate it"
            )));
        }
        let approved_by = policy.require_approval.then_some(by);
        Ok(self.activate(Revision { approved_by, ..revision.clone() }, now))
    }

    /// Of several that are due, the earliest: the others are based on what it replaces.
    fn activate_due(&self, now: Timestamp) -> Change {
        let is_due = |one: &&Revision| {
            one.state == RevisionState::Scheduled && one.activate_at.is_some_and(|at| at <= now)
        };
        let due = self.open.values().filter(is_due).min_by_key(|one| (one.activate_at, one.number));
        let Some(due) = due else { return Change::default() };
        match self.require_base(due.base) {
            Ok(()) => self.activate(due.clone(), now),
            Err(error) => {
                let suspended = Revision {
                    state: RevisionState::Suspended,
                    suspended_because: Some(error.to_string()),
                    ..due.clone()
                };
                Change { insert: None, updates: vec![suspended] }
            }
        }
    }

    fn activate(&self, revision: Revision, now: Timestamp) -> Change {
        let mut updates = self.superseded();
        let activated_at = Some(now);
        updates.push(Revision { state: RevisionState::Active, activated_at, ..revision });
        Change { insert: None, updates }
    }

    fn superseded(&self) -> Vec<Revision> {
        let superseded =
            |one: &Revision| Revision { state: RevisionState::Superseded, ..one.clone() };
        self.active.iter().map(superseded).collect()
    }

    fn without_candidate(&self) -> Vec<Revision> {
        let superseded =
            |one: &Revision| Revision { state: RevisionState::Superseded, ..one.clone() };
        self.candidate().iter().map(|one| superseded(one)).collect()
    }

    fn require_base(&self, base: Option<u64>) -> Result<(), StoreError> {
        if base == self.active.as_ref().map(|active| active.number) {
            return Ok(());
        }
        let newer = self.active.clone();
        Err(StoreError::Conflict(Box::new(Conflict { base, newer })))
    }

    fn open(&self, number: u64, action: &str) -> Result<&Revision, StoreError> {
        if let Some(revision) = self.open.get(&number) {
            return Ok(revision);
        }
        match &self.active {
            Some(active) if active.number == number => Err(not_allowed(active, action)),
            _ if (1..=self.last).contains(&number) => Err(StoreError::NotAllowed(format!(
                "revision {number} was superseded or withdrawn, and cannot be {action}; roll back to it instead"
            ))),
            _ => Err(StoreError::NotFound(number)),
        }
    }
}

fn not_allowed(revision: &Revision, action: &str) -> StoreError {
    StoreError::NotAllowed(format!(
        "revision {} is {}, and cannot be {action}",
        revision.number,
        revision.state.name()
    ))
}

/// Whether two sets of files are the same, whatever their order.
pub(crate) fn is_same(a: &[Source], b: &[Source]) -> bool {
    a.len() == b.len() && a.iter().all(|one| b.contains(one))
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
