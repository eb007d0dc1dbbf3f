//! Operations on the limits of an identity, and which algorithms refuse them.

use crate::algorithm::concurrency::Holder;
use crate::limit::Limit;
use crate::time::Span;

/// Default TTL of a reservation.
pub const RESERVE_TTL: Span = Span::from_secs(60);

/// An operation on the limits of one identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Charges the cost if it may pass now.
    Hit {
        /// The weight of the request.
        cost: u64,
        /// The holder of the slot, for a concurrency limit.
        holder: Option<Holder>,
    },
    /// As a hit, but may wait: books its turn ahead.
    Acquire {
        /// The weight of the request.
        cost: u64,
        /// Maximum wait.
        max_wait: Span,
        /// The id to cancel it by, and the holder of a slot.
        holder: Option<Holder>,
    },
    /// Whether this cost would pass now; nothing changes.
    Peek {
        /// The weight of the request.
        cost: u64,
    },
    /// Takes as much as possible, up to the cost.
    Take {
        /// Maximum amount.
        cost: u64,
    },
    /// Charges, into debt if need be.
    Charge {
        /// The amount used.
        cost: u64,
    },
    /// Refunds, at most until full.
    Refund {
        /// The amount not used.
        cost: u64,
    },
    /// A refund that may go beyond the capacity.
    Add {
        /// The amount added.
        cost: u64,
        /// Whether it may go beyond the capacity.
        force: bool,
    },
    /// Takes the remaining quota.
    Drain,
    /// Fills the limit.
    Reset,
    /// As a hit, to be settled or cancelled later.
    Reserve {
        /// The estimate.
        cost: u64,
        /// Time until it is cancelled automatically.
        ttl: Span,
        /// The id to settle it by.
        holder: Holder,
    },
    /// Settles a reservation with the actual cost.
    Commit {
        /// The actual cost.
        cost: u64,
        /// The id of the reservation.
        holder: Holder,
    },
    /// Makes a part of a reservation final; the rest stays reserved, and slots stay held.
    CommitPart {
        /// The amount used since the last commit.
        cost: u64,
        /// The id of the reservation.
        holder: Holder,
    },
    /// Restarts the deadline of a reservation and the leases of its slots. A booking becomes a
    /// reservation.
    Renew {
        /// Time until it is cancelled automatically.
        ttl: Span,
        /// The id of the reservation, booking or slot.
        holder: Holder,
    },
    /// Cancels a booking or a reservation, or frees a slot.
    Cancel {
        /// The id of the booking, reservation or slot.
        holder: Holder,
    },
}

/// An operation by its name alone: the rows of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// [`Op::Hit`]
    Hit,
    /// [`Op::Acquire`]
    Acquire,
    /// [`Op::Peek`]
    Peek,
    /// [`Op::Take`]
    Take,
    /// [`Op::Charge`]
    Charge,
    /// [`Op::Refund`]
    Refund,
    /// [`Op::Add`] within the capacity
    Add,
    /// [`Op::Add`] beyond it
    ForceAdd,
    /// [`Op::Drain`]
    Drain,
    /// [`Op::Reset`]
    Reset,
    /// [`Op::Reserve`] and [`Op::Renew`]
    Reserve,
    /// [`Op::Commit`] and [`Op::CommitPart`]
    Commit,
    /// [`Op::Cancel`]
    Cancel,
    /// A live change of the limit ([`Limit::carry`])
    SetLimit,
}

/// Why an operation was refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The algorithm does not support it.
    Unsupported {
        /// The operation.
        op: OpKind,
        /// The algorithm.
        algorithm: &'static str,
        /// Why not, and what to do instead.
        reason: &'static str,
    },
    /// A slot needs an id, and none was given.
    NeedsHolder,
    /// Nothing is held under this id.
    UnknownHolder,
    /// Something is held under this id already.
    HolderInUse,
    /// Only a reservation can be committed; this is a booking or a slot.
    NotReserved,
    /// The reservation has expired and was refunded.
    Expired,
    /// Too many bookings and reservations are pending.
    TooManyHolds {
        /// Maximum number.
        max: usize,
    },
}

