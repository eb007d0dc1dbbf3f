//! What a node says by itself, without asking the store.

use std::sync::Arc;

use sluicegate_core::verdict::Verdict;
use sluicegate_rules::set::RuleNo;

use super::LevelCounters;
use crate::level::Promise;
use crate::plan::Rule;

/// One step of a request, as this node asks itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalStep<'a> {
    pub(super) no: RuleNo,
    pub(super) identity: &'a [u8],
    /// Of the identity, under a secret.
    pub(super) hash: u64,
    pub(super) rule: &'a Arc<Rule>,
    /// Where it is counted.
    pub(super) counters: &'a Arc<LevelCounters>,
    pub(super) cost: u64,
}

/// What this node says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    /// That.
    Said(Verdict, Promise),
    /// That it does not know enough.
    Ask,
}
