//! Negative hits mixed with other descriptors, and quotas without a limit, as
//! envoyproxy/ratelimit decides them; see "Intended differences" in docs/guide/migrating.md.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::rls::{Options, json};
use sluicegate_server::telemetry::Endpoint;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 20 }
    metadata: { of: user }
  - key: one
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: other
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: free
    quota_mode: true
    rate_limit: { unlimited: true }
    metadata: { free: true }
  - key: gold
    rate_limit: { unit: year, requests_per_unit: 20, name: gold }
  - key: platinum
    rate_limit: { unit: year, requests_per_unit: 20, replaces: [{ name: gold }] }
  - key: detailed
    detailed_metric: true
    rate_limit: { unit: year, requests_per_unit: 20 }
    metadata: { detailed: true }
";

struct Service {
    app: App,
    scratch: Scratch,
}

impl Service {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let engine = Engine::builder(rules_of(RULES).unwrap()).clock(clock).build().unwrap();
        let options = Options { dynamic_metadata: true, ..Options::default() };
        Self { app: App::builder(engine).options(options).build(), scratch: Scratch::default() }
    }

    /// Descriptors of one entry each, with their hits; negative ones are refunds.
    fn answer(&mut self, descriptors: &[(&str, i64)]) -> Value {
        let descriptor = |(key, hits): &(&str, i64)| {
            json!({
                "entries": [{ "key": key, "value": "42" }],
                "hitsAddend": hits.unsigned_abs(),
                "isNegativeHits": *hits < 0,
            })
        };
        let descriptors: Vec<Value> = descriptors.iter().map(descriptor).collect();
        let request = json!({ "domain": "shop", "descriptors": descriptors }).to_string();
        let (request, mut out) = (json::request(request.as_bytes()).unwrap(), Vec::new());
        let Self { app, scratch } = self;
        let endpoint = Endpoint::ShouldRateLimit;
        app.answer_local(endpoint, &request, scratch, &mut out).unwrap().unwrap();
        serde_json::from_str(&json::response(&out).unwrap().to_string()).unwrap()
    }

    /// The remaining hits of each descriptor.
    fn remaining(&mut self, descriptors: &[(&str, i64)]) -> Vec<u64> {
        let response = self.answer(descriptors);
        let statuses = response["statuses"].as_array().unwrap();
        statuses.iter().map(|status| status["limitRemaining"].as_u64().unwrap_or(0)).collect()
    }
}

fn code(response: &Value) -> &str {
    response["overallCode"].as_str().unwrap()
}

#[test]
fn a_refund_before_a_charge_takes_effect_before_it() {
    let mut service = Service::new();
    // There is nothing to refund yet.
    assert_eq!(service.remaining(&[("user", -1), ("user", 1)]), [20, 19]);
    assert_eq!(service.remaining(&[("user", 1), ("user", -1)]), [18, 19]);
    assert_eq!(service.remaining(&[("user", -5)]), [20]);
    assert_eq!(service.remaining(&[("user", 0)]), [20]);
}

#[test]
fn a_refund_is_no_quota_that_keeps_a_request_alive() {
    let mut service = Service::new();
    assert_eq!(code(&service.answer(&[("one", 1)])), "OK");
    assert_eq!(code(&service.answer(&[("one", 1), ("other", -1)])), "OVER_LIMIT");
    assert_eq!(code(&service.answer(&[("one", 1), ("other", 1)])), "OK");
}

#[test]
fn a_refund_replaces_no_charge() {
    let mut service = Service::new();
    assert_eq!(service.remaining(&[("platinum", -1), ("gold", 1)]), [20, 19]);
    assert_eq!(service.remaining(&[("platinum", 1), ("gold", 1)]), [19, 0]);
    // A refund of that request returns what it had charged.
    assert_eq!(service.remaining(&[("platinum", -1), ("gold", -1)]), [20, 0]);
    assert_eq!(service.remaining(&[("gold", 0)]), [19]);
}

#[test]
fn metadata_is_that_of_all_descriptors_that_pass() {
    let mut service = Service::new();
    let metadata = |response: &Value| response["dynamicMetadata"]["metadata"].clone();
    let response = service.answer(&[("user", -1), ("detailed", 1)]);
    assert_eq!(metadata(&response), json!({ "of": "user", "detailed": true }));
    let response = service.answer(&[("free", 1)]);
    assert_eq!(metadata(&response), json!({ "free": true }));
}

#[test]
fn a_quota_without_a_limit_keeps_no_request_alive() {
    let mut service = Service::new();
    assert_eq!(code(&service.answer(&[("free", 1)])), "OK");
    assert_eq!(code(&service.answer(&[("one", 1), ("free", 1)])), "OK");
    assert_eq!(code(&service.answer(&[("one", 1), ("free", 1)])), "OVER_LIMIT");
}
