//! Files of rules that vanish under `sluicegate serve`.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use support::service::Service;
use support::{Folder, sluicegate};

/// No window ends while a test runs.
const SHOP: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 5 } }]\n";
const WEB: &str =
    "domain: web\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 5 } }]\n";

/// The value of a metric without labels.
fn metric(service: &Service, name: &str) -> u64 {
    let page = service.admin("/metrics").body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn used_up(service: &Service) {
    for expected in [200, 200, 200, 200, 200, 429] {
        assert_eq!(service.check("shop", "alice"), expected);
    }
}

#[test]
fn limits_hold_while_rules_are_away_and_everybody_can_see_it() {
    let folder = Folder::new();
    let file = folder.file("rules/shop.yaml", SHOP);
    folder.file("rules/web.yaml", WEB);
    let rules = format!("{}/rules", folder.path());
    let mut service = Service::with(&["--rules", &rules], &[]);
    used_up(&service);
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 0);

    std::fs::remove_file(&file).unwrap();
    let line = service.says("rules withheld");
    for part in
        ["ERROR", &file, "domain `shop` is in no file any more", "`removed: true`", "in 10m"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(service.check("shop", "alice"), 429);
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 1);
    assert_eq!(metric(&service, "ratelimit_service_config_load_error"), 1);
    let page = service.admin("/rlconfig").body;
    assert!(page.contains("# withheld: ") && page.contains("\nshop.user: unit=YEAR"), "{page}");

    folder.file("rules/shop.yaml", SHOP);
    service.says("rules are in the files again");
    assert_eq!(service.check("shop", "alice"), 429, "counters continue");
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 0);
    assert!(!service.admin("/rlconfig").body.contains("# withheld"));

    folder.file("rules/shop.yaml", "domain: shop\nremoved: true\n");
    service.says("rules reloaded changed=0 added=0 removed=1 same=1");
    assert_eq!(service.check("shop", "alice"), 200);
}

#[test]
fn the_grace_period_is_a_setting() {
    let folder = Folder::new();
    let file = folder.file("rules/shop.yaml", SHOP);
    let rules = format!("{}/rules", folder.path());
    let mut service = Service::with(&["--rules", &rules, "--rules-removal-grace", "600ms"], &[]);
    used_up(&service);
    std::fs::remove_file(&file).unwrap();
    service.says("rules withheld");
    let line = service.says("domain removed: it has no limits any more");
    assert!(line.contains("WARN") && line.contains("domain=shop"), "{line}");
    service.has_said("no domain has rules: every request is allowed");
    assert_eq!(service.check("shop", "alice"), 200);
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 0);

    let file = folder.file("rules/shop.yaml", SHOP);
    let grace = [("SLUICEGATE_RULES_REMOVAL_GRACE", "0")];
    let mut service = Service::with(&["--rules", &rules], &grace);
    used_up(&service);
    std::fs::remove_file(&file).unwrap();
    service.says("rules reloaded");
    assert_eq!(service.check("shop", "alice"), 200);
    let config = service.admin("/config").body;
    assert!(config.contains(r#""rules_removal_grace_s": 0.0"#), "{config}");
    let run = sluicegate(&["serve", "--rules-removal-grace", "soon"], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--rules-removal-grace: must be"), "{}", run.stderr);
}

#[test]
fn a_start_without_rules_is_loud() {
    let folder = Folder::new();
    let file = folder.file("rules.yaml", "domain: shop\n");
    let mut service = Service::with(&["--rules", &file], &[]);
    let line = service.has_said("domain: has no rules, so nothing in it is limited");
    assert!(line.contains("WARN"), "{line}");
    folder.file("rules.yaml", SHOP);
    service.says("rules reloaded");
    used_up(&service);
    let run = sluicegate(&["check", &folder.file("empty.yaml", "domain: shop\n")], "");
    assert_eq!(run.code, 0, "envoyproxy/ratelimit accepts it: {}", run.stderr);
    assert!(run.stderr.contains("warning: domain: has no rules"), "{}", run.stderr);
    let run = sluicegate(&["check", "--strict", &folder.file("empty.yaml", "domain: shop\n")], "");
    assert_eq!(run.code, 1);
    let removed = folder.file("removed.yaml", "domain: shop\nremoved: true\n");
    let run = sluicegate(&["check", "--strict", &removed], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("domain shop: removed\n"), "{}", run.stdout);
    let run = sluicegate(&["check", "--json", &removed], "");
    assert!(run.stdout.contains(r#""removed":["shop"]"#), "{}", run.stdout);
}
