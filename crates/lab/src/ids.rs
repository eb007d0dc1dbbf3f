//! Maps the ids of lines to the holders of the core.

use std::collections::HashMap;

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::Span;

use crate::line::ScriptOp;

/// Ids of one key, in the order of first use; the index is the holder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    holders: HashMap<String, Holder>,
}

// === impl Ids ===

impl Ids {
    /// The operation of a line, in the core's terms.
    pub(crate) fn op(&mut self, op: &ScriptOp) -> Op {
        let mut holder = |id: &str| {
            let next = Holder(self.holders.len() as u64);
            *self.holders.entry(id.to_owned()).or_insert(next)
        };
        match op {
            ScriptOp::Hit { cost, id } => {
                Op::Hit { cost: *cost, holder: id.as_deref().map(holder) }
            }
            ScriptOp::Acquire { cost, timeout, id } => Op::Acquire {
                cost: *cost,
                max_wait: timeout.unwrap_or(Span::MAX),
                holder: id.as_deref().map(holder),
            },
            ScriptOp::Peek { cost } => Op::Peek { cost: *cost },
            ScriptOp::Take { cost } => Op::Take { cost: *cost },
            ScriptOp::Charge { cost } => Op::Charge { cost: *cost },
            ScriptOp::Refund { cost } => Op::Refund { cost: *cost },
            ScriptOp::Add { cost, force } => Op::Add { cost: *cost, force: *force },
            ScriptOp::Drain => Op::Drain,
            ScriptOp::Reset => Op::Reset,
            ScriptOp::Reserve { cost, ttl, id } => {
                Op::Reserve { cost: *cost, ttl: *ttl, holder: holder(id) }
            }
            ScriptOp::Commit { cost, id } => Op::Commit { cost: *cost, holder: holder(id) },
            ScriptOp::Cancel { id } => Op::Cancel { holder: holder(id) },
            // The limits are already replaced; a peek returns the state of this key.
            ScriptOp::SetLimit { .. } => Op::Peek { cost: 0 },
        }
    }
}
