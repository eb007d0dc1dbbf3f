//! The store as the service uses it, whatever its backend.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use sluicegate_config::rules::{Options, Source};
use sluicegate_config::watch::Watch;

use crate::check::{CheckedRules, check, check_form};
use crate::edit::{Activation, Proposal};
use crate::error::{ReadOnly, StoreError};
use crate::files::{FilesOptions, FilesSource, FilesStore};
use crate::ledger::{Command, Ledger};
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::revision::{NodeInfo, Revision, RevisionKind, RevisionState, StoredRevision};
use crate::shared::{Shared, StoreStatus};
use crate::source::{FixedSource, SourceKind, StoreSource};

/// Attempts of an edit that is decided again after a conflict.
const EDIT_ATTEMPTS: usize = 16;

/// The current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Options of all backends.
#[derive(Clone)]
pub struct StoreOptions {
    /// How rules are loaded.
    pub rules: Options,
    /// Whether another person than the author must approve each change.
    pub require_approval: bool,
    /// The clock of revisions in files; PostgreSQL has its own.
    pub clock: Clock,
    /// Receives events for the log.
    pub report: Arc<dyn Fn(StoreEvent) + Send + Sync>,
}

/// Something to log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A revision is new, or in another state.
    Revision(Box<Revision>),
    /// An operation in the background failed.
    Failed(String),
    /// The database is connected.
    Connected,
    /// The database cannot be reached: the last rules stay in force. The reason, without secrets.
    Disconnected(String),
    /// The rules are those of the copy on disk.
    ServedFromCache {
        /// The revision of the copy.
        revision: u64,
        /// When it was written.
        at: Timestamp,
    },
    /// The database has no revision yet.
    Empty,
}

/// What the store has, for the API.
#[derive(Debug, Clone)]
pub struct Overview {
    /// The active revision.
    pub active: Option<Revision>,
    /// The candidate that runs beside it.
    pub candidate: Option<Revision>,
    /// Revisions that wait for approval.
    pub pending: Vec<Revision>,
    /// Revisions that wait for a time, and those that were suspended.
    pub scheduled: Vec<Revision>,
    /// Why changes are refused, if they are.
    pub read_only: Option<ReadOnly>,
    /// Whether another person must approve.
    pub require_approval: bool,
    /// The backend: `files`, `postgres` or `example`.
    pub backend: &'static str,
    /// Where it is, without secrets.
    pub location: String,
}

/// Revisions of rule sets, in files or in PostgreSQL. Clones share it.
#[derive(Debug, Clone)]
pub struct RuleStore {
    backend: Backend,
    shared: Shared,
}

#[derive(Debug, Clone)]
enum Backend {
    Files(Arc<FilesStore>),
    Postgres(Arc<PostgresStore>),
    Fixed(Arc<FixedRules>),
}

/// Rules that no store holds.
#[derive(Debug)]
struct FixedRules {
    backend: &'static str,
    sources: Vec<Source>,
    read_only: ReadOnly,
}

impl RuleStore {
    /// Files or a directory.
    #[must_use]
    pub fn files(files: &FilesOptions, options: &StoreOptions) -> Self {
        let shared = Shared::new(options);
        let store = Arc::new(FilesStore::open(files, shared.clone()));
        Self { backend: Backend::Files(store), shared }
    }

    /// PostgreSQL. A task follows it from now on, until the store is dropped. Waits, for a bounded
    /// time, until the rules were read from the database or from the copy on disk.
    ///
    /// # Errors
    /// When neither can be read.
    pub async fn postgres(
        postgres: PostgresOptions,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let shared = Shared::new(options);
        let store = PostgresStore::start(postgres, shared.clone()).await?;
        Ok(Self { backend: Backend::Postgres(Arc::new(store)), shared })
    }

    /// Rules that are part of the program, or another source that accepts no changes.
    #[must_use]
    pub fn fixed(
        backend: &'static str,
        sources: Vec<Source>,
        read_only: ReadOnly,
        options: &StoreOptions,
    ) -> Self {
        let fixed = FixedRules { backend, sources, read_only };
        Self { backend: Backend::Fixed(Arc::new(fixed)), shared: Shared::new(options) }
    }

    /// The source that an engine follows.
    #[must_use]
    pub fn source(&self) -> StoreSource {
        StoreSource(match &self.backend {
            Backend::Files(store) => {
                let layout = store.layout();
                let watch = Watch::new(&layout.paths, layout.read_options());
                SourceKind::Files(FilesSource::new(store.clone(), watch))
            }
            Backend::Postgres(store) => SourceKind::Postgres(store.source()),
            Backend::Fixed(fixed) => SourceKind::Fixed(FixedSource::new(fixed.sources.clone())),
        })
    }

