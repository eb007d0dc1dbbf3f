//! Rejoin after an outage: a node goes on deciding locally until the store knows what every node knows.
//!
//! ```text
//!   outage ----> reachable ----> recovered ----> announced ----> all nodes have announced: the store decides again
//!                                absorb, re-assert    heartbeat      (or are gone, or REJOIN_MAX has passed)
//! ```
//!
//! Nodes notice at different times that the store is back. If each trusted it at once, the first ones would spend quota that others have
//! admitted locally and not reported yet. So the first heartbeat of a node after an outage comes behind its recovery, and a node waits until the oldest heartbeat of all
//! nodes is younger than its own return. The same barrier follows a loss of data, where nodes re-assert what they observed.
//!
//! Only rules that are decided locally during outages (`on_store_failure: local`) wait; the others have nothing to report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Inner;

/// The pause between two looks at the store, or at the other nodes.
const POLL: Duration = Duration::from_millis(25);
/// The longest that a reachable store is not trusted: a node that is gone drops out of the membership in this time.
const REJOIN_MAX: Duration = Duration::from_secs(5);

/// Whether this node is apart from the others.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    is_apart: AtomicBool,
}

impl Rejoin {
    /// Whether local rules are decided locally, although the store may be reachable.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.is_apart.load(Ordering::Acquire)
    }
}

impl Inner {
    /// This node decides locally from now on, until it has rejoined the others.
    pub(super) fn go_apart(self: &Arc<Self>) {
        if !self.rejoin.is_apart.swap(true, Ordering::AcqRel) {
            let weak = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut attempt = Attempt::default();
                while let Some(inner) = weak.upgrade() {
                    if attempt.has_rejoined(&inner).await {
                        inner.rejoin.is_apart.store(false, Ordering::Release);
                        return;
                    }
                    drop(inner);
                    sleep(POLL).await;
                }
            });
        }
    }
}

/// How far a rejoin has come.
#[derive(Debug, Default)]
struct Attempt {
    /// When the store answered for the first time, by this node's clock.
    reachable_since: Option<Instant>,
    /// When this node had announced itself, by the store's clock in microseconds.
    announced_us: Option<u64>,
}

impl Attempt {
    async fn has_rejoined(&mut self, inner: &Arc<Inner>) -> bool {
        if !inner.link.is_up() {
            *self = Self::default();
            return false;
        }
        let since = *self.reachable_since.get_or_insert_with(Instant::now);
        let is_overdue = since.elapsed() >= REJOIN_MAX;
        if self.announced_us.is_none() && !inner.recover_everything().await {
            return is_overdue;
        }
        let Some(heartbeat) = inner.heartbeat().await else { return is_overdue };
        let announced = *self.announced_us.get_or_insert(heartbeat.now_us);
        heartbeat.oldest_us >= announced || is_overdue
    }
}
