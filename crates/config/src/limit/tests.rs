use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::algorithm::cycle::Cycle;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::leaky_bucket::LeakyBucket;
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::algorithm::smooth::SmoothBursty;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::algorithm::warm_up::WarmUp;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::calendar::{Calendar, CalendarUnit};

use super::*;

mod messages;
mod random;

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Span::from_secs(seconds)).unwrap()
}

/// The one limit that `fields` make.
fn limit(fields: &str) -> LimitConfig {
    match limits("x", &format!("{{ {fields} }}")) {
        Ok(limits) => limits.into_iter().next().unwrap(),
        Err(problems) => panic!("{fields}: {problems}"),
    }
}

/// The problems reported for the text.
fn told(text: &str) -> Vec<String> {
    let problems = limits("x", text).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_algorithm_is_read() {
    let ten = rate(10, 1);
    let bucket = |burst| TokenBucket::new(ten, burst).unwrap();
    let minute = Span::from_secs(60);
    let second = Span::from_secs(1);
    let window = |align| Limit::FixedWindow(FixedWindow::new(rate(600, 60), align));
    let log = |rates: &[Rate]| SlidingLog::new(rates).unwrap();
    let sliced = |slices| Limit::SlidingSlices(SlidingSlices::new(ten, slices).unwrap());
    let counter = |rounding| Limit::SlidingWindow(SlidingWindow::new(ten, rounding));
    let smooth = |max_burst| SmoothBursty::new(ten, max_burst).unwrap();
    let warm = |factor| Limit::WarmUp(WarmUp::new(ten, minute, factor).unwrap());
    let tally = |limit, period| Limit::Tally(Tally::new(limit, period).unwrap());
    let long = Span::from_secs(142 * 365 * 86_400);
    let table = [
        ("algorithm: unlimited", Limit::Unlimited),
        ("algorithm: token_bucket, rate: 10/s", Limit::TokenBucket(bucket(10))),
        ("algorithm: token_bucket, rate: 10/s, burst: 1_000", Limit::TokenBucket(bucket(1_000))),
        (
            "\"algorithm\": \"token_bucket\", \"rate\": \"10/s\", \"burst\": 50",
            Limit::TokenBucket(bucket(50)),
        ),
        (
            "algorithm: token_bucket, rate: 10 per second, initial: 0, refill: interval, \
             forget_after: 1h",
            Limit::TokenBucket(
                bucket(10)
                    .with_initial(0)
                    .and_then(|bucket| bucket.with_refill(Refill::Interval))
                    .and_then(|bucket| bucket.with_forget_after(Span::from_secs(3_600)))
                    .unwrap(),
            ),
        ),
        (
            "algorithm: token_bucket, rate: 10/s, refill: aligned",
            Limit::TokenBucket(bucket(10).with_refill(Refill::Aligned).unwrap()),
        ),
        ("algorithm: token_bucket, rate: 10/s, refill: greedy", Limit::TokenBucket(bucket(10))),
        (
            "algorithm: leaky_bucket, rate: 10/s",
            Limit::LeakyBucket(LeakyBucket::new(ten, 0).unwrap()),
        ),
        (
            "algorithm: leaky_bucket, rate: 10/s, queue: 20",
            Limit::LeakyBucket(LeakyBucket::new(ten, 20).unwrap()),
        ),
        ("algorithm: fixed_window, rate: 600/m", window(Align::Clock)),
        ("algorithm: fixed_window, rate: 600/m, align: clock", window(Align::Clock)),
        ("algorithm: fixed_window, rate: 600/m, align: first_hit", window(Align::FirstHit)),
        ("algorithm: sliding_log, rate: 10/s", Limit::SlidingLog(log(&[ten]))),
        (
            "algorithm: sliding_log, rates: [10/m, 2 per 3s], count_denied: true, min_gap: 200ms",
            Limit::SlidingLog(
                log(&[rate(10, 60), rate(2, 3)])
                    .counting_denied()
                    .unwrap()
                    .with_min_gap(Span::from_millis(200)),
            ),
        ),
        (
            "algorithm: sliding_log, rate: 10000/s, count_denied: false, min_gap: 0s",
            Limit::SlidingLog(log(&[rate(10_000, 1)])),
        ),
        ("algorithm: sliding_window, rate: 10/s", counter(Rounding::Floor)),
        ("algorithm: sliding_window, rate: 10/s, rounding: floor", counter(Rounding::Floor)),
        ("algorithm: sliding_window, rate: 10/s, rounding: up", counter(Rounding::Up)),
        ("algorithm: sliding_window, rate: 10/s, slices: 6", sliced(6)),
        ("algorithm: sliding_window, rate: 10/s, slices: 60", sliced(60)),
        ("algorithm: smooth_bursty, rate: 10/s", Limit::SmoothBursty(smooth(second))),
        (
            "algorithm: smooth_bursty, rate: 10/s, max_burst: 0s",
            Limit::SmoothBursty(smooth(Span::ZERO)),
        ),
        (
            "algorithm: smooth_bursty, rate: 10/s, max_burst: 1m, forget_after: 1m",
            Limit::SmoothBursty(smooth(minute).with_forget_after(minute).unwrap()),
        ),
        ("algorithm: warm_up, rate: 10/s, warm_up: 1m", warm(3_000)),
        ("algorithm: warm_up, rate: 10/s, warm_up: 1m, cold_factor: 2.5", warm(2_500)),
        (
            "algorithm: cycle, permits: 50, period: 500ms",
            Limit::Cycle(Cycle::new(50, Span::from_millis(500)).unwrap()),
        ),
        (
            "algorithm: concurrency, max: 10, lease: 30s",
            Limit::Concurrency(Concurrency::new(10, Span::from_secs(30)).unwrap()),
        ),
        ("algorithm: tally, rate: 600/m", tally(600, minute)),
        ("algorithm: tally, rate: 5 per 500ms", tally(5, Span::from_millis(500))),
        ("algorithm: tally, rate: 9007199254740991/142years", tally(EXACT_MAX, long)),
        // A rate of 0 admits nothing, but the tally still counts.
        ("algorithm: tally, rate: 0/s", tally(0, second)),
    ];
    for (fields, expected) in table {
        let limit = limit(fields);
        assert_eq!(limit.at(Timestamp::EPOCH), expected, "{fields}");
        assert!(!limit.is_calendar());
    }
}

#[test]
fn calendar_windows_are_read() {
    let units = [
        ("day", 1, CalendarUnit::Day),
        ("week", 7, CalendarUnit::Week),
        ("month", 30, CalendarUnit::Month),
        ("1 year", 365, CalendarUnit::Year),
    ];
    for (per, days, unit) in units {
        let rate = rate(10_000, days * 86_400);
        let expected = |zone| LimitConfig::calendar(None, rate, Calendar::new(zone, unit).unwrap());
        let written = format!("algorithm: fixed_window, rate: 10000/{per}, align: calendar");
        assert_eq!(limit(&written), expected("UTC"));
        assert_eq!(limit(&format!("{written}, zone: Europe/Berlin")), expected("Europe/Berlin"));
    }
}

#[test]
fn a_rate_of_nothing_closes_the_limit() {
    let table = [
        "algorithm: token_bucket, rate: 0/s",
        "algorithm: token_bucket, rate: 0/142years, burst: 9007199254740991, initial: 5",
        "algorithm: leaky_bucket, rate: 0/s, queue: 5",
        "algorithm: fixed_window, rate: 0/s, align: first_hit",
        "algorithm: fixed_window, rate: 0/day, align: calendar, zone: Asia/Tokyo",
        "algorithm: sliding_log, rate: 0/s, count_denied: true",
        "algorithm: sliding_log, rates: [5/s, 0/m]",
        "algorithm: sliding_window, rate: 0/s",
        "algorithm: smooth_bursty, rate: 0/s, max_burst: 5s",
        "algorithm: warm_up, rate: 0/142years, warm_up: 1h, cold_factor: 2.711",
        "algorithm: cycle, permits: 0, period: 1s",
        "algorithm: concurrency, max: 0, lease: 1s",
    ];
    for fields in table {
        assert_eq!(limit(fields).at(Timestamp::EPOCH), Limit::Closed, "{fields}");
    }
    // The other fields are still checked.
    let refused = [
        "algorithm: token_bucket, rate: 0/s, burst: 0",
        "algorithm: token_bucket, rate: 0/s, burst: 5, initial: 6",
        "algorithm: fixed_window, rate: 0/h, align: calendar",
        "algorithm: sliding_log, rates: [0/s, 20000/m]",
        "algorithm: warm_up, rate: 0/s, warm_up: 2h",
        "algorithm: warm_up, rate: 0/s, warm_up: 1h, cold_factor: 0.5",
        "algorithm: cycle, permits: 0, period: 0s",
        "algorithm: concurrency, max: 0, lease: 0s",
        "algorithm: smooth_bursty, rate: 0/s, max_burst: 1",
    ];
    for fields in refused {
        assert_eq!(told(&format!("{{ {fields} }}")).len(), 1, "{fields}");
    }
}

#[test]
fn names_and_lists_are_read() {
    let text = "- { name: burst, algorithm: token_bucket, rate: 10/s }\n- algorithm: unlimited\n- \
                algorithm: unlimited\n  name: 'all the rest'\n";
    let names: Vec<_> =
        limits("x", text).unwrap().iter().map(|limit| limit.name().map(str::to_owned)).collect();
    assert_eq!(names, [Some("burst".to_owned()), None, Some("all the rest".to_owned())]);
    let many = "- algorithm: unlimited\n".repeat(LIMITS_MAX);
    assert_eq!(limits("x", &many).unwrap().len(), LIMITS_MAX);
    let shared = "- &a { algorithm: token_bucket, rate: &r 10/s }\n- *a\n- { algorithm: \
                  sliding_log, rate: *r }\n";
    assert_eq!(limits("x", shared).unwrap().len(), 3);
    assert_eq!(
        limit(&format!("algorithm: unlimited, name: {}", "ä".repeat(64))).name().map(str::len),
        Some(128)
    );
}
