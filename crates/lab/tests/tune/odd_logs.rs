//! Odd logs: empty, short, of one client, of equal clients, with gaps, with coarse times.

use sluicegate_core::time::Span;
use sluicegate_lab::arrival::Arrival;
use sluicegate_lab::tune::goal::TuneGoal;
use sluicegate_lab::tune::{TuneError, TuneOptions, TuneResult, TunedAlgorithm, tune};

use crate::{bursts, request, rule, tuned, tuned_with};

fn refused(arrivals: Vec<Arrival>, options: TuneOptions) -> String {
    let goal = TuneGoal::deny_at_most("5% of users").unwrap();
    tune(arrivals, goal, options).unwrap_err().to_string()
}

#[test]
fn empty_and_short_logs_are_errors_with_remedies() {
    let goals = ["5% of users", "5% of requests", "p95"];
    for goal in goals.map(|goal| match goal.contains('%') {
        true => TuneGoal::deny_at_most(goal).unwrap(),
        false => TuneGoal::serve_good(goal).unwrap(),
    }) {
        let error = tune(Vec::new(), goal, TuneOptions::default()).unwrap_err();
        assert_eq!(error, TuneError::NoRequests);
    }
    let short = bursts(100, 1, 10, 30);
    let error = refused(short.clone(), TuneOptions::default());
    assert!(error.starts_with("horizon: must be at most the time that limits"), "{error}");
    assert!(error.ends_with("got `1m`; take a longer log or a shorter time"), "{error}");
    let algorithm = TunedAlgorithm::FixedWindow;
    let windows =
        TuneOptions { algorithm, window: Span::from_secs(3_600), ..TuneOptions::default() };
    assert!(refused(short, windows).starts_with("window: must be at most"));
    let error = refused(vec![request(5.0, 0)], TuneOptions::default());
    assert!(error.contains("`0s`"), "{error}");
    let options = TuneOptions { confidence: 1.0, ..TuneOptions::default() };
    assert!(refused(bursts(9, 1, 1, 100), options).starts_with("confidence: must be from"));
    let options = TuneOptions { hold_out: 0.95, ..TuneOptions::default() };
    assert!(refused(bursts(9, 1, 1, 100), options).starts_with("hold-out: must be from"));
}

#[test]
fn too_few_clients_are_a_result_with_the_number_that_is_needed() {
    let tuning = tuned(bursts(200, 2, 60, 600), "0.1% of users");
    let TuneResult::Shortage(shortage) = tuning.result else { panic!() };
    assert_eq!((shortage.sample, shortage.needed), (200, 2_995));
    let findings = tuning.findings().join("\n");
    assert!(findings.contains("at least 2,995 are needed, and the log has 200 clients"));
    assert!(findings.contains("`--deny-at-most '1.49% of users'`"), "{findings}");
    // What is suggested works.
    assert!(matches!(
        tuned(bursts(200, 2, 60, 600), "1.49% of users").result,
        TuneResult::Limit(_)
    ));

    let few = tuned(bursts(10, 2, 60, 600), "p80");
    assert!(matches!(few.result, TuneResult::Shortage(shortage) if shortage.needed == 20));
}

#[test]
fn one_client_has_no_share_of_users_but_a_share_of_requests_and_a_peak() {
    let one = || bursts(1, 20, 100, 10_000);
    let tuning = tuned(one(), "5% of users");
    assert!(matches!(tuning.result, TuneResult::Shortage(_)));
    assert!(tuning.findings().join("\n").contains("A share of clients cannot be judged"));
    let tuning = tuned(one(), "5% of requests");
    assert!(tuning.findings()[0].contains("There is no confidence interval: 1 client"));
    let TuneResult::Protection(found) = tuned(one(), "15/s").result else { panic!() };
    assert_eq!((found.peak, found.peak_clients), (20, 1));
    assert!(found.per_client.unwrap().training.peak <= 15);
}