impl Op {
    /// Whether the operation changes no identity and creates none.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Peek { .. }
                | Self::Hit { cost: 0, .. }
                | Self::Acquire { cost: 0, holder: None, .. }
                | Self::Take { cost: 0 }
                | Self::Charge { cost: 0 }
                | Self::Refund { cost: 0 }
                | Self::Add { cost: 0, .. }
        )
    }

    /// Its cost; 0 if it has none.
    ///
    /// ```
    /// use sluicegate_core::op::Op;
    ///
    /// assert_eq!(Op::Charge { cost: 7 }.cost(), 7);
    /// assert_eq!(Op::Drain.cost(), 0);
    /// ```
    #[must_use]
    pub const fn cost(&self) -> u64 {
        match self {
            Self::Hit { cost, .. }
            | Self::Acquire { cost, .. }
            | Self::Peek { cost }
            | Self::Take { cost }
            | Self::Charge { cost }
            | Self::Refund { cost }
            | Self::Add { cost, .. }
            | Self::Reserve { cost, .. }
            | Self::Commit { cost, .. }
            | Self::CommitPart { cost, .. } => *cost,
            Self::Drain | Self::Reset | Self::Renew { .. } | Self::Cancel { .. } => 0,
        }
    }

    /// The kind of operation.
    #[must_use]
    pub const fn kind(&self) -> OpKind {
        match self {
            Self::Hit { .. } => OpKind::Hit,
            Self::Acquire { .. } => OpKind::Acquire,
            Self::Peek { .. } => OpKind::Peek,
            Self::Take { .. } => OpKind::Take,
            Self::Charge { .. } => OpKind::Charge,
            Self::Refund { .. } => OpKind::Refund,
            Self::Add { force: false, .. } => OpKind::Add,
            Self::Add { force: true, .. } => OpKind::ForceAdd,
            Self::Drain => OpKind::Drain,
            Self::Reset => OpKind::Reset,
            Self::Reserve { .. } | Self::Renew { .. } => OpKind::Reserve,
            Self::Commit { .. } | Self::CommitPart { .. } => OpKind::Commit,
            Self::Cancel { .. } => OpKind::Cancel,
        }
    }
}

impl OpKind {
    /// All of them, in the order of the documentation's matrix.
    pub const ALL: [Self; 14] = [
        Self::Hit,
        Self::Peek,
        Self::Acquire,
        Self::Take,
        Self::Charge,
        Self::Refund,
        Self::Add,
        Self::ForceAdd,
        Self::Drain,
        Self::Reset,
        Self::Reserve,
        Self::Commit,
        Self::Cancel,
        Self::SetLimit,
    ];

    /// The name of the operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Acquire => "acquire",
            Self::Peek => "peek",
            Self::Take => "take",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Add => "add",
            Self::ForceAdd => "add with force",
            Self::Drain => "drain",
            Self::Reset => "reset",
            Self::Reserve => "reserve",
            Self::Commit => "commit",
            Self::Cancel => "cancel",
            Self::SetLimit => "set_limit",
        }
    }
}

impl Limit {
    /// Why this limit refuses an operation, if it does.
    ///
    /// ```
    /// use sluicegate_core::algorithm::concurrency::Concurrency;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::op::OpKind;
    /// use sluicegate_core::time::Span;
    ///
    /// let slots = Limit::Concurrency(Concurrency::new(3, Span::from_secs(10)).unwrap());
    /// assert!(slots.refuses(OpKind::Charge).is_some());
    /// assert!(slots.refuses(OpKind::Cancel).is_none());
    /// ```
    #[must_use]
    pub const fn refuses(&self, op: OpKind) -> Option<&'static str> {
        match (self, op) {
            (
                Self::Concurrency(_),
                OpKind::Take
                | OpKind::Charge
                | OpKind::Refund
                | OpKind::Add
                | OpKind::ForceAdd
                | OpKind::Drain,
            ) => Some("a slot is held under an id; use `hit` with `id`, and `cancel` to free it"),
            (
                Self::SlidingLog(_) | Self::SlidingWindow(_) | Self::SlidingSlices(_),
                OpKind::ForceAdd,
            ) => Some("a count cannot go below zero; raise the limit with `set_limit`"),
            (Self::LeakyBucket(_), OpKind::ForceAdd) => {
                Some("an empty queue cannot grow; raise `queue` with `set_limit`")
            }
            (Self::SmoothBursty(_) | Self::WarmUp(_), OpKind::ForceAdd) => {
                Some("stored permits have a fixed maximum; raise it with `set_limit`")
            }
            (Self::Tally(_), OpKind::ForceAdd) => {
                Some("a count cannot go below zero; raise the limit with `set_limit`")
            }
            (Self::Tally(_), OpKind::Acquire) => Some(
                "every hit counts when it comes, so a turn cannot be booked; use `hit`, or a fixed window",
            ),
            (Self::Tally(_), OpKind::Reserve | OpKind::Commit | OpKind::Cancel) => Some(
                "every hit counts when it comes and is not settled later; use `hit`, and `refund` the unused part",
            ),
            _ => None,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported { op, algorithm, reason } => {
                write!(f, "`{algorithm}` refuses `{}`: {reason}", op.name())
            }
            Self::NeedsHolder => {
                f.write_str("a slot of a `concurrency` limit is held under an id: add `id`")
            }
            Self::UnknownHolder => f.write_str(
                "nothing is held under this id: it was never issued, is settled, or its lease expired",
            ),
            Self::HolderInUse => {
                f.write_str("this id is in use: settle or cancel it first, or choose another")
            }
            Self::NotReserved => {
                f.write_str("only a reservation can be committed: use `reserve` first")
            }
            Self::Expired => f.write_str("the reservation has expired: reserve again"),
            Self::TooManyHolds { max } => {
                write!(f, "`{max}` bookings and reservations are pending, the maximum")
            }
        }
    }
}

impl std::error::Error for Refusal {}
