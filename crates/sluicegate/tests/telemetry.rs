//! Decisions as metrics and as events.

#![cfg(all(feature = "metrics", feature = "tracing"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use sluicegate::limit::FixedWindow;
use sluicegate::{Limiter, Memory, MetricsListener, Overflow, TracingListener};
use sluicegate_testkit::log::{Log, subscribe};

/// Counters by their name and labels.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<Count>>>);

#[derive(Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Counters {
    fn read(&self) -> Vec<String> {
        let counters = self.0.lock().unwrap();
        let value = |count: &Arc<Count>| count.0.load(Ordering::Relaxed);
        counters.iter().map(|(name, count)| format!("{name} {}", value(count))).collect()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<&str> = key.labels().map(|label| label.value()).collect();
        let name = format!("{} {}", key.name(), labels.join(","));
        Counter::from_arc(self.0.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn decisions_are_counted_without_their_keys() {
    let counters = Counters::default();
    with_local_recorder(&counters, || {
        let limiter = Limiter::builder()
            .limit(FixedWindow::per_year(2))
            .memory(&Memory::with_entries(100))
            .overflow(Overflow::Deny)
            .name("logins")
            .listener(MetricsListener::default())
            .build()
            .unwrap();
        for user in 0..90 {
            limiter.hit(format!("user {user}"));
        }
        for _ in 0..5 {
            limiter.hit("user 1");
        }
        let _ = limiter.of("user 1").peek();
        limiter.of("user 1").refund().unwrap();
        drop(limiter.of("user 2").reserve().unwrap());
    });
    let expected = [
        "sluicegate_decisions_total logins,cancel,allowed 1",
        "sluicegate_decisions_total logins,hit,allowed 91",
        "sluicegate_decisions_total logins,hit,denied 4",
        "sluicegate_decisions_total logins,peek,denied 1",
        "sluicegate_decisions_total logins,refund,allowed 1",
        "sluicegate_decisions_total logins,reserve,allowed 1",
    ];
    assert_eq!(counters.read(), expected);
}

#[test]
fn a_full_store_is_counted() {
    let counters = Counters::default();
    with_local_recorder(&counters, || {
        let limiter = Limiter::builder().limit(FixedWindow::per_year(1));
        let limiter = limiter.memory(&Memory::with_entries(0)).overflow(Overflow::Deny);
        let limiter = limiter.listener(MetricsListener::new("logins")).build().unwrap();
        limiter.hit("alice");
    });
    let expected =
        ["sluicegate_decisions_total logins,hit,denied 1", "sluicegate_overflows_total logins 1"];
    assert_eq!(counters.read(), expected);
}

#[test]
fn denials_are_events() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false)
        .finish();
    let _guard = subscribe(subscriber);
    let limiter = |listener: TracingListener| {
        let counted = MetricsListener::new("once");
        let limiter =
            Limiter::builder().name("once").limit(FixedWindow::per_year(1).named("yearly"));
        limiter.listener((counted, listener)).build().unwrap()
    };
    let long = "x".repeat(1_000);
    for listener in [TracingListener::new(), TracingListener::new().with_keys()] {
        let limiter = limiter(listener);
        limiter.hit("alice");
        limiter.hit("alice");
        limiter.of(&long).cost(2).hit();
    }
    let log = log.text();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert!(
        lines[0].contains(r#"DEBUG sluicegate: request denied limiter="once" limit="yearly" operation=Hit cost=1 retry_after_us="#),
        "{log}"
    );
    assert!(!lines[0].contains("alice") && lines[2].contains(r#"key="alice""#), "{log}");
    assert!(!lines[1].contains("retry_after_us"), "waiting does not help: {log}");
    assert!(lines[3].contains(&"x".repeat(100)) && !lines[3].contains(&"x".repeat(101)), "{log}");
}
