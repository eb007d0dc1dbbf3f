//! Last observed records.
//!
//! They have two uses. After a failover or restart the store may lack writes: nodes re-assert their
//! observations, so that use never falls below any node's observation. And a node that must decide
//! without the store starts from the last observation, which includes the hits of all nodes.
//! Refunds are not undone: every refund raises the epoch of its record.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_core::account::Account;
use sluicegate_core::time::Timestamp;

use crate::script::ScriptRule;

/// Identities per generation; there are two.
const GENERATION_MAX: usize = 32_768;
const SHARDS: usize = 16;

/// Records of one reply.
pub(super) type Observations = Box<[(Arc<[u8]>, Observation)]>;

/// The last observation of each identity.
#[derive(Debug, Default)]
pub(super) struct Observed {
    shards: [Mutex<Generations>; SHARDS],
}

/// The old generation is dropped when the young one is full.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Arc<[u8]>, Observation>,
    old: HashMap<Arc<[u8]>, Observation>,
}

/// The record of an identity at a time.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) rule: Arc<ScriptRule>,
    pub(super) account: Account,
    pub(super) epoch: u64,
    /// By the store's clock.
    at: Timestamp,
    /// Epoch of the link, which identifies the primary.
    pub(super) primary: u64,
    /// Whether the local share must not start from it: it did already, or other nodes have not yet
    /// reported their admissions.
    is_no_seed: bool,
}

impl Observation {
    pub(super) const fn new(
        rule: Arc<ScriptRule>,
        account: Account,
        epoch: u64,
        at: Timestamp,
        primary: u64,
    ) -> Self {
        Self { rule, account, epoch, at, primary, is_no_seed: false }
    }

    /// Merges a later observation. Replies are processed in any order, and those of one call have
    /// one time. Another primary may have older data: earlier observations count until re-asserted.
    fn update(&mut self, other: Self) {
        let is_same = Arc::ptr_eq(&self.rule, &other.rule);
        let (own, others) = ((self.at, self.epoch), (other.at, other.epoch));
        if !is_same || other.primary == self.primary && others > own {
            *self = other;
        } else if other.primary != self.primary || others == own {
            let at = self.at.max(other.at);
            self.account.reassert(self.rule.steps(), &other.account, at);
            self.epoch = self.epoch.max(other.epoch);
            (self.at, self.primary) = (at, self.primary.max(other.primary));
            self.is_no_seed = other.is_no_seed;
        }
    }
}

impl Observed {
    /// Stores an observation. In local mode it is not used as a seed.
    pub(super) fn insert(
        &self,
        key: Arc<[u8]>,
        hash: u64,
        mut observation: Observation,
        is_local_mode: bool,
    ) {
        observation.is_no_seed = is_local_mode;
        let mut shard = self.shard(hash).lock();
        match shard.young.get_mut(&key) {
            Some(known) => known.update(observation),
            None => {
                shard.young.insert(key, observation);
            }
        }
        if shard.young.len() >= GENERATION_MAX / SHARDS {
            shard.old = std::mem::take(&mut shard.young);
        }
    }

    /// The record that the local share starts from, once per observation.
    pub(super) fn take_seed(
        &self,
        key: &[u8],
        hash: u64,
        rule: &Arc<ScriptRule>,
    ) -> Option<Account> {
        let mut shard = self.shard(hash).lock();
        let Generations { young, old } = &mut *shard;
        let observation = young.get_mut(key).or_else(|| old.get_mut(key))?;
        let is_same = Arc::ptr_eq(&observation.rule, rule);
        if !is_same || std::mem::replace(&mut observation.is_no_seed, true) {
            return None;
        }
        Some(observation.account.clone())
    }

    /// The record of an identity, if it was observed at an earlier primary.
    pub(super) fn of_earlier_primary(
        &self,
        key: &[u8],
        hash: u64,
        primary: u64,
    ) -> Option<Observation> {
        let shard = self.shard(hash).lock();
        let known = shard.young.get(key).or_else(|| shard.old.get(key));
        known.filter(|known| known.primary < primary).cloned()
    }

    /// The record of an identity was re-asserted at this primary.
    pub(super) fn mark_reasserted(&self, key: &[u8], hash: u64, primary: u64) {
        let mut shard = self.shard(hash).lock();
        let Generations { young, old } = &mut *shard;
        for known in [young.get_mut(key), old.get_mut(key)].into_iter().flatten() {
            known.primary = known.primary.max(primary);
        }
    }

    /// Identities that were not observed at this primary yet, sorted.
    pub(super) fn keys_of_earlier_primaries(&self, primary: u64) -> Vec<Arc<[u8]>> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let old = shard.old.iter().filter(|(key, _)| !shard.young.contains_key(*key));
            let known = shard.young.iter().chain(old);
            let earlier = known.filter(|(_, known)| known.primary < primary);
            keys.extend(earlier.map(|(key, _)| key.clone()));
        }
        keys.sort_unstable();
        keys
    }

    fn shard(&self, hash: u64) -> &Mutex<Generations> {
        &self.shards[hash as usize % SHARDS]
    }
}
