//! Limits that are a list: every hit, or the hits of every window.

use sluicegate_core::algorithm::sliding_window::Rounding;

use super::{Model, first};
use crate::support::Fraction;

/// Every hit, remembered for ever.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) windows: Vec<(u64, u64)>,
    pub(crate) min_gap: u64,
    /// The length of a slice: a hit stands at its end. 0 without slices.
    pub(crate) slice: u64,
    /// When, and how much.
    pub(crate) hits: Vec<(u64, u64)>,
}

impl Ledger {
    pub(crate) fn new(windows: Vec<(u64, u64)>, min_gap: u64) -> Self {
        Self { windows, min_gap, slice: 0, hits: Vec::new() }
    }

    /// The window of slices, all whole microseconds.
    pub(crate) fn of_slices(max: u64, window: u64, slices: u64) -> Self {
        let slice = window.div_ceil(slices);
        Self { slice, ..Self::new(vec![(max, slice * slices)], 0) }
    }

    fn stands_at(&self, at: u64) -> u64 {
        at.checked_div(self.slice).map_or(at, |slice| (slice + 1) * self.slice)
    }

    fn held(&self, window: u64, now: u64) -> u64 {
        let counts = |&&(then, _): &&(u64, u64)| then + window > now;
        self.hits.iter().filter(counts).map(|&(_, cost)| cost).sum()
    }

    /// Whether the gap after the latest hit is over; that one may be a booking ahead.
    fn gap_over(&self, now: u64) -> bool {
        let mut hits = self.hits.iter();
        self.min_gap == 0 || hits.all(|&(then, _)| then + self.min_gap <= now)
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        let mut windows = self.windows.iter();
        self.gap_over(now) && windows.all(|&(max, window)| self.held(window, now) + cost <= max)
    }
}

impl Model for Ledger {
    fn largest(&self, _now: u64) -> Option<u64> {
        self.windows.iter().map(|&(max, _)| max).min()
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        first(now, |t| self.fits(cost, t)).expect("room some day")
    }

    fn charge(&mut self, cost: u64, turn: u64, _now: u64) {
        if cost > 0 {
            self.hits.push((self.stands_at(turn), cost));
            self.hits.sort_by_key(|&(then, _)| then);
        }
    }

    /// The newest first: what is given back was most likely taken last. A booking is not: it has not
    /// been used, and is cancelled.
    fn give(&mut self, amount: u64, now: u64) {
        let mut rest = amount;
        let now = self.stands_at(now);
        for (_, cost) in self.hits.iter_mut().rev().filter(|(then, _)| *then <= now) {
            let back = rest.min(*cost);
            *cost -= back;
            rest -= back;
        }
        self.hits.retain(|&(_, cost)| cost > 0);
    }

    fn give_beyond(&mut self, _amount: u64, _now: u64) {
        unreachable!("refused");
    }

    fn strike(&mut self, cost: u64, turn: u64) {
        let index = self.hits.iter().position(|&hit| hit == (self.stands_at(turn), cost));
        self.hits.remove(index.expect("a booking that was made"));
    }

    fn fill(&mut self, _now: u64) {
        self.hits.clear();
    }

    fn left(&self, now: u64) -> i128 {
        let left =
            |&(max, window): &(u64, u64)| i128::from(max) - i128::from(self.held(window, now));
        self.windows.iter().map(left).min().expect("a window")
    }

    fn is_full(&self, now: u64) -> bool {
        self.windows.iter().all(|&(_, window)| self.held(window, now) == 0)
    }

    fn debt_decisions(&self, now: u64) -> bool {
        self.left(now) < 0
    }

    fn available(&self, now: u64) -> u64 {
        if !self.gap_over(now) {
            return 0;
        }
        self.left(now).max(0) as u64
    }
}

/// Counts per window, weighed by their overlap in exact fractions.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    pub(crate) max: u64,
    pub(crate) window: u64,
    pub(crate) rounding: Rounding,
    /// (window index, hits in it)
    counts: Vec<(u64, u64)>,
    /// Nothing passes before the window of a booking: it was counted ahead.
    booked_until: u64,
}

impl Counts {
    pub(crate) fn new(max: u64, window: u64, rounding: Rounding) -> Self {
        Self { max, window, rounding, counts: Vec::new(), booked_until: 0 }
    }

    fn count(&self, index: u64) -> i128 {
        let here = self.counts.iter().filter(|(i, _)| *i == index);
        here.map(|&(_, n)| i128::from(n)).sum()
    }

    fn estimate(&self, now: u64) -> i128 {
        let (index, into) = (now / self.window, now % self.window);
        let previous = index.checked_sub(1).map_or(0, |before| self.count(before));
        let overlap = Fraction::new((self.window - into).into(), self.window.into());
        let estimate = overlap.times(previous).plus(Fraction::whole(self.count(index)));
        match self.rounding {
            Rounding::Floor => estimate.floor(),
            Rounding::Up => estimate.ceil(),
        }
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        now >= self.booked_until && self.estimate(now) + i128::from(cost) <= self.max.into()
    }
}

impl Model for Counts {
    fn largest(&self, _now: u64) -> Option<u64> {
        Some(self.max)
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        first(now, |t| self.fits(cost, t)).expect("room some day")
    }

    fn charge(&mut self, cost: u64, turn: u64, now: u64) {
        let index = turn.max(self.booked_until).max(now) / self.window;
        self.counts.push((index, cost));
        if index > now / self.window {
            self.booked_until = index * self.window;
        }
    }

    /// From the current window first, then from the one before; bookings are not refunded.
    fn give(&mut self, amount: u64, now: u64) {
        let index = now / self.window;
        let mut rest = amount;
        for at in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let here = self.counts.iter_mut().filter(|(i, _)| *i == at);
            for (_, count) in here {
                let back = rest.min(*count);
                *count -= back;
                rest -= back;
            }
        }
    }

    fn give_beyond(&mut self, _amount: u64, _now: u64) {
        unreachable!("refused");
    }

    fn fill(&mut self, _now: u64) {
        self.counts.clear();
        self.booked_until = 0;
    }

    fn left(&self, now: u64) -> i128 {
        i128::from(self.max) - self.estimate(now.max(self.booked_until))
    }

    fn is_full(&self, now: u64) -> bool {
        now >= self.booked_until && self.estimate(now) == 0
    }

    fn debt_decisions(&self, now: u64) -> bool {
        now < self.booked_until || self.estimate(now) > self.max.into()
    }

    fn drains(&self, now: u64) -> u64 {
        self.available(now)
    }

    fn available(&self, now: u64) -> u64 {
        if now < self.booked_until { 0 } else { self.left(now).max(0) as u64 }
    }
}