#[test]
fn equal_clients_and_clients_with_one_request_are_admitted() {
    let equal = tuned(bursts(300, 1, 30, 3_600), "2% of users");
    assert_eq!(rule(&equal), "{ algorithm: token_bucket, rate: 2/m, burst: 1 }");
    let once = (0..5_000).map(|client| request(f64::from(client), client)).collect();
    let tuning = tuned(once, "0.1% of users");
    assert!(rule(&tuning).ends_with("burst: 1 }"), "{}", rule(&tuning));
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    assert_eq!(limit.outcome.held_out.denied_requests, 0);
    assert!(tuning.findings().join("\n").contains("100% of clients sent a single request"));
}

#[test]
fn one_client_with_most_of_the_traffic_moves_no_quantile_of_clients() {
    let mut arrivals = bursts(400, 5, 600, 7_200);
    let without = rule(&tuned(arrivals.clone(), "2% of users"));
    arrivals.extend((0..200_000).map(|i| request(f64::from(i) * 0.036, 400)));
    let tuning = tuned(arrivals, "2% of users");
    assert_eq!(rule(&tuning), without);
    assert!(tuning.findings().join("\n").contains("One client sent 8"), "{:?}", tuning.findings());
    // Nor the split: it is by active time, not by requests.
    let split = tuning.facts.split.since(tuning.facts.first).as_micros() as f64 / 7_200e6;
    assert!((split - 0.7).abs() < 0.01, "{split}");
}

#[test]
fn a_gap_in_the_log_leaves_both_parts_their_share() {
    // An hour, a week without anything, and an hour.
    let mut arrivals = bursts(300, 4, 300, 3_600);
    let mut later = arrivals.clone();
    for arrival in &mut later {
        arrival.at = arrival.at.after(Span::from_secs(7 * 86_400));
    }
    arrivals.extend(later);
    let tuning = tuned(arrivals, "2% of users");
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    let (training, held_out) = (limit.outcome.training, limit.outcome.held_out);
    assert!(training.requests > 14_000 && held_out.requests > 4_000, "{training:?} {held_out:?}");
    assert_eq!(held_out.denied_requests, 0);
    // Four each five minutes are 48 an hour.
    assert_eq!(rule(&tuning), "{ algorithm: token_bucket, rate: 50/h, burst: 4 }");
}

#[test]
fn times_in_whole_seconds_get_a_margin_of_a_second() {
    let exact: Vec<Arrival> = bursts(300, 1, 2, 3_600);
    let coarse =
        exact.iter().map(|one| request((one.at.as_micros() / 1_000_000) as f64, one.client));
    let (exact, coarse) =
        (tuned(exact.clone(), "2% of users"), tuned(coarse.collect(), "2% of users"));
    assert_eq!(rule(&exact), "{ algorithm: token_bucket, rate: 30/m, burst: 1 }");
    // Requests that are two seconds apart in the log may have been one apart.
    assert_eq!(rule(&coarse), "{ algorithm: token_bucket, rate: 30/m, burst: 2 }");
    assert!(coarse.findings().join("\n").contains("multiples of `1s`"));
    let (algorithm, window) = (TunedAlgorithm::SlidingLog, Span::from_millis(500));
    let options = TuneOptions { algorithm, window, ..TuneOptions::default() };
    let coarse = (0..900).map(|i| request(f64::from(i), i as u32 % 90)).collect();
    assert!(refused(coarse, options).starts_with("window: must be a multiple of `1s`"));
}

#[test]
fn a_number_that_the_algorithm_does_not_support_is_an_error() {
    let mut arrivals = Vec::new();
    for client in 0..100 {
        arrivals.extend((0..300).map(|i| Arrival { cost: 500, ..request(f64::from(i), client) }));
    }
    let algorithm = TunedAlgorithm::SlidingLog;
    let error = refused(arrivals.clone(), TuneOptions { algorithm, ..TuneOptions::default() });
    assert!(error.contains("must be at most `10000`"), "{error}");
    let algorithm = TunedAlgorithm::FixedWindow;
    let tuning =
        tuned_with(arrivals, "5% of users", TuneOptions { algorithm, ..TuneOptions::default() });
    assert_eq!(rule(&tuning), "{ algorithm: fixed_window, rate: 30000/m }");
}
