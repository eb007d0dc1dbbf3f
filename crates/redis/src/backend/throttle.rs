//! Limits sent with the request (`CL.THROTTLE`), shared by all nodes.
//!
//! A hit is a request of one part, a token bucket, which the script decides like any other. Without
//! the store it is decided as under a rule with `on_store_failure: local`: from this node's share,
//! which starts from the last observed record, and the store is charged later.

use std::cmp::Reverse;

use futures_util::future::join_all;
use sluicegate::throttle::{NoRoom, Throttle, ThrottleParams};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::rule::OnStoreFailure;

use super::RedisBackend;
use crate::script::{Combine, ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest};
use crate::store::LateOutcome;
use crate::{CallError, HitError, Weight};

/// A hit on a bucket whose limit came with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleHit {
    /// Any bytes.
    pub key: Box<[u8]>,
    /// The limit.
    pub params: ThrottleParams,
    /// The cost.
    pub quantity: u64,
}

/// Separates these records from those of rules.
const SUFFIX: &str = ":throttle";

impl RedisBackend {
    /// Decides the hits of a pipeline, as if one after the other: those of different keys, and
    /// identical ones, are sent together. Without the store, `share` counts this node's share.
    ///
    /// # Errors
    /// Those of [`Throttle::hit`], without the store.
    pub async fn throttle(
        &self,
        share: &Throttle,
        hits: &[ThrottleHit],
    ) -> Vec<Result<Verdict, NoRoom>> {
        let mut verdicts = Vec::with_capacity(hits.len());
        while let Some(rest) = hits.get(verdicts.len()..).filter(|rest| !rest.is_empty()) {
            let together = &rest[..independent(rest)];
            let deciding = together.iter().map(|hit| self.throttle_one(share, hit));
            let mut decided = join_all(deciding).await;
            order_identical(together, &mut decided);
            verdicts.extend(decided);
        }
        verdicts
    }

    async fn throttle_one(&self, share: &Throttle, hit: &ThrottleHit) -> Result<Verdict, NoRoom> {
        let part = self.throttle_part(hit);
        let failed = if self.store.is_local_mode() {
            HitError::from(CallError::Down)
        } else {
            let (parts, op) = (vec![part.clone()], ScriptOp::Hit);
            let request = ScriptRequest { parts, op, holder: None, count: 1 };
            match self.store.hit(request, None).await {
                Ok(ScriptAnswer { verdicts, .. }) => match verdicts.first() {
                    Some(verdict) => return Ok(*verdict),
                    None => CallError::Broken.into(),
                },
                Err(error) => error,
            }
        };
        self.throttle_share(share, hit, part, failed.late)
    }

    /// Decides a hit from this node's share.
    fn throttle_share(
        &self,
        share: &Throttle,
        hit: &ThrottleHit,
        part: ScriptPart,
        late: Option<LateOutcome>,
    ) -> Result<Verdict, NoRoom> {
        let ThrottleHit { key, params, quantity } = hit;
        self.store.fell_back(OnStoreFailure::Local);
        self.store.decides_locally();
        if let Some(observed) = self.store.local_seed(&part) {
            share.replace(key, params, observed);
        }
        // On average as many hits come to each node. A node has at least one hit of each limit.
        let weight = Weight::even(self.store.nodes());
        let charge = weight.whole(*quantity).min(params.limit().max(*quantity));
        let verdict = share.hit(key, params, charge, self.store.store_time())?;
        let is_admitted = verdict.is_allowed();
        match late {
            Some(late) => {
                let store = self.store.clone();
                tokio::spawn(async move {
                    let is_charged = late.decision().await.is_some_and(|answer| answer.allowed);
                    if is_admitted && !is_charged {
                        store.journal(&part, None);
                    }
                });
            }
            None if is_admitted => self.store.journal(&part, None),
            None => {}
        }
        let remaining = verdict.remaining.map(|left| weight.part_of(left));
        Ok(Verdict { remaining, ..verdict })
    }

    fn throttle_part(&self, hit: &ThrottleHit) -> ScriptPart {
        let ThrottleHit { key, params, quantity } = hit;
        // As an identity of one part.
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
        ScriptPart {
            key: self.store.key_of(&[&length, &**key].concat(), SUFFIX),
            rule: self.throttle_rules.of_throttle(params, self.store.now()),
            cost: *quantity,
            spare_capacity: false,
            combine: Combine::AllOrNothing,
        }
    }
}

/// How many of the first hits can be decided in any order.
fn independent(hits: &[ThrottleHit]) -> usize {
    let depends = |index: usize, hit: &ThrottleHit| {
        let same_key = hits[..index].iter().find(|other| other.key == hit.key);
        same_key.is_some_and(|other| other != hit)
    };
    let dependent = hits.iter().enumerate().position(|(index, hit)| depends(index, hit));
    dependent.unwrap_or(hits.len())
}

/// Orders the verdicts of identical hits as if they had been decided one after the other: two calls
/// may overtake each other.
fn order_identical(hits: &[ThrottleHit], verdicts: &mut [Result<Verdict, NoRoom>]) {
    for (index, hit) in hits.iter().enumerate() {
        let rank = |other: &usize| {
            let verdict = verdicts[*other].as_ref().ok();
            verdict.map(|verdict| (verdict.is_allowed(), verdict.remaining))
        };
        let same = (index..hits.len()).filter(|other| hits[*other] == *hit);
        if let Some(first) = same.max_by_key(|other| (rank(other), Reverse(*other))) {
            verdicts.swap(index, first);
        }
    }
}
