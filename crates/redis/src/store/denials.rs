//! Denials that need not be asked for again.
//!
//! Whoever was denied and comes again before it may has its answer here: the store would say the same, less the time that has passed. A denial is remembered until then, but
//! no longer than [`REMEMBERED`], since another node may give something back meanwhile; what this node gives back or changes is forgotten at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use crate::script::{Combine, ScriptOp, ScriptPart, ScriptRequest, ScriptRule};

/// How long what other nodes do may go unheard of.
const REMEMBERED: Span = Span::from_millis(100);
/// The most that are remembered in one part.
const DENIALS_MAX: usize = 4_096;
const PARTS: usize = 16;

/// What was denied lately.
#[derive(Debug)]
pub(super) struct Denials {
    parts: [Mutex<HashMap<Arc<[u8]>, Denial>>; PARTS],
}

#[derive(Debug)]
struct Denial {
    rule: Arc<ScriptRule>,
    cost: u64,
    open: bool,
    verdict: Verdict,
    at: Timestamp,
    until: Timestamp,
}

// === impl Denials ===

impl Denials {
    /// What an ask is answered, if that is known. By this node's clock, as all times here.
    pub(super) fn find(&self, ask: &ScriptRequest, hash: u64, now: Timestamp) -> Option<Verdict> {
        let [part] = ask.parts.as_slice() else { return None };
        let part_of = self.part(hash).lock();
        let denial = part_of.get(&part.key)?;
        let is_same = denial.cost == part.cost
            && denial.open == part.open
            && Arc::ptr_eq(&denial.rule, &part.rule);
        // A clock that was set back knows nothing of it.
        if !is_same || ask.op != ScriptOp::Hit || now < denial.at || now >= denial.until {
            return None;
        }
        Some(denial.verdict.later(now.since(denial.at)))
    }

    /// The part whose denial would be remembered: one that stands until somebody's time has come, and leaves no trace.
    pub(super) fn may_remember(ask: &ScriptRequest) -> Option<ScriptPart> {
        let [part] = ask.parts.as_slice() else { return None };
        let leaves_trace = part.rule.steps().iter().any(EnforcedLimit::records_denials);
        let may = ask.op == ScriptOp::Hit && part.combine == Combine::AllOrNothing && !leaves_trace;
        may.then(|| part.clone())
    }

    /// Remembers what it was answered, if that is a denial.
    pub(super) fn remember(&self, part: ScriptPart, hash: u64, verdict: &Verdict, now: Timestamp) {
        let retry_after = match verdict.outcome {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Never { .. } => Span::MAX,
            Outcome::Allow { .. } => return,
        };
        let until = now.after(retry_after.min(REMEMBERED));
        let mut part_of = self.part(hash).lock();
        if part_of.len() >= DENIALS_MAX {
            part_of.retain(|_, denial| now < denial.until);
        }
        if part_of.len() < DENIALS_MAX {
            let ScriptPart { key, rule, cost, open, .. } = part;
            let denial = Denial { rule, cost, open, verdict: *verdict, at: now, until };
            part_of.insert(key, denial);
        }
    }

    /// Something was given back to this key, or changed.
    pub(super) fn forget(&self, key: &[u8], hash: u64) {
        self.part(hash).lock().remove(key);
    }

    fn part(&self, hash: u64) -> &Mutex<HashMap<Arc<[u8]>, Denial>> {
        &self.parts[hash as usize % PARTS]
    }
}

impl Default for Denials {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()) }
    }
}
