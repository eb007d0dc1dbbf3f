//! Log lines as an operator gets them.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use http_support::{asking, engine_of, post};
use sluicegate::clock::{Clock, ManualClock, Timestamp};
use sluicegate_server::app::App;
use sluicegate_server::http::{self, router};
use sluicegate_server::logs::{Format, Level, Options, events, subscriber};
use sluicegate_testkit::log::{Log, subscribe};
use tracing::{debug, error, info, warn};

const SHOP: &str = "
domain: shop
descriptors:
  - { key: user, limits: { name: users, algorithm: fixed_window, rate: 3/h } }
";

fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(1_794_744_000_123_456))
}

/// What is written while something is said.
fn written(options: Options, clock: impl Clock + 'static, say: impl FnOnce()) -> String {
    let log = Log::default();
    let _guard = subscribe(subscriber(options, clock, log.clone()).unwrap());
    say();
    log.text()
}

fn at(level: Level) -> Options {
    Options { level, ..Options::default() }
}

#[test]
fn text() {
    let text = written(at(Level::Debug), noon(), || {
        info!(target: "sluicegate", "one word");
        debug!(target: "sluicegate", domain = "a shop", rule = "x", open = 3, yes = true, ratio = 0.5, error = %"e=1", "said");
    });
    assert_eq!(
        text,
        "2026-11-15T12:00:00.123Z INFO  one word\n\
         2026-11-15T12:00:00.123Z DEBUG said domain=\"a shop\" rule=x open=3 yes=true ratio=0.5 error=\"e=1\"\n"
    );
}

#[test]
fn json() {
    let options = Options { format: Format::Json, ..at(Level::Warn) };
    let text = written(options, noon(), || {
        warn!(target: "sluicegate", domain = "a \"shop\"\n", open = 3, off = -1, yes = true, no_number = f64::NAN, "said");
    });
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "@timestamp": "2026-11-15T12:00:00.123Z", "level": "warning", "@message": "said",
        "domain": "a \"shop\"\n", "open": 3, "off": -1, "yes": true, "no_number": "NaN",
    });
    assert_eq!(line, expected);
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn what_clients_send_stays_on_its_line() {
    let evil = "x\n2026-11-15T12:00:00.123Z ERROR all is lost\u{1b}[2J\u{2028}\"} {";
    for format in [Format::Text, Format::Json] {
        let text = written(Options { format, ..at(Level::Debug) }, noon(), || {
            events::request_denied(evil, Some("rule"));
            warn!(target: "sluicegate", "{evil}");
            info!(target: "sluicegate", evil = ?evil);
        });
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{2028}')), "{text}");
    }
}

#[test]
fn levels() {
    let say = || {
        error!(target: "sluicegate", "error");
        warn!(target: "sluicegate", "warn");
        info!(target: "sluicegate", "info");
        error!(target: "h2", "their error");
        info!(target: "h2", "their info");
    };
    let said = |level| written(at(level), noon(), say).lines().count();
    assert_eq!(said(Level::Fatal), 0);
    assert_eq!(said(Level::Error), 2);
    assert_eq!(said(Level::Warn), 3);
    assert_eq!(said(Level::Info), 4);
    assert_eq!(said(Level::Trace), 5);
    let theirs = written(at(Level::Error), noon(), || error!(target: "h2", "their error"));
    assert!(theirs.ends_with(" ERROR their error target=h2\n"), "{theirs}");
}

