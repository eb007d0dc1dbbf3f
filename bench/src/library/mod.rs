//! What is going to be measured: which contestants in which cells, how often and how long.

use anyhow::bail;

use crate::args::Args;
use crate::cell::{CELLS, Cell, FAMILIES, K100_1};
use crate::results::MemoryKey;
use crate::roster::{self, BASE, Entry, Fills};

/// Users in the measurement of logs.
pub(crate) const LOG_USERS: usize = 100_000;

/// The whole of a run.
pub(crate) struct Plan {
    /// How often every contestant runs every cell.
    pub(crate) rounds: u32,
    /// Who runs in which cells, family by family.
    pub(crate) families: Vec<Vec<Turn>>,
    /// Whose memory is measured, with how many ids.
    pub(crate) fills: Vec<(Entry, MemoryKey)>,
    length: Length,
}

/// One contestant in the cells of one family.
pub(crate) struct Turn {
    /// Who.
    pub(crate) entry: Entry,
    /// Where.
    pub(crate) cells: Vec<Cell>,
}

/// How much time there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Quick,
    Usual,
    Full,
}

// === impl Plan ===

impl Plan {
    /// What the command line asks for.
    pub(crate) fn from_args(args: &Args) -> anyhow::Result<Self> {
        let length = Length::from_args(args);
        let everyone = roster::all();
        let takes_part = |entry: &Entry, cell: &Cell| {
            length.has(cell) && entry.runs_in(cell) && length.affords(entry, cell)
        };
        let mut families = Vec::new();
        for family in FAMILIES {
            let cells = CELLS.into_iter().filter(|cell| cell.family == family);
            let chosen: Vec<(Cell, Vec<Entry>)> = cells
                .map(|cell| {
                    let able = |entry: &Entry| takes_part(entry, &cell);
                    (cell, chosen(&everyone, cell.name, &args.only, able))
                })
                .collect();
            families.push(turns(&everyone, &chosen));
        }
        let mut fills = Vec::new();
        for &(name, ids, kind) in length.fills() {
            let takes_part = |entry: &Entry| entry.fills == kind && ids <= entry.ids_max;
            for entry in chosen(&everyone, name, &args.only, takes_part) {
                fills.push((entry, MemoryKey { cell: name, ids, contestant: entry.name }));
            }
        }
        if families.iter().all(Vec::is_empty) && fills.is_empty() {
            let names: Vec<_> = everyone.iter().map(|entry| entry.name).collect();
            bail!(
                "nothing to measure is called `{}`: a name is a cell ({}, memory-1M, memory-10M, \
                 memory-log) and a contestant ({}), as `100k/1 governor`; 10 million ids need `--full`",
                args.only.join("`, `"),
                CELLS.map(|cell| cell.name).join(", "),
                names.join(", "),
            );
        }
        Ok(Self { rounds: args.rounds.unwrap_or(length.rounds()), families, fills, length })
    }

    /// Timed checks per thread.
    pub(crate) fn checks(&self, cell: &Cell, entry: &Entry) -> usize {
        let quicker = if self.length == Length::Quick { 5 } else { 1 };
        cell.checks / quicker / entry.slower
    }

    /// How many children will be started.
    pub(crate) fn steps(&self) -> usize {
        let cells: usize = self.families.iter().flatten().map(|turn| turn.cells.len()).sum();
        cells * self.rounds as usize + self.fills.len()
    }
}

/// From who runs in a cell to which cells somebody runs in.
fn turns(everyone: &[Entry], chosen: &[(Cell, Vec<Entry>)]) -> Vec<Turn> {
    let cells_of = |entry: &Entry| {
        let has = |entries: &[Entry]| entries.iter().any(|other| other.name == entry.name);
        chosen.iter().filter(|(_, entries)| has(entries)).map(|(cell, _)| *cell).collect()
    };
    let turns = everyone.iter().map(|entry| Turn { entry: *entry, cells: cells_of(entry) });
    turns.filter(|turn| !turn.cells.is_empty()).collect()
}

/// Those who take part in a cell and were asked for, and with them the base, since all ratios are to it.
fn chosen(
    everyone: &[Entry],
    cell: &str,
    only: &[String],
    takes_part: impl Fn(&Entry) -> bool,
) -> Vec<Entry> {
    let asked = |entry: &Entry| {
        let name = format!("{cell} {}", entry.name);
        only.is_empty() || only.iter().any(|text| name.contains(text.as_str()))
    };
    let able: Vec<&Entry> = everyone.iter().filter(|entry| takes_part(entry)).collect();
    // The base alone is nothing to compare, unless it was asked for.
    let alone = only.is_empty() && able.iter().all(|entry| entry.name == BASE);
    if alone || !able.iter().any(|entry| asked(entry)) {
        return Vec::new();
    }
    able.into_iter().filter(|entry| asked(entry) || entry.name == BASE).copied().collect()
}

// === impl Length ===

impl Length {
    fn from_args(args: &Args) -> Self {
        match (args.quick, args.full) {
            (true, _) => Self::Quick,
            (_, true) => Self::Full,
            _ => Self::Usual,
        }
    }

    fn rounds(self) -> u32 {
        if self == Self::Quick { 3 } else { 5 }
    }

    /// Whether there is time for this cell.
    fn has(self, cell: &Cell) -> bool {
        match cell.ids {
            10_000_000 => self == Self::Full,
            1_000_000 => self != Self::Quick || cell.threads == 1,
            _ => true,
        }
    }

    /// Whether there is time to show this contestant all ids of the cell in every round.
    fn affords(self, entry: &Entry, cell: &Cell) -> bool {
        self != Self::Quick || entry.slower == 1 || cell.ids == 1 || cell.name == K100_1.name
    }

    fn fills(self) -> &'static [(&'static str, usize, Fills)] {
        const FILLS: [(&str, usize, Fills); 3] = [
            ("memory-1M", 1_000_000, Fills::Millions),
            ("memory-log", LOG_USERS, Fills::Logs),
            ("memory-10M", 10_000_000, Fills::Millions),
        ];
        match self {
            Self::Quick => &FILLS[..1],
            Self::Usual => &FILLS[..2],
            Self::Full => &FILLS,
        }
    }
}
