//! Log lines as an operator gets them.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::clock::{Clock, ManualClock, Timestamp};
use sluicegate_server::logs::{Format, Level, Options, events, subscriber};
use tracing::subscriber::with_default;
use tracing::{debug, error, info, warn};

/// Keeps what is written.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Each line comes in one piece, so that lines of several threads are not mixed.
        assert_eq!(bytes.last(), Some(&b'\n'));
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(1_794_744_000_123_456))
}

/// What is written while something is said.
fn written(options: Options, clock: impl Clock + 'static, say: impl FnOnce()) -> String {
    let paper = Paper::default();
    with_default(subscriber(options, clock, paper.clone()).unwrap(), say);
    paper.text()
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
    let (clock, paper) = (noon(), Paper::default());
    let options = Options { per_second: 2, ..at(Level::Info) };
    let noisy = |count| (0..count).for_each(|no| error!(target: "sluicegate", no, "noisy"));
    with_default(subscriber(options, clock.clone(), paper.clone()).unwrap(), || {
        noisy(10);
        info!(target: "sluicegate", "quiet");
        clock.advance(Duration::from_millis(499));
        noisy(1);
        clock.advance(Duration::from_millis(1));
        noisy(1);
        clock.advance(Duration::from_secs(1));
        noisy(1);
    });
    let text = paper.text();
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
