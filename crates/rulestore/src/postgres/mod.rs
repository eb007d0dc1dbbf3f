//! PostgreSQL: one history for a fleet.
//!
//! ```text
//!   any node ── commit ──> head (row lock) + revisions + states ── NOTIFY, a hint
//!                                    │
//!   each node: worker ── LISTEN, and polls head.version ──> received ──> engine
//!                                                              └──> copy on disk
//! ```
//!
//! The row of `head` serialises all changes: it is locked first, so that whatever a change was
//! decided on is still true when it commits. Pollers compare its version; a
//! notification only makes them poll now. Nothing waits without a bound.

mod cache;
mod connection;
mod received;
mod rows;
mod schema;
mod tls;
mod url;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_config::rules::Source;
use sluicegate_config::watch::{PollResult, RulesSource, SourceError};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::Transaction;

use self::connection::{Database, describe};
use self::received::Received;
pub use self::url::{PostgresUrl, UrlError};
use crate::error::StoreError;
use crate::ledger::{Change, Command, Ledger};
use crate::revision::{NodeInfo, Revision, RevisionId, StoredRevision};
use crate::shared::Shared;
use crate::store::StoreEvent;

/// Time for one operation of the API.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(8);
/// Connections for operations, beside that of the worker.
const OPERATIONS_MAX: usize = 4;
/// Time that the start waits for the database.
const START_TIMEOUT: Duration = Duration::from_secs(8);

/// Where the database is, and what this node is called there.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The database.
    pub url: PostgresUrl,
    /// Copy of the last rules, for the time when the database is down.
    pub cache: Option<PathBuf>,
    /// Name and addresses of this node, for people.
    pub node_name: String,
}

/// The store of a node.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    inner: Arc<PostgresInner>,
    worker: JoinHandle<()>,
}

#[derive(Debug)]
struct PostgresInner {
    database: Database,
    options: PostgresOptions,
    shared: Shared,
    received: Received,
    operations: Semaphore,
    /// This node has changed something.
    changed: Notify,
}

impl PostgresStore {
    /// Starts to follow the database. Waits until it was read, or it failed and the copy on disk
    /// is valid, or a time has passed.
    pub(crate) async fn start(
        options: PostgresOptions,
        shared: Shared,
    ) -> Result<Self, StoreError> {
        let database = Database::new(&options.url).map_err(StoreError::Unavailable)?;
        let inner = Arc::new(PostgresInner {
            database,
            options,
            shared,
            received: Received::default(),
            operations: Semaphore::new(OPERATIONS_MAX),
            changed: Notify::new(),
        });
        inner.shared.status.set_connected(false);
        let worker = tokio::spawn(worker::run(inner.clone()));
        let store = Self { inner, worker };
        let wait = store.inner.received.wait_for_contact();
        let contacted = tokio::time::timeout(START_TIMEOUT, wait).await;
        if !matches!(contacted, Ok(true)) && !store.serve_from_cache().await {
            let wait = store.inner.received.wait_until_read();
            let _ = tokio::time::timeout(START_TIMEOUT, wait).await;
        }
        Ok(store)
    }

    /// Takes the copy on disk; whether there is a valid one.
    async fn serve_from_cache(&self) -> bool {
        let Some(path) = self.inner.options.cache.clone() else { return false };
        let read = tokio::task::spawn_blocking(move || cache::read(&path)).await;
        match read {
            Ok(Ok(Some((stored, written_at)))) => {
                let revision = stored.revision.number;
                if self.inner.received.set_cached(stored) {
                    let status = &self.inner.shared.status;
                    status.served_from_cache.store(true, std::sync::atomic::Ordering::Relaxed);
                    self.report(StoreEvent::ServedFromCache { revision, at: written_at });
                }
                true
            }
            Ok(Err(error)) => {
                self.report(StoreEvent::Failed(error));
                false
            }
            Ok(Ok(None)) | Err(_) => false,
        }
    }

    fn report(&self, event: StoreEvent) {
        self.inner.shared.report(event);
    }

    pub(crate) fn source(&self) -> PostgresSource {
        PostgresSource { inner: self.inner.clone(), read: None }
    }

    pub(crate) fn location(&self) -> String {
        self.inner.options.url.to_string()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.inner.received.ledger()
    }

    /// The active set as this node has received it.
    pub(crate) fn active(&self) -> (Option<Revision>, Vec<Source>) {
        let received = self.inner.received.active();
        received.map_or((None, Vec::new()), |stored| (Some(stored.revision), stored.sources))
    }

    /// The active set of the database.
    pub(crate) async fn latest(&self) -> Result<(Option<u64>, Vec<Source>), StoreError> {
        self.inner
            .operation("read the rules", async |inner| {
                let client = inner.database.connect().await?;
                let head = rows::head(&client).await.map_err(|error| describe(&error))?;
                let Some(active) = head.active else { return Ok((None, Vec::new())) };
                let stored =
                    rows::stored(&client, active).await.map_err(|error| describe(&error))?;
                Ok(stored.map_or((None, Vec::new()), |stored| (Some(active), stored.sources)))
            })
            .await
    }

