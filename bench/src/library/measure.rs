//! One contestant in one cell: fill, warm up, time, and see that the answers were the right ones.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Meant, WARM_UP};
use crate::contestant::{Contestant, Done};
use crate::ids::{self, Picks};
use crate::thread_time::ThreadTime;

/// What was measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// From the first thread's start to the last one's end, over the checks of *one* thread.
    pub(crate) wall_ns: f64,
    /// CPU time of all threads over the checks of all threads.
    pub(crate) cpu_ns: f64,
    /// The share of the time that a thread was ready to run and had no CPU, the mean of all threads.
    pub(crate) waited: f64,
    /// Timed checks per thread.
    pub(crate) checks: usize,
    /// Time per hit while filling.
    pub(crate) fill_ns: f64,
}

/// A reading whose threads were kept waiting for longer than this share of it was disturbed.
const WAITED_MAX: f64 = 0.05;

// === impl Sample ===

impl Sample {
    /// Whether others were at work on the same CPUs.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.waited > WAITED_MAX
    }
}

/// One thread's part.
struct Lap {
    start: Instant,
    end: Instant,
    time: ThreadTime,
    /// Of the timed checks.
    admitted: usize,
}

/// Measures `C` in `cell` with so many timed checks per thread; a wrong answer is an error.
pub(crate) fn run<C: Contestant>(cell: &Cell, checks: usize) -> Result<Sample, String> {
    let rule = cell.rule();
    let ids = ids::build(cell.ids);
    let contestant = C::new(rule, cell.ids);

    let began = Instant::now();
    let hits = cell.fills() * ids.len();
    let mut filled = 0;
    for _ in 0..cell.fills() {
        filled += ids.iter().filter(|id| contestant.check(id)).count();
    }
    let fill = began.elapsed();
    if filled != hits {
        return Err(format!("{filled} of {hits} hits were admitted while filling"));
    }

    let laps = race(&contestant, &ids, cell, checks);
    // The hot key is hit all the time; the others were hit once, and must not have been forgotten.
    if cell.ids > 1 && began.elapsed() >= rule.period {
        return Err("filling and running took longer than a hit is remembered".to_owned());
    }

    let all = cell.threads * checks;
    let meant = if cell.meant == Meant::Admission { all } else { 0 };
    let admitted: usize = laps.iter().map(|lap| lap.admitted).sum();
    if admitted != meant {
        return Err(format!("{admitted} of {all} checks were admitted, {meant} were meant"));
    }
    contestant.audit(&Done { ids: ids.len(), checks: hits + all + cell.threads * WARM_UP })?;

    let wall = span(&laps);
    let waited: Duration = laps.iter().map(|lap| lap.time.kept_waiting).sum();
    Ok(Sample {
        wall_ns: per(wall, checks),
        cpu_ns: per(laps.iter().map(|lap| lap.time.on_cpu).sum(), all),
        waited: waited.as_secs_f64() / (wall.as_secs_f64() * cell.threads as f64),
        checks,
        fill_ns: per(fill, hits),
    })
}

/// All threads at once. One thread runs in the same way, so that the two differ in nothing but company.
fn race<C: Contestant>(contestant: &C, ids: &[String], cell: &Cell, checks: usize) -> Vec<Lap> {
    let threads = cell.threads;
    let start = Barrier::new(threads);
    let lap = |seed| {
        let mut picks = Picks::new(ids, seed, cell.order);
        contestant.run(&mut picks, WARM_UP);
        start.wait();
        timed(contestant, &mut picks, checks)
    };
    thread::scope(|scope| {
        let lap = &lap;
        let runners: Vec<_> =
            (0..threads as u64).map(|seed| scope.spawn(move || lap(seed))).collect();
        runners.into_iter().map(|runner| runner.join().expect("no contestant panics")).collect()
    })
}

/// The timed part. Never inlined: `callgrind.sh` counts only what happens inside a function of this name.
#[inline(never)]
fn timed<C: Contestant>(contestant: &C, picks: &mut Picks<'_>, checks: usize) -> Lap {
    let before = ThreadTime::read();
    let start = Instant::now();
    let admitted = contestant.run(picks, checks);
    let end = Instant::now();
    Lap { start, end, time: ThreadTime::read().since(before), admitted }
}

/// From the first start to the last end: a thread that finished early does not flatter the other.
fn span(laps: &[Lap]) -> Duration {
    let start = laps.iter().map(|lap| lap.start).min();
    let end = laps.iter().map(|lap| lap.end).max();
    start.zip(end).map(|(start, end)| end - start).unwrap_or_default()
}

fn per(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}
