//! What a contestant implements, and the roster.

use super::cell::{
    CELLS, COMMON, Cell, DENIAL, HOT_1, HOT_2, K100_1, K100_2, M1_1, M1_2, M10_1, M10_2, Quota,
};
use super::measure::{self, Growth, Picks, Sample};
use super::peers::{Adaptive, Governor, InTurn, Limitador, Overlapping, Periodic};

/// A rate limiter with a store of its own.
///
/// Everything is generic over it and nothing goes through a `dyn`: the compiler sees the peer's
/// call inside the loop, as it would in a user's program.
pub(crate) trait Contestant: Sync + Sized {
    /// Hits per id when memory is measured: one, except for logs.
    const HITS_PER_ID: usize = 1;

    /// A fresh store. `ids` is the number of ids to come, for contestants that need a capacity.
    fn new(quota: Quota, ids: usize) -> Self;

    /// One check at cost 1: whether it was admitted.
    ///
    /// `&String` and not `&str`, because governor looks up by reference to its key type.
    #[allow(clippy::ptr_arg)]
    fn check(&self, id: &String) -> bool;

    /// The timed part: `checks` checks on random ids. Returns the number of admissions.
    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..checks {
            admitted += usize::from(self.check(picks.next()));
        }
        admitted
    }

    /// Hit number `hit` on an id, when memory is measured.
    #[allow(clippy::ptr_arg)]
    fn fill(&self, id: &String, _hit: usize) -> bool {
        self.check(id)
    }

    /// Reports an inconsistency between the contestant's own counts and the checks made.
    fn audit(&self, _done: &Done) -> Result<(), String> {
        Ok(())
    }
}

/// All checks made on a contestant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// Distinct ids.
    pub(crate) ids: usize,
    /// Checks, untimed ones included.
    pub(crate) checks: usize,
}

/// The base of all ratios.
pub(crate) const BASE: &str = "governor";

/// A contestant of the roster.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Runs one cell; only ever called in a child.
    pub(crate) speed: fn(&Cell, usize) -> Result<Sample, String>,
    /// Fills one store; only ever called in a child.
    pub(crate) memory: fn(usize) -> Result<Growth, String>,
    /// Cells it runs in.
    pub(crate) cells: &'static [Cell],
    /// How its memory is measured.
    pub(crate) fills: Fills,
    /// Whether it limits anything; if not, it has no ratio.
    pub(crate) limits: bool,
    /// Divisor of the number of checks, for slow contestants.
    pub(crate) slowdown: usize,
    /// Maximum number of ids.
    pub(crate) ids_max: usize,
}

/// How a contestant's memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fills {
    /// Not at all.
    Never,
    /// With millions of ids.
    Millions,
    /// With 100 thousand ids that each have a long log.
    Logs,
}

/// Everyone.
pub(crate) fn all() -> Vec<Entry> {
    let reads: &[Cell] = &[HOT_1, HOT_2, K100_1, K100_2, M1_1, M1_2, M10_1, M10_2];
    let peers = [
        Entry { cells: reads, limits: false, ..Entry::new::<Overlapping>("read-id-only") },
        Entry { cells: reads, limits: false, ..Entry::new::<InTurn>("read-id-in-turn") },
        Entry { fills: Fills::Millions, ..Entry::new::<Adaptive>("throttlecrab-adaptive") },
        Entry { fills: Fills::Millions, ..Entry::new::<Periodic>("throttlecrab-periodic") },
        Entry {
            // A million ids take ten seconds; ten million would take 11 GB.
            cells: &[HOT_1, HOT_2, K100_1, K100_2, DENIAL, M1_1],
            fills: Fills::Millions,
            slowdown: 4,
            ids_max: 1_000_000,
            ..Entry::new::<Limitador>("limitador")
        },
        // The last of the peers, so that it runs right before ours.
        Entry { cells: &CELLS, fills: Fills::Millions, ..Entry::new::<Governor>(BASE) },
    ];
    peers.into_iter().chain(super::ours::entries()).collect()
}

// === impl Entry ===

impl Entry {
    /// A contestant that runs in every common cell, without a measurement of memory.
    pub(crate) fn new<C: Contestant>(name: &'static str) -> Self {
        Self {
            name,
            speed: measure::cell::<C>,
            memory: measure::fill::<C>,
            cells: &COMMON,
            fills: Fills::Never,
            limits: true,
            slowdown: 1,
            ids_max: usize::MAX,
        }
    }

    /// Whether it runs in this cell.
    pub(crate) fn runs_in(&self, cell: &Cell) -> bool {
        cell.ids <= self.ids_max && self.cells.iter().any(|other| other.name == cell.name)
    }
}
