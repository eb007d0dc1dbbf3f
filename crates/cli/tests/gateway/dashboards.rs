//! Dashboards for Grafana: they can be imported anywhere, and every series that they show exists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::expressions::{exported, selected};
use crate::prometheus::{check_rules, gateway_pages, service_pages};
use crate::support::{Folder, root};

/// Metrics that both dashboards show.
const COVERED: [&str; 12] = [
    "ratelimit_service_rate_limit_total_hits",
    "ratelimit_service_rate_limit_over_limit",
    "ratelimit_service_rate_limit_near_limit",
    "sluicegate_unmatched_total",
    "sluicegate_redis_up",
    "sluicegate_redis_call_failures_total",
    "sluicegate_redis_breaker",
    "sluicegate_redis_fallbacks_total",
    "sluicegate_store_entries",
    "sluicegate_leases",
    "sluicegate_lease_calls_total",
    "sluicegate_connections_refused_total",
];
const COVERED_BY_SERVICE: [&str; 12] = [
    "ratelimit_service_response_time_seconds_bucket",
    "sluicegate_response_time_seconds_bucket",
    "sluicegate_calls_total",
    "sluicegate_call_failures_total",
    "sluicegate_rule_store_revision",
    "sluicegate_rule_store_connected",
    "sluicegate_rule_store_from_cache",
    "sluicegate_rule_store_refused_total",
    "sluicegate_xds_disconnected_seconds",
    "sluicegate_xds_updates_total",
    "sluicegate_usage_write_failures_total",
    "sluicegate_audit_entries_total",
];
const COVERED_BY_GATEWAY: [&str; 6] = [
    "sluicegate_gateway_requests_total",
    "sluicegate_gateway_request_duration_seconds_bucket",
    "sluicegate_upstream_healthy",
    "sluicegate_gateway_upstream_errors_total",
    "sluicegate_client_connections_rejected_total",
    "sluicegate_gateway_certificate_expiry_timestamp_seconds",
];

/// A dashboard, and its panels without rows.
struct Dashboard {
    model: Value,
    panels: Vec<Value>,
}

impl Dashboard {
    fn read(name: &str) -> Self {
        let path = root().join("deploy/grafana").join(name);
        let model: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let panels = model["panels"].as_array().unwrap().iter();
        let panels = panels.filter(|panel| panel["type"] != "row").cloned().collect();
        Self { model, panels }
    }

    /// Expressions and their legends, with values in place of variables.
    fn targets(&self) -> Vec<(String, String)> {
        let targets = self.panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        targets
            .map(|target| {
                let expression = target["expr"].as_str().unwrap();
                let expression = expression.replace("$__rate_interval", "5m").replace("$job", "a");
                let multiple = ["$instance", "$rule", "$route"];
                let expression =
                    multiple.iter().fold(expression, |text, name| text.replace(name, ".+"));
                assert!(!expression.contains('$'), "a variable that is not known: {expression}");
                let legend = target["legendFormat"].as_str().unwrap().to_owned();
                (expression, legend)
            })
            .collect()
    }
}

/// Checks a dashboard against a page of metrics.
fn check(name: &str, page: &str, covered: &[&str]) {
    let dashboard = Dashboard::read(name);
    let (targets, exported) = (dashboard.targets(), exported(page));
    let rule = |(index, (expression, _)): (usize, &(String, String))| json!({ "record": format!("panel:{index}"), "expr": expression });
    let rules: Vec<Value> = targets.iter().enumerate().map(rule).collect();
    let rules = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    assert_eq!(check_rules(&rules.to_string()), targets.len());
    let mut shown = BTreeSet::new();
    for (expression, legend) in &targets {
        let names = selected(expression, &format!("{expression} {legend}"), &exported);
        assert!(!names.is_empty(), "{expression}");
        shown.extend(names);
    }
    for name in COVERED.iter().chain(covered) {
        assert!(shown.contains(name), "no panel shows `{name}`");
    }
}

#[test]
fn every_panel_of_the_service_selects_series_that_exist() {
    check("service.json", &service_pages(&Folder::new()).concat(), &COVERED_BY_SERVICE);
}

#[test]
fn every_panel_of_the_gateway_selects_series_that_exist() {
    let folder = Folder::new();
    check("gateway.json", &gateway_pages(&folder).concat(), &COVERED_BY_GATEWAY);
}

#[test]
fn dashboards_can_be_imported_and_explain_their_panels() {
    for name in ["service.json", "gateway.json"] {
        let Dashboard { model, panels } = Dashboard::read(name);
        assert!(model["id"].is_null() && model["uid"].is_null(), "{name} is of one Grafana");
        let variables = model["templating"]["list"].as_array().unwrap();
        assert_eq!(variables[0]["type"], "datasource");
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        assert!(variables[1..].iter().all(|variable| variable["datasource"] == source));
        for panel in &panels {
            assert_eq!(panel["datasource"], source, "{panel}");
            assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
            assert!(!panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap().is_empty());
            let description = panel["description"].as_str().unwrap();
            assert!(description.len() > 50 && description.ends_with('.'), "{description}");
        }
        let distinct = |key: &str| {
            panels.iter().map(|panel| panel[key].to_string()).collect::<BTreeSet<_>>().len()
        };
        let of = panels.len();
        assert_eq!([distinct("id"), distinct("title"), distinct("gridPos")], [of, of, of]);
    }
}
