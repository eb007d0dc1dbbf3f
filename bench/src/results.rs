//! Everything that was measured, and how two things compare: round by round, then the middle of that.

use std::collections::BTreeMap;

use crate::one_cell::Sample;
use crate::one_fill::Growth;
use crate::stats::Spread;

/// Who, where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpeedKey {
    /// The cell's name.
    pub(crate) cell: &'static str,
    /// The contestant's name.
    pub(crate) contestant: &'static str,
}

/// Who, with how many ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemoryKey {
    /// How many.
    pub(crate) ids: usize,
    /// How that is called.
    pub(crate) cell: &'static str,
    /// The contestant's name.
    pub(crate) contestant: &'static str,
}

/// All readings of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// How many rounds were run.
    pub(crate) rounds: u32,
    /// By round, since only readings of one round are compared.
    pub(crate) speed: BTreeMap<SpeedKey, BTreeMap<u32, Sample>>,
    /// One reading each.
    pub(crate) memory: BTreeMap<MemoryKey, Growth>,
    /// What went wrong, in words.
    pub(crate) failures: Vec<String>,
}

/// Which of the two times.
pub(crate) type Clock = fn(&Sample) -> f64;

/// Wall time per check.
pub(crate) const WALL: Clock = |sample| sample.wall_ns;

/// CPU time per check.
pub(crate) const CPU: Clock = |sample| sample.cpu_ns;

// === impl Results ===

impl Results {
    /// Keeps a reading.
    pub(crate) fn add(&mut self, key: SpeedKey, round: u32, sample: Sample) {
        self.speed.entry(key).or_default().insert(round, sample);
    }

    /// Nanoseconds per check over the rounds.
    pub(crate) fn time(&self, key: SpeedKey, clock: Clock) -> Option<Spread> {
        Spread::of(self.speed.get(&key)?.values().map(clock).collect())
    }

    /// How many times longer `of` takes than `to`: worked out in each round that has both.
    pub(crate) fn ratio(&self, of: SpeedKey, to: SpeedKey, clock: Clock) -> Option<Spread> {
        let (of, to) = (self.speed.get(&of)?, self.speed.get(&to)?);
        let both = of.iter().filter_map(|(round, a)| Some((a, to.get(round)?)));
        Spread::of(both.map(|(a, b)| clock(a) / clock(b)).collect())
    }
}
