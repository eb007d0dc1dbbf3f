//! Every measure against a search through all requests, and algorithms against what is known of
//! them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Outcome};
use sluicegate_config::traffic::traffic;
use sluicegate_config::units::rate;
use sluicegate_core::time::Timestamp;

use super::*;
use crate::traffic::Traffic;

fn rule(text: &str) -> NominalRule {
    NominalRule::new(rate(text).unwrap(), None).unwrap()
}

fn client(number: u32) -> Client {
    Client { name: format!("c{number}"), is_abuser: Some(number == 1) }
}

fn compared(arrivals: &[Arrival], rule: NominalRule) -> AlgorithmComparison {
    compare(arrivals.iter().copied(), rule, &client).unwrap()
}

fn built_in(text: &str, rule: NominalRule) -> AlgorithmComparison {
    let traffic = Traffic::new(traffic("x", text).unwrap(), 7);
    compare(traffic.arrivals(), rule, &|number| traffic.client(number)).unwrap()
}

/// A request as it was decided.
#[derive(Debug, Clone, Copy)]
struct Decided {
    at: u64,
    client: u32,
    cost: u64,
    /// When it passes, if it was admitted.
    passes: Option<u64>,
}

/// The decisions of an algorithm, one by one.
fn decided(contender: &Contender, arrivals: &[Arrival]) -> Vec<Decided> {
    let clock = ManualClock::new();
    let builder = Limiter::builder().limits([contender.limit.clone()]);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let decide = |arrival: &Arrival| {
        clock.set(arrival.at);
        let (at, cost) = (arrival.at.as_micros(), u64::from(arrival.cost));
        let key = format!("client {}", arrival.client);
        let passes = match limiter.of(&key).cost(cost).hit().outcome {
            Outcome::Allow { wait } if contender.passage == Passage::AtSlot => {
                Some(at + wait.as_micros())
            }
            Outcome::Allow { .. } => Some(at),
            _ => None,
        };
        Decided { at, client: arrival.client, cost, passes }
    };
    arrivals.iter().map(decide).collect()
}

/// What passes of a client in the rolling window of this length that ends at `end`.
fn in_window(all: &[Decided], client: u32, end: u64, length: u64) -> u64 {
    let within = |one: &&Decided| {
        one.client == client && one.passes.is_some_and(|at| at <= end && at + length > end)
    };
    all.iter().filter(within).map(|one| one.cost).sum()
}

fn assert_near(figure: Option<f64>, expected: f64, what: &str) {
    let figure = figure.unwrap_or(f64::NAN);
    assert!((figure - expected).abs() < 1e-9, "{what}: {figure}, not {expected}");
}

