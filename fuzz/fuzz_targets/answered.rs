//! A service with a stopped clock: it never panics, and returns a status for each descriptor.

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use prost::Message;
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, rules_of};
use sluicegate_server::EXAMPLE_RULES;
use sluicegate_server::rls::request::{RateLimitRequest, RequestLimits};
use sluicegate_server::rls::json;
use sluicegate_server::app::App;
use sluicegate_server::rls::handler::{Scratch};
use sluicegate_server::telemetry::Endpoint;

/// Sends a request twice to a new service, so that a finding depends only on the bytes.
pub(crate) fn check(bytes: &[u8]) {
    // Most inputs are not requests and need no service.
    let Ok(request) = RateLimitRequest::decode(bytes, RequestLimits::default()) else { return };
    let rules = rules_of(EXAMPLE_RULES).expect("the example is valid");
    let engine = Engine::builder(rules).clock(ManualClock::new()).build().expect("it fits");
    let service = App::new(engine);
    let mut scratch = Scratch::default();
    for _ in 0..2 {
        let mut out = Vec::new();
        let answered = service.answer_local(Endpoint::ShouldRateLimit, bytes, &mut scratch, &mut out);
        match answered.expect("counters in memory") {
            Ok(code) => {
                let response = RateLimitResponse::decode(&*out).expect("an answer is a message");
                assert_eq!(response.overall_code, code as i32);
                assert_eq!(response.statuses.len(), request.descriptors.len());
                assert!(response.statuses.iter().all(|status| matches!(status.code, 1 | 2)));
                let response = json::response(&out).expect("an answer can be written as JSON");
                assert_eq!(response["statuses"].as_array().map(Vec::len), Some(request.descriptors.len()));
            }
            Err(failure) => assert!(out.is_empty() && !failure.message.is_empty()),
        }
    }
}
