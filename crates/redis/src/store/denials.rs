//! Cache of denials.
//!
//! A client that retries before it may is denied from here: the store would deny too, with a
//! shorter wait. A denial is cached until then, but at most for [`TTL_MAX`], since another node may
//! refund meanwhile; refunds and changes of this node remove it at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use crate::script::{Combine, ScriptOp, ScriptPart, ScriptRequest, ScriptRule};

/// Staleness bound towards other nodes.
const TTL_MAX: Span = Span::from_millis(100);
/// Entries of one shard.
const SHARD_ENTRIES_MAX: usize = 4_096;
const SHARDS: usize = 16;

/// Recent denials by key.
#[derive(Debug)]
pub(super) struct Denials {
    shards: [Mutex<HashMap<Arc<[u8]>, CachedDenial>>; SHARDS],
}

#[derive(Debug)]
struct CachedDenial {
    rule: Arc<ScriptRule>,
    cost: u64,
    spare_capacity: bool,
    verdict: Verdict,
    at: Timestamp,
    until: Timestamp,
}

impl Denials {
    /// The cached verdict of a request. All times are by this node's clock.
    pub(super) fn find(
        &self,
        request: &ScriptRequest,
        hash: u64,
        now: Timestamp,
    ) -> Option<Verdict> {
        let [part] = request.parts.as_slice() else { return None };
        let mut shard = self.shard(hash).lock();
        let denial = shard.get(&part.key)?;
        let is_same = denial.cost == part.cost
            && denial.spare_capacity == part.spare_capacity
            && Arc::ptr_eq(&denial.rule, &part.rule);
        // Ignored if the clock went back.
        if is_same && request.op == ScriptOp::Hit && now >= denial.at && now < denial.until {
            return Some(denial.verdict.later(now.since(denial.at)));
        }
        // The store may admit this request, and then less quota remains than the denial says.
        shard.remove(&part.key);
        None
    }

    /// The part whose denial may be cached: a single one whose denials do not change state.
    pub(super) fn cacheable_part(request: &ScriptRequest) -> Option<ScriptPart> {
        let [part] = request.parts.as_slice() else { return None };
        let leaves_trace = part.rule.steps().iter().any(EnforcedLimit::records_denials);
        let may =
            request.op == ScriptOp::Hit && part.combine == Combine::AllOrNothing && !leaves_trace;
        may.then(|| part.clone())
    }

    /// Caches a verdict if it is a denial.
    pub(super) fn insert(&self, part: ScriptPart, hash: u64, verdict: &Verdict, now: Timestamp) {
        let retry_after = match verdict.outcome {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Never { .. } => Span::MAX,
            Outcome::Allow { .. } => return,
        };
        let until = now.after(retry_after.min(TTL_MAX));
        let mut shard = self.shard(hash).lock();
        if shard.len() >= SHARD_ENTRIES_MAX {
            shard.retain(|_, denial| now < denial.until);
        }
        if shard.len() < SHARD_ENTRIES_MAX {
            let ScriptPart { key, rule, cost, spare_capacity, .. } = part;
            let denial =
                CachedDenial { rule, cost, spare_capacity, verdict: *verdict, at: now, until };
            shard.insert(key, denial);
        }
    }

    pub(super) fn remove(&self, key: &[u8], hash: u64) {
        self.shard(hash).lock().remove(key);
    }

    fn shard(&self, hash: u64) -> &Mutex<HashMap<Arc<[u8]>, CachedDenial>> {
        &self.shards[hash as usize % SHARDS]
    }
}

impl Default for Denials {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}
