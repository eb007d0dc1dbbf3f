//! What Envoy is told beyond what the recorded version of envoyproxy/ratelimit told it: quotas as a later one has them, and what is ours.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "recorded/request.rs"]
mod request;
#[path = "recorded/told.rs"]
mod told;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use prost::Message;
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::settings::{Settings, Vars};
use sluicegate_server::telemetry::Endpoint;

const RULES: &str = "
domain: shop
deny: [{ key: user, value: mallory }]
descriptors:
  - { key: minute, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: hour, rate_limit: { unit: hour, requests_per_unit: 1, name: hourly } }
  - { key: never, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: quota, quota_mode: true, metadata: { plan: gold, more: { a: 1 } }, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: daily, quota_mode: true, metadata: { plan: iron, more: { b: 2 } }, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: free, rate_limit: { unlimited: true } }
";

/// 100 seconds into an hour and a day, 40 into a minute.
const NOW: Timestamp = Timestamp::from_micros((86_400 * 10_000 + 100) * 1_000_000);

fn service(vars: &[(&str, &str)]) -> App {
    let (settings, _) = Settings::read(&Vars::new(vars.iter().copied())).unwrap();
    let engine = Engine::builder(rules_of(RULES).unwrap()).clock(ManualClock::at(NOW));
    let health = Health::default();
    health.rules_loaded(1);
    App::builder(engine.build().unwrap()).options(settings.rls).health(health).build()
}

/// Asks for some keys at once.
fn ask(service: &App, keys: &[&str]) -> Value {
    let entries = |key: &&str| match key.split_once('=') {
        Some((key, value)) => json!([{ "key": key, "value": value }]),
        None => json!([{ "key": key, "value": "1" }]),
    };
    let descriptors: Vec<Value> =
        keys.iter().map(|key| json!({ "entries": entries(key) })).collect();
    let asked = request::request(&json!({ "domain": "shop", "descriptors": descriptors }));
    let mut answer = Vec::new();
    let endpoint = Endpoint::ShouldRateLimit;
    service
        .answer_local(endpoint, &asked.encode_to_vec(), &mut Scratch::default(), &mut answer)
        .unwrap()
        .unwrap();
    told::told(&RateLimitResponse::decode(&*answer).unwrap())
}

fn used_up(vars: &[(&str, &str)], keys: &[&str]) -> App {
    let service = service(vars);
    keys.iter().for_each(|key| assert_eq!(ask(&service, &[key])["overallCode"], "OK", "{key}"));
    service
}

#[test]
fn quotas_deny_only_when_all_of_them_are_used_up() {
    let everything = ["quota", "minute"];
    let (rules_own, global) = (&[][..], &[("QUOTA_MODE", "true")][..]);
    let table = [
        (rules_own, &["quota"][..], "OVER_LIMIT"),
        (rules_own, &["quota", "daily"], "OK"),
        (rules_own, &["quota", "nobody"], "OVER_LIMIT"),
        (rules_own, &["quota", "free"], "OVER_LIMIT"),
        (rules_own, &["daily", "minute"], "OVER_LIMIT"),
        (rules_own, &["minute"], "OVER_LIMIT"),
        (global, &["minute"], "OVER_LIMIT"),
        (global, &["minute", "quota"], "OVER_LIMIT"),
        (global, &["minute", "hour"], "OK"),
        // What is under no rule is a quota that is never used up; what is unlimited is none.
        (global, &["minute", "nobody"], "OK"),
        (global, &["minute", "free"], "OVER_LIMIT"),
        (global, &["minute", "user=mallory"], "OVER_LIMIT"),
    ];
    for (vars, keys, overall) in table {
        let told = ask(&used_up(vars, &everything), keys);
        assert_eq!(told["overallCode"], overall, "{vars:?} {keys:?}");
        for (key, status) in keys.iter().zip(told["statuses"].as_array().unwrap()) {
            // Whoever is on a list is not counted.
            let over = match keys.contains(&"user=mallory") {
                true => *key == "user=mallory",
                false => everything.contains(key),
            };
            assert_eq!(status["code"], if over { "OVER_LIMIT" } else { "OK" }, "{keys:?} {key}");
        }
    }
}