    pub(crate) async fn revisions(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Revision>, StoreError> {
        self.inner
            .operation("read the revisions", async |inner| {
                let client = inner.database.connect().await?;
                rows::page(&client, before, limit).await.map_err(|error| describe(&error))
            })
            .await
    }

    pub(crate) async fn stored(&self, number: u64) -> Result<StoredRevision, StoreError> {
        let stored = self.inner.operation("read a revision", async |inner| {
            let client = inner.database.connect().await?;
            rows::stored(&client, number).await.map_err(|error| describe(&error))
        });
        stored.await?.ok_or(StoreError::NotFound(number))
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<NodeInfo>, StoreError> {
        self.inner
            .operation("read the nodes", async |inner| {
                let client = inner.database.connect().await?;
                rows::nodes(&client).await.map_err(|error| describe(&error))
            })
            .await
    }

    pub(crate) async fn commit(&self, command: Command) -> Result<Option<Revision>, StoreError> {
        self.inner.commit(command).await
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

impl PostgresInner {
    /// Runs an operation with a bound on its time.
    async fn operation<T>(
        &self,
        step: &str,
        run: impl AsyncFnOnce(&Self) -> Result<T, String>,
    ) -> Result<T, StoreError> {
        let run = async {
            // The semaphore is never closed.
            let _permit = self.operations.acquire().await;
            run(self).await
        };
        let ran = tokio::time::timeout(OPERATION_TIMEOUT, run).await;
        let reason = match ran {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => reason,
            Err(_) => {
                "the database does not answer in time; whether a change took place is not known"
                    .to_owned()
            }
        };
        Err(StoreError::unavailable(step, reason))
    }

    /// Decides and commits a command, then sends the hint.
    async fn commit(&self, command: Command) -> Result<Option<Revision>, StoreError> {
        let committed = self.operation("change the rules", async |inner| {
            let mut client = inner.database.connect().await?;
            let transaction = client.transaction().await.map_err(|error| describe(&error))?;
            let change = match inner.decide(&transaction, command).await? {
                Ok(change) if change.is_empty() => return Ok(Ok(change)),
                Ok(change) => change,
                Err(refused) => return Ok(Err(refused)),
            };
            if let Err(error) = transaction.commit().await {
                inner.confirm(&change, &describe(&error)).await?;
            }
            // Lost without harm: every node polls.
            let _ = client.batch_execute(schema::NOTIFY).await;
            Ok(Ok(change))
        });
        let change = committed.await??;
        self.changed.notify_one();
        self.shared.report_change(&change);
        Ok(change.activated().or_else(|| change.revisions().next()).cloned())
    }

    /// The outer error is one of the database.
    async fn decide(
        &self,
        transaction: &Transaction<'_>,
        command: Command,
    ) -> Result<Result<Change, StoreError>, String> {
        let read = async {
            transaction.batch_execute(schema::BEGIN_CHANGE).await?;
            let (ledger, now) = rows::lock(transaction).await?;
            Ok::<_, tokio_postgres::Error>((ledger, now))
        };
        let (ledger, now) = read.await.map_err(|error| describe(&error))?;
        let change = match ledger.decide(command, self.shared.policy, now) {
            Ok(change) => change,
            Err(refused) => return Ok(Err(refused)),
        };
        if !change.is_empty() {
            let written = rows::write(transaction, &change).await;
            written.map_err(|error| describe(&error))?;
        }
        Ok(Ok(change))
    }

    /// The connection was lost within the commit: finds out whether it took place.
    async fn confirm(&self, change: &Change, reason: &str) -> Result<(), String> {
        let unknown = || {
            format!("{reason}; whether the change took place is not known: look at the revisions")
        };
        let Some(expected) = change.insert.as_ref().map(|stored| &stored.revision) else {
            return Err(unknown());
        };
        let client = self.database.connect().await.map_err(|_| unknown())?;
        match rows::stored(&client, expected.number).await {
            Ok(Some(found))
                if found.revision.at == expected.at && found.revision.author == expected.author =>
            {
                Ok(())
            }
            Ok(_) => Err(reason.to_owned()),
            Err(_) => Err(unknown()),
        }
    }
}

/// The database as a source of rules for an engine.
#[derive(Debug)]
pub(crate) struct PostgresSource {
    inner: Arc<PostgresInner>,
    /// The revision at the last reading; none before the first.
    read: Option<Option<RevisionId>>,
}

impl RulesSource for PostgresSource {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        let received = &self.inner.received;
        if !received.is_read() {
            let (url, reason) = (&self.inner.options.url, received.failure());
            return Err(SourceError::Remote(format!(
                "{url}: the rules cannot be read: {reason}; start the database, or check the URL"
            )));
        }
        let active = received.active();
        self.read = Some(active.as_ref().map(|stored| stored.revision.id()));
        let number = active.as_ref().map(|stored| stored.revision.number);
        self.inner.shared.status.handed(number);
        Ok(active.map(|stored| stored.sources).unwrap_or_default())
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        let received = &self.inner.received;
        let active = received.is_read().then(|| received.active_id());
        if active.is_none() || active == self.read {
            return PollResult::Same;
        }
        PollResult::Changed(self.read())
    }
}
