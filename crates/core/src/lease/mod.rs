//! Leases: what nodes have bought ahead of one identity's limits, to decide without asking, and what its record remembers of that.
//!
//! A lease is charged to every limit when it is bought. From then on the store does not know when it is used, only until when at the
//! latest; so it counts as used at the latest moment that is possible:
//!
//! ```text
//!   level
//!   burst |          ________________           a bucket of which 4 are leased refills to burst − 4,
//!       4 |--.  .---'                :\.---     and when that lease has run out, it is as if the 4 had been
//!         |  '--' leased             : until    taken at that very moment
//!         +---------------------------------> time
//! ```
//!
//! Hence level + outstanding <= burst at any time, and in any span no more is admitted than burst + rate × time, whoever admits it and
//! whenever: what is held when the span begins is in use by then, and everything else is charged within the span. What is leased of a
//! window has to be used in that window, where it makes no difference when.
//!
//! Greedy token buckets, fixed and sliding windows can be leased ([`Limit::is_leasable`](crate::limit::Limit::is_leasable)).

mod limit;

use crate::arithmetic::{cut_amount, muldiv};
use crate::time::{CLOCK_SLACK, Span, Timestamp};
use std::num::NonZeroU64;

/// The most nodes that hold leases of one identity at a time.
pub const CELLS_MAX: usize = 64;
/// The longest that a lease lasts. Whoever asks for more gets this.
pub const TTL_MAX: Span = Span::from_secs(600);
/// The most that a demand counts for when nodes share what there is.
pub const WEIGHT_MAX: u64 = 1 << 40;

/// What one node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseCell {
    /// The node.
    pub node: u64,
    /// The last of its calls that was heard. An older one changes nothing.
    pub serial: u64,
    /// The most that it may still hold.
    pub amount: u64,
    /// How much it asked for.
    pub weight: u64,
    /// From when on it holds nothing any more.
    pub until: Timestamp,
}

/// What all nodes hold, those first who hold it for the shortest time.
///
/// ```
/// use sluicegate_core::lease::{LeaseCell, Leases};
/// use sluicegate_core::time::Timestamp;
///
/// let until = |s: u64| Timestamp::from_micros(s * 1_000_000);
/// let cell = |node, amount, s| LeaseCell { node, serial: 1, amount, weight: 1, until: until(s) };
/// let leases = Leases::of([cell(7, 20, 9), cell(8, 5, 3)]).unwrap();
/// assert_eq!([2, 3, 9].map(|s| leases.outstanding(until(s))), [25, 20, 0]);
/// assert_eq!(Leases::of([cell(7, 20, 9), cell(7, 5, 3)]), None, "one node, one cell");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leases(Vec<LeaseCell>);

/// What a node says and asks for in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseWish {
    /// The node.
    pub node: u64,
    /// Higher than that of its calls before.
    pub serial: u64,
    /// How much it gives back.
    pub give: u64,
    /// How much it holds after that.
    pub hold: u64,
    /// How much it wants beyond that.
    pub want: u64,
    /// For how long.
    pub ttl: Span,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    /// It was heard.
    Granted(Grant),
    /// A later call was heard already. Nothing has changed.
    Stale,
    /// A limit of the plan cannot be leased. Nothing has changed.
    Unfit,
}

/// What a node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// So many more.
    pub granted: u64,
    /// Until when they, and what it holds, may be used; this moment not included.
    pub until: Timestamp,
    /// Whether what it holds is still worth something.
    pub kept: bool,
    /// Whether something was given back.
    pub gave_back: bool,
    /// What is left for all.
    pub left: u64,
}

// === impl Leases ===

impl Leases {
    /// These cells; `None` if there are too many, or a node has two.
    #[must_use]
    pub fn of(cells: impl IntoIterator<Item = LeaseCell>) -> Option<Self> {
        let mut leases = Self::default();
        for cell in cells {
            let is_known = leases.0.iter().any(|known| known.node == cell.node);
            (!is_known && leases.0.len() < CELLS_MAX).then_some(())?;
            leases.put(cell);
        }
        Some(leases)
    }

    /// The cells, by their ends.
    #[must_use]
    pub fn cells(&self) -> &[LeaseCell] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What all nodes together may still hold at `now`.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> u64 {
        let live = self.0.iter().filter(|cell| cell.until > now);
        live.fold(0, |sum, cell| cut_amount(sum.saturating_add(cell.amount)))
    }

    /// The end of each cell, the last first, and what all nodes may hold just before it.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.0.iter().rev().scan(0u64, |held, cell| {
            *held = cut_amount(held.saturating_add(cell.amount));
            Some((cell.until, *held))
        })
    }

    /// The cell of a node, if it has not run out.
    pub(crate) fn of_node(&self, node: u64, now: Timestamp) -> Option<&LeaseCell> {
        self.0.iter().find(|cell| cell.node == node && cell.until > now)
    }

    /// Takes away the cell of a node.
    pub(crate) fn take(&mut self, node: u64) -> Option<LeaseCell> {
        let place = self.0.iter().position(|cell| cell.node == node)?;
        Some(self.0.remove(place))
    }

    /// Puts a cell where it belongs.
    pub(crate) fn put(&mut self, cell: LeaseCell) {
        let order = |cell: &LeaseCell| (cell.until, cell.node);
        let place = self.0.partition_point(|before| order(before) < order(&cell));
        self.0.insert(place, cell);
    }

    /// Whether there is no room for another node.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= CELLS_MAX
    }

    /// What `want` is granted of what there is: half of it, shared by demand.
    pub(crate) fn share(&self, room: u64, want: u64) -> u64 {
        let own = want.min(WEIGHT_MAX);
        let all = self.0.iter().fold(own, |sum, cell| sum.saturating_add(cell.weight));
        // A record that we did not write may say anything; what we write is far below the bound.
        let all = cut_amount(all.saturating_mul(2));
        NonZeroU64::new(all).map_or(0, |all| muldiv(room, own, all).quotient.min(want))
    }

    /// After a clock was set back: nobody holds anything for longer than a lease may last.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        let latest = now.after(TTL_MAX);
        if self.0.last().is_some_and(|last| last.until > latest.after(CLOCK_SLACK)) {
            for cell in std::mem::take(&mut self.0) {
                self.put(LeaseCell { until: cell.until.min(latest), ..cell });
            }
        }
    }

    /// Drops what has run out.
    pub(crate) fn bury(&mut self, now: Timestamp) {
        self.0.retain(|cell| cell.until > now);
    }

    /// Of each node what was heard last, here or there.
    pub(crate) fn join(&mut self, seen: &Self) {
        for cell in &seen.0 {
            match self.0.iter().find(|own| own.node == cell.node) {
                Some(own) if own.serial >= cell.serial => continue,
                None if self.is_full() => continue,
                _ => {}
            }
            self.take(cell.node);
            self.put(*cell);
        }
    }
}
