//! Tables and bars of the library.

use serde_json::json;

use super::LOG_USERS;
use super::cell::{
    CELLS, Cell, DENIAL, HOT_1, HOT_2, K100_1, K100_2, K100_TURN, M1_1, M1_TURN, M10_1,
};
use super::contestant::{self, BASE, Entry};
use super::measure::{Growth, Sample};
use crate::bars::{self, Bar, Goal};
use crate::frame::{self, Report, Statistic};
use crate::table;

/// `Limiter::hit` with the clock, the remainder and a listener: the headline.
pub(crate) const OURS: &str = "ours";
pub(crate) const GIVEN_NOW: &str = "ours-given-now";
pub(crate) const BATCH_16: &str = "ours-batch-16";
pub(crate) const TOKEN_BUCKET: &str = "ours-token_bucket";
pub(crate) const FIXED_WINDOW: &str = "ours-fixed_window";
pub(crate) const SLIDING_WINDOW: &str = "ours-sliding_window";
pub(crate) const SLIDING_LOG: &str = "ours-sliding_log";

/// Times by cell and contestant, and memory.
pub(super) struct Results {
    pub(super) speed: frame::Results<Sample>,
    pub(super) memory: frame::Results<Growth>,
}

const WALL: fn(&Sample) -> f64 = |sample| sample.wall_ns;
const CPU: fn(&Sample) -> f64 = |sample| sample.cpu_ns;

const BARS: [Bar<Results>; 21] = [
    faster("hot key, 1 thread", 1.0, |all| all.faster(&HOT_1, OURS)),
    faster("hot key, 2 threads", 1.0, |all| all.faster(&HOT_2, OURS)),
    faster("100k ids", 1.3, |all| all.faster(&K100_1, OURS)),
    faster("1M ids", 1.3, |all| all.faster(&M1_1, OURS)),
    faster("100k ids, given now", 1.8, |all| all.faster(&K100_1, GIVEN_NOW)),
    faster("1M ids, given now", 1.8, |all| all.faster(&M1_1, GIVEN_NOW)),
    faster("100k ids, batches of 16", 2.0, |all| all.faster(&K100_1, BATCH_16)),
    faster("1M ids, batches of 16", 2.0, |all| all.faster(&M1_1, BATCH_16)),
    faster("100k ids in turn", 1.3, |all| all.faster(&K100_TURN, OURS)),
    faster("1M ids in turn", 1.3, |all| all.faster(&M1_TURN, OURS)),
    faster("100k ids in turn, given now", 1.8, |all| all.faster(&K100_TURN, GIVEN_NOW)),
    faster("1M ids in turn, given now", 1.8, |all| all.faster(&M1_TURN, GIVEN_NOW)),
    faster("100k ids in turn, batches of 16", 2.0, |all| all.faster(&K100_TURN, BATCH_16)),
    faster("1M ids in turn, batches of 16", 2.0, |all| all.faster(&M1_TURN, BATCH_16)),
    faster("100k ids, 2 threads over 1", 1.7, |all| all.scaling(&K100_2, OURS)),
    Bar::new("given now, 10M ids over 100k", Goal::AtMost(3.0), "x", |all| {
        all.speed.ratio((M10_1.name, GIVEN_NOW), (K100_1.name, GIVEN_NOW), WALL)
    }),
    // Not more expensive; five percent are noise.
    Bar::new("denial over admission", Goal::AtMost(1.05), "x", |all| {
        all.speed.ratio((DENIAL.name, OURS), (K100_1.name, OURS), WALL)
    }),
    memory("MB per 1M ids, token bucket", 32.0, |all| all.megabytes(1_000_000, TOKEN_BUCKET)),
    memory("MB per 1M ids, fixed window", 32.0, |all| all.megabytes(1_000_000, FIXED_WINDOW)),
    memory("MB per 1M ids, sliding window", 56.0, |all| all.megabytes(1_000_000, SLIDING_WINDOW)),
    memory("MB of 100k logs of 500", 250.0, |all| all.megabytes(LOG_USERS, SLIDING_LOG)),
];

const fn faster(
    name: &'static str,
    least: f64,
    measured: fn(&Results) -> Option<Statistic>,
) -> Bar<Results> {
    Bar::new(name, Goal::AtLeast(least), "x", measured)
}

const fn memory(
    name: &'static str,
    max: f64,
    measured: fn(&Results) -> Option<Statistic>,
) -> Bar<Results> {
    Bar::new(name, Goal::AtMost(max), " MB", measured)
}

