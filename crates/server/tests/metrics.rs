//! What Prometheus reads, and that it is what envoyproxy/ratelimit would have told.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod metrics_support;

use metrics_support::Scrape;
use serde_json::{Value, json};
use sluicegate::backend::ready;
use sluicegate::clock::ManualClock;
use sluicegate::rules::domain::{DescriptorConfig, Domain};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::rule::{Limits, RuleConfig};
use sluicegate::rules::set::RuleSet;
use sluicegate::rules::unit::Unit;
use sluicegate::{Engine, Span, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::metrics;
use sluicegate_server::rls::json;
use sluicegate_server::telemetry::{Endpoint, Event, Fault};
use sluicegate_server::webhook::{self, WebhookOptions};

fn service(rules: RuleSet) -> App {
    App::new(Engine::builder(rules).clock(ManualClock::new()).build().unwrap())
}

fn scrape(service: &App) -> Scrape {
    Scrape::read(&metrics::text(service))
}

fn ask(service: &App, asked: &Value) {
    let bytes = json::request(asked.to_string().as_bytes()).unwrap();
    let _ = service.answer_local(
        Endpoint::ShouldRateLimit,
        &bytes,
        &mut Default::default(),
        &mut vec![],
    );
}

/// Asks of domain `m`, for `key=value` with commas between them.
fn hit(service: &App, entries: &str, hits: u32) {
    ask(service, &asking(entries, hits));
}

fn asking(entries: &str, hits: u32) -> Value {
    let entry = |both: &str| {
        let (key, value) = both.split_once('=').unwrap();
        json!({ "key": key, "value": value })
    };
    let entries: Vec<Value> = entries.split(", ").map(entry).collect();
    json!({ "domain": "m", "descriptors": [{ "entries": entries }], "hitsAddend": hits })
}

/// From a run of envoyproxy/ratelimit 3fb7025 with `USE_PROMETHEUS=true`: its rules, calls and numbers, without those that have
/// values of clients in their labels.
mod anchor {
    pub(super) const RULES: &str = r#"
domain: m
descriptors:
  - key: k1
    rate_limit: { unit: hour, requests_per_unit: 5 }
    descriptors:
      - key: k2
        rate_limit: { unit: hour, requests_per_unit: 2 }
        descriptors:
          - key: k3
            rate_limit: { unit: hour, requests_per_unit: 2 }
            descriptors:
              - { key: k4, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: v, value: fix, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: g, value: "x*", rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: st, value: "s*", share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: sh, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: q, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: u, rate_limit: { unlimited: true } }
  - { key: odd.key, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: "odd key-é", rate_limit: { unit: hour, requests_per_unit: 5 } }
"#;

    pub(super) const CALLS: [(&str, u32); 15] = [
        ("k1=a", 1),
        ("k1=a, k2=b", 1),
        ("k1=a, k2=b, k3=c", 3),
        ("k1=a, k2=b, k3=c, k4=d", 1),
        ("v=fix", 1),
        ("g=xyz", 1),
        ("st=sa", 1),
        ("st=sb", 1),
        ("sh=1", 3),
        ("q=1", 3),
        ("u=1", 1),
        ("odd.key=1", 1),
        ("odd key-é=1", 1),
        ("k1=a", 4),
        ("k1=a", 1),
    ];

    /// `key1`, `key2`; total_hits, over_limit, near_limit, within_limit, shadow_mode.
    pub(super) const SERIES: [(&str, &str, [f64; 5]); 9] = [
        ("k1", "", [6.0, 1.0, 1.0, 5.0, 0.0]),
        ("k1", "k2", [5.0, 1.0, 1.0, 2.0, 0.0]),
        ("v_fix", "", [1.0, 0.0, 0.0, 1.0, 0.0]),
        ("g_x*", "", [1.0, 0.0, 0.0, 1.0, 0.0]),
        ("st_s*", "", [2.0, 0.0, 0.0, 2.0, 0.0]),
        ("sh", "", [3.0, 2.0, 1.0, 0.0, 2.0]),
        ("q", "", [3.0, 2.0, 1.0, 0.0, 0.0]),
        ("odd", "key", [1.0, 0.0, 0.0, 1.0, 0.0]),
        ("odd key-é", "", [1.0, 0.0, 0.0, 1.0, 0.0]),
    ];
}

const FAMILIES: [&str; 5] =
    ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"];

#[test]
fn dashboards_of_envoys_own_service_find_what_they_look_for() {
    let service = service(rules_of(anchor::RULES).unwrap());
    anchor::CALLS.iter().for_each(|(entries, hits)| hit(&service, entries, *hits));
    let scrape = scrape(&service);
    let mut theirs: Vec<(&str, &str)> = Vec::new();
    for (key1, key2, numbers) in anchor::SERIES {
        for (family, number) in FAMILIES.into_iter().zip(numbers) {
            let name = format!("ratelimit_service_rate_limit_{family}");
            // What they add up is apart here, by `rule`: asking for the sum is what dashboards do.
            let labels = [("domain", "m"), ("key1", key1)];
            let found = scrape.with(&name, &labels);
            let found = found.filter(|one| one.labels.get("key2").map_or("", |key| key) == key2);
            let found: Vec<f64> = found.map(|one| one.value).collect();
            assert!(!found.is_empty(), "{name} {key1} {key2}");
            assert_eq!(found.iter().sum::<f64>(), number, "{name} {key1} {key2}");
        }
        theirs.push((key1, key2));
    }
    for sample in scrape.with("ratelimit_service_rate_limit_total_hits", &[("domain", "m")]) {
        let key = |name: &str| sample.labels.get(name).map_or("", |key| key);
        assert!(theirs.contains(&(key("key1"), key("key2"))), "not there: {sample:?}");
    }
    let calls =
        scrape.value("ratelimit_service_total_requests", &[("grpc_method", "ShouldRateLimit")]);
    assert_eq!(calls, Some(15.0));
    let took = "ratelimit_service_response_time_seconds";
    for le in
        ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]
    {
        let labels = [("grpc_method", "ShouldRateLimit"), ("le", le)];
        assert_eq!(scrape.value(&format!("{took}_bucket"), &labels), Some(15.0), "{le}");
    }
}

