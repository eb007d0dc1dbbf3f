//! Responses to protobuf's JSON, by the generated types: so that what we write ourselves has another witness.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value as AnyValue};
use serde_json::{Map, Value};

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

fn structure(all: &Struct) -> Value {
    let sorted: BTreeMap<_, _> = all.fields.iter().collect();
    sorted.into_iter().map(|(name, one)| (name.clone(), value(one))).collect::<Map<_, _>>().into()
}

fn value(one: &AnyValue) -> Value {
    match one.kind.as_ref().unwrap() {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => (*number).into(),
        Kind::StringValue(text) => text.clone().into(),
        Kind::BoolValue(truth) => (*truth).into(),
        Kind::StructValue(all) => structure(all),
        Kind::ListValue(all) => all.values.iter().map(value).collect::<Vec<_>>().into(),
    }
}