pub(super) fn report(results: Results) -> Report {
    let outcomes = bars::outcomes(&BARS, &results);
    let peers = format!("; {}", results.speed.machine.peers());
    let mut text = results.speed.heading(&peers);
    for part in [results.speed_table(), results.memory_table(), bars::list(&outcomes)] {
        if !part.is_empty() {
            text.push_str(&format!("\n{part}"));
        }
    }
    let Results { speed, memory } = results;
    let memory = memory.report(String::new(), json!({}), &[]);
    let mut report = speed.report(text, json!({}), &outcomes);
    report.json["memory"] = memory.json["rows"].clone();
    report.failures.extend(memory.failures);
    report
}

// === impl Results ===

impl Results {
    /// Governor's time over a contestant's: above 1 is faster than governor.
    fn faster(&self, cell: &Cell, contestant: &str) -> Option<Statistic> {
        self.speed.ratio((cell.name, BASE), (cell.name, contestant), WALL)
    }

    /// Checks per second of all threads over those of one thread, in the same round.
    fn scaling(&self, cell: &Cell, contestant: &str) -> Option<Statistic> {
        let alone = cell.alone()?;
        let ratio = self.speed.ratio((alone.name, contestant), (cell.name, contestant), WALL)?;
        Some(ratio.map(|ratio| cell.threads as f64 * ratio))
    }

    fn megabytes(&self, ids: usize, contestant: &str) -> Option<Statistic> {
        let row =
            self.memory.rows.iter().find(|row| {
                row.name == contestant && row.readings().any(|growth| growth.ids == ids)
            });
        row?.statistic(|growth| growth.bytes as f64 / 1e6)
    }

    fn speed_table(&self) -> String {
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
        let everyone = contestant::all();
        let mut rows = Vec::new();
        for cell in CELLS {
            rows.extend(everyone.iter().filter_map(|entry| self.speed_row(&cell, entry)));
        }
        if rows.is_empty() { String::new() } else { table::render(&HEAD, 3, &rows) }
    }

    fn speed_row(&self, cell: &Cell, entry: &Entry) -> Option<Vec<String>> {
        let row = self.speed.row(cell.name, entry.name)?;
        let base = self.speed.row(cell.name, BASE).filter(|_| entry.limits);
        let (wall, cpu) = (row.statistic(WALL)?.spread, row.statistic(CPU)?.spread);
        let waited: f64 = row.readings().map(|sample| sample.waited).sum();
        let waited = waited / row.readings().count() as f64;
        let faster = |clock| base.and_then(|base| base.ratio(row, clock));
        let (by_wall, by_cpu) = (faster(WALL), faster(CPU));
        Some(vec![
            cell.title.to_owned(),
            cell.threads.to_string(),
            entry.name.to_owned(),
            nanos(wall.median),
            format!("{}–{}", nanos(wall.min), nanos(wall.max)),
            nanos(cpu.median),
            format!("{:.0}%", 100.0 * waited),
            times(by_wall),
            by_wall.map_or(String::new(), |one| {
                format!("{:.2}–{:.2}", one.spread.min, one.spread.max)
            }),
            times(by_cpu),
            times(self.scaling(cell, entry.name)),
        ])
    }

    fn memory_table(&self) -> String {
        const HEAD: [&str; 7] = [
            "contestant",
            "ids",
            "hits each",
            "bytes per id",
            "MB",
            "MB at the peak",
            "ns per hit",
        ];
        let row = |name: &str, growth: &Growth| {
            vec![
                name.to_owned(),
                growth.ids.to_string(),
                growth.hits_per_id.to_string(),
                format!("{:.0}", growth.bytes as f64 / growth.ids as f64),
                format!("{:.1}", growth.bytes as f64 / 1e6),
                format!("{:.1}", growth.peak_bytes as f64 / 1e6),
                format!("{:.0}", growth.hit_ns),
            ]
        };
        let rows = self.memory.rows.iter().flat_map(|one| {
            one.readings().map(|growth| row(&one.name, growth)).collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() { String::new() } else { table::render(&HEAD, 1, &rows) }
    }
}

fn nanos(nanos: f64) -> String {
    if nanos < 10.0 { format!("{nanos:.1}") } else { format!("{nanos:.0}") }
}

/// A ratio, marked if there was no undisturbed round.
fn times(ratio: Option<Statistic>) -> String {
    let mark = |disturbed| if disturbed { "~" } else { "" };
    ratio.map_or(String::new(), |one| format!("{}{:.2}x", mark(one.disturbed), one.spread.median))
}
