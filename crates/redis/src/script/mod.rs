//! The scripts: what they are told, what they say, and what a node makes of it.
//!
//! - *The short way* (`ask`, `told`): hits, charges and refunds are decided by `decide.lua`, which writes, and tells the time and
//!   what it found. The node does the same to what was found, with the core, and so has the whole answer.
//! - *The long way* (`long`): read, apply, write if nobody else has written meanwhile. For every other operation, and whenever something is
//!   out of the ordinary: limits of another revision, a reservation that has run out, a clock that was set back.
//!
//! - *Lease calls* (`lease`): a node buys ahead, holds and gives back what it then decides on alone. Also one script, which the core repeats.
//!
//! What lies in the store is described in [`sluicegate_core::record`].

mod lease;
mod optimistic;
mod reply;
mod request;
mod rule;

pub(crate) use lease::{LeaseOutcome, LeaseRequest, decode_lease, encode_lease};
pub(crate) use optimistic::{
    Applied, Changed, OptimisticError, OptimisticPart, absorb, apply, change,
    decide_optimistically, forget, look, reassert, renew,
};
pub(crate) use reply::{BadReply, DISAGREEMENTS, ScriptAnswer, ScriptOutcome, decode};
pub(crate) use request::{Combine, ScriptOp, ScriptPart, ScriptRequest, encode, keys_of};
pub(crate) use rule::{RuleRegistry, RuleScripts, ScriptRule};

use super::call::{Call, Script};

/// Decides asks: the parts build on each other in this order.
static DECIDE: Script = Script::new(concat!(
    include_str!("lua/arithmetic.lua"),
    include_str!("lua/steady.lua"),
    include_str!("lua/stepped.lua"),
    include_str!("lua/log.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/record.lua"),
    include_str!("lua/call.lua"),
    include_str!("lua/quick.lua"),
    include_str!("lua/decide.lua"),
));

/// Hears lease calls.
static LEASE: Script = Script::new(concat!(
    include_str!("lua/arithmetic.lua"),
    include_str!("lua/steady.lua"),
    include_str!("lua/stepped.lua"),
    include_str!("lua/record.lua"),
    include_str!("lua/call.lua"),
    include_str!("lua/lease.lua"),
));

/// Calls of the request path's scripts that touch no key and change nothing: they load the scripts.
pub(crate) fn idle_calls() -> [Call; 4] {
    let bare = |script| Call { script, keys: Vec::new(), args: Vec::new() };
    [encode(&[], None), encode_lease(&[], None), bare(&READ), bare(&SWAP)]
}

/// Reads records whole.
static READ: Script = Script::new(include_str!("lua/read.lua"));

/// Writes records that nobody has changed since.
static SWAP: Script = Script::new(include_str!("lua/swap.lua"));

#[cfg(test)]
mod tests;
