//! The table of times.

use super::grid;
use crate::cell::{CELLS, Cell};
use crate::results::{CPU, Ratio, Results, SpeedKey, WALL};
use crate::roster::{self, BASE, Entry};

const HEAD: [&str; 11] = [
    "ids",
    "threads",
    "contestant",
    "ns per check",
    "min–max",
    "CPU ns",
    "waited",
    "× governor",
    "min–max",
    "× by CPU",
    "2 threads / 1",
];

/// One row for each contestant in each cell; nothing if no time was measured.
pub(crate) fn table(results: &Results) -> String {
    let everyone = roster::all();
    let mut rows = Vec::new();
    for cell in CELLS {
        rows.extend(everyone.iter().filter_map(|entry| row(results, &cell, entry)));
    }
    if rows.is_empty() { String::new() } else { grid::render(&HEAD, 3, &rows) }
}

fn row(results: &Results, cell: &Cell, entry: &Entry) -> Option<Vec<String>> {
    let contestant = entry.name;
    let key = SpeedKey { cell: cell.name, contestant };
    let base = SpeedKey { cell: cell.name, contestant: BASE };
    let wall = results.time(key, WALL)?;
    let cpu = results.time(key, CPU)?;
    let waited = results.waited(key)?;
    // Governor's time over this one's: more than 1 is faster than governor.
    let faster = |clock| results.ratio(base, key, clock).filter(|_| entry.limits);
    let (faster, faster_cpu) = (faster(WALL), faster(CPU));
    let scaling = scaling(results, cell, contestant);
    Some(vec![
        cell.title.to_owned(),
        cell.threads.to_string(),
        contestant.to_owned(),
        nanos(wall.median),
        format!("{}–{}", nanos(wall.min), nanos(wall.max)),
        nanos(cpu.median),
        format!("{:.0}%", 100.0 * waited),
        times(faster),
        faster.map_or(String::new(), |Ratio { spread, .. }| {
            format!("{:.2}–{:.2}", spread.min, spread.max)
        }),
        times(faster_cpu),
        times(scaling),
    ])
}

/// Checks per second of all threads over those of one thread alone, in the same round.
pub(crate) fn scaling(results: &Results, cell: &Cell, contestant: &'static str) -> Option<Ratio> {
    let alone = cell.alone()?;
    let together = SpeedKey { cell: cell.name, contestant };
    let alone = SpeedKey { cell: alone.name, contestant };
    let threads = cell.threads as f64;
    let Ratio { spread, disturbed } = results.ratio(alone, together, WALL)?;
    Some(Ratio { spread: spread.map(|ratio| threads * ratio), disturbed })
}

fn nanos(nanos: f64) -> String {
    if nanos < 10.0 { format!("{nanos:.1}") } else { format!("{nanos:.0}") }
}

/// With a mark if it says little.
fn times(ratio: Option<Ratio>) -> String {
    let mark = |disturbed| if disturbed { "~" } else { "" };
    ratio.map_or(String::new(), |Ratio { spread, disturbed }| {
        format!("{}{:.2}x", mark(disturbed), spread.median)
    })
}
