//! Counts of eventual rules, exchanged between nodes through the store (anti-entropy).
//!
//! Each identity has a hash: one field per node, which only that node writes; one per window, with
//! the sum over all nodes; and `epoch`, which a reset raises:
//!
//! ```text
//!   epoch               3
//!   9f1c2ab4d0e75566    60000000=<end>,<start>,<admitted>,<refunded>,<start>,<admitted>,<refunded> …
//!   60000000=<start>    <admitted less refunded>,<end>
//! ```
//!
//! A series is named by the length of its windows (or by their calendar), not by its limit: if the
//! number of a limit changes, its counts continue; if the length changes, they start over. Numbers
//! of a node within a window only grow, so two versions are merged by the maximum: a late, repeated
//! or lost push does no harm. A push adds its increments to the sums in the same script, so the
//! cost of a pull does not depend on the number of nodes. Expired fields are removed with the first
//! push to a new window.
//!
//! Arguments: the time (empty for the store's), the node, and per key the operation, an epoch and
//! the counts of the node. Reply: the time, and per key the epoch, the node's own field after
//! [`SyncOp::PullAll`], and the net admissions of the others per window: `60000000=<start>,<net>`.
//! A push with an old epoch is ignored.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use redis::Value;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::time::Timestamp;

use crate::call::{Call, CallError, Script};
use crate::store::Store;

/// Keys of one call. With more, a call blocks the store for longer and is not cheaper.
pub(crate) const KEYS_MAX: usize = 32;

pub(super) static SYNC: Script = Script::new(include_str!("lua/sync.lua"));

/// Push or pull of one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncRequest {
    pub(crate) key: Arc<[u8]>,
    pub(crate) op: SyncOp,
    pub(crate) epoch: u64,
    pub(crate) counted: Vec<SeriesCounts>,
}

/// Direction of a synchronization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncOp {
    /// Pulls all windows, and this node's own counts.
    PullAll,
    /// Pulls the given windows.
    Pull,
    /// Pushes the own counts, and pulls the given windows.
    Push,
    /// Deletes the counts of all nodes.
    Reset,
}

/// Counts of a node in the last two windows of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesCounts {
    pub(crate) name: Arc<str>,
    /// Time after which the counts no longer matter.
    pub(crate) over: Timestamp,
    pub(crate) current: WindowCounts,
    /// The window before, if there is one.
    pub(crate) previous: WindowCounts,
}

/// Counts of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WindowCounts {
    pub(crate) start: Timestamp,
    pub(crate) admitted: u64,
    /// Refunds on this node of admissions on any node.
    pub(crate) refunded: u64,
}

/// Reply for one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncReply {
    /// By the store's clock.
    pub(crate) at: Timestamp,
    pub(crate) epoch: u64,
    /// This node's own counts, after [`SyncOp::PullAll`].
    pub(crate) own: Vec<SeriesCounts>,
    /// Net admissions of all other nodes, by series and start of the window.
    pub(crate) others: Vec<(Box<str>, Timestamp, i64)>,
}

impl Store {
    /// Pushes and pulls counts of identities of one slot.
    pub(crate) async fn sync(&self, pushes: &[SyncRequest]) -> Result<Vec<SyncReply>, CallError> {
        let now = self.script_time().map_or_else(String::new, |now| now.as_micros().to_string());
        let mut args = vec![now.into_bytes(), format!("{:016x}", self.node()).into_bytes()];
        for push in pushes {
            args.push(push.op.code().to_vec());
            args.push(push.epoch.to_string().into_bytes());
            args.push(encode_counts(&push.counted).into_bytes());
        }
        let keys = pushes.iter().map(|push| push.key.to_vec()).collect();
        let reply = self.link().call(&Call { script: &SYNC, keys, args }).await?;
        decode(reply, pushes.len())
            .ok_or_else(|| CallError::Refused("unexpected reply to a sync call".into()))
    }
}

impl SyncOp {
    const fn code(self) -> &'static [u8] {
        match self {
            Self::PullAll => b"*",
            Self::Pull => b"?",
            Self::Push => b"+",
            Self::Reset => b"!",
        }
    }
}

fn encode_counts(counted: &[SeriesCounts]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for SeriesCounts { name, over, current, previous } in counted {
        let gap = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{gap}{name}={}", over.as_micros());
        for WindowCounts { start, admitted, refunded } in [current, previous] {
            let _ = write!(text, ",{},{admitted},{refunded}", start.as_micros());
        }
    }
    text
}

fn decode(reply: Value, keys: usize) -> Option<Vec<SyncReply>> {
    let Value::Array(values) = reply else { return None };
    let mut values = values.into_iter();
    let Some(Value::Int(now)) = values.next() else { return None };
    let at = Timestamp::from_micros(u64::try_from(now).ok()?);
    let all: Option<Vec<SyncReply>> = values.map(|value| decode_one(value, at)).collect();
    all.filter(|all| all.len() == keys)
}

fn decode_one(value: Value, at: Timestamp) -> Option<SyncReply> {
    let Value::Array(fields) = value else { return None };
    let [Value::Int(epoch), Value::BulkString(own), Value::BulkString(others)] = fields.as_slice()
    else {
        return None;
    };
    // Corrupt fields count as nothing: the reply holds other identities too.
    let (own, others) = (String::from_utf8_lossy(own), String::from_utf8_lossy(others));
    Some(SyncReply {
        at,
        epoch: u64::try_from(*epoch).unwrap_or(0),
        own: own.split_ascii_whitespace().filter_map(parse_own).collect(),
        others: others.split_ascii_whitespace().filter_map(parse_others).collect(),
    })
}

fn parse_own(text: &str) -> Option<SeriesCounts> {
    let (name, numbers) = text.split_once('=')?;
    let mut numbers = numbers.split(',').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten().map(|number| number.min(EXACT_MAX));
    let over = Timestamp::from_micros(next()?);
    let mut window = || {
        let start = Timestamp::from_micros(next()?);
        Some(WindowCounts { start, admitted: next()?, refunded: next()? })
    };
    Some(SeriesCounts { name: name.into(), over, current: window()?, previous: window()? })
}

fn parse_others(text: &str) -> Option<(Box<str>, Timestamp, i64)> {
    let (name, numbers) = text.split_once('=')?;
    let (start, net) = numbers.split_once(',')?;
    let max = i64::try_from(EXACT_MAX).unwrap_or(i64::MAX);
    let net = net.parse::<i64>().ok()?.clamp(-max, max);
    Some((name.into(), Timestamp::from_micros(start.parse().ok()?), net))
}
