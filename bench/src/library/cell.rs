//! The cells: how many ids, how many threads, and which answer is meant.

use std::time::Duration;

/// What many ids are given. One hit is remembered for a minute, longer than filling and running any cell
/// takes, so that every timed check finds a live state; and nobody is picked a thousand times.
pub(crate) const MANY: Rule = Rule { period: Duration::from_secs(60), burst: 1_000 };

/// What the hot key is given: enough for every check of two threads.
const HOT: Rule = Rule { period: Duration::from_secs(1), burst: 10_000_000 };

/// What is denied. Not a burst of 1: throttlecrab remembers a hit for `burst - 1` periods, so that with
/// a burst of 1 it remembers nothing and admits everything.
pub(crate) const SCARCE: Rule = Rule { period: Duration::from_secs(60), burst: 2 };

/// Checks that nobody times, per thread, before those that count.
pub(crate) const WARM_UP: usize = 50_000;

/// The limit every contestant is given, in its own words: one per `period`, and `burst` at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// How long one unit takes to come back.
    pub(crate) period: Duration,
    /// How many may come at once.
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

/// All of them, in the order in which a round runs them.
pub(crate) const FAMILIES: [Family; 5] =
    [Family::Hot, Family::Thousands, Family::Each, Family::Million, Family::Millions];

/// What every timed check must be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meant {
    /// Yes.
    Admission,
    /// No.
    Denial,
}

/// In which order ids are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// At random, from memory that nobody has touched for long: the bench's own reading of the id is part of what is timed,
    /// and with a million ids the greater part.
    Random,
    /// One after the other, so that the id itself is at hand when it is asked for, as in the buffer of a request that was
    /// just received. Where a store keeps it is as far away as before.
    InTurn,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// How it is called on the command line and in JSON.
    pub(crate) name: &'static str,
    /// How it is called in the table.
    pub(crate) title: &'static str,
    /// Which others it is compared with.
    pub(crate) family: Family,
    /// How many ids there are, all of them live.
    pub(crate) ids: usize,
    /// In which order they are asked for.
    pub(crate) order: Order,
    /// How many threads check at once, on the same store.
    pub(crate) threads: usize,
    /// The right answer.
    pub(crate) meant: Meant,
    /// Timed checks per thread in a default run.
    pub(crate) checks: usize,
}

pub(crate) const HOT_1: Cell = Cell {
    name: "hot/1",
    title: "one hot key",
    family: Family::Hot,
    ids: 1,
    order: Order::Random,
    threads: 1,
    meant: Meant::Admission,
    checks: 2_000_000,
};
pub(crate) const HOT_2: Cell = Cell { name: "hot/2", threads: 2, ..HOT_1 };

pub(crate) const K100_1: Cell = Cell {
    name: "100k/1",
    title: "100 thousand ids",
    family: Family::Thousands,
    ids: 100_000,
    order: Order::Random,
    threads: 1,
    meant: Meant::Admission,
    checks: 1_000_000,
};
pub(crate) const K100_2: Cell = Cell { name: "100k/2", threads: 2, ..K100_1 };
pub(crate) const DENIAL: Cell =
    Cell { name: "denial/1", title: "100 thousand ids, denied", meant: Meant::Denial, ..K100_1 };

/// Of its own, with governor once more: so many rows would put a minute between it and the last.
pub(crate) const EACH: Cell = Cell {
    name: "each/1",
    title: "100 thousand ids, each algorithm",
    family: Family::Each,
    ..K100_1
};

pub(crate) const M1_1: Cell = Cell {
    name: "1M/1",
    title: "1 million ids",
    family: Family::Million,
    ids: 1_000_000,
    ..K100_1
};
pub(crate) const M1_2: Cell = Cell { name: "1M/2", threads: 2, ..M1_1 };

pub(crate) const M10_1: Cell = Cell {
    name: "10M/1",
    title: "10 million ids",
    family: Family::Millions,
    ids: 10_000_000,
    checks: 2_000_000,
    ..K100_1
};
pub(crate) const M10_2: Cell = Cell { name: "10M/2", threads: 2, ..M10_1 };

pub(crate) const K100_TURN: Cell = Cell {
    name: "100k-in-turn/1",
    title: "100 thousand ids, each at hand",
    order: Order::InTurn,
    ..K100_1
};
pub(crate) const M1_TURN: Cell = Cell {
    name: "1M-in-turn/1",
    title: "1 million ids, each at hand",
    order: Order::InTurn,
    ..M1_1
};

/// Every cell, in the order in which the table shows them.
pub(crate) const CELLS: [Cell; 12] =
    [HOT_1, HOT_2, K100_1, K100_TURN, K100_2, DENIAL, EACH, M1_1, M1_TURN, M1_2, M10_1, M10_2];

/// Those in which everybody runs.
pub(crate) const COMMON: [Cell; 11] =
    [HOT_1, HOT_2, K100_1, K100_TURN, K100_2, DENIAL, M1_1, M1_TURN, M1_2, M10_1, M10_2];

// === impl Cell ===

impl Cell {
    /// The cell of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        CELLS.into_iter().find(|cell| cell.name == name)
    }

    /// The limit in this cell: one that never refuses, or one that filling uses up.
    pub(crate) fn rule(&self) -> Rule {
        match (self.meant, self.ids) {
            (Meant::Denial, _) => SCARCE,
            (Meant::Admission, 1) => HOT,
            (Meant::Admission, _) => MANY,
        }
    }

    /// How often every id is hit before anything is timed: until what is meant is bound to happen.
    pub(crate) fn fills(&self) -> usize {
        match self.meant {
            Meant::Admission => 1,
            Meant::Denial => self.rule().burst as usize,
        }
    }

    /// The same cell with one thread, if this one has more.
    pub(crate) fn alone(&self) -> Option<Self> {
        let kind = |cell: &Self| (cell.family, cell.meant, cell.order);
        let same = |other: &Self| kind(other) == kind(self);
        CELLS.into_iter().find(|other| self.threads > 1 && other.threads == 1 && same(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_admission_is_ever_refused() {
        for cell in CELLS.iter().filter(|cell| cell.meant == Meant::Admission) {
            let mean = cell.threads * (cell.checks + WARM_UP) / cell.ids + 1;
            // Who is picked 22 times on average is never picked 220 times.
            let most = if cell.ids == 1 { mean } else { 10 * mean };
            assert!(most < cell.rule().burst as usize, "{}", cell.name);
        }
    }
}
