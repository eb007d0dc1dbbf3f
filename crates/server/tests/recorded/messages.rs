//! Envoy's messages from and to protobuf's JSON, by the generated types: so that what we read and write ourselves has another witness.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{self, UInt64Value};
use serde_json::{Map, Value};

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

/// A response as JSON, in which what is 0 or empty goes without saying.
pub(crate) fn told(response: &RateLimitResponse) -> Value {
    let mut told = Map::new();
    told.insert("overallCode".into(), code(response.overall_code));
    let headers = |all: &[HeaderValue]| all.iter().map(header).collect::<Vec<_>>();
    let lists = [
        ("statuses", response.statuses.iter().map(status).collect()),
        ("responseHeadersToAdd", headers(&response.response_headers_to_add)),
        ("requestHeadersToAdd", headers(&response.request_headers_to_add)),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        told.insert(name.into(), list.into());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        told.insert("dynamicMetadata".into(), structure(metadata));
    }
    told.into()
}

fn code(number: i32) -> Value {
    Code::try_from(number).unwrap().as_str_name().into()
}

fn status(status: &DescriptorStatus) -> Value {
    let mut told = Map::new();
    told.insert("code".into(), code(status.code));
    if let Some(limit) = &status.current_limit {
        told.insert("currentLimit".into(), current(limit));
    }
    if status.limit_remaining > 0 {
        told.insert("limitRemaining".into(), status.limit_remaining.into());
    }
    if let Some(until) = &status.duration_until_reset {
        assert_eq!(until.nanos, 0);
        told.insert("durationUntilReset".into(), format!("{}s", until.seconds).into());
    }
    told.into()
}

fn current(limit: &RateLimit) -> Value {
    let mut told = Map::new();
    if !limit.name.is_empty() {
        told.insert("name".into(), limit.name.clone().into());
    }
    if limit.requests_per_unit > 0 {
        told.insert("requestsPerUnit".into(), limit.requests_per_unit.into());
    }
    told.insert("unit".into(), Unit::try_from(limit.unit).unwrap().as_str_name().into());
    told.into()
}

fn header(header: &HeaderValue) -> Value {
    let pairs = [("key", &header.key), ("value", &header.value)];
    let told = pairs.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| (name.to_owned(), Value::from(text.clone())))
        .collect::<Map<_, _>>()
        .into()
}

fn structure(all: &protobuf::Struct) -> Value {
    let sorted: BTreeMap<_, _> = all.fields.iter().collect();
    sorted.into_iter().map(|(name, one)| (name.clone(), value(one))).collect::<Map<_, _>>().into()
}

fn value(one: &protobuf::Value) -> Value {
    match one.kind.as_ref().unwrap() {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => (*number).into(),
        Kind::StringValue(text) => text.clone().into(),
        Kind::BoolValue(truth) => (*truth).into(),
        Kind::StructValue(all) => structure(all),
        Kind::ListValue(all) => all.values.iter().map(value).collect::<Vec<_>>().into(),
    }
}
