//! What Envoy is told beyond what envoyproxy/ratelimit could tell it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use prost::Message;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Timestamp, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::reservations::Reservations;
use sluicegate_server::rls::{HeaderNames, Options};
use sluicegate_server::telemetry::Endpoint;

fn service(rules: &str) -> (App, ManualClock) {
    service_with(rules, Options::default())
}

fn service_with(rules: &str, options: Options) -> (App, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_micros(1_000_000_000 * 1_000_000));
    let rules = rules_of(rules).unwrap();
    let engine = Engine::builder(rules).clock(clock.clone()).build().unwrap();
    (App::builder(engine).options(options).build(), clock)
}

/// A field of a message, in bytes: generated code writes no text that is none.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80, "a length of one byte");
    [&[number << 3 | 2, length], content].concat()
}

/// Asks for domain `shop`, with one entry for each descriptor.
fn asked(service: &App, entries: &[(&str, &[u8])]) -> RateLimitResponse {
    let mut message = field(1, b"shop");
    for (key, value) in entries {
        let entry = [field(1, key.as_bytes()), field(2, value)].concat();
        message.extend(field(2, &field(1, &entry)));
    }
    let mut answer = Vec::new();
    service
        .answer_local(Endpoint::ShouldRateLimit, &message, &mut Default::default(), &mut answer)
        .expect("counters in memory")
        .unwrap();
    RateLimitResponse::decode(&*answer).unwrap()
}

/// The limit of the one descriptor, how many are left, and the seconds until it is full.
fn told(response: &RateLimitResponse) -> (&str, u32, i64) {
    let status = &response.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    (&limit.name, status.limit_remaining, status.duration_until_reset.unwrap().seconds)
}

#[test]
fn the_reset_is_that_of_the_limit_that_is_told() {
    let (service, clock) = service(
        "domain: shop
descriptors:
  - key: user
    limits:
      - { name: burst, algorithm: token_bucket, rate: 1/s, burst: 3 }
      - { name: yearly, algorithm: fixed_window, rate: 5/year, align: first_hit }",
    );
    const YEAR: i64 = 365 * 86_400;
    let hit = || asked(&service, &[("user", b"alice")]);
    assert_eq!(told(&hit()), ("burst", 2, 1), "not the year that the other takes");
    hit();
    hit();
    let denied = hit();
    assert_eq!((denied.overall_code(), told(&denied)), (Code::OverLimit, ("burst", 0, 3)));
    clock.advance(Duration::from_secs(3));
    assert_eq!(told(&hit()), ("yearly", 1, YEAR - 3));
}

#[tokio::test]
async fn a_denied_slot_has_the_estimate_of_its_release() {
    let rules = "domain: shop
descriptors:
  - { key: calls, limits: { name: calls, algorithm: concurrency, max: 1, lease: 60s } }";
    let headers = Some(HeaderNames::default());
    let (service, clock) =
        service_with(rules, Options { response_headers: headers, ..Options::default() });
    let denied = || {
        let denied = asked(&service, &[("calls", b"a")]);
        assert_eq!(denied.overall_code(), Code::OverLimit);
        let headers = denied.response_headers_to_add.iter();
        let retry_after: Vec<_> = headers.filter(|one| one.key == "Retry-After").collect();
        (told(&denied).2, retry_after[0].value.clone())
    };
    let entries = [Entry::new("calls", "a")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let engine = service.engine();
    let hold = async || {
        let (rules, mut checked) = (engine.snapshot(), Checked::default());
        let call = engine.call(&rules, &request);
        Reservations::check(engine, call, &mut checked).await.unwrap().unwrap()
    };
    let first = hold().await;
    assert_eq!(denied(), (60, "60".to_owned()), "nothing was observed: the end of the lease");
    clock.advance(Duration::from_secs(8));
    let (rules, mut checked) = (engine.snapshot(), Checked::default());
    let now = engine.now();
    service.reservations().settle(engine, &rules, &first, None, now, &mut checked).await.unwrap();
    hold().await;
    clock.advance(Duration::from_secs(3));
    assert_eq!(denied(), (5, "5".to_owned()), "8 seconds on average, 3 are over");
}

#[test]
fn what_is_not_text_is_limited_like_everything_else() {
    let (service, _) = service(
        "domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: address, rate_limit: { unit: year, requests_per_unit: 3 } }",
    );
    let code = |entries: &[(&str, &[u8])]| asked(&service, entries).overall_code();
    // In Latin-1, cut off in the middle of a character, and nothing but noise.
    for name in [&b"Jos\xe9"[..], b"Mari\xc3", b"\xff\xfe\x80\xc3\x28"] {
        let user = ("user", name);
        assert_eq!(code(&[user]), Code::Ok, "{name:?}");
        assert_eq!(code(&[user]), Code::OverLimit, "{name:?}");
    }
    // Nor does it hide who sent it.
    let codes: Vec<Code> = (0..4u8)
        .map(|number| code(&[("user", &[b'a' + number, 0xff]), ("address", b"192.0.2.1")]))
        .collect();
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit]);
    assert_eq!(code(&[("user", "José".as_bytes())]), Code::Ok, "somebody else");
}
