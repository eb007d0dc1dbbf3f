//! Replays of generated logs: counts against a naive model, shards against one thread, two sets of
//! rules, schedules by the time of the log.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use sluicegate_config::rules::{Options, Source, load, request_descriptor};
use sluicegate_core::time::Span;
use sluicegate_rules::mapping::Mapping;

use super::json::ReplayOutput;
use super::run::{LogReplay, ReplayResult, ReplayedRules};
use crate::log_input::LogInput;
use crate::log_input::mapping::LogMapping;

/// A log in a file of its own.
struct TestLog(PathBuf);

impl TestLog {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("sluicegate-replay-{name}-{}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn input(&self, parsers: usize) -> LogInput {
        LogInput { parsers, ..LogInput::new([&self.0]) }
    }
}

impl Drop for TestLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A line at a second of a day, of a client, for a path.
fn line(second: u64, client: u64, path: &str) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "192.0.2.{client} - - [16/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5 \
         \"-\" \"curl/8\"\n"
    )
}

/// Requests of many clients, of which few send many.
fn traffic(count: u64) -> String {
    let (mut rng, mut text) = (fastrand::Rng::with_seed(7), String::new());
    for number in 0..count {
        let client = (200f64.powf(rng.f64())) as u64;
        let path = ["/", "/search?q=a", "/login"][rng.usize(..3)];
        text += &line(number / 5, client, path);
    }
    text
}

fn replayed(rules: &str, descriptors: &[&str]) -> ReplayedRules {
    let source = Source { name: "rules".to_owned(), text: rules.to_owned() };
    let domains = load(&[source], &Options::default()).unwrap().domains;
    let read = |text: &&str| request_descriptor("test", text).unwrap();
    let mapping = Mapping { descriptors: descriptors.iter().map(read).collect(), hits: None };
    ReplayedRules { domains, mapping: LogMapping { domain: "web".to_owned(), mapping } }
}

fn run(replay: &LogReplay, input: &LogInput) -> ReplayResult {
    replay.run(input, &mut ReplayOutput::default(), |_| {}).unwrap()
}

const PER_CLIENT: &str = "domain: web
descriptors:
  - key: ip
    limits: { algorithm: fixed_window, rate: 10/m }
    descriptors:
      - { key: path, value: /search, limits: { algorithm: sliding_log, rate: 30/h } }
";
const ONE: [&str; 1] = ["{ ip: client_ip }"];
const TWO: [&str; 2] = ["{ ip: client_ip }", "{ ip: client_ip, path: path }"];

#[test]
fn counts_are_those_of_a_naive_model() {
    let text = traffic(5_000);
    let log = TestLog::new("naive", &text);
    let result = run(&LogReplay::new(replayed(PER_CLIENT, &ONE)), &log.input(0));
    let mut windows: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut denied: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let client = line.split(' ').next().unwrap();
        let minute = line.split('[').nth(1).unwrap().get(..17).unwrap();
        let count = windows.entry((client, minute)).or_default();
        *count += 1;
        *denied.entry(client).or_default() += u64::from(*count > 10);
    }
    let all: u64 = denied.values().sum();
    assert!(all > 500, "{all}");
    let tally = &result.rules.tally;
    let counts = tally.requests;
    assert_eq!((counts.requests, counts.denied, counts.allowed), (5_000, all, 5_000 - all));
    let [rule] = tally.rules.as_slice() else { panic!("{tally:?}") };
    assert_eq!((rule.id.as_str(), rule.requests.denied, rule.hits), ("web/ip", all, 5_000));
    assert_eq!(rule.identities.denied(), denied.values().filter(|one| **one > 0).count() as u64);
    let worst = rule.identities.worst(3).into_iter();
    let worst: Vec<u64> = worst.map(|(_, tally)| tally.denied).collect();
    let mut due: Vec<u64> = denied.into_values().collect();
    due.sort_unstable_by_key(|one| std::cmp::Reverse(*one));
    assert_eq!(worst, due[..3]);
    let buckets: u64 = rule.series.buckets().map(|(_, one)| one.denied).sum();
    assert_eq!(buckets, all);
}

#[test]
fn shards_and_parsing_threads_give_the_result_of_one_thread() {
    let log = TestLog::new("shards", &traffic(30_000));
    let other = PER_CLIENT.replace("10/m", "5/m");
    let replay = |shards, parsers| {
        let against = Some(replayed(&other, &TWO));
        let rules = replayed(PER_CLIENT, &TWO);
        let replay = LogReplay { against, shards, ..LogReplay::new(rules) };
        run(&replay, &log.input(parsers)).to_json(&[])
    };
    let alone = replay(1, 0);
    let denied = &alone["comparison"]["newly_denied"]["requests"];
    assert!(denied.as_u64().unwrap() > 1_000, "{denied}");
    assert_eq!(replay(1, 2), alone);
    assert_eq!(replay(3, 2), alone);
}

