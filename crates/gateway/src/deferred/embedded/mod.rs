//! Deferred requests in a file of this node.
//!
//! ```text
//!   caller ── job ──┐
//!   caller ── job ──┼─ thread: one transaction, one fsync ── replies
//!   caller ── job ──┘
//! ```
//!
//! One thread runs all jobs in order, so that each is atomic. The jobs that have come meanwhile
//! share a transaction; their callers get their results when it is on disk. If it fails, the index
//! is read from the file again, and all of them get the error.

mod index;

use std::path::Path;
use std::sync::Arc;
use std::thread;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Database, DatabaseError, Durability, ReadableTable, TableDefinition, WriteTransaction};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::error;

use self::index::Index;
use super::request::{DeferredRequest, DeferredState, Millis, Stage};
use super::store::{
    BodyPart, Claim, DeferredStats, DeferredStore, PushError, Release, StoreBounds, StoreError,
};

const REQUESTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("requests");
const REQUEST_BODIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("request_bodies");
const RESPONSE_BODIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("response_bodies");

/// Jobs that wait for the thread.
const JOBS_MAX: usize = 1_024;
/// Jobs of one transaction.
const BATCH_MAX: usize = 256;
/// Memory for pages of the file.
const CACHE_BYTES: usize = 16 << 20;

/// Runs in the transaction of its batch; the reply is called when that has ended.
type Job = Box<dyn FnOnce(&mut Batch<'_>) -> Result<Reply, redb::Error> + Send>;
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A file of deferred requests. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddedStore {
    /// `None` when it is closed.
    jobs: Arc<Mutex<Option<mpsc::Sender<Job>>>>,
    index: Arc<Mutex<Index>>,
    changed: Arc<Notify>,
    closed: Arc<Notify>,
}

/// Why a file cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Another process uses it.
    Locked,
    /// It cannot be used.
    Unusable(String),
}

/// The transaction of the jobs that have come together.
struct Batch<'a> {
    transaction: &'a WriteTransaction,
    index: &'a Mutex<Index>,
    changed: &'a Notify,
    has_changes: bool,
}

impl EmbeddedStore {
    /// Opens a file, or creates it. It blocks: a file that was not closed is checked.
    ///
    /// # Errors
    /// When another process uses it, or it is no such file.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let unusable = |error: &dyn std::fmt::Display| OpenError::Unusable(error.to_string());
        let mut builder = Database::builder();
        let database = builder.set_cache_size(CACHE_BYTES).create(path);
        let database = database.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::Locked,
            error => unusable(&error),
        })?;
        let index = read_index(&database).map_err(|error| unusable(&error))?;
        let (jobs, received) = mpsc::channel(JOBS_MAX);
        let store = Self {
            jobs: Arc::new(Mutex::new(Some(jobs))),
            index: Arc::new(Mutex::new(index)),
            changed: Arc::default(),
            closed: Arc::default(),
        };
        let Self { index, changed, closed, .. } = store.clone();
        let run = move || {
            run_jobs(database, received, &index, &changed);
            closed.notify_one();
        };
        let thread = thread::Builder::new().name("deferred".to_owned()).spawn(run);
        thread.map_err(|error| unusable(&error))?;
        Ok(store)
    }

    /// Runs a job, and waits until its transaction is on disk.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Batch<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::new("the store is closed");
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |batch| {
            let value = job(batch)?;
            Ok(Box::new(move |ended: Result<(), StoreError>| {
                // The caller may be gone.
                let _ = sender.send(ended.map(|()| value));
            }))
        });
        let jobs = self.jobs.lock().clone().ok_or_else(closed)?;
        jobs.send(job).await.map_err(|_| closed())?;
        drop(jobs);
        receiver.await.unwrap_or_else(|_| Err(StoreError::new("the file cannot be used")))
    }

    /// Reads requests.
    async fn read(&self, ids: Vec<String>) -> Result<Vec<DeferredRequest>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.run(move |batch| {
            let read = ids.iter().map(|id| batch.request(id)).collect::<Result<Vec<_>, _>>()?;
            Ok(read.into_iter().flatten().collect())
        })
        .await
    }
}

