//! What envoyproxy/ratelimit's server answered, asked of ours, through all of it but the sockets.
//!
//! `tests/anchor/service.jsonl` holds the files, by name, and then a case a line: variables of the environment, files, a time, and calls with the answers that
//! the real program gave on a real Redis (module version v1.4.1-0.20260122083618-3fb702589d36, November 2026). A call is one of
//! - `grpc`, a request in protobuf's JSON, or `bytes`, with the `response` or the `error`;
//! - a `method`, and if it is not `/json` a `path`, with the `status` (nothing: it dropped the connection), the content `type` and the `response`. A `body` is
//!   written shorter where it is long: `PAD` is so many times `x`, `MANY` are so many of the same with commas between, and `repeat` is all of it again.
//!
//! Where we answer otherwise on purpose, `recorded/departures.rs` says why, call by call; one that is none any more fails too. Apart from that,
//! - we tell two things more, which are left out of the comparison: `Retry-After` with a denial, and in metadata the rule that denied (`deniedBy`);
//! - they tell two things more, which a later version does not: `quotaModeEnabled` and `quotaModeViolations` in metadata;
//! - the limit of a descriptor is told in metadata as a text whose blanks the library there does not promise.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::{Body, to_bytes};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use http::{Method, Request};
use prost::Message;
use serde_json::{Map, Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::config::rules::{Source, load};
use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, Timestamp};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{Options as HttpOptions, router};
use sluicegate_server::rls::RefundPolicy;
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::settings::{Settings, Vars};
use sluicegate_server::telemetry::Endpoint;
use tower::ServiceExt;

use recorded::departures::DEPARTURES;
use recorded::request::request;
use recorded::told::told;

const RECORDED: &str = include_str!("../../../tests/anchor/service.jsonl");

#[tokio::test]
async fn the_service_answers_as_it_was_answered_there() {
    let mut lines = RECORDED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let files = lines.next().unwrap();
    let mut expected: BTreeMap<_, _> = departures().collect();
    let (mut calls, mut wrong, mut extra) = (0, Vec::new(), BTreeSet::new());
    for case in lines {
        let name = text(&case["name"]);
        let both = asked(&case, &files["files"]).await;
        for (place, (mut theirs, mut ours)) in both.into_iter().enumerate() {
            calls += 1;
            plain(&mut theirs, &THEIRS, &mut extra);
            plain(&mut ours, &OURS, &mut extra);
            let place = format!("{name} {place}");
            match expected.remove(&place) {
                Some(_) if theirs == ours => wrong.push(format!("{place}: no longer different")),
                Some([]) => {}
                Some(only) if without(only, &theirs) == without(only, &ours) => {}
                None if theirs == ours => {}
                _ => wrong.push(format!("{place}: they {theirs}\n    we {ours}")),
            }
        }
    }
    let never_asked: Vec<_> = expected.keys().collect();
    assert!(wrong.is_empty(), "{} of {calls} calls:\n{}", wrong.len(), wrong.join("\n"));
    assert!(never_asked.is_empty(), "there are no such calls: {never_asked:?}");
    assert!(calls > 600, "only {calls} calls");
    assert_eq!(extra, THEIRS.iter().chain(&OURS).copied().collect(), "told by one of us");
}

/// Which calls get another answer, and in what alone.
fn departures() -> impl Iterator<Item = (String, &'static [&'static str])> {
    DEPARTURES.iter().flat_map(|departure| {
        let calls = departure
            .calls
            .iter()
            .flat_map(|(name, places)| places.iter().map(move |place| format!("{name} {place}")));
        calls.map(|call| (call, departure.only))
    })
}

/// What they answered and what we answer, call by call.
async fn asked(case: &Value, files: &Value) -> Vec<(Value, Value)> {
    let vars = case["env"].as_object().into_iter().flatten();
    let vars = Vars::new(vars.map(|(name, value)| (name.clone(), text(value))));
    let clock = ManualClock::new();
    let service = Settings::read(&vars).map(|(settings, _)| service(settings, case, files, &clock));
    let Some(calls) = case["calls"].as_array() else {
        let ours = if service.is_ok() { json!("up") } else { json!("exit") };
        let theirs =
            if text(&case["start"]).starts_with("exit") { json!("exit") } else { json!("up") };
        return vec![(theirs, ours)];
    };
    let service = service.unwrap();
    let app = router(service.clone(), HttpOptions::default());
    let mut both = Vec::new();
    for call in calls {
        let at = call["at"].as_u64().or(case["at"].as_u64()).unwrap();
        clock.set(Timestamp::from_micros(at * 1_000_000));
        let ours = match call["method"].as_str() {
            Some(method) => over_http(&app, method, call).await,
            None => over_grpc(&service, call),
        };
        both.push((theirs(call), ours));
    }
    both
}

