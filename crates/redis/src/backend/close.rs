//! Releases what a node holds, before it stops.

use std::sync::{Arc, Weak};

use super::RedisBackend;
use super::eventual::Eventual;
use super::leasing::{self, QuotaLeases};

/// The leases and unpushed counts of a backend, as long as it exists.
#[derive(Debug)]
pub(crate) struct Closer {
    leases: Weak<leasing::Inner>,
    eventual: Weak<Eventual>,
}

impl RedisBackend {
    /// Releases all leases and pushes all counts. Must be called before a node stops; the store
    /// decides later requests. [`Redis::close`](crate::Redis::close) does so for all limiters.
    pub async fn close(&self) {
        tokio::join!(self.leases.close(), self.eventual.close());
    }

    pub(crate) fn closer(&self) -> Closer {
        Closer { leases: self.leases.downgrade(), eventual: Arc::downgrade(&self.eventual) }
    }
}

impl Closer {
    /// Whether there is nothing to close any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.leases.strong_count() == 0 && self.eventual.strong_count() == 0
    }

    /// As [`RedisBackend::close`].
    pub(crate) async fn close(self) {
        let leases = async {
            if let Some(leases) = QuotaLeases::upgrade(&self.leases) {
                leases.close().await;
            }
        };
        let eventual = async {
            if let Some(eventual) = self.eventual.upgrade() {
                eventual.close().await;
            }
        };
        tokio::join!(leases, eventual);
    }
}
