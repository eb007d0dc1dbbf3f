//! The calls that envoyproxy/ratelimit answered, asked of us as bytes; see `tests/tests/anchor.rs` for where they come from.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../../../tests/tests/departures/mod.rs"]
mod departures;
#[path = "recorded/told.rs"]
mod told;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use prost::Message;
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::config::rules::{Options, Source, load};
use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, Timestamp};
use sluicegate_server::app::App;
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::rls::json;
use sluicegate_server::telemetry::Endpoint;

#[test]
fn envoy_is_answered_as_it_was_there() {
    let (mut asked, mut wrong) = (0, Vec::new());
    for line in include_str!("../../../tests/anchor/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let settings_of_the_process = case.get("env").is_some();
        if case["calls"].is_null() || settings_of_the_process || departures::reason(name).is_some()
        {
            continue;
        }
        let service = service(&case);
        let mut scratch = Scratch::default();
        for both in case["calls"].as_array().unwrap() {
            let theirs = &both["answer"];
            // It crashed.
            if !theirs["panic"].is_null() {
                continue;
            }
            asked += 1;
            let mut answer = Vec::new();
            let bytes = request(&both["call"]).encode_to_vec();
            let by_json = json::request(as_json(&both["call"]).as_bytes()).unwrap();
            let by_json = RateLimitRequest::decode(&*by_json).unwrap();
            assert_eq!(by_json, request(&both["call"]), "{name}");
            let answered =
                service.answer_local(Endpoint::ShouldRateLimit, &bytes, &mut scratch, &mut answer);
            let ours = match answered.unwrap() {
                Ok(_) => {
                    let told = told::told(&RateLimitResponse::decode(&*answer).unwrap());
                    assert_eq!(json::response(&answer).unwrap(), told, "{name}");
                    told
                }
                Err(failure) => json!(failure.message),
            };
            let theirs = match theirs["error"].is_null() {
                true => &theirs["response"],
                false => &theirs["error"],
            };
            if ours != *theirs {
                wrong.push(format!("{name}: they {theirs}\n    we {ours}"));
            }
        }
    }
    assert!(departures::names().count() > 10 && asked > 80, "only {asked} calls");
    let few = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {asked} calls differ:\n{few}", wrong.len());
}

fn service(case: &Value) -> App {
    let source = |(name, text): (&String, &Value)| Source {
        name: name.clone(),
        text: text.as_str().unwrap().to_owned(),
    };
    let sources: Vec<Source> = case["files"].as_object().unwrap().iter().map(source).collect();
    let merge_domains = case["merge"].as_bool().unwrap_or(false);
    let rules = RuleSet::new(
        load(&sources, &Options { merge_domains, ..Options::default() }).unwrap().domains,
    )
    .unwrap();
    let clock = ManualClock::new();
    clock.set(Timestamp::from_micros(1_000_000_000 * 1_000_000));
    App::new(Engine::builder(rules).clock(clock).build().unwrap())
}

fn request(call: &Value) -> RateLimitRequest {
    let descriptor = |one: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = one["entries"].as_array().into_iter().flatten();
        let limit = one["override"].as_object().map(|limit| RateLimitOverride {
            requests_per_unit: limit["requests_per_unit"].as_u64().unwrap().try_into().unwrap(),
            unit: limit["unit"].as_i64().unwrap().try_into().unwrap(),
        });
        RateLimitDescriptor {
            entries: entries.map(|e| Entry { key: text(&e[0]), value: text(&e[1]) }).collect(),
            limit,
            hits_addend: one["hits_addend"].as_u64().map(|value| UInt64Value { value }),
            ..Default::default()
        }
    };
    RateLimitRequest {
        domain: call["domain"].as_str().unwrap().to_owned(),
        descriptors: call["descriptors"].as_array().into_iter().flatten().map(descriptor).collect(),
        hits_addend: call["hits_addend"].as_u64().unwrap_or(0).try_into().unwrap(),
    }
}

/// A call as JSON.
fn as_json(call: &Value) -> String {
    let descriptor = |one: &Value| {
        let entries = one["entries"].as_array().into_iter().flatten();
        let entries: Vec<Value> =
            entries.map(|entry| json!({ "key": entry[0], "value": entry[1] })).collect();
        json!({ "entries": entries, "limit": one["override"], "hitsAddend": one["hits_addend"] })
    };
    let descriptors = call["descriptors"].as_array().into_iter().flatten();
    let descriptors: Vec<Value> = descriptors.map(descriptor).collect();
    let (domain, hits) = (&call["domain"], &call["hits_addend"]);
    json!({ "domain": domain, "descriptors": descriptors, "hitsAddend": hits }).to_string()
}
