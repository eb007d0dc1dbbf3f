//! Each goal is met on the traffic that a limit was chosen from, and no stricter limit meets it.

use sluicegate_core::time::Span;
use sluicegate_lab::arrival::Arrival;
use sluicegate_lab::tune::shape::LimitShape;
use sluicegate_lab::tune::usage::UsageByClient;
use sluicegate_lab::tune::{Basis, TuneOptions, TuneResult, TunedAlgorithm};

use crate::tenants::tenants;
use crate::{bursts, request, rule, tuned, tuned_with};

const NO_HOLD_OUT: TuneOptions = TuneOptions {
    algorithm: TunedAlgorithm::TokenBucket,
    window: Span::from_secs(60),
    horizon: Span::from_secs(60),
    confidence: 0.95,
    hold_out: 0.0,
};

/// Clients that need more than a size, one by one.
fn exceeding(arrivals: &[Arrival], shape: LimitShape, size: u64) -> usize {
    let usage = UsageByClient::new(arrivals.to_vec()).unwrap();
    usage.clients().filter(|one| shape.needed_size(one, Span::ZERO) > size).count()
}

#[test]
fn the_limit_denies_as_many_clients_as_the_promise_permits_and_no_smaller_one_does() {
    let arrivals = tenants(3, 1_000, 2.0);
    let tuning = tuned_with(arrivals.clone(), "2% of users", NO_HOLD_OUT);
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    let Basis::Clients { sample, tolerated, interval, estimate, .. } = limit.basis else {
        panic!()
    };
    assert!(sample > 700 && tolerated > 5 && tolerated < 20, "{sample} {tolerated}");
    assert!(exceeding(&arrivals, limit.shape, limit.size) <= tolerated);
    assert!(exceeding(&arrivals, limit.shape, limit.size - 1) > tolerated);
    assert!(interval[0] <= estimate && estimate <= interval[1] && interval[1] == limit.size);
    assert!(exceeding(&arrivals, limit.shape, estimate) <= sample / 50);
    // The outcome is that of the core, and no point of the curve is stricter.
    assert_eq!(
        limit.outcome.training.denied_clients,
        exceeding(&arrivals, limit.shape, limit.size)
    );
    for point in &tuning.curve {
        assert!(exceeding(&arrivals, point.shape, point.size) <= tolerated);
        let admitted = point.shape.admitted_max(point.size, NO_HOLD_OUT.horizon);
        assert!(admitted >= limit.admitted_max, "{:?}", point.shape);
    }
    // Sizes fall with the rate and with the share.
    for pair in tuning.curve.windows(2) {
        assert!(pair[0].size >= pair[1].size);
        assert!(pair[0].shown.is_sorted() && pair[0].lower <= pair[0].size);
    }
}

#[test]
fn bursts_are_admitted_by_a_burst_and_not_by_a_rate() {
    // Ten requests within 90 ms, each ten minutes.
    let arrivals = bursts(100, 10, 600, 7_200);
    assert_eq!(
        rule(&tuned(arrivals.clone(), "5% of users")),
        "{ algorithm: token_bucket, rate: 1/m, burst: 10 }"
    );
    // Windows: no burst can begin in one and end in the next without being seen by the log.
    for (algorithm, name) in [
        (TunedAlgorithm::SlidingLog, "sliding_log"),
        (TunedAlgorithm::SlidingWindow, "sliding_window"),
        (TunedAlgorithm::FixedWindow, "fixed_window"),
    ] {
        let tuning =
            tuned_with(arrivals.clone(), "5% of users", TuneOptions { algorithm, ..NO_HOLD_OUT });
        assert_eq!(rule(&tuning), format!("{{ algorithm: {name}, rate: 10/m }}"));
    }
    // A long horizon prefers low rates.
    let options = TuneOptions { horizon: Span::from_secs(3_600), ..NO_HOLD_OUT };
    let TuneResult::Limit(long) = tuned_with(arrivals, "5% of users", options).result else {
        panic!()
    };
    assert!(long.size >= 10 && long.admitted_max <= 10 + 60, "{long:?}");
}

