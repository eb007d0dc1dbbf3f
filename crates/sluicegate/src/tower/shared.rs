//! Admission by limiters whose counters are in a store.
//!
//! Limiters in memory decide first, since that costs nothing; what they hold is released if a later
//! one denies. Those in a store follow, in the order of their kinds, and what they were charged is
//! refunded. A client that disconnects meanwhile remains charged: too little is admitted, never too
//! much.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::verdict::Verdict;

use super::admission::{Admitted, LimiterKind, RequestKeys, decide_after_slots};
use super::denial::Rejection;
use super::guards::HeldSlot;
use super::layer::{Config, LayerLimiter, Reported, WAIT_MAX};
use super::verdict::{self, GroupVerdict, OwnedVerdict};
use crate::backend::Backend;
use crate::clock::span;
use crate::{Denied, KeyedOps, Limiter, Policy};

/// A limiter in a store, its key and its policies for one request.
struct SharedCheck<'a> {
    limiter: &'a Limiter<dyn Backend>,
    /// The same without reports.
    quiet: &'a Limiter<dyn Backend>,
    key: &'a [u8],
    policies: Arc<[Policy]>,
    kind: LimiterKind,
}

/// What limiters have said so far.
#[derive(Default)]
struct Decided<'a> {
    verdicts: Vec<GroupVerdict>,
    policies: Vec<Policy>,
    charged: Vec<KeyedOps<'a, dyn Backend>>,
    slots: Vec<HeldSlot>,
}

pub(super) async fn admit(config: Arc<Config>, keys: RequestKeys) -> Result<Admitted, Rejection> {
    let mut decided = Decided::default();
    let in_memory = decide_after_slots(&config, &keys).await?;
    if let Some((OwnedVerdict { verdict, policies, .. }, _)) = &in_memory {
        decided.add(*verdict, policies);
    }
    let checks = checks(&config, &keys);
    let Some(first) = checks.first() else {
        // Requests without a key may pass the limiters in the store.
        return Ok(match in_memory {
            Some((verdict, guards)) => {
                Admitted { verdict: Some(verdict), slots: guards.wait().await }
            }
            None => Admitted { verdict: None, slots: Vec::new() },
        });
    };
    let now = first.limiter.now();
    let deadline = now.after(span(config.max_wait.unwrap_or(WAIT_MAX)));
    let mut reports = Vec::new();
    for check in &checks {
        let left = deadline.since(check.limiter.now()).to_duration();
        let max_wait_of_slots = config.max_wait.map_or(Duration::ZERO, |_| left);
        let ops = check.quiet.of(check.key).cost(keys.cost);
        let verdict = match check.kind {
            LimiterKind::Police => match ops.hit_async().await {
                Ok(verdict) => Denied::unless_allowed(verdict).map(|()| {
                    decided.charged.push(ops);
                    verdict
                }),
                Err(failure) => Err(Denied::Store(failure)),
            },
            LimiterKind::Slots => {
                ops.within(max_wait_of_slots).permit_async().await.map(|permit| {
                    let verdict = *permit.verdict();
                    decided.slots.push(HeldSlot::Shared(permit));
                    verdict
                })
            }
            LimiterKind::Turns => ops.within(left).acquire().await,
        };
        match verdict {
            Ok(verdict) => {
                reports.push((check, verdict));
                decided.add(verdict, &check.policies);
            }
            Err(denied) => {
                decided.refund().await;
                let index = decided.policies.len();
                decided.policies.extend(check.policies.iter().cloned());
                return Err(match denied {
                    Denied::Store(failure) => Rejection::Store(failure),
                    denied => {
                        let verdict = verdict::denial(denied);
                        check.limiter.report(check.key, keys.cost, &verdict);
                        let verdict = verdict::shifted(verdict, index);
                        OwnedVerdict { verdict, policies: decided.policies.into(), now }.into()
                    }
                });
            }
        }
    }
    let mut slots = std::mem::take(&mut decided.slots);
    if let Some((_, guards)) = in_memory {
        slots.extend(guards.wait().await);
    }
    for (check, verdict) in reports {
        check.limiter.report(check.key, keys.cost, &verdict);
    }
    let verdict = match decided.verdicts.as_slice() {
        [only] => only.verdict,
        several => verdict::all_agreed(several),
    };
    let policies = match checks.as_slice() {
        [only] if only.policies.len() == decided.policies.len() => only.policies.clone(),
        _ => decided.policies.into(),
    };
    Ok(Admitted { verdict: Some(OwnedVerdict { verdict, policies, now }), slots })
}

/// The limiters in a store that apply to a request, in the order of their kinds.
fn checks<'a>(config: &'a Config, keys: &'a RequestKeys) -> Vec<SharedCheck<'a>> {
    let check = |(index, key): &'a (usize, Vec<u8>)| {
        let LayerLimiter::Shared(limiter) = &config.limiters.get(*index)?.limiter else {
            return None;
        };
        let Reported { limiter, quiet } = limiter;
        let policies = limiter.policies();
        let kind = LimiterKind::of(&policies, config.max_wait.is_some());
        Some(SharedCheck { limiter, quiet, key, policies, kind })
    };
    let mut checks: Vec<_> = keys.keys.iter().filter_map(check).collect();
    checks.sort_by_key(|check| check.kind);
    checks
}

impl Decided<'_> {
    fn add(&mut self, verdict: Verdict, policies: &[Policy]) {
        let (index, enforced) =
            (self.policies.len(), policies.iter().any(|policy| policy.enforced));
        self.verdicts.push(GroupVerdict { verdict, index, enforced });
        self.policies.extend(policies.iter().cloned());
    }

    async fn refund(&self) {
        for ops in &self.charged {
            // A limit that cannot be refunded, or a store that is gone, leaves it charged.
            let _ = ops.refund_async().await;
        }
    }
}
