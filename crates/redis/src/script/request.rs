//! What the script is asked, and how that is written for it.

use std::sync::Arc;

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::OpKind;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::{DECIDE, ScriptRule};
use crate::call::Call;

/// How a part stands to the others of its ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    /// By itself, and charged whatever the others say.
    Independent,
    /// The same, but it denies the ask only if all of its kind do.
    Quota,
    /// All or nothing with the others of its kind, who are other identities; and only looked at where the ask is denied already.
    AllOrNothing,
}

/// What goes the short way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptOp {
    Hit,
    Charge,
    Refund,
}

/// One identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct ScriptPart {
    /// The key of its record. The sets beside it have the same with `:1`, `:2` and so on behind.
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    pub(crate) cost: u64,
    /// Whether its elastic limits are open.
    pub(crate) open: bool,
    pub(crate) combine: Combine,
}

/// A request, or several that are the same.
#[derive(Debug, Clone)]
pub(crate) struct ScriptRequest {
    pub(crate) parts: Vec<ScriptPart>,
    pub(crate) op: ScriptOp,
    /// Who holds a slot. Requests that are to hold one each are not the same.
    pub(crate) holder: Option<Holder>,
    /// How many they are; the first of them are admitted.
    pub(crate) count: u32,
}

/// One call for all of these, at the store's own time unless another is given.
pub(crate) fn encode(asks: &[ScriptRequest], clock: Option<Timestamp>) -> Call {
    let mut sheets: Vec<&[u8]> = Vec::new();
    let mut keys = Vec::new();
    let mut told = Vec::new();
    for ask in asks {
        told.push(ask.op.code());
        told.extend(ask.count.to_le_bytes());
        told.extend(number16(ask.sent().count()).to_le_bytes());
        told.push(u8::from(ask.holder.is_some()) | u8::from(ask.has_idle_quota()) << 1);
        told.extend(holder_name(ask.holder.unwrap_or(Holder(0))).as_bytes());
        let mut rules = Vec::new();
        for part in ask.sent() {
            let text = part.rule.params.text();
            let sheet = index_of(&mut sheets, |known| *known == text, || text);
            let rule = part.rule.params.rule();
            let rule = index_of(&mut rules, |known| *known == rule, || rule);
            // What the script does not take goes the long way: this is a number that it does not accept.
            let exact = part.cost <= EXACT_MAX && ask.is_taken(part);
            let cost = if exact { part.cost } else { EXACT_MAX + 1 };
            told.extend(number16(sheet).to_le_bytes());
            told.extend(cost.to_le_bytes());
            told.extend([u8::from(part.open), part.combine.code()]);
            told.extend(number16(rule).to_le_bytes());
            keys.extend(keys_of(&part.key, part.rule.params.sets()));
        }
    }
    let mut args = vec![head(sheets.len(), asks.len(), clock)];
    args.extend(sheets.into_iter().map(<[u8]>::to_vec));
    args.push(told);
    Call { script: &DECIDE, keys, args }
}

/// What every call is told first.
pub(super) fn head(sheets: usize, asks: usize, clock: Option<Timestamp>) -> Vec<u8> {
    let mut head = vec![u8::from(clock.is_some())];
    head.extend(clock.unwrap_or_default().as_micros().to_le_bytes());
    for count in [sheets, asks] {
        head.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    head
}

/// The index of what is like this, put behind the others if it is new.
pub(super) fn index_of<T>(
    all: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> usize {
    all.iter().position(is_it).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

pub(super) fn number16(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// The key of a record and those of the sets beside it.
pub(crate) fn keys_of(key: &[u8], sets: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    let set = move |number: usize| [key, format!(":{number}").as_bytes()].concat();
    std::iter::once(key.to_vec()).chain((1..=sets).map(set))
}

fn has_slots(step: &EnforcedLimit) -> bool {
    matches!(step.limit(), Limit::Concurrency(_))
}

/// A holder as members of sets name it.
fn holder_name(holder: Holder) -> String {
    format!("{:016x}", holder.0)
}

// === impl ScriptPart ===

impl ScriptPart {
    /// Whether it is charged whatever it says.
    pub(crate) fn counts_first(&self) -> bool {
        self.rule.steps().iter().any(|step| step.limit().counts_first())
    }

    /// The least capacity of its limits.
    pub(crate) fn capacity(&self) -> u64 {
        let capacities = self.rule.steps().iter().filter_map(|step| step.limit().capacity());
        capacities.min().unwrap_or(u64::MAX)
    }
}

// === impl ScriptRequest ===

impl ScriptRequest {
    /// The parts that the script is asked about: those that do not refuse.
    pub(super) fn sent(&self) -> impl Iterator<Item = &ScriptPart> {
        self.parts.iter().filter(|part| !self.refuses(part))
    }

    /// Whether nothing happens to a part, because a limit of it, or of those that it stands together with, has no meaning for the operation or
    /// needs an id.
    pub(crate) fn refuses(&self, part: &ScriptPart) -> bool {
        match part.combine {
            Combine::AllOrNothing => {
                let together =
                    || self.parts.iter().filter(|part| part.combine == Combine::AllOrNothing);
                let cost = together().map(|part| part.cost).max().unwrap_or(0);
                together().any(|part| self.refuses_cost(part, cost))
            }
            Combine::Independent | Combine::Quota => self.refuses_cost(part, part.cost),
        }
    }

    /// Whether the script can tell the rules of a part apart, and the first of several that are the same are those that it admits: who holds a slot
    /// already is admitted after somebody who was denied.
    fn is_taken(&self, part: &ScriptPart) -> bool {
        let has_slots = part.rule.steps().iter().any(has_slots);
        part.rule.params.rule().is_some() && (self.count <= 1 || !has_slots)
    }

    /// Whether it may go as far as was said so far: nobody denies, and of the quotas not all. Whoever was not asked agrees.
    pub(super) fn may_go(&self, verdicts: &[Verdict]) -> bool {
        let is_quota = |part: &ScriptPart| part.combine == Combine::Quota;
        let said = || self.parts.iter().zip(verdicts);
        let mut quotas = said().filter(|(part, _)| is_quota(part)).peekable();
        let has_quotas = quotas.peek().is_some();
        said().all(|(part, verdict)| is_quota(part) || verdict.is_allowed())
            && (!has_quotas || quotas.any(|(_, verdict)| verdict.is_allowed()))
    }

    /// Whether a quota agrees without having been asked.
    pub(super) fn has_idle_quota(&self) -> bool {
        self.parts.iter().any(|part| part.combine == Combine::Quota && self.refuses(part))
    }

    fn refuses_cost(&self, part: &ScriptPart, cost: u64) -> bool {
        let needs_holder = self.op == ScriptOp::Hit && self.holder.is_none() && cost > 0;
        part.rule.steps().iter().any(|step| {
            needs_holder && has_slots(step) || step.limit().refuses(self.op.kind()).is_some()
        })
    }
}

// === impl ScriptOp, Combine ===

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

impl Combine {
    const fn code(self) -> u8 {
        match self {
            Self::Independent => 0,
            Self::Quota => 1,
            Self::AllOrNothing => 2,
        }
    }
}
