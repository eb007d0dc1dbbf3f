//! The pass that computes sizes agrees with the core, and with brute force.

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::verdict::Outcome;

use super::*;

fn requests() -> impl Strategy<Value = Vec<Arrival>> {
    // Gaps of all sizes, and none.
    let gap = prop_oneof![Just(0), 1..50_u64, 1_000..2_000_000_u64, 1_000_000..400_000_000_u64];
    let start = 0..5_000_000_000_u64;
    (start, prop::collection::vec((gap, 0..6_u32), 1..60)).prop_map(|(mut us, gaps)| {
        let arrival = |(gap, cost)| {
            us += gap;
            Arrival { at: Timestamp::from_micros(us), client: 0, cost }
        };
        gaps.into_iter().map(arrival).collect()
    })
}

fn shapes() -> impl Strategy<Value = LimitShape> {
    let rate = (1..5_000_u64, prop_oneof![Just(1), Just(7), Just(60), Just(3_600)]);
    let window = prop_oneof![Just(1), Just(10), Just(60)].prop_map(Span::from_secs);
    prop_oneof![
        3 => rate.prop_map(|(count, s)| {
            LimitShape::TokenBucket(Rate::new(count, Span::from_secs(s)).unwrap())
        }),
        1 => window.clone().prop_map(LimitShape::SlidingLog),
        1 => window.clone().prop_map(LimitShape::SlidingWindow),
        1 => window.prop_map(LimitShape::FixedWindow),
    ]
}

/// Denied requests, by the complete operation of the core.
fn denied(limit: Limit, requests: &[Arrival]) -> usize {
    let plan = [EnforcedLimit::new(limit, Mode::Hard).unwrap()];
    let mut account = Account::default();
    let hit = |request: &&Arrival| {
        let op = Op::Hit { cost: u64::from(request.cost), holder: None };
        let answer = account.apply(&plan, op, Moment::at(request.at)).unwrap();
        !matches!(answer.verdict.outcome, Outcome::Allow { .. })
    };
    requests.iter().filter(hit).count()
}

proptest! {
    #[test]
    fn the_needed_size_is_the_smallest_that_denies_nothing(
        requests in requests(), shape in shapes(),
    ) {
        let size = shape.needed_size(&requests, Span::ZERO);
        prop_assert_eq!(denied(shape.limit(size).unwrap(), &requests), 0);
        if size > 1 {
            prop_assert!(denied(shape.limit(size - 1).unwrap(), &requests) > 0);
        }
    }

    #[test]
    fn decisions_are_those_of_the_complete_operation(
        requests in requests(), shape in shapes(), size in 1..30_u64,
    ) {
        let limit = shape.limit(size).unwrap();
        let mut state = State::New;
        let here = requests.iter().filter(|request| !decide(&limit, &mut state, request)).count();
        prop_assert_eq!(here, denied(limit, &requests));
    }

    #[test]
    fn coarse_times_need_no_less_than_exact_ones(requests in requests(), shape in shapes()) {
        let second = 1_000_000;
        let coarse: Vec<Arrival> = requests
            .iter()
            .map(|request| {
                let us = request.at.as_micros();
                Arrival { at: Timestamp::from_micros(us - us % second), ..*request }
            })
            .collect();
        let size = shape.needed_size(&coarse, Span::from_micros(second));
        prop_assert_eq!(denied(shape.limit(size).unwrap(), &requests), 0);
    }

    #[test]
    fn no_client_is_admitted_more_than_the_bound(
        requests in requests(), shape in shapes(), size in 1..20_u64, span in 1..120_000_000_u64,
    ) {
        let limit = shape.limit(size).unwrap();
        let (mut state, mut sum) = (State::New, RollingSum::new(Span::from_micros(span)));
        let most = shape.admitted_max(size, Span::from_micros(span));
        for request in requests.iter().filter(|request| decide(&limit, &mut state, request)) {
            prop_assert!(sum.add(request.at, u64::from(request.cost)) <= most);
        }
    }

    #[test]
    fn rolling_sums_are_those_of_brute_force(requests in requests(), span in 1..90_000_000_u64) {
        let window = Span::from_micros(span);
        let mut rolling = RollingSum::new(window);
        let mut peak = 1;
        for (index, request) in requests.iter().enumerate() {
            let recent = requests[..=index].iter();
            let recent = recent.filter(|entry| request.at.since(entry.at) < window);
            let sum: u64 = recent.map(|entry| u64::from(entry.cost)).sum();
            prop_assert_eq!(rolling.add(request.at, u64::from(request.cost)), sum);
            peak = peak.max(sum);
        }
        prop_assert_eq!(rolling_peak(&requests, window), peak);
    }
}