/// All figures of an algorithm, by search.
fn check(
    figures: &AlgorithmFigures,
    contender: &Contender,
    arrivals: &[Arrival],
    rule: NominalRule,
) {
    let (limit, window) = (rule.limit(), rule.window().as_micros());
    let all = decided(contender, arrivals);
    let name = &contender.name;
    let passed = || all.iter().filter_map(|one| Some((one, one.passes?)));
    let admitted: u64 = passed().map(|(one, _)| one.cost).sum();
    assert_eq!(figures.admitted, admitted, "{name}");
    let denied = all.iter().filter(|one| one.passes.is_none());
    assert_eq!(figures.denied_requests, denied.clone().count() as u64, "{name}");

    let most = |length: u64| {
        passed().map(|(one, at)| in_window(&all, one.client, at, length)).max().unwrap_or(0)
    };
    assert_eq!(figures.peak.amount, most(window), "{name}");
    assert_eq!(figures.burst_shape.tenth, most((window / 10).max(1)), "{name}");
    assert_eq!(figures.burst_shape.hundredth, most((window / 100).max(1)), "{name}");

    // In the order of passing; of one moment, those before count.
    let (mut over, mut excess) = (0, 0);
    for (index, one) in all.iter().enumerate() {
        let Some(at) = one.passes else { continue };
        let above = in_window(&all[..=index], one.client, at, window).saturating_sub(limit);
        over += above.min(one.cost);
        excess += above;
    }
    assert_eq!(figures.over_admitted, over, "{name}");
    let requests = passed().count().max(1) as f64;
    assert_near(Some(figures.excess_mean), excess as f64 / requests, name);

    let needless = |(index, one): &(usize, &Decided)| {
        let before = all[..*index].iter().filter(|other| other.client == one.client);
        let held = before.filter(|other| other.passes.is_some_and(|at| at + window > one.at));
        held.map(|other| other.cost).sum::<u64>() + one.cost <= limit
    };
    let denied = all.iter().enumerate().filter(|(_, one)| one.passes.is_none());
    assert_eq!(figures.refused_without_need, denied.filter(needless).count() as u64, "{name}");

    let (mut demand, mut got) = (BTreeMap::<(u32, u64), u64>::new(), BTreeMap::<u32, u64>::new());
    for one in &all {
        *demand.entry((one.client, one.at / window)).or_default() += one.cost;
        *got.entry(one.client).or_default() += if one.passes.is_some() { one.cost } else { 0 };
    }
    let mut entitled = BTreeMap::<u32, u64>::new();
    for ((client, _), cost) in demand {
        *entitled.entry(client).or_default() += cost.min(limit);
    }
    let parts: Vec<f64> =
        entitled.iter().map(|(client, all)| got[client] as f64 / *all as f64).collect();
    let (sum, squares) = (parts.iter().sum::<f64>(), parts.iter().map(|x| x * x).sum::<f64>());
    if squares > 0.0 {
        assert_near(figures.fairness, sum * sum / (parts.len() as f64 * squares), name);
    }

    let tenth = (window / 10).max(1);
    let bins = |from: u64, to: u64| (to / tenth - from / tenth + 1) as f64;
    let count = bins(all[0].at, all[all.len() - 1].at);
    let mut counts = BTreeMap::<u64, f64>::new();
    passed().for_each(|(one, at)| *counts.entry(at / tenth).or_default() += one.cost as f64);
    let mean = counts.values().sum::<f64>() / count;
    if mean > 0.0 {
        let squares = counts.values().map(|x| x * x).sum::<f64>() / count;
        let dispersion = (squares - mean * mean).max(0.0) / mean;
        assert_near(figures.burst_shape.dispersion, dispersion, name);
    }
    let abuser: u64 = passed().filter(|(one, _)| one.client == 1).map(|(one, _)| one.cost).sum();
    assert_near(figures.abuser_share, abuser as f64 / admitted.max(1) as f64, name);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn figures_are_those_of_a_search(
        steps in prop::collection::vec((0u64..400_000, 0u32..4, 1u32..3), 1..250),
        rate in prop::sample::select(vec!["3/s", "5/2s", "10/s", "1/100ms"]),
        burst in prop::sample::select(vec![None, Some(2), Some(12)]),
    ) {
        let rule = NominalRule::new(sluicegate_config::units::rate(rate).unwrap(), burst).unwrap();
        let mut us = 1_700_000_000_000_000;
        let arrivals: Vec<Arrival> = steps
            .into_iter()
            .map(|(pause, client, cost)| {
                // Bursts and pauses.
                us += if pause < 200_000 { pause / 20_000 } else { pause };
                Arrival { at: Timestamp::from_micros(us), client, cost }
            })
            .collect();
        let found = compared(&arrivals, rule);
        let (limit, window) = (rule.limit(), rule.window().as_micros());
        let is_above = |client: &u32| {
            let of_client = || arrivals.iter().filter(|arrival| arrival.client == *client);
            of_client().any(|last| {
                let end = last.at.as_micros();
                let within = of_client().filter(|one| {
                    (end - window + 1..=end).contains(&one.at.as_micros())
                });
                within.map(|one| u64::from(one.cost)).sum::<u64>() > limit
            })
        };
        prop_assert_eq!(found.clients_above_limit, Some((0..4).filter(is_above).count()));
        for (figures, contender) in found.algorithms.iter().zip(rule.contenders().0) {
            check(figures, &contender, &arrivals, rule);
        }
    }
}

#[test]
fn the_exact_log_is_never_above_and_never_too_strict() {
    for text in [
        "flash_sale: { clients: 20, rate: 20/s, length: 12m }",
        "edge_bursts: { clients: 5 }",
        "abuser",
    ] {
        let found = built_in(text, rule("30/m"));
        let exact = found.algorithm(EXACT).unwrap();
        assert!(exact.denied_requests > 0, "{text}: nothing is limited");
        let measures = (exact.excess_worst, exact.over_admitted, exact.refused_without_need);
        assert_eq!((measures, exact.admitted_over_exact), ((0, 0, 0), Some(0.0)), "{text}");
    }
}