#[test]
fn a_share_of_requests_is_kept_with_its_upper_bound() {
    let arrivals = tenants(9, 600, 2.0);
    let tuning = tuned_with(arrivals, "1% of requests", NO_HOLD_OUT);
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    let Basis::Requests(share) = limit.basis else { panic!() };
    let training = limit.outcome.training;
    assert_eq!(share.estimate, training.request_share());
    let [low, high] = share.interval.unwrap();
    assert!(low < share.estimate && share.estimate < high && high <= 0.01, "{share:?}");
    // Not much stricter than it must be.
    assert!(high > 0.005, "{share:?}");
}

#[test]
fn good_clients_are_served_and_abusers_are_not() {
    // A thousand clients with a few requests a minute, and three that send ten in each second.
    let mut arrivals = bursts(1_000, 3, 300, 3_600);
    for abuser in 1_000..1_003 {
        arrivals.extend((0..36_000).map(|i| request(f64::from(i) * 0.1, abuser)));
    }
    let tuning = tuned(arrivals, "p99 of good clients");
    let good = tuning.good.unwrap();
    assert_eq!((good.good, good.abusers), (1_000, 3));
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    for part in [limit.outcome.training, limit.outcome.held_out] {
        assert_eq!((part.counted_clients, part.denied_counted_clients), (1_000, 0));
        assert_eq!((part.clients, part.denied_clients), (1_003, 3));
        assert!(part.denied_requests > 10_000, "{part:?}");
    }
    assert!(limit.outcome.worst.iter().all(|one| one.is_extreme && one.client >= 1_000));
    assert_eq!(limit.outcome.worst.len(), 3);
}

#[test]
fn a_capacity_is_held_at_the_cost_of_the_heavy_client() {
    // 50 clients send two requests a second in sum, and one sends 20.
    let mut arrivals: Vec<Arrival> =
        (0..7_200).map(|i| request(f64::from(i) * 0.5, i % 50)).collect();
    arrivals.extend((0..72_000).map(|i| request(f64::from(i) * 0.05 + 0.003, 99)));
    let tuning = tuned(arrivals.clone(), "10/s");
    let TuneResult::Protection(found) = &tuning.result else { panic!() };
    assert_eq!((found.peak, found.peak_clients), (22, 3));
    let limit = found.per_client.unwrap();
    assert_eq!(limit.training.denied_clients, 1, "{limit:?}");
    assert!(limit.training.peak <= 10 && limit.held_out.peak <= 10, "{limit:?}");
    // Some eight a second are left for the heavy client: 60 % of its requests are denied.
    let share = limit.training.denied_requests as f64 / limit.training.requests as f64;
    assert!((0.5..0.65).contains(&share), "{share}");
    // The limit of all guarantees it, and denies others.
    assert!(found.overall.training.peak <= 10 && found.overall.held_out.peak <= 10);
    assert!(found.overall.training.denied_clients > 10, "{:?}", found.overall);
    assert_eq!(found.overall_denied, [0, 0]);

    // Many at once: no limit per client helps.
    let herd = (0..3_000).map(|i| request(f64::from(i / 30) * 60.0, i % 30)).collect();
    let TuneResult::Protection(found) = tuned(herd, "10/s").result else { panic!() };
    assert_eq!((found.peak, found.per_client), (30, None));
    assert!(found.overall.training.peak <= 10);

    // A capacity that is not reached costs nothing.
    let TuneResult::Protection(found) = tuned(arrivals, "100/s").result else { panic!() };
    assert_eq!(found.per_client.unwrap().training.denied_requests, 0);
    assert_eq!(found.overall.training.denied_requests, 0);
}

#[test]
fn a_change_of_the_traffic_is_noticed_on_the_part_held_out() {
    // After two hours each client sends three times as many.
    let mut arrivals = bursts(400, 5, 600, 7_200);
    let mut later = bursts(400, 15, 600, 3_600);
    for arrival in &mut later {
        arrival.at = arrival.at.after(Span::from_secs(7_200));
    }
    arrivals.extend(later);
    let tuning = tuned(arrivals, "2% of users");
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    assert_eq!(limit.outcome.held_out.denied_clients, 400);
    let findings = tuning.findings().join("\n");
    assert!(findings.contains("the traffic has changed"), "{findings}");
    let steady = tuned(bursts(400, 5, 600, 10_800), "2% of users").findings().join("\n");
    assert!(steady.contains("The promise holds"), "{steady}");
}
