//! Lua scripts: their arguments, replies, and the core that replays them.
//!
//! - `request`, `reply`: hits, charges and refunds. `decide.lua` decides, writes, and reports time
//!   and state; the core derives the whole answer from that.
//! - `optimistic`: every other operation, and records that the script does not support (another
//!   revision of the limits, an expired reservation, a clock that went back): read, apply with the
//!   core, and write by compare-and-swap.
//! - `lease`: a node acquires quota ahead, to decide on its own. One script, replayed by the core.
//!
//! The format of records is described in [`sluicegate_core::record`].

mod lease;
mod optimistic;
mod reply;
mod request;
mod rule;
mod sync;

pub(crate) use lease::{LeaseOutcome, LeaseRequest, decode_lease, encode_lease};
pub(crate) use optimistic::{
    Applied, OptimisticError, OptimisticPart, OptimisticUpdates, UpdatedRecord,
};
pub(crate) use reply::{BadReply, DISAGREEMENTS, ScriptAnswer, ScriptOutcome, decode};
pub(crate) use request::{ScriptOp, ScriptPart, ScriptRequest, encode, keys_of};
pub(crate) use rule::{RuleRegistry, RuleScripts, ScriptRule};
pub(crate) use sluicegate::backend::Combine;
pub(crate) use sync::{KEYS_MAX, SeriesCounts, SyncOp, SyncReply, SyncRequest, WindowCounts};

use crate::call::{Call, Script};
use crate::envoy::REFUND;
use crate::store::HEARTBEAT;

/// Decides requests. Each file depends on those before it.
static DECIDE: Script = Script::new(concat!(
    include_str!("lua/arithmetic.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/periodic.lua"),
    include_str!("lua/log.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/record.lua"),
    include_str!("lua/call.lua"),
    include_str!("lua/fast_path.lua"),
    include_str!("lua/decide.lua"),
));

/// Executes lease requests.
static LEASE: Script = Script::new(concat!(
    include_str!("lua/arithmetic.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/periodic.lua"),
    include_str!("lua/record.lua"),
    include_str!("lua/call.lua"),
    include_str!("lua/lease.lua"),
));

/// Calls that load all scripts and do nothing else: a script does nothing without keys.
pub(crate) fn loading_calls() -> impl Iterator<Item = Call> {
    let bare = |script| Call { script, keys: Vec::new(), args: Vec::new() };
    let others = [&READ, &SWAP, &sync::SYNC, &rule::PUBLISH, &rule::FIND, &HEARTBEAT, &REFUND];
    [encode(&[], None), encode_lease(&[], None)].into_iter().chain(others.map(bare))
}

/// Reads whole records.
static READ: Script = Script::new(include_str!("lua/read.lua"));

/// Writes records by compare-and-swap.
static SWAP: Script = Script::new(include_str!("lua/swap.lua"));

#[cfg(test)]
mod tests;
