//! Counters for StatsD, under the names of envoyproxy/ratelimit.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, Span, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::statsd::{Options, StatsdSink};
use sluicegate_server::telemetry::{Endpoint, Fault};

const RULES: &str = "domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: ip, value: 10.0.0.1, rate_limit: { unit: year, requests_per_unit: 9 } }
";

fn app(rules: &str, metric_values: usize) -> (Engine, App, StatsdSink) {
    let engine = Engine::builder(rules_of(rules).unwrap()).clock(ManualClock::new());
    let engine = engine.metric_values(metric_values).build().unwrap();
    let flush_interval = Duration::from_secs(10);
    let (host, tags) = ("localhost".to_owned(), [].into());
    let options = Options { host, port: 8125, flush_interval, tags };
    (engine.clone(), App::new(engine), StatsdSink::new(options))
}

fn hit(engine: &Engine, key: &str, value: &str) {
    let entries = [Entry::new(key, value)];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let _ = engine.check(&request);
}

#[test]
fn a_flush_has_what_was_counted_since_the_last() {
    let (engine, app, mut sink) = app(RULES, 0);
    (0..3).for_each(|_| hit(&engine, "user", "alice"));
    hit(&engine, "ip", "10.0.0.1");
    let rule = "ratelimit.service.rate_limit.shop";
    let lines = sink.take_lines(&app);
    for line in [
        format!("{rule}.user.total_hits:3|c"),
        format!("{rule}.user.over_limit:1|c"),
        format!("{rule}.user.within_limit:2|c"),
        format!("{rule}.ip_10_0_0_1.total_hits:1|c"),
    ] {
        assert!(lines.lines().any(|one| one == line), "{line}:\n{lines}");
    }
    hit(&engine, "user", "alice");
    let lines = sink.take_lines(&app);
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [format!("{rule}.user.over_limit:1|c"), format!("{rule}.user.total_hits:1|c")]
    );
}

#[test]
fn calls_and_their_times() {
    let (_, app, mut sink) = app(RULES, 0);
    let telemetry = app.telemetry();
    telemetry.record_responses(Endpoint::ShouldRateLimit, Span::from_micros(200), 4);
    telemetry.record_failure(Endpoint::Json, Fault::Store);
    let lines = sink.take_lines(&app);
    let expected = "ratelimit.service.call.should_rate_limit.redis_error:1|c\n\
                    ratelimit_server.ShouldRateLimit.total_requests:4|c\n\
                    ratelimit_server.ShouldRateLimit.response_time:0.25|ms|@0.25\n";
    assert_eq!(lines, expected);
}

/// The total hits of a flush, by the key of their rule and value.
fn total_hits(lines: &str) -> Vec<(&str, u64)> {
    let read = |line: &'_ str| {
        let (key, count) = line.split_once(".total_hits:")?;
        Some((key.len(), count.strip_suffix("|c")?.parse().ok()?))
    };
    let prefix = "ratelimit.service.rate_limit.".len();
    let all = lines.lines().filter_map(|line| read(line).map(|(end, n)| (&line[prefix..end], n)));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

#[test]
fn values_have_the_keys_of_envoyproxy_ratelimit() {
    let rules = "domain: shop
descriptors:
  - { key: user, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 100 } }
  - { key: user, value: bob, rate_limit: { unit: year, requests_per_unit: 100 } }
";
    let (engine, app, mut sink) = app(rules, 2);
    (0..5).for_each(|_| hit(&engine, "user", "alice"));
    for user in ["x\ny:1|c", "10.0.0.1", "bob"] {
        hit(&engine, "user", user);
    }
    let lines = sink.take_lines(&app);
    let other = "shop.user.other";
    let first =
        [(other, 1), ("shop.user_alice", 5), ("shop.user_bob", 1), ("shop.user_x_y_1_c", 1)];
    assert_eq!(total_hits(&lines), first);
    // The address is listed, replaced and listed again before the next flush.
    hit(&engine, "user", "10.0.0.1");
    (0..3).for_each(|_| hit(&engine, "user", "x\ny:1|c"));
    (0..4).for_each(|_| hit(&engine, "user", "10.0.0.1"));
    hit(&engine, "user", "alice");
    let lines = sink.take_lines(&app);
    let second = [(other, 7), ("shop.user_10_0_0_1", 1), ("shop.user_alice", 1)];
    assert_eq!(total_hits(&lines), second, "all nine hits, each once");
    assert_eq!(sink.take_lines(&app), "");
}
