//! What nodes have counted by themselves, told to each other through the store.
//!
//! A hash for each identity has a field for each node, which only that node writes; one for each window, with the sum over all nodes; and `epoch`, which a reset raises:
//!
//! ```text
//!   epoch                     3
//!   9f1c2ab4d0e75566          60000000=<over>,<start>,<admitted>,<refunded back>,<start before>,<admitted>,<refunded back> Europe/Berlin/day=…
//!   60000000=<start>          <admitted and not refunded back>,<over>
//! ```
//!
//! A series is told by the length of its windows (or by their calendar) and not by the limit that counts in it: a limit whose number changes goes on with
//! what was counted, one whose length changes begins anew. A node's numbers of a window only rise, so two accounts of it are merged by the greater ones: a push
//! that comes late, twice or not at all changes nothing that a later one does not. What a push adds to a node's field it adds to the sum, in the same script;
//! so others hear of it at a price that does not depend on how many nodes there are. What is `over` is dropped when somebody comes to a new window.
//!
//! A call is told the time (or nothing, for the store's own), the node, and for each key what to do, an epoch, and what the node has counted. It answers the time, and
//! for each key the epoch, the node's own field if all was looked at, and how much all others have admitted in each of those windows: `60000000=<start>,<net>`.
//! A push of an epoch that is over is not taken.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use redis::Value;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::time::Timestamp;

use super::call::{Call, CallError, Script};
use super::store::Store;

/// The most keys of one call. With more of them it holds the store up for longer, and is not cheaper.
pub(crate) const KEYS_MAX: usize = 32;

static SYNC: Script = Script::new(include_str!("sync.lua"));

/// What is told of one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncRequest {
    pub(crate) key: Arc<[u8]>,
    pub(crate) op: SyncOp,
    pub(crate) epoch: u64,
    pub(crate) counted: Vec<SeriesCounts>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncOp {
    /// Hear what others have counted in any window, and what this node had.
    PullAll,
    /// Hear what others have counted in these windows.
    Pull,
    /// Tell what was counted, and hear what others have.
    Push,
    /// Forget what everybody has counted.
    Reset,
}

/// What a node has counted in the last two windows of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesCounts {
    pub(crate) name: Arc<str>,
    /// From when on this is of no use.
    pub(crate) over: Timestamp,
    pub(crate) current: WindowCounts,
    /// The one before, or one that begins with the epoch.
    pub(crate) previous: WindowCounts,
}

/// What was counted in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WindowCounts {
    pub(crate) start: Timestamp,
    pub(crate) admitted: u64,
    /// Of what was admitted, here or elsewhere.
    pub(crate) refunded: u64,
}

/// What was heard of one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncReply {
    /// By the store's clock.
    pub(crate) at: Timestamp,
    pub(crate) epoch: u64,
    /// What this node has counted, if it asked for it.
    pub(crate) own: Vec<SeriesCounts>,
    /// What all others have admitted and not refunded back, by series and start of the window.
    pub(crate) others: Vec<(Box<str>, Timestamp, i64)>,
}

// === impl Store ===

impl Store {
    /// Tells and hears of some identities, which can be asked together.
    pub(crate) async fn sync(&self, pushes: &[SyncRequest]) -> Result<Vec<SyncReply>, CallError> {
        let script_time =
            self.script_time().map_or_else(String::new, |now| now.as_micros().to_string());
        let mut args = vec![script_time.into_bytes(), format!("{:016x}", self.node()).into_bytes()];
        for push in pushes {
            args.push(push.op.sign().to_vec());
            args.push(push.epoch.to_string().into_bytes());
            args.push(text(&push.counted).into_bytes());
        }
        let keys = pushes.iter().map(|push| push.key.to_vec()).collect();
        let said = self.link().call(&Call { script: &SYNC, keys, args }).await?;
        heard(said, pushes.len())
            .ok_or_else(|| CallError::Refused("what it said of counts is no answer".into()))
    }
}

// === impl SyncOp ===

impl SyncOp {
    const fn sign(self) -> &'static [u8] {
        match self {
            Self::PullAll => b"*",
            Self::Pull => b"?",
            Self::Push => b"+",
            Self::Reset => b"!",
        }
    }
}

fn text(counted: &[SeriesCounts]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for SeriesCounts { name, over, current, previous } in counted {
        let gap = if text.is_empty() { "" } else { " " };
        // A string takes whatever is written.
        let _ = write!(text, "{gap}{name}={}", over.as_micros());
        for WindowCounts { start, admitted, refunded } in [current, previous] {
            let _ = write!(text, ",{},{admitted},{refunded}", start.as_micros());
        }
    }
    text
}

fn heard(said: Value, keys: usize) -> Option<Vec<SyncReply>> {
    let Value::Array(said) = said else { return None };
    let mut said = said.into_iter();
    let Some(Value::Int(now)) = said.next() else { return None };
    let at = Timestamp::from_micros(u64::try_from(now).ok()?);
    let all: Option<Vec<SyncReply>> = said.map(|one| heard_of_one(one, at)).collect();
    all.filter(|all| all.len() == keys)
}

fn heard_of_one(said: Value, at: Timestamp) -> Option<SyncReply> {
    let Value::Array(said) = said else { return None };
    let [Value::Int(epoch), Value::BulkString(own), Value::BulkString(others)] = said.as_slice()
    else {
        return None;
    };
    // Corrupt fields count as nothing: the reply holds other identities too.
    let (own, others) = (String::from_utf8_lossy(own), String::from_utf8_lossy(others));
    Some(SyncReply {
        at,
        epoch: u64::try_from(*epoch).unwrap_or(0),
        own: own.split_ascii_whitespace().filter_map(own_of).collect(),
        others: others.split_ascii_whitespace().filter_map(others_of).collect(),
    })
}

fn own_of(text: &str) -> Option<SeriesCounts> {
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

fn others_of(text: &str) -> Option<(Box<str>, Timestamp, i64)> {
    let (name, numbers) = text.split_once('=')?;
    let (start, net) = numbers.split_once(',')?;
    let most = i64::try_from(EXACT_MAX).unwrap_or(i64::MAX);
    let net = net.parse::<i64>().ok()?.clamp(-most, most);
    Some((name.into(), Timestamp::from_micros(start.parse().ok()?), net))
}