#[test]
fn a_client_is_told_to_come_back_when_it_will_pass() {
    let all = ["minute", "hour", "quota", "daily"];
    let table = [
        (&all[..], &["minute"][..], Some("20")),
        (&all, &["minute", "hour"], Some("3500")),
        (&all, &["hour", "minute", "free", "nobody"], Some("3500")),
        (&all, &["never", "minute"], None),
        (&all, &["user=mallory"], None),
        (&all, &["quota"], Some("3500")),
        (&all, &["minute", "daily"], Some("86300")),
        // One of the quotas is enough, ...
        (&all, &["daily", "quota"], Some("3500")),
        (&all, &["hour", "daily", "quota"], Some("3500")),
        // ... and there may be one already.
        (&["minute", "daily"], &["minute", "daily", "quota"], Some("20")),
    ];
    for (before, keys, wait) in table {
        let service = used_up(&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], before);
        let told = ask(&service, keys);
        assert_eq!(told["overallCode"], "OVER_LIMIT");
        let headers = told["responseHeadersToAdd"].as_array().into_iter().flatten();
        let waits = headers.filter(|header| header["key"] == "Retry-After");
        let waits: Vec<&str> = waits.map(|header| header["value"].as_str().unwrap()).collect();
        assert_eq!(waits, Vec::from_iter(wait), "{keys:?}");
    }
}

#[test]
fn the_rule_that_denied_is_named() {
    let vars = [("RESPONSE_DYNAMIC_METADATA", "true")];
    let table = [
        (&["minute"][..], json!("shop/minute")),
        (&["hour", "minute"], json!("shop/hourly")),
        // That it is used up did not deny by itself.
        (&["quota", "minute"], json!("shop/minute")),
        (&["daily", "quota"], json!("shop/daily")),
        (&["quota", "nobody"], json!("shop/quota")),
        (&["user=mallory"], json!(null)),
        (&["minute", "user=mallory"], json!(null)),
        (&["free", "nobody"], json!(null)),
    ];
    for (keys, rule) in table {
        let service = used_up(&vars, &["minute", "hour", "quota", "daily"]);
        assert_eq!(ask(&service, keys)["dynamicMetadata"]["deniedBy"], rule, "{keys:?}");
    }
    let shadow = [vars[0], ("SHADOW_MODE", "true")];
    let told = ask(&used_up(&shadow, &["minute"]), &["minute"]);
    assert_eq!(told["dynamicMetadata"]["deniedBy"], json!(null), "nobody was denied");
}

#[test]
fn metadata_of_the_rules_that_let_pass_are_merged_and_the_first_is_not_overruled() {
    let service = service(&[("RESPONSE_DYNAMIC_METADATA", "true")]);
    let metadata = |keys: &[&str]| ask(&service, keys)["dynamicMetadata"]["metadata"].clone();
    let both = json!({ "plan": "gold", "more": { "a": 1.0, "b": 2.0 } });
    assert_eq!(metadata(&["quota", "minute", "daily"]), both);
    assert_eq!(
        metadata(&["quota", "daily=other"]),
        json!({ "plan": "iron", "more": { "b": 2.0 } })
    );
    assert_eq!(metadata(&["quota"]), json!(null));
}

#[test]
fn what_goes_on_to_the_upstream_has_headers_of_its_own() {
    let vars =
        [("LIMIT_REQUEST_HEADERS_ENABLED", "true"), ("LIMIT_REQUEST_RESET_HEADER", "x-reset")];
    let told = ask(&used_up(&vars, &["hour"]), &["minute", "hour"]);
    let headers = json!([
        { "key": "RateLimit-Limit", "value": "1" },
        { "key": "RateLimit-Remaining", "value": "0" },
        { "key": "x-reset", "value": "3500" },
    ]);
    assert_eq!(told["requestHeadersToAdd"], headers);
    assert_eq!(told["responseHeadersToAdd"], json!(null));
}
