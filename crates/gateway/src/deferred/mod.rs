//! Deferred requests: stored durably, answered with 202 and a ticket, and sent later at the rate of
//! their limits.
//!
//! ```text
//!   limit denies ── accept: 202, ticket ── store: file │ Redis ── dispatch ── charge ── upstream
//!                                            │                        └ response, retry, dead letter
//!                                            ├ tickets: state, position, response; cancel
//!                                            └ admin: list, inspect, redrive, delete
//! ```
//!
//! Requests with the same limits and identity are a queue. They are sent in order, one at a time,
//! and a request that comes while others of its queue wait is deferred too.

mod accept;
mod admin;
mod callback;
mod decide;
mod dispatch;
mod embedded;
mod estimate;
mod metrics;
mod redis;
mod request;
mod send;
mod store;
#[cfg(test)]
mod tests;
mod tickets;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluicegate::REPORT_EVERY;
use sluicegate_config::gateway::deferred::{DeferredConfig, DeferredPlace};
use sluicegate_redis::DurableQueues;
use tokio::sync::Semaphore;
use tracing::{info, warn};

pub(crate) use self::accept::{Destination, accept};
pub(crate) use self::admin::DeferredAdmin;
pub(crate) use self::decide::{Deferral, decide_behind, denied};
pub(crate) use self::dispatch::Dispatcher;
use self::embedded::{EmbeddedStore, OpenError};
pub(crate) use self::metrics::{DeferredMetrics, Refusal};
use self::redis::RedisStore;
use self::store::DeferredStore;

/// Interval of attempts to open a file that another process uses.
const REOPEN_EVERY: Duration = Duration::from_millis(100);
/// Concurrent reads of tickets.
const READS_MAX: usize = 64;
/// KiB of the bodies that are read and stored at the same time: they are in memory meanwhile.
const BODIES_KIB_MAX: usize = 256 << 10;

/// The deferred requests of a process.
#[derive(Debug)]
pub(crate) struct Deferrals {
    config: DeferredConfig,
    /// Set as soon as it can be used.
    store: OnceLock<Arc<dyn DeferredStore>>,
    metrics: DeferredMetrics,
    reads: Semaphore,
    /// In KiB.
    bodies: Semaphore,
}

impl Deferrals {
    /// Opens the store. A file that another process uses is opened later (`opened`).
    ///
    /// # Errors
    /// When the place cannot be used.
    pub(crate) async fn open(
        config: &DeferredConfig,
        redis: Option<DurableQueues>,
    ) -> Result<Arc<Self>, String> {
        let deferrals = Arc::new(Self {
            config: config.clone(),
            store: OnceLock::new(),
            metrics: DeferredMetrics::default(),
            reads: Semaphore::new(READS_MAX),
            bodies: Semaphore::new(BODIES_KIB_MAX),
        });
        match &config.place {
            DeferredPlace::File(path) => match open_file(path.clone()).await {
                Ok(store) => deferrals.set_store(store),
                Err(OpenError::Locked) => {
                    let path = path.display();
                    warn!(%path, "deferred requests are in use by another process: waiting for it");
                }
                Err(OpenError::Unusable(reason)) => {
                    return Err(format!("{}: {reason}", path.display()));
                }
            },
            DeferredPlace::Redis => {
                let queues = redis.ok_or(
                    "`store: redis` needs the Redis of the counters; start with `--store redis://…`, or \
                     write `path: deferred.redb`",
                )?;
                deferrals.set_store(RedisStore::new(queues));
            }
        }
        Ok(deferrals)
    }

    fn set_store(&self, store: impl DeferredStore + 'static) {
        // It is set once.
        let _ = self.store.set(Arc::new(store));
    }

    /// The store, as soon as it is open.
    async fn opened(&self) -> Arc<dyn DeferredStore> {
        loop {
            if let Some(store) = self.store.get() {
                return store.clone();
            }
            tokio::time::sleep(REOPEN_EVERY).await;
            let DeferredPlace::File(path) = &self.config.place else { continue };
            match open_file(path.clone()).await {
                Ok(store) => {
                    info!(path = %path.display(), "deferred requests are available");
                    self.set_store(store);
                }
                Err(OpenError::Locked) => {}
                Err(OpenError::Unusable(error)) => {
                    warn!(path = %path.display(), error, "deferred requests are not available");
                    tokio::time::sleep(REPORT_EVERY).await;
                }
            }
        }
    }

    /// Whether it is open.
    fn store(&self) -> Option<&Arc<dyn DeferredStore>> {
        self.store.get()
    }

    /// The path of tickets.
    pub(crate) fn tickets_path(&self) -> &str {
        &self.config.tickets
    }
}

async fn open_file(path: PathBuf) -> Result<EmbeddedStore, OpenError> {
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&path)).await;
    opened.unwrap_or_else(|error: tokio::task::JoinError| {
        Err(OpenError::Unusable(fmt::format(format_args!("{error}"))))
    })
}
