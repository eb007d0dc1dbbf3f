//! Recovery: replays to the store the hits it missed during an outage and the data it lost in a
//! failover or restart.
//!
//! An identity is recovered before the store decides on it again, by the first request for it; all
//! others follow in the background. So a node never trusts a record that lacks its own
//! observations.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream;

use super::StoreInner;
use super::observed::Observation;
use crate::call::CallError;
use crate::script::{OptimisticError, OptimisticPart, ScriptPart, UpdatedRecord};

/// Identities recovered concurrently in the background.
const CONCURRENCY: usize = 16;

impl StoreInner {
    /// Whether any identity may have to be recovered before the store decides on it.
    #[inline]
    pub(super) fn needs_recovery(&self) -> bool {
        self.journal.has_entries() || self.has_lost_data()
    }

    /// Whether lost data may not be re-asserted yet.
    #[inline]
    pub(super) fn has_lost_data(&self) -> bool {
        self.recovered_epoch.load(Ordering::Acquire) != self.link.epoch()
    }

    /// Recovers the identities of a request.
    ///
    /// # Errors
    /// When that fails: then the store must not decide.
    pub(super) async fn recover_all(
        self: &Arc<Self>,
        parts: &[ScriptPart],
    ) -> Result<(), CallError> {
        for part in parts {
            if self.must_recover(&part.key) {
                self.recover(&part.key).await?;
            }
        }
        Ok(())
    }

    fn must_recover(&self, key: &[u8]) -> bool {
        let is_lost = || {
            let hash = self.hash(key);
            self.observed.of_earlier_primary(key, hash, self.link.epoch()).is_some()
        };
        self.journal.contains(key) || self.has_lost_data() && is_lost()
    }

    /// Re-asserts the observation of an identity and absorbs its admissions. Concurrent requests
    /// wait for each other.
    async fn recover(self: &Arc<Self>, key: &Arc<[u8]>) -> Result<(), CallError> {
        let _guard = self.lock_identity(key).await;
        let (hash, primary) = (self.hash(key), self.link.epoch());
        if let Some(observation) = self.observed.of_earlier_primary(key, hash, primary) {
            self.reassert(key, observation, primary).await?;
        }
        self.absorb(key).await
    }

    /// Re-asserts all observations at earlier primaries. Returns whether all succeeded.
    pub(super) async fn reassert_everything(self: &Arc<Self>) -> bool {
        let epoch = self.link.epoch();
        let keys = self.observed.keys_of_earlier_primaries(epoch);
        let reasserting = stream::iter(keys).for_each_concurrent(CONCURRENCY, |key| async move {
            let _guard = self.lock_identity(&key).await;
            let hash = self.hash(&key);
            if let Some(observation) = self.observed.of_earlier_primary(&key, hash, epoch) {
                // Retried after a failure.
                let _ = self.reassert(&key, observation, epoch).await;
            }
        });
        reasserting.await;
        let is_done = self.observed.keys_of_earlier_primaries(epoch).is_empty();
        if is_done {
            self.recovered_epoch.store(epoch, Ordering::Release);
        }
        is_done
    }

    /// Absorbs the whole journal.
    pub(super) async fn absorb_everything(self: &Arc<Self>) {
        let keys = stream::iter(self.journal.keys());
        let recovering = keys.for_each_concurrent(CONCURRENCY, |key| async move {
            // Retried when the store replies to the next request.
            let _ = self.recover(&key).await;
        });
        recovering.await;
    }

    /// Absorbs the journal in the background, once the store replies again.
    pub(super) fn settle_journal(self: &Arc<Self>) {
        // A node in local mode does so when all nodes have re-asserted their observations.
        if self.is_local_mode() || self.is_settling.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        tokio::spawn(async move {
            inner.absorb_everything().await;
            inner.is_settling.store(false, Ordering::Release);
        });
    }

    async fn absorb(&self, key: &Arc<[u8]>) -> Result<(), CallError> {
        let Some((rule, admitted)) = self.journal.take(key) else { return Ok(()) };
        let now = self.store_clock.now();
        if admitted.expires_at(rule.steps()) <= now {
            self.journal.absorbed(key);
            return Ok(());
        }
        let part = OptimisticPart::of_record(key.clone(), rule.clone());
        match self.updates().absorb(&part, &admitted).await {
            Ok(UpdatedRecord { at, account, epoch }) => {
                let primary = self.link.epoch();
                let observation = Observation::new(rule, account, epoch, at, primary);
                self.observe(key.clone(), self.hash(key), observation);
                self.counters.settled.fetch_add(1, Ordering::Relaxed);
                self.journal.absorbed(key);
                Ok(())
            }
            // It may have been executed. Then it is charged twice, and less is admitted than
            // allowed.
            Err(error @ (OptimisticError::Store(_) | OptimisticError::Contended)) => {
                self.journal.put_back(key, &rule, &admitted, now);
                Err(error.into())
            }
            Err(_) => {
                self.journal.absorbed(key);
                Ok(())
            }
        }
    }

    async fn reassert(
        &self,
        key: &Arc<[u8]>,
        observation: Observation,
        primary: u64,
    ) -> Result<(), CallError> {
        let Observation { rule, account, epoch, .. } = &observation;
        let part = OptimisticPart::of_record(key.clone(), rule.clone());
        self.publish_if_new(&part.rule).await;
        match self.updates().reassert(&part, account, *epoch).await {
            Ok(was_lost) => {
                self.counters.reasserted.fetch_add(u64::from(was_lost), Ordering::Relaxed);
                self.observed.mark_reasserted(key, self.hash(key), primary);
                Ok(())
            }
            Err(error @ (OptimisticError::Store(_) | OptimisticError::Contended)) => {
                Err(error.into())
            }
            Err(_) => Ok(()),
        }
    }
}

/// Enters local mode whenever the store may have lost data, until the store is dropped.
pub(super) async fn reassert_after_data_loss(store: Weak<StoreInner>) {
    let Some(mut changes) = store.upgrade().map(|store| store.link.epoch_changes()) else { return };
    while changes.changed().await.is_ok() {
        let Some(store) = store.upgrade() else { return };
        store.enter_local_mode();
    }
}
