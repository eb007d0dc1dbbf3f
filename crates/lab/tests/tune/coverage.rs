//! Promises hold as often as they state.
//!
//! Three questions, each over many logs: is the promised share exceeded in a large population of
//! the same kind; is it exceeded on the days that were held out; and are more clients denied there
//! than predicted? `TUNE_SEEDS` and `TUNE_CLIENTS` run more and larger logs than the suite.

use sluicegate_core::time::Span;
use sluicegate_lab::arrival::Arrival;
use sluicegate_lab::tune::goal::TuneGoal;
use sluicegate_lab::tune::usage::UsageByClient;
use sluicegate_lab::tune::{Basis, Recommendation, TuneOptions, TuneResult, tune};

use crate::tenants::tenants;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn recommended(arrivals: Vec<Arrival>, goal: TuneGoal, hold_out: f64) -> Box<Recommendation> {
    let options = TuneOptions { hold_out, ..TuneOptions::default() };
    match tune(arrivals, goal, options).unwrap().result {
        TuneResult::Limit(limit) => limit,
        other => panic!("{other:?}"),
    }
}

/// Counts of logs in which a promise was broken.
#[derive(Debug, Default)]
struct Broken {
    population: u64,
    held_out: u64,
    prediction: u64,
}

#[test]
fn promises_hold_on_held_out_days_and_for_other_clients() {
    let seeds = from_env("TUNE_SEEDS", 30);
    let clients = from_env("TUNE_CLIENTS", 400) as u32;
    let (days, training_days, share) = (14.0, 10.0, 0.02);
    let goal = TuneGoal::deny_at_most("2% of users").unwrap();
    let confidence = TuneOptions::default().confidence;

    // Other clients of the same kind, over as many days as the limits are chosen from.
    let population = UsageByClient::new(tenants(1 << 40, 10 * clients, training_days)).unwrap();
    let mut broken = Broken::default();
    let mut shares = Vec::new();
    for seed in 0..seeds {
        let arrivals = tenants(seed, clients, days);
        let limit = recommended(arrivals, goal, 1.0 - training_days / days);
        let Basis::Clients { predicted_held_out, .. } = limit.basis else { panic!() };
        let denied = population
            .clients()
            .filter(|requests| limit.shape.needed_size(requests, Span::ZERO) > limit.size);
        let of_population = denied.count() as f64 / population.client_count() as f64;
        shares.push(of_population);
        broken.population += u64::from(of_population > share);
        broken.held_out += u64::from(limit.outcome.held_out.client_share() > share);
        let denied = limit.outcome.held_out.denied_clients;
        broken.prediction += u64::from(denied > predicted_held_out);
    }
    shares.sort_by(f64::total_cmp);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{seeds} logs: broken {broken:?}; mean share of the population {mean:.5}");
    // More than this happens once in a thousand runs if the confidence is what it says.
    let bound = (0..).find(|k| {
        let n = seeds as usize;
        sluicegate_lab::tune::statistics::binomial_cdf(*k, n, 1.0 - confidence) > 0.999
    });
    let bound = bound.unwrap() as u64;
    assert!(broken.population <= bound, "{broken:?}, at most {bound}");
    assert!(broken.held_out <= bound && broken.prediction <= bound, "{broken:?}, at most {bound}");
    // The limit is strict, too: a quarter of what is permitted is denied at least.
    assert!(mean > share / 4.0, "{mean}");
}
