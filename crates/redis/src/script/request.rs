//! Requests to `decide.lua`, and their encoding.

use std::sync::Arc;

use sluicegate::backend::{Combine, admits};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::OpKind;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::{DECIDE, ScriptRule};
use crate::call::Call;

/// Operations that the script supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptOp {
    Hit,
    Charge,
    Refund,
}

/// One identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct ScriptPart {
    /// Key of its record. Its sorted sets have the suffixes `:1`, `:2` and so on.
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    pub(crate) cost: u64,
    /// Whether elastic limits may exceed their base rate.
    pub(crate) spare_capacity: bool,
    pub(crate) combine: Combine,
}

/// A request, or several identical ones.
#[derive(Debug, Clone)]
pub(crate) struct ScriptRequest {
    pub(crate) parts: Vec<ScriptPart>,
    pub(crate) op: ScriptOp,
    /// Holder of concurrency slots. Requests with one are never merged.
    pub(crate) holder: Option<Holder>,
    /// Number of identical requests; the first ones are admitted.
    pub(crate) count: u32,
}

/// Encodes one call for all requests. Without a clock the script uses the store's time.
pub(crate) fn encode(requests: &[ScriptRequest], clock: Option<Timestamp>) -> Call {
    let mut params: Vec<&[u8]> = Vec::new();
    let mut keys = Vec::new();
    let mut payload = Vec::new();
    for request in requests {
        payload.push(request.op.code());
        payload.extend(request.count.to_le_bytes());
        payload.extend(number16(request.sent().count()).to_le_bytes());
        payload
            .push(u8::from(request.holder.is_some()) | u8::from(request.has_skipped_quota()) << 1);
        payload.extend(holder_name(request.holder.unwrap_or(Holder(0))).as_bytes());
        let mut rules = Vec::new();
        for part in request.sent() {
            let text = &part.rule.params.bytes;
            let index = index_of(&mut params, text);
            let rule = part.rule.params.rule;
            let rule = index_of(&mut rules, rule);
            // The script rejects a cost above the maximum, as it must an unsupported part.
            let is_supported = part.cost <= EXACT_MAX && request.supports(part);
            let cost = if is_supported { part.cost } else { EXACT_MAX + 1 };
            payload.extend(number16(index).to_le_bytes());
            payload.extend(cost.to_le_bytes());
            payload.extend([u8::from(part.spare_capacity), combine_code(part.combine)]);
            payload.extend(number16(rule).to_le_bytes());
            keys.extend(keys_of(&part.key, part.rule.params.sets()));
        }
    }
    let mut args = vec![header(params.len(), requests.len(), clock)];
    args.extend(params.into_iter().map(<[u8]>::to_vec));
    args.push(payload);
    Call { script: &DECIDE, keys, args }
}

/// First argument of every call.
pub(super) fn header(params: usize, requests: usize, clock: Option<Timestamp>) -> Vec<u8> {
    let mut header = vec![u8::from(clock.is_some())];
    header.extend(clock.unwrap_or_default().as_micros().to_le_bytes());
    for count in [params, requests] {
        header.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    header
}

/// The index of a matching item, appended if absent.
pub(super) fn index_of<T: PartialEq>(all: &mut Vec<T>, item: T) -> usize {
    all.iter().position(|known| *known == item).unwrap_or_else(|| {
        all.push(item);
        all.len() - 1
    })
}

pub(super) fn number16(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// The key of a record and those of its sorted sets.
pub(crate) fn keys_of(key: &[u8], sets: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    let set = move |number: usize| [key, format!(":{number}").as_bytes()].concat();
    std::iter::once(key.to_vec()).chain((1..=sets).map(set))
}

fn has_slots(step: &EnforcedLimit) -> bool {
    matches!(step.limit(), Limit::Concurrency(_))
}

/// Name of a holder within set members.
fn holder_name(holder: Holder) -> String {
    format!("{:016x}", holder.0)
}

impl ScriptPart {
    /// Whether it is charged even if it denies.
    pub(crate) fn counts_denied_hits(&self) -> bool {
        self.rule.steps().iter().any(|step| step.limit().counts_first())
    }

    /// The smallest capacity of its limits.
    pub(crate) fn capacity(&self) -> u64 {
        let capacities = self.rule.steps().iter().filter_map(|step| step.limit().capacity());
        capacities.min().unwrap_or(u64::MAX)
    }
}

impl ScriptRequest {
    /// The parts that the script evaluates.
    pub(super) fn sent(&self) -> impl Iterator<Item = &ScriptPart> {
        self.parts.iter().filter(|part| !self.skips(part))
    }

    /// Whether a part is skipped: one of its limits, or of those it combines with, does not support
    /// the operation or lacks a holder.
    pub(crate) fn skips(&self, part: &ScriptPart) -> bool {
        match part.combine {
            Combine::AllOrNothing => {
                let all = || self.parts.iter().filter(|part| part.combine == Combine::AllOrNothing);
                let cost = all().map(|part| part.cost).max().unwrap_or(0);
                all().any(|part| self.skips_at_cost(part, cost))
            }
            Combine::Independent | Combine::Quota => self.skips_at_cost(part, part.cost),
        }
    }

    /// Whether the script supports the rule of a part, and admits the first of identical requests.
    /// With slots it does not: a holder is admitted again after another one was denied.
    fn supports(&self, part: &ScriptPart) -> bool {
        let has_slots = part.rule.steps().iter().any(has_slots);
        part.rule.params.rule.is_some() && (self.count <= 1 || !has_slots)
    }

    /// Whether the verdicts so far allow the request: no part denies, and not all quotas do.
    /// Skipped parts allow.
    pub(super) fn may_pass(&self, verdicts: &[Verdict]) -> bool {
        let parts = self.parts.iter().zip(verdicts);
        admits(parts.map(|(part, verdict)| (part.combine, verdict.is_allowed())))
    }

    /// Whether a quota is skipped, and so allows.
    pub(super) fn has_skipped_quota(&self) -> bool {
        self.parts.iter().any(|part| part.combine == Combine::Quota && self.skips(part))
    }

    fn skips_at_cost(&self, part: &ScriptPart, cost: u64) -> bool {
        let needs_holder = self.op == ScriptOp::Hit && self.holder.is_none() && cost > 0;
        part.rule.steps().iter().any(|step| {
            needs_holder && has_slots(step) || step.limit().refuses(self.op.kind()).is_some()
        })
    }
}

impl ScriptOp {
    const fn kind(self) -> OpKind {
        match self {
            Self::Hit => OpKind::Hit,
            Self::Charge => OpKind::Charge,
            Self::Refund => OpKind::Refund,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Hit => 0,
            Self::Charge => 1,
            Self::Refund => 2,
        }
    }
}

const fn combine_code(combine: Combine) -> u8 {
    match combine {
        Combine::Independent => 0,
        Combine::Quota => 1,
        Combine::AllOrNothing => 2,
    }
}
