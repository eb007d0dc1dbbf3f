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

/// How two times compare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    /// Over the rounds.
    pub(crate) spread: Spread,
    /// There was no quiet round: it says little.
    pub(crate) disturbed: bool,
}

/// What is asked of a reading.
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

    /// What is asked of the readings, over the rounds; those that were disturbed are left out, unless all were.
    pub(crate) fn time(&self, key: SpeedKey, clock: Clock) -> Option<Spread> {
        let readings = self.speed.get(&key)?;
        let quiet = readings.values().filter(|sample| !sample.is_disturbed()).map(clock);
        let all = readings.values().map(clock);
        Spread::of(quiet.collect()).or_else(|| Spread::of(all.collect()))
    }

    /// The share of the time that the threads were kept waiting for a CPU, over all rounds.
    pub(crate) fn waited(&self, key: SpeedKey) -> Option<f64> {
        let readings = self.speed.get(&key)?;
        let sum: f64 = readings.values().map(|sample| sample.waited).sum();
        Some(sum / readings.len() as f64)
    }

    /// How many times longer `of` takes than `to`, worked out in each round that has both.
    ///
    /// Rounds in which either was disturbed are left out, unless that leaves none.
    pub(crate) fn ratio(&self, of: SpeedKey, to: SpeedKey, clock: Clock) -> Option<Ratio> {
        let (of, to) = (self.speed.get(&of)?, self.speed.get(&to)?);
        let both = of.iter().filter_map(|(round, a)| Some((a, to.get(round)?)));
        let (disturbed, quiet): (Vec<_>, Vec<_>) =
            both.partition(|(a, b)| a.is_disturbed() || b.is_disturbed());
        let (pairs, disturbed) = if quiet.is_empty() { (disturbed, true) } else { (quiet, false) };
        let ratios = pairs.into_iter().map(|(a, b)| clock(a) / clock(b)).collect();
        Some(Ratio { spread: Spread::of(ratios)?, disturbed })
    }
}