#[test]
fn a_rule_is_called_as_everywhere_else() {
    let rules = "
domain: m
descriptors:
  - { key: user, limits: { algorithm: fixed_window, rate: 1/year }, id: users }
  - { key: team, limits: { algorithm: fixed_window, rate: 1/year } }
";
    let service = service(rules_of(rules).unwrap());
    (0..3).for_each(|_| hit(&service, "user=alice", 1));
    let scrape = scrape(&service);
    let over = |rule| scrape.value("ratelimit_service_rate_limit_over_limit", &[("rule", rule)]);
    assert_eq!(over("m/users"), Some(2.0));
    assert_eq!(over("m/team"), Some(0.0), "a rule is there before it is hit");
}

#[test]
fn nothing_that_a_client_sends_becomes_a_label() {
    let rules = "
domain: m
descriptors:
  - { key: det, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: vtm, value_to_metric: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
";
    let service = service(rules_of(rules).unwrap());
    hit(&service, "det=secret", 1);
    hit(&service, "vtm=secret", 1);
    let mut asked = asking("secret=secret", 5);
    asked["descriptors"][0]["limit"] = json!({ "requestsPerUnit": 2, "unit": "HOUR" });
    ask(&service, &asked);
    asked["domain"] = json!("secret");
    ask(&service, &asked);
    let scrape = scrape(&service);
    assert!(!metrics::text(&service).contains("secret"));
    let hits = |rule| scrape.value("ratelimit_service_rate_limit_total_hits", &[("rule", rule)]);
    assert_eq!([hits("m/det"), hits("m/vtm")], [Some(1.0); 2]);
    assert_eq!(hits("override"), Some(5.0), "limits that came along are counted together");
    let unknown = scrape.value("ratelimit_service_rate_limit_domain_not_found", &[]);
    assert_eq!(unknown, Some(1.0));
}

/// Labels `key` and values of a family by value.
fn by_value(scrape: &Scrape, name: &str, rule: &str) -> Vec<(String, f64)> {
    let name = format!("sluicegate_rule_values_{name}");
    let labels = [("domain", "m"), ("rule", rule)];
    let samples = scrape.with(&name, &labels);
    samples.map(|one| (one.labels["key"].clone(), one.value)).collect()
}

#[test]
fn hits_by_value_are_bounded_and_add_up() {
    let rules = r#"
domain: m
descriptors:
  - { key: det, value: "x*", detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - key: team
    value_to_metric: true
    descriptors: [{ key: path, rate_limit: { unit: hour, requests_per_unit: 2 } }]
  - { key: plain, rate_limit: { unit: hour, requests_per_unit: 2 } }
"#;
    let engine = Engine::builder(rules_of(rules).unwrap()).clock(ManualClock::new());
    let service = App::new(engine.metric_values(2).build().unwrap());
    for (entries, hits) in
        [("det=xa", 3), ("det=x:b", 1), ("det=xc", 1), ("team=a, path=/1", 1), ("plain=a", 1)]
    {
        hit(&service, entries, hits);
    }
    let scrape = scrape(&service);
    let of = |name| by_value(&scrape, name, "m/det=x*");
    let expected = |all: [(&str, f64); 3]| all.map(|(key, value)| (key.to_owned(), value));
    assert_eq!(of("total_hits"), expected([("det_x:b", 1.0), ("det_xa", 3.0), ("other", 1.0)]));
    assert_eq!(of("over_limit"), expected([("det_x:b", 0.0), ("det_xa", 1.0), ("other", 0.0)]));
    let team = by_value(&scrape, "total_hits", "m/team/path");
    assert_eq!(team, [("other".to_owned(), 0.0), ("team_a.path".to_owned(), 1.0)]);
    assert!(by_value(&scrape, "total_hits", "m/plain").is_empty());
    let total = scrape.value("ratelimit_service_rate_limit_total_hits", &[("key1", "det_x*")]);
    assert_eq!(total, Some(5.0), "the counters of the rule are the same with and without values");
}

#[test]
fn values_with_characters_of_statsd_have_series_of_their_own() {
    let rules = "domain: m\ndescriptors:\n- { key: k, value_to_metric: true, rate_limit: { unit: \
                 hour, requests_per_unit: 9 } }\n";
    let engine = Engine::builder(rules_of(rules).unwrap()).clock(ManualClock::new());
    let service = App::new(engine.metric_values(9).build().unwrap());
    let values = ["10.0.0.1", "10_0_0_1", "a:b", "a_b", "a|b"];
    for value in values {
        hit(&service, &format!("k={value}"), 1);
    }
    let found = by_value(&scrape(&service), "total_hits", "m/k");
    let mut expected: Vec<_> = values.iter().map(|value| (format!("k_{value}"), 1.0)).collect();
    expected.push(("other".to_owned(), 0.0));
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(found, expected);
}

#[test]
fn no_name_of_a_rule_breaks_the_format() {
    let names = ["a\"b", "a\\b", "a\nb", "a}b", "{a=\"b\"} 1", "a..b", ".", "é", " ", "a\u{0}b"];
    let nodes = names.iter().map(|name| envoy(DescriptorConfig::text(*name, *name))).collect();
    let nameless = Domain { descriptors: nodes, ..Domain::new("d\"\n\\") };
    // Names of Envoy's form may come twice, and so may the first two keys.
    let deep =
        |last| DescriptorConfig { descriptors: vec![named(last)], ..DescriptorConfig::any("b") };
    let deep = |first, last| DescriptorConfig {
        descriptors: vec![deep(last)],
        ..DescriptorConfig::any(first)
    };
    let same =
        Domain { descriptors: vec![deep("a", "c"), deep("a.b", "d")], ..Domain::new("twice") };
    let service = service(RuleSet::new(vec![nameless, same]).unwrap());
    for key in ["a b c", "a.b b d"] {
        let entries: Vec<Value> =
            key.split(' ').map(|key| json!({ "key": key, "value": "1" })).collect();
        ask(&service, &json!({ "domain": "twice", "descriptors": [{ "entries": entries }] }));
    }
    let scrape = scrape(&service);
    let hits = "ratelimit_service_rate_limit_total_hits";
    assert_eq!(scrape.with(hits, &[("domain", "d\"\n\\")]).count(), names.len());
    assert_eq!(scrape.value(hits, &[("domain", "twice")]), Some(2.0), "one name, one series");
}

fn envoy(node: DescriptorConfig) -> DescriptorConfig {
    let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 1, unit: Unit::Year });
    DescriptorConfig { rule: Some(rule), ..node }
}

