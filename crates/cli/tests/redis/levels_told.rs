//! Services that decide by themselves: what they answer, count and tell of it, and that the limit
//! holds.

use serde_json::Value;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::fleet::{Fleet, metric};
use crate::hammer::ask_times;
use crate::support::http::post;
use crate::support::service::Service;

const LIMIT: u64 = 20_000;

fn rules(consistency: &str) -> String {
    format!(
        "  - key: user\n    limits: {{ algorithm: fixed_window, rate: {LIMIT}/year }}\n    consistency: {consistency}\n    on_store_failure: error\n"
    )
}

/// What is said of one more, and by whom.
fn status(service: &Service) -> Value {
    let answer =
        post(&service.http, "/v1/check", r#"{"domain":"shop","descriptors":[{"user":"ada"}]}"#);
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    told["statuses"][0].clone()
}

fn told(service: &Service, name: &str, level: &str) -> u64 {
    metric(service, &format!("sluicegate_{name}{{rule=\"shop/user\",level=\"{level}\"}}"))
}

/// Asks until this service decides by itself.
fn until_local(service: &Service, level: &str) -> Value {
    until("a service decides by itself", || {
        let status = status(service);
        (status["level"] == level).then_some(status)
    })
}

#[test]
fn a_leased_key_is_told_of_everywhere_and_never_admits_more_than_the_limit() {
    let server = Single::start();
    let fleet = Fleet::start(2, server.url(), &rules("leased"));
    let counts = ask_times(&fleet.services, &[r#"{"user":"ada"}"#], 500)[0];
    assert_eq!((counts.allowed, counts.failed, counts.lost), (2 * 4 * 500, 0, 0), "{counts:?}");
    for service in &fleet.services {
        let status = until_local(service, "leased");
        assert_eq!((&status["allowed"], &status["over"]), (&true.into(), &0.into()), "{status}");

        let leases: Value = serde_json::from_str(&service.admin("/leases").body).unwrap();
        let lease = &leases["leases"][0];
        assert_eq!((&lease["key"], &lease["rule"]), (&"shop|user=ada".into(), &"shop/user".into()));
        assert_eq!(lease["hot"], false, "{leases}");
        assert_eq!(leases["node"].as_str().unwrap().len(), 16);
        until("what was decided is counted", || {
            (told(service, "local_decisions_total", "leased") > 0).then_some(())
        });
        assert_eq!(told(service, "leases", "leased"), 1);
        assert!(told(service, "lease_calls_total", "leased") > 0);
        assert_eq!(told(service, "over_bound", "leased"), 0);
    }
    // All that is left, and more.
    let more = ask_times(&fleet.services, &[r#"{"user":"ada"}"#], LIMIT / 6)[0];
    let before = LIMIT.saturating_sub(counts.allowed);
    assert!(more.denied > 0 && more.allowed <= before, "{more:?}");
    assert_eq!(fleet.metric("sluicegate_redis_disagreements_total"), 0);
}

#[test]
fn a_hot_key_of_a_strict_rule_is_leased_and_others_are_not() {
    let server = Single::start();
    let fleet = Fleet::start(1, server.url(), &rules("{ strict: { hot_keys: leased } }"));
    let service = &fleet.services[0];
    assert_eq!(status(service)["level"], Value::Null, "nobody came yet");
    let counts = ask_times(&fleet.services, &[r#"{"user":"ada"}"#], 1_000)[0];
    assert_eq!(counts.allowed, 4 * 1_000, "{counts:?}");
    until_local(service, "leased");
    assert_eq!(told(service, "hot_keys", "strict"), 1);
    let leases: Value = serde_json::from_str(&service.admin("/leases").body).unwrap();
    assert_eq!((&leases["leases"][0]["hot"], &leases["leases"][1]), (&true.into(), &Value::Null));
}
