//! Requests from protobuf's JSON, by the generated types: so that what we read ourselves has another witness.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::Value;

/// A request that is written as the recorder wrote it.
pub(crate) fn request(json: &Value) -> RateLimitRequest {
    RateLimitRequest {
        domain: text(&json["domain"]),
        descriptors: list(&json["descriptors"]).map(descriptor).collect(),
        hits_addend: json["hitsAddend"].as_u64().unwrap_or(0).try_into().unwrap(),
    }
}

fn descriptor(json: &Value) -> RateLimitDescriptor {
    let entry = |json: &Value| Entry { key: text(&json["key"]), value: text(&json["value"]) };
    let limit = json["limit"].as_object().map(|limit| RateLimitOverride {
        requests_per_unit: limit.get("requestsPerUnit").map_or(0, |n| n.as_u64().unwrap() as u32),
        unit: limit.get("unit").map_or(0, unit),
    });
    let hits = json["hitsAddend"].as_str().map(|hits| hits.parse().unwrap());
    for name in json.as_object().unwrap().keys() {
        assert!(["entries", "limit", "hitsAddend"].contains(&&**name), "{name} would be lost");
    }
    RateLimitDescriptor {
        entries: list(&json["entries"]).map(entry).collect(),
        limit,
        hits_addend: hits.map(|value| UInt64Value { value }),
        is_negative_hits: false,
    }
}

fn unit(json: &Value) -> i32 {
    match json.as_str() {
        Some(name) => RateLimitUnit::from_str_name(name).unwrap().into(),
        None => json.as_i64().unwrap().try_into().unwrap(),
    }
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}