    /// Sets what wakes the follower of the source, so that a change is enforced at once.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.shared.set_wake(wake);
    }

    /// Records that the engine enforces what its source returned last.
    pub fn record_loaded(&self) {
        self.shared.status.record_loaded();
    }

    /// Waits until the engine of this node enforces a revision, or a later one.
    pub async fn enforced(&self, revision: u64) {
        self.shared.status.enforced_at_least(revision).await;
    }

    /// State of this node.
    #[must_use]
    pub fn status(&self) -> &StoreStatus {
        &self.shared.status
    }

    /// Why changes are refused, if they are.
    #[must_use]
    pub fn read_only(&self) -> Option<&ReadOnly> {
        match &self.backend {
            Backend::Files(store) => store.read_only(),
            Backend::Postgres(_) => None,
            Backend::Fixed(fixed) => Some(&fixed.read_only),
        }
    }

    /// How rules are loaded.
    #[must_use]
    pub fn rules_options(&self) -> &Options {
        &self.shared.rules
    }

    /// Active revision, candidate, and what waits.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let ledger = self.ledger();
        let (backend, location) = match &self.backend {
            Backend::Files(store) => ("files", store.layout().location()),
            Backend::Postgres(store) => ("postgres", store.location()),
            Backend::Fixed(fixed) => (fixed.backend, String::new()),
        };
        let open = |states: &[RevisionState]| {
            let open = ledger.open.values().filter(|one| states.contains(&one.state));
            open.cloned().collect()
        };
        Overview {
            candidate: ledger.candidate().cloned(),
            pending: open(&[RevisionState::Pending]),
            scheduled: open(&[RevisionState::Scheduled, RevisionState::Suspended]),
            active: ledger.active,
            read_only: self.read_only().cloned(),
            require_approval: self.shared.policy.require_approval,
            backend,
            location,
        }
    }

    fn ledger(&self) -> Ledger {
        match &self.backend {
            Backend::Files(store) => store.ledger(),
            Backend::Postgres(store) => store.ledger(),
            Backend::Fixed(_) => Ledger::default(),
        }
    }

    /// The active set; without a revision where the store has none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn active(&self) -> Result<(Option<Revision>, Vec<Source>), StoreError> {
        match &self.backend {
            Backend::Fixed(fixed) => Ok((None, fixed.sources.clone())),
            Backend::Postgres(store) => Ok(store.active()),
            Backend::Files(_) => match self.ledger().active {
                None => Ok((None, Vec::new())),
                Some(active) => {
                    let StoredRevision { revision, sources } = self.revision(active.number).await?;
                    Ok((Some(revision), sources))
                }
            },
        }
    }

    /// Revisions before a number, the newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn revisions(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Revision>, StoreError> {
        match &self.backend {
            Backend::Files(store) => Ok(store.revisions(before, limit)),
            Backend::Postgres(store) => store.revisions(before, limit).await,
            Backend::Fixed(_) => Ok(Vec::new()),
        }
    }

    /// A revision with its files.
    ///
    /// # Errors
    /// When the revision does not exist, or the store cannot be read.
    pub async fn revision(&self, number: u64) -> Result<StoredRevision, StoreError> {
        match &self.backend {
            Backend::Files(store) => {
                let store = store.clone();
                blocking(move || store.stored(number)).await
            }
            Backend::Postgres(store) => store.stored(number).await,
            Backend::Fixed(_) => Err(StoreError::NotFound(number)),
        }
    }

    /// The candidate with its files, for an engine that runs it beside the enforced set.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn candidate(&self) -> Result<Option<StoredRevision>, StoreError> {
        match self.ledger().candidate() {
            Some(candidate) => self.revision(candidate.number).await.map(Some),
            None => Ok(None),
        }
    }

    /// The nodes that follow the same database; none of files.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, StoreError> {
        match &self.backend {
            Backend::Postgres(store) => store.nodes().await,
            Backend::Files(_) | Backend::Fixed(_) => Ok(Vec::new()),
        }
    }

    /// Validates files as a proposal would.
    ///
    /// # Errors
    /// All problems.
    pub fn check(&self, sources: &[Source]) -> Result<CheckedRules, StoreError> {
        check(sources, &self.shared.rules, self.shared.now())
    }

    /// Appends a revision, and activates it if that is proposed and permitted.
    ///
    /// # Errors
    /// When the store is read-only, the files are invalid, or another revision than the base is
    /// active.
    pub async fn propose(&self, mut proposal: Proposal) -> Result<Revision, StoreError> {
        let propose = async {
            if let Some(read_only) = self.read_only() {
                return Err(StoreError::ReadOnly(read_only.clone()));
            }
            check_form(&mut proposal.sources, &proposal.author, &proposal.note)?;
            let (rules, now) = (self.shared.rules, self.shared.now());
            let (proposal, digest) = blocking(move || {
                let digest = check(&proposal.sources, &rules, now)?.digest();
                Ok((proposal, digest))
            })
            .await?;
            self.commit(Command::Propose { proposal, digest }).await
        };
        self.shared.status.record(propose.await)
    }

    /// Edits the active files, and again if another change comes first: for single changes by
    /// programs. `edit` may run several times.
    ///
    /// # Errors
    /// As [`Self::propose`], and those of `edit`.
    pub async fn edit(
        &self,
        author: &str,
        note: &str,
        mut edit: impl FnMut(&mut Vec<Source>) -> Result<(), StoreError>,
    ) -> Result<Revision, StoreError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (active, mut sources) = self.latest().await?;
            edit(&mut sources)?;
            let proposal = Proposal {
                base: active,
                author: author.to_owned(),
                note: note.to_owned(),
                kind: RevisionKind::Edit,
                restores: None,
                sources,
                activation: Activation::Now,
            };
            match self.propose(proposal).await {
                Err(StoreError::Conflict(_)) if attempt < EDIT_ATTEMPTS => {}
                result => return result,
            }
        }
    }

    /// The active set of the store itself, not of what this node has received.
    async fn latest(&self) -> Result<(Option<u64>, Vec<Source>), StoreError> {
        if let Backend::Postgres(store) = &self.backend {
            return store.latest().await;
        }
        let (active, sources) = self.active().await?;
        Ok((active.map(|active| active.number), sources))
    }

    /// Restores an earlier revision, as a new one. Its base is the active revision, or the given
    /// one.
    ///
    /// # Errors
    /// As [`Self::propose`].
    pub async fn rollback(
        &self,
        to: u64,
        base: Option<u64>,
        author: &str,
        note: &str,
    ) -> Result<Revision, StoreError> {
        if let Some(read_only) = self.read_only() {
            return Err(StoreError::ReadOnly(read_only.clone()));
        }
        let StoredRevision { sources, .. } = self.revision(to).await?;
        let base = match base {
            Some(base) => Some(base),
            None => self.latest().await?.0,
        };
        let proposal = Proposal {
            base,
            author: author.to_owned(),
            note: note.to_owned(),
            kind: RevisionKind::Rollback,
            restores: Some(to),
            sources,
            activation: Activation::Now,
        };
        self.propose(proposal).await
    }

    /// Approves a pending revision: it becomes active, or scheduled.
    ///
    /// # Errors
    /// When it is not pending, `by` is its author, or its base is not active any more.
    pub async fn approve(&self, number: u64, by: &str) -> Result<Revision, StoreError> {
        let command = Command::Approve { number, by: by.to_owned() };
        self.shared.status.record(self.commit(command).await)
    }

    /// Activates the candidate.
    ///
    /// # Errors
    /// When it is not the candidate, or its base is not active any more.
    pub async fn activate(&self, number: u64, by: &str) -> Result<Revision, StoreError> {
        let command = Command::Activate { number, by: by.to_owned() };
        self.shared.status.record(self.commit(command).await)
    }

    /// Withdraws a revision that is not enforced: pending, scheduled, suspended or the candidate.
    ///
    /// # Errors
    /// When it is in another state.
    pub async fn withdraw(&self, number: u64) -> Result<Revision, StoreError> {
        self.shared.status.record(self.commit(Command::Withdraw { number }).await)
    }

    async fn commit(&self, command: Command) -> Result<Revision, StoreError> {
        let committed = match &self.backend {
            Backend::Files(store) => {
                let store = store.clone();
                blocking(move || store.commit(command)).await?
            }
            Backend::Postgres(store) => store.commit(command).await?,
            Backend::Fixed(fixed) => return Err(StoreError::ReadOnly(fixed.read_only.clone())),
        };
        committed.ok_or_else(|| StoreError::Unavailable("nothing has changed".to_owned()))
    }
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let ran = tokio::task::spawn_blocking(run).await;
    ran.unwrap_or_else(|_| {
        Err(StoreError::Unavailable("the operation failed; see the log".to_owned()))
    })
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("rules", &self.rules).finish_non_exhaustive()
    }
}
