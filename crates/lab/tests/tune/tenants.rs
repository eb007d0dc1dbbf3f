//! Heavy-tailed tenants: each has a rate from a log-normal distribution with a Pareto tail, bursts
//! with Weibull gaps, and a day with a night.

use fastrand::Rng;
use sluicegate_core::time::Timestamp;
use sluicegate_lab::arrival::Arrival;

pub(crate) const DAY: f64 = 86_400.0;

/// Traffic of this many tenants over this many days, in the order of time.
pub(crate) fn tenants(seed: u64, count: u32, days: f64) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(seed);
    let mut arrivals: Vec<Arrival> = Vec::new();
    for client in 0..count {
        tenant(&mut rng, client, days, &mut arrivals);
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

fn tenant(rng: &mut Rng, client: u32, days: f64, arrivals: &mut Vec<Arrival>) {
    // Bursts a day: median 1, a twentieth beyond a Pareto tail. Size of bursts: Pareto.
    let tail = if rng.f64() < 0.05 { pareto(rng, 1.2).min(30.0) } else { 1.0 };
    let per_day = (0.8 * normal(rng)).exp() * tail;
    let burst_scale = 1.0 + pareto(rng, 1.5).min(40.0);
    let shape = 0.4 + rng.f64() * 0.6;
    let mut at = 0.0;
    loop {
        at += -(1.0 - rng.f64()).ln() * DAY / (2.0 * per_day);
        if at >= days * DAY {
            return;
        }
        // Half of the bursts on average; most by day.
        let phase = (at % DAY) / DAY * std::f64::consts::TAU;
        if rng.f64() > 0.5 - 0.45 * phase.cos() {
            continue;
        }
        let (mut time, size) = (at, 1 + (burst_scale * rng.f64().powi(2)) as u64);
        for _ in 0..size {
            if time < days * DAY {
                let at = Timestamp::from_micros((time * 1e6) as u64);
                arrivals.push(Arrival { at, client, cost: 1 });
            }
            // Weibull gaps around two seconds.
            time += 2.0 * (-(1.0 - rng.f64()).ln()).powf(1.0 / shape);
        }
    }
}

fn pareto(rng: &mut Rng, alpha: f64) -> f64 {
    (1.0 - rng.f64()).powf(-1.0 / alpha)
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}
