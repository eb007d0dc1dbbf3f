//! Where deferred requests are stored: a file of this node, or the Redis of all nodes.
//!
//! Every method is atomic. A request is in a queue as long as it is not final, and each queue has
//! at most one owner, which sends its requests in order.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use super::request::{DeferredRequest, Millis, Stage};

/// A store of deferred requests.
#[async_trait]
pub(crate) trait DeferredStore: fmt::Debug + Send + Sync {
    /// Stores a new request durably, at the end of its queue: the number of requests before it.
    async fn push(
        &self,
        request: &DeferredRequest,
        body: Bytes,
        bounds: StoreBounds,
    ) -> Result<u64, PushError>;

    /// Whether requests of a queue wait.
    async fn is_waiting(&self, queue: &str) -> Result<bool, StoreError>;

    /// A request, and the number of those before it in its queue.
    async fn get(&self, id: &str) -> Result<Option<(DeferredRequest, u64)>, StoreError>;

    /// A body.
    async fn body(&self, id: &str, part: BodyPart) -> Result<Option<Bytes>, StoreError>;

    /// Queues without an owner, which this node owns from now on.
    async fn claim(&self, count_max: usize) -> Result<Vec<Claim>, StoreError>;

    /// Continues to own queues; those that another node owns by now.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, StoreError>;

    /// Gives up a queue, if it is empty or `Release::Abandon`; whether it did.
    async fn release(&self, claim: &Claim, release: Release) -> Result<bool, StoreError>;

    /// The first request of a queue.
    async fn first(&self, queue: &str) -> Result<Option<DeferredRequest>, StoreError>;

    /// Replaces a request durably, unless it has changed since `version - 1`; whether it did. A
    /// final one leaves its queue; one that is no longer final enters it at the end.
    async fn save(
        &self,
        request: &DeferredRequest,
        response: Option<Bytes>,
    ) -> Result<bool, StoreError>;

    /// Deletes a request, unless it has changed since this version; whether it did.
    async fn remove(&self, request: &DeferredRequest) -> Result<bool, StoreError>;

    /// Requests of a stage, the oldest first.
    async fn list(
        &self,
        stage: Stage,
        offset: usize,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError>;

    /// Requests with a callback that is due.
    async fn callbacks(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError>;

    /// Final requests whose time has passed.
    async fn outdated(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError>;

    /// Figures.
    async fn stats(&self) -> Result<DeferredStats, StoreError>;

    /// Why what is stored can be lost, if it can.
    async fn durability_warning(&self) -> Option<String>;

    /// Waits until there may be queues to claim.
    async fn changed(&self);

    /// Ends the store: what is stored stays, and another process can open it.
    async fn close(&self);
}

/// Bounds that a new request must not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreBounds {
    /// Waiting requests of its route.
    pub(crate) count: u64,
    /// Waiting requests of its queue, and their bytes.
    pub(crate) queue_count: u64,
    pub(crate) queue_bytes: u64,
    /// Bytes of everything that is stored.
    pub(crate) bytes: u64,
}

/// A queue that this node owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) queue: String,
    /// Id of the ownership, where the store has one.
    pub(crate) token: String,
}

/// When a queue is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// If it is empty.
    IfEmpty,
    /// In any case, for another node.
    Abandon,
}

/// A body of a deferred request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyPart {
    Request,
    Response,
}

/// Figures of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeferredStats {
    pub(crate) waiting: u64,
    /// When the oldest waiting one came.
    pub(crate) oldest_at: Option<Millis>,
    pub(crate) dead: u64,
    pub(crate) bytes: u64,
}

/// The bound that a new request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Count,
    QueueCount,
    QueueBytes,
    Bytes,
}

/// Why a request was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushError {
    /// A bound is reached.
    Exceeded(Exceeded),
    /// The store failed. It may be stored all the same.
    Store(StoreError),
}

/// Why a store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreError(pub(crate) String);

impl StoreError {
    pub(crate) fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for PushError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
