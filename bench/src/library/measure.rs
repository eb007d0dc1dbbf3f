//! The measurements of one contestant: the time of a cell, and the memory of many ids.

use std::fmt::Write as _;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Expected, MANY, Order, WARM_UP};
use super::contestant::{Contestant, Done};
use crate::frame::Reading;
use crate::machine::{ThreadTime, resident, resident_peak};

/// Times of a cell.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// From the first start to the last end, per check of *one* thread.
    pub(crate) wall_ns: f64,
    /// CPU time of all threads, per check of all threads.
    pub(crate) cpu_ns: f64,
    /// Share of the time that threads were runnable without a CPU.
    pub(crate) waited: f64,
    /// Timed checks per thread.
    pub(crate) checks: usize,
    /// Time per hit while filling.
    pub(crate) fill_ns: f64,
}

/// Share of waiting above which a reading is disturbed.
const WAITED_MAX: f64 = 0.05;

impl Reading for Sample {
    fn is_disturbed(&self) -> bool {
        self.waited > WAITED_MAX
    }
}

/// The timed part of one thread.
struct Lap {
    start: Instant,
    end: Instant,
    time: ThreadTime,
    /// Of the timed checks.
    admitted: usize,
}

/// Measures a cell: fill, warm up, time. A wrong answer is an error.
pub(crate) fn cell<C: Contestant>(cell: &Cell, checks: usize) -> Result<Sample, String> {
    let quota = cell.quota();
    let ids = build_ids(cell.ids);
    let contestant = C::new(quota, cell.ids);

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
    // Ids hit once must not have expired.
    if cell.ids > 1 && began.elapsed() >= quota.period {
        return Err("filling and running took longer than the period".to_owned());
    }

    let all = cell.threads * checks;
    let expected = if cell.expected == Expected::Admission { all } else { 0 };
    let admitted: usize = laps.iter().map(|lap| lap.admitted).sum();
    if admitted != expected {
        return Err(format!("{admitted} of {all} checks were admitted, {expected} were expected"));
    }
    contestant.audit(&Done { ids: ids.len(), checks: hits + all + cell.threads * WARM_UP })?;

    let wall = span(&laps);
    let waited: Duration = laps.iter().map(|lap| lap.time.waited).sum();
    Ok(Sample {
        wall_ns: per(wall, checks),
        cpu_ns: per(laps.iter().map(|lap| lap.time.on_cpu).sum(), all),
        waited: waited.as_secs_f64() / (wall.as_secs_f64() * cell.threads as f64),
        checks,
        fill_ns: per(fill, hits),
    })
}

/// Runs all threads; a single thread runs in the same way.
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

/// Never inlined: `callgrind.sh` counts instructions inside this function.
#[inline(never)]
fn timed<C: Contestant>(contestant: &C, picks: &mut Picks<'_>, checks: usize) -> Lap {
    let before = ThreadTime::read();
    let start = Instant::now();
    let admitted = contestant.run(picks, checks);
    let end = Instant::now();
    Lap { start, end, time: ThreadTime::read().since(before), admitted }
}

/// From the first start to the last end.
fn span(laps: &[Lap]) -> Duration {
    let start = laps.iter().map(|lap| lap.start).min();
    let end = laps.iter().map(|lap| lap.end).max();
    start.zip(end).map(|(start, end)| end - start).unwrap_or_default()
}

fn per(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

// === memory ===

/// Growth of memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// Inserted ids.
    pub(crate) ids: usize,
    /// Hits of each id.
    pub(crate) hits_per_id: usize,
    /// Growth of resident bytes.
    pub(crate) bytes: u64,
    /// The same at the peak.
    pub(crate) peak_bytes: u64,
    /// Wall time per hit, with the formatting of the id.
    pub(crate) hit_ns: f64,
}

impl Reading for Growth {}

/// Inserts ids into a fresh store. The ids share one buffer, so that only the store grows.
pub(crate) fn fill<C: Contestant>(ids: usize) -> Result<Growth, String> {
    let mut id = String::with_capacity(ID_LENGTH);
    let before = resident(std::process::id()).map_err(|error| format!("{error:#}"))?;
    let began = Instant::now();
    let contestant = C::new(MANY, ids);
    let mut admitted = 0;
    // All ids once, then all once more: logs grow in turn.
    for hit in 0..C::HITS_PER_ID {
        for number in 0..ids {
            write_id(&mut id, number);
            admitted += usize::from(contestant.fill(&id, hit));
        }
    }
    let took = began.elapsed();
    let after = resident(std::process::id()).map_err(|error| format!("{error:#}"))?;
    let peak = resident_peak().map_err(|error| format!("{error:#}"))?;

    let hits = ids * C::HITS_PER_ID;
    if admitted != hits {
        return Err(format!("{admitted} of {hits} hits were admitted"));
    }
    contestant.audit(&Done { ids, checks: hits })?;
    Ok(Growth {
        ids,
        hits_per_id: C::HITS_PER_ID,
        bytes: after.saturating_sub(before),
        peak_bytes: peak.saturating_sub(before),
        hit_ns: took.as_nanos() as f64 / hits as f64,
    })
}

// === ids ===

/// `user:` and twelve digits.
const ID_LENGTH: usize = 17;

/// Ids in a cheap random order: a xorshift inlined in the timed loop. The cost of reading an id
/// (two cache misses) is shown by the rows without a limiter.
#[derive(Debug)]
pub(crate) struct Picks<'a> {
    ids: &'a [String],
    state: u64,
    order: Order,
    index: usize,
}

/// The ids of a cell.
pub(crate) fn build_ids(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| {
            let mut id = String::with_capacity(ID_LENGTH);
            write_id(&mut id, number);
            id
        })
        .collect()
}

/// Replaces the buffer with an id.
fn write_id(buffer: &mut String, number: usize) {
    buffer.clear();
    // Writing to a String cannot fail.
    let _ = write!(buffer, "user:{number:012}");
}

// === impl Picks ===

impl<'a> Picks<'a> {
    pub(crate) fn new(ids: &'a [String], seed: u64, order: Order) -> Self {
        Self { ids, state: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), order, index: 0 }
    }

    /// The next id.
    #[inline]
    pub(crate) fn next(&mut self) -> &'a String {
        if self.order == Order::InTurn {
            self.index = if self.index + 1 < self.ids.len() { self.index + 1 } else { 0 };
            return &self.ids[self.index];
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // The high word of the product is uniform below the length, without a division.
        let index = (u128::from(self.state) * self.ids.len() as u128) >> 64;
        &self.ids[index as usize]
    }

    /// Makes the next pick depend on a value.
    #[inline]
    pub(crate) fn stir(&mut self, by: u64) {
        self.state ^= by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_length() {
        let ids = build_ids(1_001);
        assert!(ids.iter().all(|id| id.len() == ID_LENGTH));
        assert_eq!(ids[1_000], "user:000000001000");
    }

    #[test]
    fn every_id_is_asked_for_about_as_often() {
        let ids = build_ids(1_000);
        let mut seen = vec![0u32; ids.len()];
        let mut picks = Picks::new(&ids, 7, Order::Random);
        for _ in 0..100_000 {
            let number: usize = picks.next()[5..].parse().unwrap();
            seen[number] += 1;
        }
        assert!(seen.iter().all(|&times| (50..=150).contains(&times)), "{seen:?}");
    }
}