#[test]
fn every_difference_and_every_decision_is_a_line() {
    let log = TestLog::new("lines", &traffic(2_000));
    let against = Some(replayed(&PER_CLIENT.replace("10/m", "2/m"), &ONE));
    let replay = LogReplay { against, ..LogReplay::new(replayed(PER_CLIENT, &ONE)) };
    let (mut decisions, mut differences) = (Vec::new(), Vec::new());
    let mut output = ReplayOutput {
        decisions: Some(Box::new(&mut decisions)),
        differences: Some(Box::new(&mut differences)),
        logs: vec!["access.log".into()],
    };
    let result = replay.run(&log.input(1), &mut output, |_| {}).unwrap();
    drop(output);
    let lines = |bytes: &[u8]| -> Vec<Value> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (decisions, differences) = (lines(&decisions), lines(&differences));
    let comparison = result.comparison.unwrap();
    assert_eq!((decisions.len(), comparison.requests()), (2_000, 2_000));
    let is_denied = |line: &&Value| line["verdict"] == "denied";
    let denied = decisions.iter().filter(is_denied).count() as u64;
    assert_eq!(denied, result.rules.tally.requests.denied);
    assert_eq!(comparison.newly_denied.requests, differences.len() as u64);
    assert_eq!(comparison.newly_allowed.requests, 0);
    let first = &differences[0];
    assert_eq!(
        (&first["before"]["verdict"], &first["after"]["verdict"]),
        (&"allowed".into(), &"denied".into())
    );
    assert_eq!((&first["log"], &first["after"]["rule"]), (&"access.log".into(), &"web/ip".into()));
    let line = decisions.iter().find(|line| line["line"] == first["line"]).unwrap();
    assert_eq!((&line["verdict"], &line["time"]), (&"allowed".into(), &first["time"]));
}

#[test]
fn schedules_follow_the_time_of_the_log() {
    let rules = "domain: web
descriptors:
  - key: ip
    limits: { name: per_minute, algorithm: fixed_window, rate: 5/m }
    schedule:
      - { from: 00:00, until: 06:00, zone: UTC, limits: { name: per_minute, algorithm: fixed_window, rate: 1/m } }
";
    let burst = |hour: u64| (0..8).map(|_| line(hour * 3_600, 1, "/")).collect::<String>();
    let log = TestLog::new("schedule", &(burst(3) + &burst(5) + &burst(12)));
    let result = run(&LogReplay::new(replayed(rules, &ONE)), &log.input(0));
    let denied: Vec<u64> =
        result.rules.tally.series.worst(9).into_iter().map(|(_, one)| one.denied).collect();
    assert_eq!(denied, [7, 7, 3]);
}

#[test]
fn requests_over_a_limit_that_shapes_wait_or_are_denied() {
    let rules = "domain: web
descriptors:
  - { key: ip, on_limit: shape, limits: { algorithm: token_bucket, rate: 1/s, burst: 2 } }
";
    let text: String = (0..10).map(|_| line(0, 1, "/")).collect();
    let log = TestLog::new("shape", &text);
    let counts = |max_wait| {
        let replay = LogReplay { max_wait, ..LogReplay::new(replayed(rules, &ONE)) };
        let result = run(&replay, &log.input(0));
        let rule = &result.rules.tally.rules[0];
        let counts = rule.requests;
        (counts.allowed, counts.delayed, counts.denied, rule.delay_max)
    };
    assert_eq!(counts(Span::ZERO), (2, 0, 8, Span::ZERO));
    assert_eq!(counts(Span::from_secs(3)), (2, 3, 5, Span::from_secs(3)));
}

#[test]
fn lists_and_unmatched_requests_are_no_requests_of_a_rule() {
    let rules = "domain: web
allow: [{ key: ip, value: 192.0.2.1 }]
deny: [{ key: ip, value: 192.0.2.2 }]
descriptors:
  - { key: ip, value: 192.0.2.3, mode: shadow, limits: { algorithm: fixed_window, rate: 1/m } }
";
    let text: String = [1, 2, 3, 3, 4].map(|client| line(0, client, "/")).concat();
    let log = TestLog::new("lists", &text);
    let result = run(&LogReplay::new(replayed(rules, &ONE)), &log.input(0));
    let counts = result.rules.tally.requests;
    assert_eq!((counts.allow_listed, counts.deny_listed, counts.unmatched), (1, 1, 1));
    assert_eq!((counts.denied, counts.shadow_denied, counts.allowed), (1, 1, 3));
    assert_eq!(result.rules.tally.rules[0].requests.requests, 2);
}

#[test]
fn identities_beyond_the_bound_are_estimated() {
    let log = TestLog::new("bound", &traffic(5_000));
    let replay = LogReplay { identities_max: 10, ..LogReplay::new(replayed(PER_CLIENT, &ONE)) };
    let result = run(&replay, &log.input(0));
    let rule = &result.rules.tally.rules[0];
    assert_eq!(rule.identities.len(), 10);
    let exact: u64 = rule.identities.worst(10).iter().map(|(_, tally)| tally.requests).sum();
    assert_eq!(exact + rule.identities.others().requests, 5_000);
    let text = result.to_text(&[], 5);
    assert!(text.contains("beyond the number that is counted exactly"), "{text}");
}
