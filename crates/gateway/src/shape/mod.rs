//! Shaping: requests over their limit wait for a turn instead of being denied.
//!
//! ```text
//!   denied ── queue of the limit that denies ── first: books a turn ── turn: the first one goes
//!                   │                                │
//!                   └ leaves with its client         └ another limit denies: its queue
//! ```
//!
//! Only the first request of a queue has a turn booked in the counters, shortly before it comes. So
//! a client that goes away costs nobody a turn: a turn that is booked goes to the request that is
//! first then. Nodes that share counters have one booking each, and take turns.

mod queues;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use self::queues::{CounterKey, Queues};
pub(crate) use self::wait::{Shaping, Waited, denying_limit};