#[async_trait]
impl DeferredStore for EmbeddedStore {
    async fn push(
        &self,
        request: &DeferredRequest,
        body: Bytes,
        bounds: StoreBounds,
    ) -> Result<u64, PushError> {
        let mut request = request.clone();
        let pushed = self.run(move |batch| {
            {
                let mut index = batch.index.lock();
                if let Some(exceeded) = index.exceeded(&request, bounds) {
                    return Ok(Err(exceeded));
                }
                request.sequence = index.next_sequence();
            }
            batch.write(&request)?;
            batch.write_body(&request.id, REQUEST_BODIES, Some(&body))?;
            let mut index = batch.index.lock();
            index.insert(&request);
            batch.changed.notify_one();
            Ok(Ok(index.ahead(&request.id)))
        });
        pushed.await?.map_err(PushError::Exceeded)
    }

    async fn is_waiting(&self, queue: &str) -> Result<bool, StoreError> {
        Ok(self.index.lock().is_waiting(queue))
    }

    async fn get(&self, id: &str) -> Result<Option<(DeferredRequest, u64)>, StoreError> {
        let id = id.to_owned();
        self.run(move |batch| {
            let found = batch.request(&id)?;
            Ok(found.map(|request| (request, batch.index.lock().ahead(&id))))
        })
        .await
    }

    async fn body(&self, id: &str, part: BodyPart) -> Result<Option<Bytes>, StoreError> {
        let id = id.to_owned();
        let table = match part {
            BodyPart::Request => REQUEST_BODIES,
            BodyPart::Response => RESPONSE_BODIES,
        };
        self.run(move |batch| {
            let table = batch.transaction.open_table(table)?;
            let body = table.get(id.as_str())?;
            Ok(body.map(|body| Bytes::copy_from_slice(body.value())))
        })
        .await
    }

    async fn claim(&self, count_max: usize) -> Result<Vec<Claim>, StoreError> {
        let claimed = self.index.lock().claim(count_max);
        let claim = |queue| Claim { queue, token: String::new() };
        Ok(claimed.into_iter().map(claim).collect())
    }

    async fn renew(&self, _claims: &[Claim]) -> Result<Vec<Claim>, StoreError> {
        // The lock of the file is the ownership of all queues.
        Ok(Vec::new())
    }

    async fn release(&self, claim: &Claim, release: Release) -> Result<bool, StoreError> {
        let mut index = self.index.lock();
        let is_released = release == Release::Abandon || !index.is_waiting(&claim.queue);
        if is_released {
            index.release(&claim.queue);
        }
        Ok(is_released)
    }

    async fn first(&self, queue: &str) -> Result<Option<DeferredRequest>, StoreError> {
        let queue = queue.to_owned();
        self.run(move |batch| {
            let id = batch.index.lock().first(&queue).map(str::to_owned);
            id.map_or(Ok(None), |id| batch.request(&id))
        })
        .await
    }

    async fn save(
        &self,
        request: &DeferredRequest,
        response: Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let mut request = request.clone();
        self.run(move |batch| {
            let place = {
                let index = batch.index.lock();
                let version = index.version(&request.id);
                let place = index
                    .place(&request.id)
                    .filter(|_| version.is_some_and(|version| version + 1 == request.version));
                let Some(place) = place else { return Ok(false) };
                place
            };
            let is_waiting = request.state.stage() == Stage::Waiting;
            request.sequence = match place {
                (stage, _) if is_waiting && stage != Stage::Waiting => {
                    batch.index.lock().next_sequence()
                }
                (_, sequence) => sequence,
            };
            batch.write(&request)?;
            if let Some(response) = &response {
                batch.write_body(&request.id, RESPONSE_BODIES, Some(response))?;
            }
            if request.state == DeferredState::Done {
                batch.write_body(&request.id, REQUEST_BODIES, None)?;
            }
            let mut index = batch.index.lock();
            index.remove(&request.id);
            index.insert(&request);
            if is_waiting {
                batch.changed.notify_one();
            }
            Ok(true)
        })
        .await
    }

    async fn remove(&self, request: &DeferredRequest) -> Result<bool, StoreError> {
        let (id, version) = (request.id.clone(), request.version);
        self.run(move |batch| {
            if batch.index.lock().version(&id) != Some(version) {
                return Ok(false);
            }
            batch.has_changes = true;
            batch.transaction.open_table(REQUESTS)?.remove(id.as_str())?;
            batch.write_body(&id, REQUEST_BODIES, None)?;
            batch.write_body(&id, RESPONSE_BODIES, None)?;
            batch.index.lock().remove(&id);
            Ok(true)
        })
        .await
    }

