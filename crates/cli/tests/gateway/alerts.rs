//! Alerts of the guide: Prometheus accepts them, and every series that they select exists.

use std::collections::BTreeSet;

use crate::expressions::{exported, selected};
use crate::prometheus::{check_rules, gateway_pages, service_pages};
use crate::support::{Folder, root};

/// Metrics that an operator of a gateway must be able to rely on.
const COVERED: [&str; 10] = [
    "sluicegate_upstream_healthy",
    "sluicegate_gateway_upstream_errors_total",
    "sluicegate_gateway_requests_total",
    "sluicegate_gateway_certificate_failures_total",
    "sluicegate_gateway_certificate_expiry_timestamp_seconds",
    "sluicegate_certificate_file_expiry_timestamp_seconds",
    "sluicegate_certificate_file_failures_total",
    "sluicegate_gateway_config_last_reload_successful",
    "sluicegate_client_connections_rejected_total",
    "sluicegate_connections_refused_total",
];

/// Metrics that the people who change rules, and those who send bills, must be able to rely on.
const COVERED_FOR_OPERATORS: [&str; 8] = [
    "sluicegate_rule_store_connected",
    "sluicegate_rule_store_from_cache",
    "sluicegate_rule_store_revision",
    "sluicegate_rule_store_refused_total",
    "sluicegate_xds_disconnected_seconds",
    "sluicegate_xds_updates_total",
    "sluicegate_usage_write_failures_total",
    "sluicegate_audit_write_failures_total",
];

/// The alerts below a heading of the guide, as a file of rules.
fn alerts(heading: &str) -> String {
    let guide = std::fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
    let (_, alerts) = guide.split_once(&format!("\n{heading}\n")).unwrap();
    alerts.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

/// Checks the alerts of a file against a page; the names of their metrics.
fn check(rules: &str, page: &str) -> BTreeSet<String> {
    let exported = exported(page);
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert_eq!(check_rules(rules), alerts.len());
    let mut covered = BTreeSet::new();
    for alert in alerts {
        let expression = alert.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        let names = selected(expression, alert, &exported);
        assert!(!names.is_empty(), "{alert}");
        covered.extend(names.into_iter().map(str::to_owned));
    }
    covered
}

#[test]
fn every_alert_of_the_gateway_selects_series_that_exist() {
    let folder = Folder::new();
    let covered = check(&alerts("### Alerts of the gateway"), &gateway_pages(&folder).concat());
    for name in COVERED {
        assert!(covered.contains(name), "no alert on `{name}`");
    }
}

#[test]
fn every_alert_of_the_service_selects_series_that_exist() {
    let folder = Folder::new();
    let covered = check(&alerts("## Alerts"), &service_pages(&folder).concat());
    assert!(covered.contains("sluicegate_redis_up"), "{covered:?}");
}

#[test]
fn every_alert_for_operators_selects_series_that_exist() {
    let heading = "### Alerts of the rule store, usage and operators";
    let folder = Folder::new();
    let covered = check(&alerts(heading), &service_pages(&folder).concat());
    for name in COVERED_FOR_OPERATORS {
        assert!(covered.contains(name), "no alert on `{name}`");
    }
}