#[test]
fn a_noisy_place_is_silenced_and_says_so_later() {
    let (clock, log) = (noon(), Log::default());
    let options = Options { per_second: 2, ..at(Level::Info) };
    let noisy = |count| (0..count).for_each(|no| error!(target: "sluicegate", no, "noisy"));
    let _guard = subscribe(subscriber(options, clock.clone(), log.clone()).unwrap());
    noisy(10);
    info!(target: "sluicegate", "quiet");
    clock.advance(Duration::from_millis(499));
    noisy(1);
    clock.advance(Duration::from_millis(1));
    noisy(1);
    clock.advance(Duration::from_secs(1));
    noisy(1);
    let text = log.text();
    let said: Vec<&str> = text.lines().map(|line| &line[25..]).collect();
    let expected = [
        "ERROR noisy no=0",
        "ERROR noisy no=1",
        "INFO  quiet",
        // Eight of ten, and the one that came too early.
        "ERROR noisy no=0 suppressed=9",
        "ERROR noisy no=0",
    ];
    assert_eq!(said, expected);
}

#[test]
fn without_a_limit_everything_is_said() {
    let options = Options { per_second: 0, ..at(Level::Info) };
    let text = written(options, noon(), || {
        (0..1_000).for_each(|_| info!(target: "sluicegate", "again"));
    });
    assert_eq!(text.lines().count(), 1_000);
}

#[test]
fn keys_are_told_only_where_everything_is() {
    use sluicegate::rules::request::Entry;
    let say = || {
        events::request_denied("shop", Some("users"));
        events::descriptor_denied("shop", &[Entry::new("user", "alice")]);
    };
    let debug = written(at(Level::Debug), noon(), say);
    assert!(debug.ends_with("request denied domain=shop rule=users\n"), "{debug}");
    assert!(!debug.contains("alice"));
    let trace = written(at(Level::Trace), noon(), say);
    assert!(trace.contains("keys=\"user=alice\""), "{trace}");
}

#[tokio::test]
async fn an_unknown_domain_is_a_warning_once_and_their_number_is_bounded() {
    let (engine, clock) = engine_of(SHOP);
    let router = router(App::new(engine), http::Options::default());
    let log = Log::default();
    let _guard = subscribe(subscriber(at(Level::Info), clock.clone(), log.clone()).unwrap());
    let check = async |domain: &str| {
        let body = format!(r#"{{"domain":"{domain}","descriptors":[{{"user":"a"}}]}}"#);
        assert_eq!(post(&router, "/v1/check", body).await.status, 200);
    };
    for domain in ["shpo", "shpo", "nowhere", "shop"] {
        check(domain).await;
    }
    let text = log.take();
    assert_eq!(text.lines().count(), 2, "{text}");
    for part in [
        "WARN  requests for a domain without rules: did you mean `shop`?; correct the domain",
        "`--unmatched` allows or denies such requests domain=shpo unmatched=allow\n",
        "requests for a domain without rules: there are rules for `shop`; correct the domain",
        "domain=nowhere",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for index in 0..100 {
        check(&format!("random-{index}")).await;
    }
    check(&"x".repeat(200)).await;
    let text = log.take();
    assert_eq!(text.lines().count(), 31, "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("more than 32 domains without rules"), "{last}");
    clock.advance(Duration::from_secs(600));
    check("shpo").await;
    assert!(log.take().contains("domain=shpo"), "again while it lasts");
}

#[tokio::test]
async fn descriptors_without_a_rule_and_denials_are_lines_without_values() {
    let (engine, _) = engine_of(SHOP);
    let router = router(App::new(engine), http::Options::default());
    let log = Log::default();
    let options = Options { per_second: 2, ..at(Level::Debug) };
    let _guard = subscribe(subscriber(options, ManualClock::new(), log.clone()).unwrap());
    let body = r#"{"domain":"shop","descriptors":[{"path":"/secret","x":"1"}]}"#;
    for _ in 0..9 {
        post(&router, "/v1/check", body).await;
    }
    for _ in 0..4 {
        post(&router, "/v1/check", asking("user", "alice")).await;
    }
    let text = log.text();
    let line = "no rule matches domain=shop reason=no_rule keys=path,x";
    assert_eq!(text.matches(line).count(), 2, "rate limited: {text}");
    assert_eq!(text.matches("request denied domain=shop rule=shop/user").count(), 1, "{text}");
    assert!(!text.contains("secret") && !text.contains("alice"), "no values: {text}");
}