#[test]
fn bursts_around_edges_pass_a_fixed_window_twice() {
    let found = built_in("edge_bursts: { clients: 4, burst: 100 }", rule("100/m"));
    let fixed = found.algorithm("fixed_window").unwrap();
    assert_eq!((fixed.peak.amount, fixed.peak.times_limit), (200, 2.0));
    // The burst after an edge is above the limit, each time.
    assert_eq!((fixed.denied_requests, fixed.over_admitted), (0, fixed.admitted / 2));
    // Nearly all of the burst before is still in the window, and counted.
    let counter = found.algorithm("sliding_window").unwrap();
    assert!(counter.peak.amount < 110, "{}", counter.peak.amount);
    let slices = found.algorithm("sliding_window (slices)").unwrap();
    assert_eq!((slices.peak.amount, slices.over_admitted), (100, 0));
    for name in ["cycle", "tally"] {
        let same = found.algorithm(name).unwrap();
        assert_eq!(same.same_decisions_as.as_deref(), Some("fixed_window"), "{name}");
        assert_eq!(same.admitted, fixed.admitted);
    }
}

#[test]
fn a_bucket_admits_its_burst_and_the_refill_in_a_window() {
    let text = "steady: { clients: 1, rate: 50/s, length: 10m }";
    for (burst, expected) in [(Some(1), 100), (Some(50), 149), (None, 199)] {
        let rule = NominalRule::new(rate("100/m").unwrap(), burst).unwrap();
        let found = built_in(text, rule);
        let bucket = found.algorithm("token_bucket").unwrap();
        assert_eq!(bucket.peak.amount, expected, "{burst:?}");
        // The same as a policer; a shaping one spreads what it admits.
        let police = found.algorithm("leaky_bucket").unwrap();
        assert_eq!(police.same_decisions_as.as_deref(), Some("token_bucket"));
        let shaping = found.algorithm("leaky_bucket (shaping)").unwrap();
        assert_eq!((shaping.admitted, shaping.peak.amount), (bucket.admitted, 100));
        assert_eq!(shaping.burst_shape.hundredth, 1);
        assert_eq!(shaping.mean_wait_us > 0.0, burst != Some(1));
    }
}

#[test]
fn findings_name_algorithm_client_and_factor() {
    let found = built_in("edge_bursts: { clients: 1, burst: 100 }", rule("100/m"));
    let findings = findings(&found);
    let fixed = "`fixed_window` let 200 requests of `client 0` pass in 1m: 2 times the limit. 50 % \
                 of what it admitted was above the limit at that moment.";
    assert!(findings.iter().any(|finding| finding == fixed), "{findings:#?}");
    let same = "`cycle` and `tally` decided every request as `fixed_window` did.";
    assert!(findings.iter().any(|finding| finding == same), "{findings:#?}");

    let quiet = built_in("steady: { clients: 10, rate: 1/s, length: 5m }", rule("100/m"));
    let first = &super::findings(&quiet)[0];
    assert!(first.contains("None sent more than 100 in any 1m"), "{first}");
}

#[test]
fn a_report_has_plots_figures_and_its_command() {
    let found = built_in("flash_sale: { clients: 5, rate: 5/s, length: 7m }", rule("30/m"));
    let html = report(&found, "Traffic <x>", "sluicegate compare --traffic 'x'").unwrap().html();
    assert_eq!(html.matches("<svg").count(), 3);
    for part in ["Traffic &lt;x&gt;", "sluicegate compare", "refused without need", "sliding_log"] {
        assert!(html.contains(part), "{part}");
    }
    let text = table(&found);
    assert_eq!(text.lines().count(), found.algorithms.len() + 1);
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["algorithms"][0]["algorithm"], "sliding_log");
    assert_eq!(json["demand"], found.demand);
}

#[test]
fn no_traffic_is_an_error_and_a_single_request_is_not() {
    let error = compare(std::iter::empty(), rule("1/s"), &client).unwrap_err();
    assert_eq!(error, "there are no requests to compare the algorithms on");
    let one = [Arrival { at: Timestamp::EPOCH, client: 0, cost: 1 }];
    let found = compared(&one, rule("1/s"));
    let first = |found: &AlgorithmComparison| found.algorithm("token_bucket").unwrap().admitted;
    assert_eq!((found.clients, first(&found)), (1, 1));
    for draw in [plot_admitted, plot_peaks, plot_trade_off] {
        draw(&found).unwrap();
    }
    assert!(!findings(&found).is_empty() && !table(&found).is_empty());
}

#[test]
fn time_that_goes_back_counts_as_the_latest() {
    let at = |us, client| Arrival { at: Timestamp::from_micros(us), client, cost: 1 };
    let back = compared(&[at(5_000_000, 0), at(4_000_000, 0), at(6_000_000, 0)], rule("2/s"));
    let sorted = compared(&[at(5_000_000, 0), at(5_000_000, 0), at(6_000_000, 0)], rule("2/s"));
    assert_eq!(back.to_json(), sorted.to_json());
}
