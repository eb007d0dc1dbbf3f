//! Who takes part, and in what.

use crate::cell::{
    CELLS, COMMON, Cell, DENIAL, HOT_1, HOT_2, K100_1, K100_2, M1_1, M1_2, M10_1, M10_2,
};
use crate::contestant::Contestant;
use crate::contestants::governor::Governor;
use crate::contestants::limitador::Limitador;
use crate::contestants::read_id::{InTurn, Overlapping};
use crate::contestants::throttlecrab::{Adaptive, Periodic};
use crate::one_cell::{self, Sample};
use crate::one_fill::{self, Growth};

/// The one that all ratios are to.
pub(crate) const BASE: &str = "governor";

/// A contestant as the schedule sees it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// How it is called everywhere.
    pub(crate) name: &'static str,
    /// Runs one cell; only ever called in a child.
    pub(crate) speed: fn(&Cell, usize) -> Result<Sample, String>,
    /// Fills one store; only ever called in a child.
    pub(crate) memory: fn(usize) -> Result<Growth, String>,
    /// Which cells it runs in.
    pub(crate) cells: &'static [Cell],
    /// How its memory is measured.
    pub(crate) fills: Fills,
    /// Whether it limits anything; if not, a ratio would say nothing.
    pub(crate) limits: bool,
    /// It runs so many times fewer checks than the others, being that much slower.
    pub(crate) slower: usize,
    /// The most ids it is run with.
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
            // Showing it a million ids takes ten seconds; ten million would take 11 GB.
            cells: &[HOT_1, HOT_2, K100_1, K100_2, DENIAL, M1_1],
            fills: Fills::Millions,
            slower: 4,
            ids_max: 1_000_000,
            ..Entry::new::<Limitador>("limitador")
        },
        // The last of the peers, so that it runs right before ours.
        Entry { cells: &CELLS, fills: Fills::Millions, ..Entry::new::<Governor>(BASE) },
    ];
    peers.into_iter().chain(ours()).collect()
}

#[cfg(feature = "ours")]
fn ours() -> Vec<Entry> {
    crate::ours::entries()
}

#[cfg(not(feature = "ours"))]
fn ours() -> Vec<Entry> {
    Vec::new()
}

// === impl Entry ===

impl Entry {
    /// Runs in every common cell; its memory is not measured.
    pub(crate) fn new<C: Contestant>(name: &'static str) -> Self {
        Self {
            name,
            speed: one_cell::run::<C>,
            memory: one_fill::run::<C>,
            cells: &COMMON,
            fills: Fills::Never,
            limits: true,
            slower: 1,
            ids_max: usize::MAX,
        }
    }

    /// Whether it runs in this cell.
    pub(crate) fn runs_in(&self, cell: &Cell) -> bool {
        cell.ids <= self.ids_max && self.cells.iter().any(|other| other.name == cell.name)
    }
}
