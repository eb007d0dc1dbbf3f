//! The statistics of each pattern against its parameters.

use std::collections::HashMap;

use fastrand::Rng;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_ne, proptest};
use sluicegate_config::traffic::{pattern_names, traffic};

use super::*;

fn generated(text: &str, seed: u64) -> Vec<Arrival> {
    Traffic::new(traffic("x", text).unwrap(), seed).arrivals().collect()
}

fn seconds(arrival: &Arrival) -> f64 {
    arrival.at.since(START).as_micros() as f64 / 1e6
}

fn by_client(arrivals: &[Arrival]) -> HashMap<u32, Vec<f64>> {
    let mut clients: HashMap<u32, Vec<f64>> = HashMap::new();
    for arrival in arrivals {
        clients.entry(arrival.client).or_default().push(seconds(arrival));
    }
    clients
}

fn between(arrivals: &[Arrival], from: f64, to: f64) -> f64 {
    arrivals.iter().filter(|arrival| (from..to).contains(&seconds(arrival))).count() as f64
}

/// Within five standard deviations of a count of independent arrivals.
fn assert_count(count: f64, expected: f64) {
    assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count}, not {expected}");
}

/// Mean and coefficient of variation of the distances.
fn intervals(times: &[f64]) -> (f64, f64) {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    (mean, variance.sqrt() / mean)
}

fn times(arrivals: &[Arrival]) -> Vec<f64> {
    arrivals.iter().map(seconds).collect()
}

#[test]
fn steady_clients_send_in_turn() {
    let arrivals = generated("steady: { clients: 4, rate: 8/s, length: 10s }", 1);
    assert_eq!(arrivals.len(), 80);
    for (number, arrival) in (0..).zip(&arrivals) {
        assert_eq!(arrival.at, START.after(Span::from_micros(number * 125_000)));
        assert_eq!(u64::from(arrival.client), number % 4);
    }
}

#[test]
fn poisson_arrivals_are_independent_and_uniform() {
    let arrivals = generated("poisson: { clients: 10, rate: 1000/s, length: 200s }", 2);
    assert_count(arrivals.len() as f64, 200_000.0);
    let (mean, variation) = intervals(&times(&arrivals));
    assert!((mean - 0.001).abs() < 1e-5 && (variation - 1.0).abs() < 0.02, "{mean} {variation}");
    for times in by_client(&arrivals).values() {
        assert_count(times.len() as f64, 20_000.0);
    }
}

#[test]
fn diurnal_rates_follow_the_sine() {
    let text = "diurnal: { clients: 3, rate: 100/s, swing: 60%, period: 1000s, length: 2000s }";
    let arrivals = generated(text, 3);
    assert_count(arrivals.len() as f64, 200_000.0);
    // The mean of the sine over a quarter is 2/pi of its amplitude there.
    let around = |middle: f64| {
        between(&arrivals, middle - 125.0, middle + 125.0)
            + between(&arrivals, middle + 875.0, middle + 1_125.0)
    };
    let amplitude = 0.6 * (std::f64::consts::PI / 4.0).sin() / (std::f64::consts::PI / 4.0);
    assert_count(around(500.0), 50_000.0 * (1.0 + amplitude));
    assert_count(around(250.0), 50_000.0);
    let lowest = between(&arrivals, 0.0, 125.0) + between(&arrivals, 875.0, 1_125.0);
    assert_count(lowest, 37_500.0 * (1.0 - amplitude));
}

#[test]
fn bursts_are_at_both_sides_of_every_second_edge() {
    let text = "edge_bursts: { clients: 3, window: 10s, burst: 5, spread: 1s, length: 35s }";
    let arrivals = generated(text, 4);
    // Around 10 s and 30 s; 15 requests a burst, 5 of each client.
    assert_eq!(arrivals.len(), 2 * 2 * 15);
    for edge in [10.0, 30.0] {
        for (from, to) in [(edge - 1.0, edge), (edge, edge + 1.0)] {
            assert_eq!(between(&arrivals, from, to), 15.0);
            let burst: Vec<Arrival> = arrivals
                .iter()
                .copied()
                .filter(|arrival| (from..to).contains(&seconds(arrival)))
                .collect();
            assert!(by_client(&burst).values().all(|times| times.len() == 5));
        }
    }
    // Uniform within a burst.
    let large = generated("edge_bursts: { clients: 1, burst: 100k, spread: 10s, length: 60s }", 4);
    assert_eq!(large.len(), 100_000);
    for tenth in 0..10 {
        let from = 50.0 + f64::from(tenth);
        assert_count(between(&large, from, from + 1.0), 10_000.0);
    }
}

#[test]
fn a_sale_multiplies_the_rate_and_fades() {
    let text = "flash_sale: { clients: 50, rate: 100/s, factor: 21x, begin: 100s, fade: 50s, length: 500s }";
    let arrivals = generated(text, 5);
    assert_count(between(&arrivals, 0.0, 100.0), 10_000.0);
    // The integral of an exponential.
    let excess = |from: f64, to: f64| 2_000.0 * 50.0 * ((-from / 50.0).exp() - (-to / 50.0).exp());
    for (from, to) in [(0.0, 10.0), (10.0, 50.0), (50.0, 150.0), (150.0, 400.0)] {
        let expected = 100.0 * (to - from) + excess(from, to);
        assert_count(between(&arrivals, 100.0 + from, 100.0 + to), expected);
    }
}

