//! Limits from generated traffic: promises on days that were held out, each goal, and odd logs.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod coverage;
mod goals;
mod odd_logs;
mod output;
mod tenants;

use sluicegate_core::time::Timestamp;
use sluicegate_lab::arrival::Arrival;
use sluicegate_lab::tune::goal::TuneGoal;
use sluicegate_lab::tune::{TuneOptions, TuneResult, Tuning, tune};

/// A request of cost 1.
fn request(at_s: f64, client: u32) -> Arrival {
    Arrival { at: Timestamp::from_micros((at_s * 1e6).round() as u64), client, cost: 1 }
}

/// Clients that send `burst` requests 10 ms apart, every `period` seconds, for some time.
fn bursts(clients: u32, burst: u64, period: u64, length: u64) -> Vec<Arrival> {
    let (period, length) = (period * 1_000_000, length * 1_000_000);
    let mut arrivals = Vec::new();
    for client in 0..clients {
        // Times are not multiples of a millisecond, and so exact.
        let mut start = period * u64::from(client) / u64::from(clients) + 1;
        while start < length {
            let at = |i| Timestamp::from_micros(start + i * 10_000);
            arrivals.extend((0..burst).map(|i| Arrival { at: at(i), client, cost: 1 }));
            start += period;
        }
    }
    arrivals
}

fn tuned(arrivals: Vec<Arrival>, goal: &str) -> Tuning {
    tuned_with(arrivals, goal, TuneOptions::default())
}

/// Tunes for a goal: `1% of …`, `p99`, or a rate.
fn tuned_with(arrivals: Vec<Arrival>, goal: &str, options: TuneOptions) -> Tuning {
    let goal = match goal {
        _ if goal.contains('%') => TuneGoal::deny_at_most(goal),
        _ if goal.starts_with('p') => TuneGoal::serve_good(goal),
        _ => TuneGoal::protect(goal),
    };
    tune(arrivals, goal.unwrap(), options).unwrap()
}

/// The recommended limit, as it is written in rules.
fn rule(tuning: &Tuning) -> String {
    match &tuning.result {
        TuneResult::Limit(limit) => limit.shape.rule(limit.size),
        other => panic!("{other:?}"),
    }
}
