//! The memory store beside its peers: time per check, throughput of two threads, bytes per id.
//!
//! A contestant runs the cells of a family in one go (two threads right after one, denials right
//! after admissions), then the next contestant does.

mod algorithms;
mod cell;
mod contestant;
mod measure;
mod ours;
mod peers;
mod report;

use anyhow::{Context as _, anyhow, bail};

use crate::frame::{self, Report, Row, Schedule};
use crate::{Common, child};
use cell::{CELLS, Cell, K100_1};
use contestant::{BASE, Entry, Fills};
use measure::{Growth, Sample};

/// Options of `library`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Also 10 million ids: 2 GB, and a quarter of an hour more
    #[arg(long, conflicts_with = "quick")]
    full: bool,
}

/// Users in the measurement of logs.
const LOG_USERS: usize = 100_000;

const FILLS: [(&str, usize, Fills); 3] = [
    ("memory-1M", 1_000_000, Fills::Millions),
    ("memory-log", LOG_USERS, Fills::Logs),
    ("memory-10M", 10_000_000, Fills::Millions),
];

/// Length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Quick,
    Usual,
    Full,
}

pub(crate) fn run(common: &Common, args: &Args) -> anyhow::Result<Report> {
    let length = match (common.quick, args.full) {
        (true, _) => Length::Quick,
        (_, true) => Length::Full,
        _ => Length::Usual,
    };
    let everyone = contestant::all();
    let mut cells: Vec<(Cell, Entry)> = Vec::new();
    for cell in CELLS {
        let able = |entry: &Entry| {
            length.has(&cell) && entry.runs_in(&cell) && length.affords(entry, &cell)
        };
        cells.extend(
            chosen(common, &everyone, cell.name, able).into_iter().map(|entry| (cell, entry)),
        );
    }
    let mut fills: Vec<(&str, usize, Entry)> = Vec::new();
    for &(name, ids, kind) in length.fills() {
        let able = |entry: &Entry| entry.fills == kind && ids <= entry.ids_max;
        fills.extend(
            chosen(common, &everyone, name, able).into_iter().map(|entry| (name, ids, entry)),
        );
    }
    if cells.is_empty() && fills.is_empty() {
        if common.only.is_empty() {
            bail!("nothing to measure");
        }
        let names: Vec<_> = everyone.iter().map(|entry| entry.name).collect();
        bail!(
            "no row is named `{}`: a name is a cell ({}, memory-1M, memory-10M, memory-log) and a \
             contestant ({}), as `100k/1 governor`; 10 million ids need `--full`",
            common.only.join("`, `"),
            CELLS.map(|cell| cell.name).join(", "),
            names.join(", "),
        );
    }
    let rounds = common.rounds.unwrap_or(if length == Length::Quick { 3 } else { 5 });
    let rows = cells.iter().map(|(cell, entry)| {
        Row::<Sample>::new(cell.name, entry.name)
            .scheduled(format!("{:?}", cell.family), entry.name)
    });
    let speed = frame::run(rows.collect(), Schedule { rounds, attempts: 1 }, |index| {
        let (cell, entry) = &cells[index];
        let checks = cell.checks / if length == Length::Quick { 5 } else { 1 } / entry.slowdown;
        child::run(&["one-cell", entry.name, cell.name, &checks.to_string()])
    });
    // Memory hardly varies: once is enough.
    let rows = fills.iter().map(|(name, _, entry)| Row::<Growth>::new(*name, entry.name));
    let memory = frame::run(rows.collect(), Schedule { rounds: 1, attempts: 1 }, |index| {
        let (_, ids, entry) = &fills[index];
        child::run(&["one-fill", entry.name, &ids.to_string()])
    });
    Ok(report::report(report::Results { speed, memory }))
}

/// The selected contestants of a cell, and with them the base of all ratios.
fn chosen(
    common: &Common,
    everyone: &[Entry],
    cell: &str,
    able: impl Fn(&Entry) -> bool,
) -> Vec<Entry> {
    let selected = |entry: &Entry| common.selects(&format!("{cell} {}", entry.name));
    let able: Vec<&Entry> = everyone.iter().filter(|entry| able(entry)).collect();
    // The base alone is nothing to compare, unless it was selected by name.
    let alone = common.only.is_empty() && able.iter().all(|entry| entry.name == BASE);
    let none = alone || !able.iter().any(|entry| selected(entry));
    let mut chosen: Vec<Entry> = able.into_iter().copied().collect();
    chosen.retain(|entry| !none && (selected(entry) || entry.name == BASE));
    chosen
}

/// The child's side: one contestant in one cell.
pub(crate) fn measure_cell(contestant: &str, cell: &str, checks: usize) -> anyhow::Result<()> {
    let cell = CELLS.into_iter().find(|one| one.name == cell);
    let cell = cell.context("there is no such cell")?;
    child::print(&(entry(contestant)?.speed)(&cell, checks).map_err(|wrong| anyhow!(wrong))?)
}

/// The child's side: the memory of one contestant.
pub(crate) fn measure_fill(contestant: &str, ids: usize) -> anyhow::Result<()> {
    child::print(&(entry(contestant)?.memory)(ids).map_err(|wrong| anyhow!(wrong))?)
}

fn entry(name: &str) -> anyhow::Result<Entry> {
    let found = contestant::all().into_iter().find(|entry| entry.name == name);
    found.with_context(|| format!("there is no contestant `{name}`"))
}

// === impl Length ===

impl Length {
    /// Whether there is time for a cell.
    fn has(self, cell: &Cell) -> bool {
        match cell.ids {
            10_000_000 => self == Self::Full,
            1_000_000 => self != Self::Quick || cell.threads == 1,
            _ => true,
        }
    }

    /// Whether there is time to fill a contestant with all ids of the cell in every round.
    fn affords(self, entry: &Entry, cell: &Cell) -> bool {
        self != Self::Quick || entry.slowdown == 1 || cell.ids == 1 || cell.name == K100_1.name
    }

    fn fills(self) -> &'static [(&'static str, usize, Fills)] {
        match self {
            Self::Quick => &FILLS[..1],
            Self::Usual => &FILLS[..2],
            Self::Full => &FILLS,
        }
    }
}
