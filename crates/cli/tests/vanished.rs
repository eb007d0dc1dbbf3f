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
    folder.file("rules/empty.yaml", "domain: empty\n");
    let rules = format!("{}/rules", folder.path());
    let mut service = Service::with(&["--rules", &rules, "--rules-removal-grace", "600ms"], &[]);
    used_up(&service);
    std::fs::remove_file(&file).unwrap();
    service.says("rules withheld");
    let line = service.says("domain removed: it has no limits any more");
    assert!(line.contains("WARN") && line.contains("domain=shop"), "{line}");
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
fn a_directory_that_is_emptied_keeps_the_last_rules() {
    let folder = Folder::new();
    let file = folder.file("rules/shop.yaml", SHOP);
    let rules = format!("{}/rules", folder.path());
    // Neither the grace period nor its end removes them.
    let mut service = Service::with(&["--rules", &rules, "--rules-removal-grace", "0"], &[]);
    used_up(&service);
    assert_eq!(metric(&service, "sluicegate_rules"), 1);
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_successful"), 1);
    let loaded = metric(&service, "sluicegate_rules_last_reload_timestamp_seconds");
    assert!(loaded > 1_700_000_000, "{loaded}");
    std::fs::remove_file(&file).unwrap();
    let line = service.says("there are no files in this directory");
    assert!(line.contains("ERROR"), "{line}");
    service.says("rules not loaded: the previous rules stay in force");
    assert_eq!(service.check("shop", "alice"), 429);
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(metric(&service, "sluicegate_rules"), 1);
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_successful"), 0);
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_timestamp_seconds"), loaded);
    folder.file("rules/shop.yaml", SHOP);
    service.says("rules reloaded");
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_successful"), 1);
    assert_eq!(service.check("shop", "alice"), 429, "counters continue");
}

#[test]
fn replicas_with_the_same_rules_have_the_same_hash() {
    let hash = |service: &Service| {
        let page = service.admin("/metrics").body;
        let hash = page.lines().find_map(|line| line.strip_prefix("sluicegate_rules_hash{hash=\""));
        hash.unwrap_or_else(|| panic!("{page}")).to_owned()
    };
    let folder = Folder::new();
    for (name, text) in [("one/shop", SHOP), ("one/web", WEB), ("two/a", WEB), ("two/b", SHOP)] {
        folder.file(&format!("{name}.yaml"), text);
    }
    let start = |name: &str| Service::with(&["--rules", &format!("{}/{name}", folder.path())], &[]);
    let (one, mut two) = (start("one"), start("two"));
    assert_eq!(hash(&one), hash(&two));
    folder.file("two/b.yaml", &SHOP.replace("unit: 5", "unit: 6"));
    two.says("rules reloaded");
    assert_ne!(hash(&one), hash(&two));
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