    async fn list(
        &self,
        stage: Stage,
        offset: usize,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        let ids = self.index.lock().ids(stage, offset, count_max);
        self.read(ids).await
    }

    async fn callbacks(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        let ids = self.index.lock().callbacks(now, count_max);
        self.read(ids).await
    }

    async fn outdated(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        let ids = self.index.lock().outdated(now, count_max);
        self.read(ids).await
    }

    async fn stats(&self) -> Result<DeferredStats, StoreError> {
        Ok(self.index.lock().stats())
    }

    async fn durability_warning(&self) -> Option<String> {
        None
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn close(&self) {
        let jobs = self.jobs.lock().take();
        if jobs.is_some() {
            drop(jobs);
            self.closed.notified().await;
        }
    }
}

impl Batch<'_> {
    fn request(&self, id: &str) -> Result<Option<DeferredRequest>, redb::Error> {
        let table = self.transaction.open_table(REQUESTS)?;
        let Some(stored) = table.get(id)? else { return Ok(None) };
        decode(stored.value()).map(Some)
    }

    fn write(&mut self, request: &DeferredRequest) -> Result<(), redb::Error> {
        self.has_changes = true;
        let stored = serde_json::to_vec(request).map_err(|error| corrupted(&error))?;
        self.transaction.open_table(REQUESTS)?.insert(request.id.as_str(), stored.as_slice())?;
        Ok(())
    }

    fn write_body(
        &mut self,
        id: &str,
        table: TableDefinition<'_, &str, &[u8]>,
        body: Option<&Bytes>,
    ) -> Result<(), redb::Error> {
        self.has_changes = true;
        let mut table = self.transaction.open_table(table)?;
        match body {
            Some(body) => table.insert(id, &**body)?,
            None => table.remove(id)?,
        };
        Ok(())
    }
}

fn decode(stored: &[u8]) -> Result<DeferredRequest, redb::Error> {
    serde_json::from_slice(stored).map_err(|error| corrupted(&error))
}

fn corrupted(error: &serde_json::Error) -> redb::Error {
    redb::Error::Corrupted(format!("a stored request cannot be read: {error}"))
}

/// Reads all requests of a file.
fn read_index(database: &Database) -> Result<Index, redb::Error> {
    let transaction = database.begin_write()?;
    let mut index = Index::default();
    {
        // The tables exist from now on.
        transaction.open_table(REQUEST_BODIES)?;
        transaction.open_table(RESPONSE_BODIES)?;
        let table = transaction.open_table(REQUESTS)?;
        let mut requests = Vec::new();
        for stored in table.iter()? {
            requests.push(decode(stored?.1.value())?);
        }
        requests.sort_by_key(|request| request.sequence);
        requests.iter().for_each(|request| index.insert(request));
    }
    transaction.commit()?;
    Ok(index)
}

/// Runs jobs until the store is closed; then the file is, too.
fn run_jobs(
    database: Database,
    mut jobs: mpsc::Receiver<Job>,
    index: &Mutex<Index>,
    changed: &Notify,
) {
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(job) = jobs.try_recv()
        {
            batch.push(job);
        }
        let mut replies = Vec::with_capacity(batch.len());
        let ended = run_batch(&database, batch, &mut replies, index, changed).map_err(|error| {
            error!(%error, "deferred requests cannot be stored");
            // What the jobs have changed in memory is not in the file.
            if let Ok(mut read) = read_index(&database) {
                let mut index = index.lock();
                read.take_claims(&index);
                *index = read;
            }
            StoreError::new(error)
        });
        replies.into_iter().for_each(|reply| reply(ended.clone()));
    }
    drop(database);
}

fn run_batch(
    database: &Database,
    jobs: Vec<Job>,
    replies: &mut Vec<Reply>,
    index: &Mutex<Index>,
    changed: &Notify,
) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut batch = Batch { transaction: &transaction, index, changed, has_changes: false };
    for job in jobs {
        replies.push(job(&mut batch)?);
    }
    match batch.has_changes {
        true => transaction.commit()?,
        false => transaction.abort()?,
    }
    Ok(())
}
