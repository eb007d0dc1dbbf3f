//! Events of `sluicegate serve`: thresholds of budgets and failed loads of rules, in the log, in
//! metrics and at a webhook.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use serde_json::json;
use sluicegate_server::webhook::SigningSecret;
use sluicegate_testkit::until;
use support::Folder;
use support::http::post;
use support::receiver::WebhookReceiver;
use support::service::Service;

const RULES: &str = "domain: llm
descriptors:
  - key: team
    id: included
    notify: [50%, 80%, 100%]
    limits: { name: month, algorithm: fixed_window, rate: 1000/year }
    pools: [{ name: credits, limits: { algorithm: fixed_window, rate: 100/year } }]
  - key: short
    notify: 80%
    limits: { name: window, algorithm: fixed_window, rate: 10/s }
";

fn check(service: &Service, key: &str, hits: u64) -> u16 {
    let body = json!({ "domain": "llm", "descriptors": [{ key: "search" }], "hits": hits });
    post(&service.http, "/v1/check", &body.to_string()).status
}

fn metric(service: &Service, sample: &str) -> Option<String> {
    let page = service.admin("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{sample} ")));
    line.map(str::to_owned)
}

#[test]
fn each_threshold_is_sent_once_signed_and_again_after_an_error() {
    let (folder, receiver) = (Folder::new(), WebhookReceiver::answering(&[500]));
    let (rules, url) =
        (folder.file("rules.yaml", RULES), format!("http://{}/in?a=b", receiver.address));
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut service = Service::with(
        &["--rules", &rules, "--webhook-url", &url],
        &[("SLUICEGATE_WEBHOOK_SECRET", secret)],
    );
    assert_eq!([check(&service, "team", 499), check(&service, "team", 1)], [200, 200]);
    let (first, repeated) = (receiver.next(), receiver.next());
    assert_eq!(first.path, "/in?a=b");
    assert_eq!(first.body, repeated.body, "repeated after the status 500");
    assert_eq!(first.header("webhook-id"), repeated.header("webhook-id"));
    let (id, at) = (repeated.header("webhook-id"), repeated.header("webhook-timestamp"));
    let signature =
        SigningSecret::new(secret).unwrap().sign(id, at.parse().unwrap(), &repeated.body);
    assert_eq!(repeated.header("webhook-signature"), signature);
    let event = repeated.json();
    assert_eq!(event["type"], "budget.threshold_reached");
    let data = &event["data"];
    assert!(data["resets_at"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{data}");
    let expected = json!({
        "domain": "llm", "rule": "llm/included", "pool": null, "limit": "month",
        "descriptor": "team=search", "threshold": 50, "used": 500, "quota": 1000,
        "resets_at": data["resets_at"],
    });
    assert_eq!(*data, expected);
    let line = service.says("budget threshold reached");
    for field in ["rule=llm/included", "threshold=50", "used=500", "descriptor=team=search"] {
        assert!(line.replace('"', "").contains(field), "{field}: {line}");
    }
    // Two at once; and a further pool of the rule has thresholds of its own.
    assert_eq!([check(&service, "team", 500), check(&service, "team", 60)], [200, 200]);
    let thresholds = [receiver.next(), receiver.next(), receiver.next()].map(|one| {
        let data = one.json()["data"].clone();
        (data["pool"].clone(), data["threshold"].as_u64().unwrap())
    });
    assert_eq!(thresholds, [(json!(null), 80), (json!(null), 100), (json!("credits"), 50)]);
    until("all are delivered", || {
        let sample = r#"sluicegate_webhook_events_total{outcome="delivered"}"#;
        metric(&service, sample).filter(|count| count == "4")
    });
    assert_eq!(metric(&service, "sluicegate_webhook_retries_total").as_deref(), Some("1"));
    let reached = r#"sluicegate_threshold_reached_total{rule="llm/included",threshold="80"}"#;
    assert_eq!(metric(&service, reached).as_deref(), Some("1"));
    assert!(receiver.is_empty());
    let shown = service.admin("/config").body;
    assert!(
        shown.contains("webhook") && !shown.contains("a=b") && !shown.contains("MfKQ"),
        "{shown}"
    );
}

#[test]
fn the_next_window_reports_again() {
    let (folder, receiver) = (Folder::new(), WebhookReceiver::answering(&[]));
    let (rules, url) = (folder.file("rules.yaml", RULES), format!("http://{}/", receiver.address));
    let service = Service::with(&["--rules", &rules], &[("SLUICEGATE_WEBHOOK_URL", &url)]);
    for _ in 0..2 {
        // A window has room for one of these.
        until("a window begins", || (check(&service, "short", 8) == 200).then_some(()));
        let data = receiver.next().json()["data"].clone();
        assert_eq!((&data["threshold"], &data["used"]), (&json!(80), &json!(8)));
    }
}

#[test]
fn a_redirect_is_not_followed_and_what_is_refused_is_not_repeated() {
    let (folder, receiver) = (Folder::new(), WebhookReceiver::answering(&[307, 410]));
    let (rules, url) = (folder.file("rules.yaml", RULES), format!("http://{}/", receiver.address));
    let mut service = Service::with(&["--rules", &rules, "--webhook-url", &url], &[]);
    assert_eq!(check(&service, "team", 900), 200);
    assert_eq!([receiver.next().path, receiver.next().path], ["/", "/"]);
    for status in ["307", "410"] {
        let line = service.says("event not delivered");
        assert!(line.contains(&format!("status {status}")), "{line}");
    }
    let failed = metric(&service, r#"sluicegate_webhook_events_total{outcome="failed"}"#);
    assert_eq!(failed.as_deref(), Some("2"));
    assert!(receiver.is_empty());
}

/// The number that a metric reaches.
fn reaches(service: &Service, sample: &str, count: &str) {
    until(sample, || metric(service, sample).filter(|now| now == count).map(drop));
}

#[test]
fn rules_that_fail_to_load_are_one_event_and_so_is_the_end_of_the_failure() {
    let (folder, receiver) = (Folder::new(), WebhookReceiver::answering(&[]));
    let (rules, url) = (folder.file("rules.yaml", RULES), format!("http://{}/", receiver.address));
    let service = Service::with(&["--rules", &rules, "--webhook-url", &url], &[]);
    let refused = "ratelimit_service_config_load_error";
    // Two mistakes, then another one: the failure is the same.
    folder.file("rules.yaml", &RULES.replace("month,", "month, algo: x,").replace("80%\n", "x\n"));
    reaches(&service, refused, "1");
    folder.file("rules.yaml", "domain: [");
    reaches(&service, refused, "2");
    let event = receiver.next().json();
    assert_eq!(event["type"], "rules.reload_failed", "{event}");
    let data = &event["data"];
    assert_eq!((&data["rules"], &data["problems"]), (&json!(rules), &json!(2)), "{data}");
    let problem = data["problem"].as_str().unwrap();
    assert!(problem.contains("rules.yaml:") && problem.contains("algo"), "{problem}");
    let enforced = &data["enforced"];
    assert_eq!((&enforced["revision"], &enforced["rules"]), (&json!(1), &json!(3)), "{data}");
    assert!(enforced["since"].as_str().unwrap().ends_with('Z'), "{data}");
    let hash = format!("sluicegate_rules_hash{{hash={}}}", enforced["hash"]);
    assert_eq!(metric(&service, &hash).as_deref(), Some("1"));

    folder.file("rules.yaml", &RULES.replace("1000/year", "2000/year"));
    let event = receiver.next().json();
    assert_eq!(event["type"], "rules.reloaded", "{event}");
    assert_eq!(event["data"]["failed_loads"], 2, "{event}");
    assert!(
        event["data"]["failed_since"].as_str().unwrap() <= event["timestamp"].as_str().unwrap()
    );
    assert_ne!(event["data"]["enforced"]["hash"], enforced["hash"]);

    // A valid change after a valid one is no event, and a new failure is one.
    folder.file("rules.yaml", RULES);
    reaches(&service, "ratelimit_service_config_load_success", "3");
    folder.file("rules.yaml", "domain: [");
    assert_eq!(receiver.next().json()["type"], "rules.reload_failed");
    assert!(receiver.is_empty());
}
