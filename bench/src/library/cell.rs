//! The cells: number of ids, number of threads, and the expected answer.

use std::time::Duration;

/// The quota of many ids. A hit is remembered for a minute, longer than any cell takes, so that
/// every timed check finds live state; no id is picked a thousand times.
pub(crate) const MANY: Quota = Quota { period: Duration::from_secs(60), burst: 1_000 };

/// The quota of the hot key: enough for every check of two threads.
const HOT: Quota = Quota { period: Duration::from_secs(1), burst: 10_000_000 };

/// The quota of denials. Not a burst of 1: throttlecrab remembers a hit for `burst - 1` periods, so
/// that with a burst of 1 it remembers nothing and admits everything.
pub(crate) const SCARCE: Quota = Quota { period: Duration::from_secs(60), burst: 2 };

/// Untimed checks per thread before the timed ones.
pub(crate) const WARM_UP: usize = 50_000;

/// The limit of every contestant: one per `period`, and `burst` at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

/// Cells that are compared with each other: a contestant runs all of them in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// One key.
    Hot,
    /// 100 thousand ids, admitted or denied.
    Thousands,
    /// 100 thousand ids, a row for each algorithm.
    Each,
    /// 1 million ids.
    Million,
    /// 10 million ids.
    Millions,
}

/// The expected answer of every timed check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Admission,
    Denial,
}

/// Order of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// At random, from cold memory: reading the id is part of the timed work, with a million ids
    /// the greater part.
    Random,
    /// Sequentially, so that the id itself is in the cache, as in a receive buffer. The store's
    /// copy is as cold as before.
    InTurn,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// On the command line and in JSON.
    pub(crate) name: &'static str,
    /// In the table.
    pub(crate) title: &'static str,
    pub(crate) family: Family,
    /// Live ids.
    pub(crate) ids: usize,
    pub(crate) order: Order,
    /// Threads on the same store.
    pub(crate) threads: usize,
    pub(crate) expected: Expected,
    /// Timed checks per thread in a default run.
    pub(crate) checks: usize,
}

/// Admissions of random ids by one thread.
const fn cell(
    name: &'static str,
    title: &'static str,
    family: Family,
    ids: usize,
    checks: usize,
) -> Cell {
    let (order, expected) = (Order::Random, Expected::Admission);
    Cell { name, title, family, ids, order, threads: 1, expected, checks }
}

pub(crate) const HOT_1: Cell = cell("hot/1", "one hot key", Family::Hot, 1, 2_000_000);
pub(crate) const HOT_2: Cell = Cell { name: "hot/2", threads: 2, ..HOT_1 };
pub(crate) const K100_1: Cell =
    cell("100k/1", "100 thousand ids", Family::Thousands, 100_000, 1_000_000);
pub(crate) const K100_2: Cell = Cell { name: "100k/2", threads: 2, ..K100_1 };
pub(crate) const K100_TURN: Cell = Cell {
    order: Order::InTurn,
    ..cell("100k-in-turn/1", "100 thousand ids, in turn", Family::Thousands, 100_000, 1_000_000)
};
pub(crate) const DENIAL: Cell = Cell {
    expected: Expected::Denial,
    ..cell("denial/1", "100 thousand ids, denied", Family::Thousands, 100_000, 1_000_000)
};
/// A family of its own, with governor again: so many rows would put a minute between first and
/// last.
pub(crate) const EACH: Cell =
    cell("each/1", "100 thousand ids, each algorithm", Family::Each, 100_000, 1_000_000);
pub(crate) const M1_1: Cell = cell("1M/1", "1 million ids", Family::Million, 1_000_000, 1_000_000);
pub(crate) const M1_2: Cell = Cell { name: "1M/2", threads: 2, ..M1_1 };
pub(crate) const M1_TURN: Cell = Cell {
    order: Order::InTurn,
    ..cell("1M-in-turn/1", "1 million ids, in turn", Family::Million, 1_000_000, 1_000_000)
};
pub(crate) const M10_1: Cell =
    cell("10M/1", "10 million ids", Family::Millions, 10_000_000, 2_000_000);
pub(crate) const M10_2: Cell = Cell { name: "10M/2", threads: 2, ..M10_1 };

/// Every cell, in the order of the table.
pub(crate) const CELLS: [Cell; 12] =
    [HOT_1, HOT_2, K100_1, K100_TURN, K100_2, DENIAL, EACH, M1_1, M1_TURN, M1_2, M10_1, M10_2];

/// Cells of all contestants.
pub(crate) const COMMON: [Cell; 11] =
    [HOT_1, HOT_2, K100_1, K100_TURN, K100_2, DENIAL, M1_1, M1_TURN, M1_2, M10_1, M10_2];

// === impl Cell ===

impl Cell {
    /// A quota that never denies, or one that filling exhausts.
    pub(crate) fn quota(&self) -> Quota {
        match (self.expected, self.ids) {
            (Expected::Denial, _) => SCARCE,
            (Expected::Admission, 1) => HOT,
            (Expected::Admission, _) => MANY,
        }
    }

    /// Hits per id before the timed part: until the expected answer is certain.
    pub(crate) fn fills(&self) -> usize {
        match self.expected {
            Expected::Admission => 1,
            Expected::Denial => self.quota().burst as usize,
        }
    }

    /// The same cell with one thread, if this one has more.
    pub(crate) fn alone(&self) -> Option<Self> {
        let kind = |cell: &Self| (cell.family, cell.expected, cell.order);
        let same = |other: &Self| kind(other) == kind(self);
        CELLS.into_iter().find(|other| self.threads > 1 && other.threads == 1 && same(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_admission_is_ever_refused() {
        for cell in CELLS.iter().filter(|cell| cell.expected == Expected::Admission) {
            let mean = cell.threads * (cell.checks + WARM_UP) / cell.ids + 1;
            // An id picked 22 times on average is never picked 220 times.
            let max = if cell.ids == 1 { mean } else { 10 * mean };
            assert!(max < cell.quota().burst as usize, "{}", cell.name);
        }
    }
}