fn named(key: &str) -> DescriptorConfig {
    let mut node = envoy(DescriptorConfig::any(key));
    node.rule.as_mut().unwrap().name = Some("same".into());
    node
}

/// So many rules, each for one value of a key.
fn many(count: usize) -> App {
    let nodes = (0..count).map(|no| envoy(DescriptorConfig::text("k", no.to_string()))).collect();
    service(RuleSet::new(vec![Domain { descriptors: nodes, ..Domain::new("m") }]).unwrap())
}

#[test]
fn few_rules_are_all_there_and_of_many_only_those_that_were_hit() {
    let listed = |service: &App| {
        scrape(service).with("ratelimit_service_rate_limit_total_hits", &[("domain", "m")]).count()
    };
    assert_eq!(listed(&many(1_000)), 1_000);
    let service = many(1_001);
    assert_eq!(listed(&service), 0);
    hit(&service, "k=7", 1);
    hit(&service, "k=1000", 1);
    assert_eq!(listed(&service), 2);
}

#[test]
fn beyond_ten_thousand_rules_are_added_up() {
    let service = many(10_003);
    let (hits, other) = ("ratelimit_service_rate_limit_total_hits", [("rule", "other")]);
    assert_eq!(scrape(&service).value(hits, &other), Some(0.0));
    // The first is missing, and hit at last.
    for no in 1..10_003 {
        let value = no.to_string();
        let entries = [Entry::new("k", &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "m", descriptors: &descriptors, hits: 1 };
        assert!(ready(service.engine().check_async(&request)).unwrap().unwrap().allowed);
    }
    let before = scrape(&service);
    assert_eq!(before.with(hits, &[("domain", "m")]).count(), 10_000);
    assert_eq!(before.value(hits, &other), Some(2.0));
    hit(&service, "k=0", 1);
    hit(&service, "k=10002", 1);
    let after = scrape(&service);
    assert_eq!(after.with(hits, &[("domain", "m")]).count(), 10_000);
    assert_eq!(after.value(hits, &other), Some(4.0));
    assert_eq!(after.with(hits, &[]).map(|one| one.value).sum::<f64>(), 10_004.0, "all of them");
}

#[test]
fn the_service_tells_about_itself() {
    let service = service(rules_of(anchor::RULES).unwrap());
    let telemetry = service.telemetry();
    telemetry.record_response(Endpoint::Check, Span::from_micros(25));
    telemetry.record_response(Endpoint::Check, Span::from_micros(26));
    telemetry.record_response(Endpoint::Check, Span::from_secs(11));
    telemetry.record_failure(Endpoint::Check, Fault::Overload);
    telemetry.record_failure(Endpoint::Json, Fault::Service);
    for what in Event::ALL {
        telemetry.record(what);
    }
    telemetry.record(Event::ConnectionOpened);
    hit(&service, "k1=a", 1);
    let scrape = scrape(&service);
    let check = [("door", "check")];
    assert_eq!(scrape.value("sluicegate_calls_total", &check), Some(4.0));
    let overload = [("door", "check"), ("reason", "overload")];
    assert_eq!(scrape.value("sluicegate_call_failures_total", &overload), Some(1.0));
    let bucket = |le| {
        scrape.value("sluicegate_response_time_seconds_bucket", &[("door", "check"), ("le", le)])
    };
    let buckets = ["0.00001", "0.000025", "0.00005", "10", "+Inf"].map(bucket);
    assert_eq!(buckets, [0.0, 1.0, 2.0, 2.0, 3.0].map(Some));
    assert_eq!(scrape.value("sluicegate_response_time_seconds_sum", &check), Some(11.000051));
    assert_eq!(scrape.value("sluicegate_response_time_seconds_count", &check), Some(3.0));
    for (name, value) in [
        ("ratelimit_service_config_load_success", 1.0),
        ("ratelimit_service_config_load_error", 1.0),
        ("ratelimit_service_global_shadow_mode", 1.0),
        ("sluicegate_connections_open", 1.0),
        ("sluicegate_connections_total", 2.0),
        ("sluicegate_connections_refused_total", 1.0),
        ("sluicegate_store_entries", 1.0),
        ("sluicegate_rules", 12.0),
        ("sluicegate_domains", 1.0),
        ("sluicegate_ready", 1.0),
        ("sluicegate_shadow_mode", 0.0),
        ("sluicegate_build_info", 1.0),
    ] {
        assert_eq!(scrape.value(name, &[]), Some(value), "{name}");
    }
    let failed = [("err_type", "service_error")];
    assert_eq!(scrape.value("ratelimit_service_should_rate_limit_error", &failed), Some(1.0));
    service.health().drain();
    assert_eq!(self::scrape(&service).value("sluicegate_ready", &[]), Some(0.0));
}

/// A service whose counters are in a store that nobody answers for.
fn shared(rules: RuleSet) -> App {
    let address = Address::parse("redis://127.0.0.1:1").unwrap();
    let link = Link::open(address, LinkOptions::default()).unwrap();
    let engine = Engine::builder(rules).metric_values(1).build().unwrap();
    let shared = RedisBackend::attach(engine.clone(), Store::new(link, StoreOptions::default()));
    let (options, health) = (Default::default(), Health::default());
    let app = App::redis_builder(shared).options(options).health(health).build();
    let webhook = WebhookOptions { url: "http://127.0.0.1:1/".parse().unwrap(), secret: None };
    app.add_metrics(webhook::start(Some(webhook)).unwrap().0);
    app
}

#[tokio::test]
async fn every_metric_has_its_line_in_the_guide_and_every_line_its_metric() {
    let guide = include_str!("../../../docs/guide/metrics.md");
    let (_, table) = guide.split_once("## Every metric").unwrap();
    // Those of the gateway, and of TLS, have tests of their own.
    let lines = table.lines().filter(|line| !line.contains("` | gateway"));
    let named = lines.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let named: Vec<&str> = named.collect();
    let rules = "domain: m\ndescriptors:\n- { key: k, value_to_metric: true, rate_limit: { unit: \
                 hour, requests_per_unit: 1 } }\n";
    let scrape = scrape(&shared(rules_of(rules).unwrap()));
    for name in scrape.kinds.keys() {
        assert!(named.contains(&&**name), "{name} is not in the guide");
    }
    let (alerts, _) = guide.split_once("### Alerts of the gateway").unwrap();
    let alerts = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let words =
        alerts.flat_map(|line| line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()));
    let alerts: Vec<&str> = words
        .filter(|word| ["sluicegate_", "ratelimit_"].iter().any(|p| word.starts_with(p)))
        .collect();
    for name in &alerts {
        assert!(scrape.kinds.contains_key(*name), "no metric `{name}` of an alert");
    }
    for name in ["sluicegate_shadow_mode", "sluicegate_redis_up", "sluicegate_unmatched_total"] {
        assert!(alerts.contains(&name), "no alert on `{name}`");
    }
    // Not every system reports its processes; the others are of parts that tests of the binary add:
    // tests/gateway/dashboards.rs of the crate cli.
    let added = ["process_", "sluicegate_rule_store_", "sluicegate_xds_", "sluicegate_usage_"]
        .into_iter()
        .chain(["sluicegate_admin_", "sluicegate_audit_", "sluicegate_candidate_"]);
    let added: Vec<&str> = added.collect();
    for name in named {
        let is_known =
            scrape.kinds.contains_key(name) || added.iter().any(|one| name.starts_with(one));
        assert!(is_known, "{name} is in the guide only");
    }
}