fn service(settings: Settings, case: &Value, files: &Value, clock: &ManualClock) -> App {
    let usual = json!({ "d.yaml": "d.yaml" });
    let sources = match &case["files"] {
        Value::Null => &usual,
        listed => listed,
    };
    let source = |(name, file): (&String, &Value)| Source {
        name: name.clone(),
        text: text(&files[text(file)]).to_owned(),
    };
    let sources: Vec<Source> = sources.as_object().unwrap().iter().map(source).collect();
    let Settings { rules, needs_domain, mut rls, .. } = settings;
    // Negative hits are given back there to all clients.
    rls.refunds = RefundPolicy::Open;
    let loaded = load(&sources, &rules.options);
    let health = if needs_domain { Health::requiring_domain() } else { Health::default() };
    let domains = loaded.map(|loaded| loaded.domains);
    if let Ok(domains) = &domains {
        health.rules_loaded(domains.len());
    }
    let rules = RuleSet::new(domains.unwrap_or_default()).unwrap();
    let engine = Engine::builder(rules).clock(clock.clone()).build().unwrap();
    App::builder(engine).options(rls).health(health).build()
}

fn over_grpc(service: &App, call: &Value) -> Value {
    let bytes = match call["bytes"].as_array() {
        Some(_) => bytes(&call["bytes"]),
        None => request(&call["grpc"]).encode_to_vec(),
    };
    let mut answer = Vec::new();
    let scratch = &mut Scratch::default();
    let answered = service.answer_local(Endpoint::ShouldRateLimit, &bytes, scratch, &mut answer);
    match answered.unwrap() {
        Ok(_) => json!({ "response": told(&RateLimitResponse::decode(&*answer).unwrap()) }),
        Err(failure) => json!({ "error": [format!("{:?}", failure.status), failure.message] }),
    }
}

async fn over_http(app: &Router, method: &str, call: &Value) -> Value {
    let body = match call["body_bytes"].as_array() {
        Some(_) => bytes(&call["body_bytes"]),
        None => body(call).into_bytes(),
    };
    let uri = call["path"].as_str().unwrap_or("/json");
    let mut asked =
        Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(uri);
    for (name, value) in call["headers"].as_object().into_iter().flatten() {
        asked = asked.header(name, text(value));
    }
    let answer = app.clone().oneshot(asked.body(Body::from(body)).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let kind = kind.split(';').next().unwrap().to_owned();
    let said = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let said = match kind == "application/json" && !said.is_empty() {
        true => serde_json::from_slice(&said).unwrap(),
        false => json!(str::from_utf8(&said).unwrap()),
    };
    json!({ "status": status, "type": kind, "response": said })
}

fn body(call: &Value) -> String {
    let mut body = call["body"].as_str().unwrap_or_default().to_owned();
    if let Some(count) = call["pad"].as_u64() {
        body = body.replace("PAD", &"x".repeat(count as usize));
    }
    if let Some([one, count]) = call["many"].as_array().map(Vec::as_slice) {
        body = body.replace("MANY", &vec![text(one); count.as_u64().unwrap() as usize].join(","));
    }
    body.repeat(call["repeat"].as_u64().unwrap_or(1) as usize)
}

/// What they answered, in the form in which ours is.
fn theirs(call: &Value) -> Value {
    if call["method"].is_null() {
        let which = if call["error"].is_null() { "response" } else { "error" };
        return json!({ which: call[which] });
    }
    let response = match (&call["response"], call["response_many"].as_array()) {
        (_, Some(many)) => {
            let statuses = vec![json!({ "code": "OK" }); many[1].as_u64().unwrap() as usize];
            json!({ "overallCode": many[0], "statuses": statuses })
        }
        (Value::Null, None) if call["status"] == 400 => json!("Bad Request\n"),
        (response, None) => response.clone(),
    };
    json!({ "status": call["status"], "type": call["type"], "response": response })
}

// === what is not compared ===

/// What only one of us tells: fields of metadata, or headers.
const OURS: [&str; 2] = ["Retry-After", "deniedBy"];
const THEIRS: [&str; 2] = ["quotaModeEnabled", "quotaModeViolations"];

/// Leaves out what only one of us tells, and says what of that there was.
fn plain(answer: &mut Value, only: &[&'static str], extra: &mut BTreeSet<&'static str>) {
    let mut is_extra = |name: &str| {
        let known = only.iter().find(|known| **known == name);
        known.is_some_and(|name| extra.insert(name) || extra.contains(name))
    };
    if let Some(Value::Array(all)) = answer.pointer_mut("/response/responseHeadersToAdd") {
        all.retain(|header| !is_extra(text(&header["key"])));
    }
    if let Some(Value::Object(metadata)) = answer.pointer_mut("/response/dynamicMetadata") {
        metadata.retain(|name, _| !is_extra(name));
        for one in metadata["descriptors"].as_array_mut().unwrap() {
            if let Some(Value::String(limit)) = one.get_mut("limit") {
                *limit = limit.split_whitespace().collect::<Vec<_>>().join(" ");
            }
        }
    }
    floating(answer);
}

/// Without some fields, however deep.
fn without(names: &[&str], value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(|one| without(names, one)).collect::<Vec<_>>().into(),
        Value::Object(all) => {
            let others = all.iter().filter(|(name, _)| !names.contains(&&***name));
            others
                .map(|(name, one)| (name.clone(), without(names, one)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

/// Makes every number what a number in metadata is.
fn floating(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64().unwrap()),
        Value::Array(all) => all.iter_mut().for_each(floating),
        Value::Object(all) => all.values_mut().for_each(floating),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn bytes(json: &Value) -> Vec<u8> {
    json.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect()
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_default()
}