#[test]
fn the_abuser_is_one_and_marked() {
    let traffic =
        Traffic::new(traffic("x", "abuser: { clients: 20, rate: 100/s, abuse: 50/s }").unwrap(), 6);
    let clients = by_client(&traffic.arrivals().collect::<Vec<_>>());
    assert_eq!((clients.len(), traffic.clients()), (21, 21));
    for (number, times) in clients {
        let is_abuser = traffic.client(number).is_abuser.unwrap();
        assert_eq!(is_abuser, number == 20);
        assert_count(times.len() as f64, if is_abuser { 30_000.0 } else { 3_000.0 });
    }
}

#[test]
fn a_herd_repeats_together_after_pauses_that_double() {
    let text = "herd: { clients: 100, rate: 1/s, every: 60s, retries: 3, backoff: 2s, spread: 100ms, length: 130s }";
    let arrivals = generated(text, 7);
    for moment in [60.0, 120.0] {
        for pause in [0.0, 2.0, 6.0, 14.0] {
            let at = moment + pause;
            let count = between(&arrivals, at, at + 0.1);
            let expected = if at < 130.0 { 100.0 } else { 0.0 };
            // The other traffic has one in ten of these.
            assert!((expected..=expected + 5.0).contains(&count), "{at}: {count}");
        }
    }
    assert_count(between(&arrivals, 0.0, 60.0), 60.0);
}

#[test]
fn zipf_clients_are_as_frequent_as_the_formula_says() {
    let arrivals =
        generated("zipf: { clients: 100, rate: 1000/s, exponent: 1.2, length: 200s }", 8);
    let whole: f64 = (1..=100).map(|rank| f64::from(rank).powf(-1.2)).sum();
    for (client, times) in by_client(&arrivals) {
        let expected = 200_000.0 * f64::from(client + 1).powf(-1.2) / whole;
        assert_count(times.len() as f64, expected);
    }
}

#[test]
fn tenants_have_their_rates_noise_and_bursts() {
    // Twelve weeks, so that noise which lasts for hours averages out.
    let traffic = Traffic::new(traffic("x", "tenants: { rate: 1/s, length: 84days }").unwrap(), 9);
    let clients = by_client(&traffic.arrivals().collect::<Vec<_>>());
    let shares: f64 = TENANTS.iter().map(|tenant| tenant.rate).sum();
    let windows = 84 * 144;
    for (number, times) in clients {
        let tenant = Tenant::of(number);
        let mean = tenant.rate / shares;
        let count = times.len() as f64 / (windows as f64 * 600.0);
        // Standard error of a log-normal rate with this correlation, and of renewals.
        let (correlation, deviation) = (tenant.correlation, tenant.deviation);
        let independent = windows as f64 * (1.0 - correlation) / (1.0 + correlation);
        let noise = ((deviation * deviation).exp_m1() / independent).sqrt();
        let variation = tenant.intervals().coefficient_of_variation();
        let error = 4.0 * (noise + variation / (times.len() as f64).sqrt());
        assert!((count / mean - 1.0).abs() < error, "{}: {count}, not {mean}", tenant.name);
    }
}

#[test]
fn intervals_of_a_source_have_the_variation_of_their_distribution() {
    for intervals_of in [IntervalDistribution::gamma(0.25), IntervalDistribution::weibull(0.6)] {
        let choice = ClientChoice::Uniform { from: 0, count: 1 };
        let rate = RateProfile::constant(100.0);
        let mut source = RenewalSource::new(intervals_of, rate, choice, Rng::with_seed(4));
        let times: Vec<f64> =
            (0..300_000).map(|_| source.next().unwrap().us as f64 / 1e6).collect();
        let (mean, variation) = intervals(&times);
        let expected = intervals_of.coefficient_of_variation();
        assert!((mean / 0.01 - 1.0).abs() < 0.02, "{mean}");
        assert!((variation / expected - 1.0).abs() < 0.02, "{variation}, not {expected}");
    }
}

#[test]
fn rates_that_hardly_ever_send_do_not_hang() {
    for pattern in [
        "diurnal: { rate: 1/1_000_000s, period: 1us, length: 10years }",
        "flash_sale: { rate: 1/1_000_000s, fade: 1us, begin: 9years, length: 10years }",
        "flash_sale: { rate: 1/1_000_000s, factor: 1x, begin: 0s, fade: 1us, length: 10years }",
    ] {
        let count = generated(pattern, 1).len();
        assert!((200..450).contains(&count), "{pattern}: {count}");
    }
}

#[test]
fn long_traffic_takes_the_memory_of_its_clients() {
    // Ten years, of which the first arrivals are read: nothing is generated before it is read.
    let config = traffic("x", "zipf: { clients: 100M, rate: 10M/s, length: 10years }").unwrap();
    let arrivals = Traffic::new(config, 1).arrivals();
    assert_eq!(arrivals.take(100_000).count(), 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn arrivals_are_ordered_repeatable_and_of_known_clients(
        name in 0..pattern_names().count(),
        clients in 1u32..50,
        seed: u64,
    ) {
        let name = pattern_names().nth(name).unwrap();
        let text = format!("{name}: {{ clients: {clients}, length: 6m }}");
        let traffic = Traffic::new(traffic("x", &text).unwrap(), seed);
        let arrivals: Vec<Arrival> = traffic.arrivals().take(20_000).collect();
        prop_assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        prop_assert!(arrivals.iter().all(|arrival| arrival.client < traffic.clients()));
        prop_assert!(arrivals.iter().all(|arrival| (START..traffic.end()).contains(&arrival.at)));
        prop_assert!(traffic.arrivals().take(20_000).eq(arrivals));
    }

    #[test]
    fn seeds_differ(seed: u64) {
        prop_assert_ne!(generated("poisson: { length: 5s }", seed), generated("poisson: { length: 5s }", !seed));
    }
}
