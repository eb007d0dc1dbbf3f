//! Thresholds of budgets whose counters are in Redis: each node reports those that it sees.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Holder, Span, ThresholdReached, UsageListener, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

#[derive(Debug, Default)]
struct Reported(Mutex<Vec<(u16, u64)>>);

impl UsageListener for Reported {
    fn threshold_reached(&self, reached: &ThresholdReached<'_>) {
        self.0.lock().unwrap().push((reached.threshold, reached.used));
    }
}

fn node(server: &Single, level: &str) -> (Engine<RedisBackend>, Arc<Reported>) {
    let rules = format!(
        "
domain: llm
descriptors:
  - key: team
    notify: [50%, 80%]
    consistency: {level}
    on_store_failure: deny
    limits: {{ algorithm: fixed_window, rate: 1000/year }}
"
    );
    let options = LinkOptions { timeout: Duration::from_secs(10), ..Default::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    let engine = Engine::new(rules_of(&rules).unwrap()).unwrap();
    let engine = RedisBackend::attach(engine, Store::new(link, StoreOptions::default()));
    let reported = Arc::new(Reported::default());
    assert!(engine.set_usage_listener(reported.clone()));
    (engine, reported)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_reports_a_threshold_that_it_sees_once() {
    let server = Single::start();
    let entries = [Entry::new("team", "a")];
    let descriptors = [Descriptor::of(&entries)];
    let request = |hits| Request { domain: "llm", descriptors: &descriptors, hits };
    let (one, reported) = node(&server, "strict");
    let (other, seen_by_other) = node(&server, "strict");
    for hits in [499, 1, 1] {
        assert!(one.check_async(&request(hits)).await.unwrap().allowed);
    }
    assert_eq!(*reported.0.lock().unwrap(), [(50, 500)]);
    assert!(other.check_async(&request(9)).await.unwrap().allowed);
    assert_eq!(*seen_by_other.0.lock().unwrap(), [(50, 510)], "its own answer");

    let (estimate, used, mut checked) = (request(400), request(290), Checked::default());
    let rules = one.snapshot();
    let call = one.call(&rules, &estimate);
    one.reserve(call, Holder(7), Span::from_secs(60), &mut checked).await.unwrap();
    assert_eq!(reported.0.lock().unwrap().len(), 1, "an estimate");
    let call = one.call(&rules, &used);
    assert_eq!(one.commit(call, Holder(7), &mut checked).await, Ok(110));
    assert_eq!(reported.0.lock().unwrap().last(), Some(&(80, 800)));
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_this_node_alone_are_judged_too() {
    let entries = [Entry::new("team", "a")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "llm", descriptors: &descriptors, hits: 1 };
    for level in ["leased", "eventual"] {
        let server = Single::start();
        let (one, reported) = node(&server, level);
        let mut reached = Vec::new();
        for hits in 1..=1_000 {
            assert!(one.check_async(&request).await.unwrap().allowed);
            let reported = std::mem::take(&mut *reported.0.lock().unwrap());
            reached.extend(reported.into_iter().map(|(threshold, used)| (threshold, used, hits)));
        }
        let thresholds: Vec<u16> = reached.iter().map(|(threshold, ..)| *threshold).collect();
        assert_eq!(thresholds, [50, 80], "{level}: {reached:?}");
        for (threshold, used, hits) in reached {
            // Quota that is leased counts as used, so a threshold is early; while quota is being
            // acquired, a node under load judges by an older answer.
            let at = u64::from(threshold) * 10;
            let is_late = level == "eventual" && hits > at;
            assert!(used >= at && !is_late, "{level}: {threshold}% at hit {hits}, {used} used");
        }
    }
}