#[tokio::test]
async fn each_rule_that_does_not_always_ask_the_store_has_its_bounds_beside_what_was_seen() {
    const WINDOW: &str = "limits: { algorithm: sliding_window, rate: 10/s }";
    let rule = |key: &str, settings: &str| format!("- {{ key: {key}, {settings}, {WINDOW} }}\n");
    let rules = [
        rule("plain", "consistency: strict"),
        rule("bought", "consistency: leased"),
        rule("watched", "consistency: leased, mode: shadow"),
        rule("hot", "consistency: { strict: { hot_keys: leased } }"),
        rule("told", "consistency: { eventual: { sync_interval: 50ms } }"),
    ];
    let scrape =
        scrape(&shared(rules_of(&format!("domain: m\ndescriptors:\n{}", rules.concat())).unwrap()));
    let value = |name: &str, rule: &str, level: &str| {
        scrape.value(name, &[("rule", &format!("m/{rule}")), ("level", level)])
    };
    for name in [
        "over_bound",
        "over_observed",
        "short_bound",
        "short_observed_total",
        "local_decisions_total",
        "asked_decisions_total",
    ] {
        let name = &format!("sluicegate_{name}");
        for (rule, level) in [("bought", "leased"), ("hot", "strict"), ("told", "eventual")] {
            assert_eq!(value(name, rule, level), Some(0.0), "{name} of {rule}");
        }
        for rule in ["plain", "watched"] {
            for level in ["strict", "leased"] {
                assert_eq!(value(name, rule, level), None, "{name} of {rule}: always asks");
            }
        }
    }
    for (name, due) in [
        ("leases", [Some(0.0), Some(0.0), None]),
        ("hot_keys", [None, Some(0.0), None]),
        ("sync_pushes_total", [None, None, Some(0.0)]),
        ("sync_interval_milliseconds", [None, None, Some(50.0)]),
    ] {
        let name = &format!("sluicegate_{name}");
        let told = [("bought", "leased"), ("hot", "strict"), ("told", "eventual")]
            .map(|(rule, level)| value(name, rule, level));
        assert_eq!(told, due, "{name}");
    }
}
