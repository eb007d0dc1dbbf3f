//! Local mode and rejoin: after an outage, a node decides locally until the store has caught up
//! with every node.
//!
//! ```text
//!   local mode --> reachable --> re-asserted --> barrier --> settled --> barrier --> joined
//!                                observations                admissions
//! ```
//!
//! Nodes detect at different times that the store is back. If each trusted it at once, the first
//! ones would spend quota that others have admitted locally and not reported yet. So a node
//! announces each phase with a heartbeat, and waits until all nodes have announced it after the
//! node itself did; stopped nodes drop out of the membership after seconds. The order matters after
//! a loss of data: observations of one history are merged by the maximum, and later admissions are
//! added to that.
//!
//! Only rules that are decided locally during outages (`on_store_failure: local`) wait; the others
//! have nothing to report.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::account::Account;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::time::Timestamp;
use tokio::time::{Instant, sleep};

use super::membership::{Members, Phase};
use super::observed::Observation;
use super::{Store, StoreInner};
use crate::script::ScriptPart;

/// Interval of checks of the store and of the other nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// After this time a reachable store is trusted anyway: a stopped node has dropped out of the
/// membership by then.
const REJOIN_MAX: Duration = Duration::from_secs(5);

impl Store {
    /// Journals an admission without the store.
    pub(crate) fn journal(&self, part: &ScriptPart, holder: Option<Holder>) {
        self.inner.journal.write(part, holder, self.inner.store_clock.now());
    }

    /// Whether rules with a local share are decided from it, although the store may be reachable:
    /// other nodes may not yet have reported their admissions.
    #[inline]
    pub(crate) fn is_local_mode(&self) -> bool {
        self.inner.is_local_mode()
    }

    /// A request is decided from a local share. If the store is down, this node stays in local mode
    /// until all nodes have rejoined.
    pub(crate) fn decides_locally(&self) {
        if !self.inner.link.is_up() {
            self.inner.enter_local_mode();
        }
    }

    /// The store's time, as this node estimates it.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.inner.store_clock.now()
    }

    /// The last observed record of a part, once: the local share starts from it.
    pub(crate) fn local_seed(&self, part: &ScriptPart) -> Option<Account> {
        self.inner.observed.take_seed(&part.key, self.inner.hash(&part.key), &part.rule)
    }

    /// Remembers a record that was not read by a script.
    pub(crate) fn observe(&self, part: &ScriptPart, account: Account, at: Timestamp) {
        let inner = &*self.inner;
        let observation = Observation::new(part.rule.clone(), account, 0, at, inner.link.epoch());
        inner.observe(part.key.clone(), inner.hash(&part.key), observation);
    }
}

impl StoreInner {
    #[inline]
    pub(super) fn is_local_mode(&self) -> bool {
        self.is_local_mode.load(Ordering::Acquire)
    }

    /// This node decides locally from now on, until it has rejoined the others.
    pub(super) fn enter_local_mode(self: &Arc<Self>) {
        if !self.is_local_mode.swap(true, Ordering::AcqRel) {
            let weak = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut attempt = Attempt::default();
                while let Some(inner) = weak.upgrade() {
                    if attempt.has_rejoined(&inner).await {
                        inner.is_local_mode.store(false, Ordering::Release);
                        // Data may have been lost again just now.
                        if inner.has_lost_data() {
                            inner.enter_local_mode();
                        }
                        return;
                    }
                    drop(inner);
                    sleep(POLL_INTERVAL).await;
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
    /// The primary that everything is done at, as the link counts them.
    epoch: u64,
    reasserted: Barrier,
    settled: Barrier,
}

/// Waits until all nodes have reached a phase.
#[derive(Debug, Clone, Copy, Default)]
struct Barrier {
    /// When this node had announced it, by the store's clock.
    announced_us: Option<u64>,
    is_passed: bool,
}

impl Attempt {
    async fn has_rejoined(&mut self, inner: &Arc<StoreInner>) -> bool {
        let epoch = inner.link.epoch();
        if !inner.link.is_up() || self.reachable_since.is_some() && self.epoch != epoch {
            *self = Self::default();
            return false;
        }
        let since = *self.reachable_since.get_or_insert_with(Instant::now);
        self.epoch = epoch;
        let is_overdue = since.elapsed() >= REJOIN_MAX;
        let is_past = |barrier: &Barrier| barrier.is_passed || is_overdue;
        if !is_past(&self.reasserted) {
            if inner.has_lost_data() && !inner.reassert_everything().await {
                return false;
            }
            self.reasserted.check(inner, Phase::Reasserted).await;
        }
        if is_past(&self.reasserted) && !self.settled.is_passed {
            inner.absorb_everything().await;
            self.settled.check(inner, Phase::Settled).await;
        }
        is_past(&self.settled)
    }
}

impl Barrier {
    async fn check(&mut self, inner: &Arc<StoreInner>, phase: Phase) {
        let Some(heartbeat) = inner.heartbeat(phase).await else { return };
        let announced = *self.announced_us.get_or_insert(heartbeat.now_us);
        let Members { count, oldest_us } = heartbeat.members(phase);
        // A store that lost its data lists only the nodes that are back; this node remembers their
        // number.
        let are_all_back = count >= inner.nodes.load(Ordering::Relaxed);
        self.is_passed = are_all_back && oldest_us >= announced;
    }
}
