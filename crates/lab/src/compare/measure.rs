//! Measures one algorithm on the production engine, while arrivals pass.
//!
//! What is measured, exactly; `window` and `limit` are those of the nominal rule, and everything is
//! in units of cost:
//!
//! - *peak*: the most that passes of one client in any rolling window, which is half open:
//!   `(t - window, t]`.
//! - *excess* of an admitted request: by how much the rolling window that ends with it is above
//!   the limit. The worst is that of the peak; the mean is over all admitted requests.
//! - *over-admitted*: the part of the admitted that lies above the limit in the window that ends
//!   with it: what an exact log would have stopped, given what passed before.
//! - *refused without need*: a denied request for which there was room: its cost and what was
//!   admitted of its client in the window that ends with it (or passes later) are within the limit.
//! - *dispersion*: variance by mean of what passes of all clients in each tenth of a window.
//!
//! Memory: a number for each client, and the log of a window for each client with requests in it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Memory, Outcome};

use super::contender::{Contender, NominalRule, Passage};
use super::rolling::{RollingLog, WINDOWS, window_lengths};
use super::series::{DispersionSums, TimeSeries};
use crate::arrival::Arrival;

/// Logs of clients at which those of idle clients are searched for the first time.
const SWEEP_AT: usize = 1_024;

/// The most of one client in any window of a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Peak {
    pub(super) amount: u64,
    /// The client, and when the window ends.
    pub(super) client: u32,
    pub(super) end_us: u64,
}

/// What was counted of one algorithm.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) admitted_requests: u64,
    pub(super) admitted: u64,
    pub(super) over_admitted: u64,
    pub(super) excess_sum: u64,
    pub(super) refused_without_need: u64,
    pub(super) waited_us: u128,
    pub(super) peaks: [Peak; WINDOWS],
    /// By client.
    pub(super) admitted_by: Vec<u64>,
    pub(super) series: TimeSeries,
    pub(super) dispersion: DispersionSums,
    /// A hash of all decisions: algorithms of the same one decided the same.
    pub(super) decisions: u64,
}

/// An algorithm at work.
pub(super) struct MeasuredLimiter {
    limiter: Limiter,
    clock: ManualClock,
    passage: Passage,
    limit: u64,
    lengths: [u64; WINDOWS],
    logs: HashMap<u32, RollingLog, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    counted: Counted,
}

impl MeasuredLimiter {
    pub(super) fn new(contender: &Contender, rule: NominalRule) -> Result<Self, String> {
        let clock = ManualClock::new();
        let builder = Limiter::builder().limits([contender.limit.clone()]).clock(clock.clone());
        let memory = Memory::with_entries(u32::MAX as usize);
        let limiter = builder.memory(&memory).build().map_err(|error| error.to_string())?;
        let lengths = window_lengths(rule.window().as_micros());
        let counted = Counted {
            requests: 0,
            admitted_requests: 0,
            admitted: 0,
            over_admitted: 0,
            excess_sum: 0,
            refused_without_need: 0,
            waited_us: 0,
            peaks: [Peak::default(); WINDOWS],
            admitted_by: Vec::new(),
            series: TimeSeries::new(0, 1),
            dispersion: DispersionSums::default(),
            decisions: 0,
        };
        Ok(Self {
            limiter,
            clock,
            passage: contender.passage,
            limit: rule.limit(),
            lengths,
            logs: HashMap::default(),
            sweep_at: SWEEP_AT,
            counted,
        })
    }

    /// Decides an arrival, which is not before the last one.
    pub(super) fn decide(&mut self, arrival: &Arrival) {
        self.clock.set(arrival.at);
        let key = arrival.client.to_le_bytes();
        let verdict = self.limiter.of(&key).cost(u64::from(arrival.cost)).hit();
        let counted = &mut self.counted;
        if counted.requests == 0 {
            counted.series = TimeSeries::new(arrival.at.as_micros(), self.lengths[2]);
        }
        counted.requests += 1;
        let is_allowed = verdict.outcome.is_allowed();
        counted.decisions = mixed(counted.decisions, is_allowed);
        let (now, cost) = (arrival.at.as_micros(), u64::from(arrival.cost));
        let [window, ..] = self.lengths;
        let log = self.logs.entry(arrival.client).or_default();
        let held = log.held_at(now, window);
        let Outcome::Allow { wait } = verdict.outcome else {
            if held.saturating_add(cost) <= self.limit {
                counted.refused_without_need += 1;
            }
            return self.sweep(now);
        };
        let at = match self.passage {
            Passage::AtArrival => now,
            Passage::AtSlot => {
                counted.waited_us += u128::from(wait.as_micros());
                now.saturating_add(wait.as_micros()).max(log.last().unwrap_or(0))
            }
        };
        let sums = log.add(at, cost, self.lengths);
        for (peak, amount) in counted.peaks.iter_mut().zip(sums) {
            if amount > peak.amount {
                *peak = Peak { amount, client: arrival.client, end_us: at };
            }
        }
        let excess = sums[0].saturating_sub(self.limit);
        counted.admitted_requests += 1;
        counted.admitted += cost;
        counted.excess_sum += excess;
        counted.over_admitted += excess.min(cost);
        let client = arrival.client as usize;
        if client >= counted.admitted_by.len() {
            counted.admitted_by.resize(client + 1, 0);
        }
        counted.admitted_by[client] += cost;
        counted.series.add(at, cost);
        let tenth = self.lengths[1];
        counted.dispersion.add(at / tenth, cost, now / tenth);
        self.sweep(now);
    }

    /// What was counted.
    pub(super) fn finish(self) -> Counted {
        self.counted
    }

    /// Drops the logs of idle clients, when there are twice as many as after the last time.
    fn sweep(&mut self, now: u64) {
        if self.logs.len() < self.sweep_at {
            return;
        }
        let window = self.lengths[0];
        self.logs.retain(|_, log| !log.is_empty_at(now, window));
        self.sweep_at = (2 * self.logs.len()).max(SWEEP_AT);
    }
}

/// A hash that depends on every decision and its place.
fn mixed(hash: u64, is_allowed: bool) -> u64 {
    (hash ^ u64::from(is_allowed)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 1
}
