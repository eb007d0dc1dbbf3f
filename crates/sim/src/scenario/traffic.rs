//! Traffic: rate, pattern and node of each stream of hits.

use super::rules::{LevelPlan, RulePlan};
use crate::rng::SimRng;

/// Hits of one identity on one node.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Node.
    pub node: usize,
    /// Rule.
    pub rule: usize,
    /// Identity.
    pub identity: usize,
    /// Cost of a hit.
    pub cost: u64,
    /// Arrival pattern.
    pub pattern: Pattern,
}

/// Arrival pattern of hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Roughly even, at this many per second.
    Steady(u64),
    /// Bursts of this many, at an interval in milliseconds.
    Bursts(u64, u64),
    /// This many per second, on and off for these times in milliseconds.
    Phases(u64, u64, u64),
}

/// One hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Time in milliseconds.
    pub at_ms: u64,
    /// Node.
    pub node: usize,
    /// Rule.
    pub rule: usize,
    /// Identity.
    pub identity: usize,
    /// Cost.
    pub cost: u64,
}

/// Generates the traffic of a world.
pub(super) fn streams(rng: &mut SimRng, rules: &[RulePlan], nodes: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        for identity in 0..rule.identities {
            let tenths = match rule.level {
                // Frequent enough to be hot.
                LevelPlan::Hot => {
                    rng.choose(&[20, 2_500 / rule.per_second(), 5_000 / rule.per_second()])
                }
                _ => rng.choose(&[5, 12, 20, 20, 40]),
            };
            let wanted = (rule.per_second() * tenths / 10).max(2);
            let capacity = rule.limits.iter().map(|limit| limit.capacity()).min().unwrap_or(1);
            let max = if rng.permille(300) { capacity.min(4) } else { 1 };
            let cost = rng.within(1, max);
            let is_even = rng.permille(500);
            let of_all = rng.within(0, 9);
            let is_alike = rng.permille(500);
            for node in 0..nodes {
                let even = (wanted / nodes as u64).max(1);
                let rate = match (is_even, node) {
                    (true, _) => even,
                    // One node has nearly all of the demand.
                    (false, 0) => (wanted * 9 / 10).max(1),
                    (false, _) => (wanted / 10 / nodes as u64).max(1),
                };
                let kind = if is_alike { of_all } else { rng.within(0, 9) };
                let pattern = match kind {
                    0..=5 => Pattern::Steady(rate),
                    6 | 7 => {
                        let every = rng.choose(&[100, 300, 700]);
                        Pattern::Bursts((rate * every / 1_000).max(1), every)
                    }
                    _ => Pattern::Phases(rate * 2, rng.within(100, 1_000), rng.within(300, 1_500)),
                };
                streams.push(Stream { node, rule: index, identity, cost, pattern });
            }
        }
    }
    streams
}

impl Stream {
    /// All hits of the stream.
    #[must_use]
    pub fn arrivals(&self, rng: &mut SimRng, length_ms: u64) -> Vec<Arrival> {
        let Self { node, rule, identity, cost, pattern } = *self;
        let mut arrivals = Vec::new();
        let mut arrive = |at_us: u64| {
            arrivals.push(Arrival { at_ms: at_us / 1_000, node, rule, identity, cost });
        };
        let end = length_ms * 1_000;
        let mut at = rng.within(0, 20_000);
        while at < end {
            match pattern {
                Pattern::Steady(rate) => {
                    arrive(at);
                    at += rng.within(0, 2_000_000 / rate);
                }
                Pattern::Bursts(size, every_ms) => {
                    (0..size).for_each(|_| arrive(at));
                    at += every_ms * 1_000;
                }
                Pattern::Phases(rate, on_ms, off_ms) => {
                    if at / 1_000 % (on_ms + off_ms) < on_ms {
                        arrive(at);
                    }
                    at += rng.within(0, 2_000_000 / rate);
                }
            }
        }
        arrivals
    }
}
