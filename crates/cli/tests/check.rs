//! `sluicegate check`, as a person or a script uses it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Folder, Run, root, shell, sluicegate};

const GOOD: &str = "domain: shop\ndescriptors:\n  - key: user_id\n    rate_limit: { unit: minute, requests_per_unit: 20 }\n";
const BAD: &str = "domain: shop\ndescriptors:\n  - key: user_id\n    rate_limit: { unit: minut, requests_per_unit: 20 }\n";
/// `shadow_mode` of a descriptor without a limit does nothing, as in envoyproxy/ratelimit.
const ODD: &str = "domain: odd\ndescriptors:\n  - key: user_id\n    shadow_mode: true\n    descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1 } }]\n";

fn check(args: &[&str]) -> Run {
    sluicegate(&[&["check"], args].concat(), "")
}

fn parsed(run: &Run) -> Value {
    assert_eq!(run.stdout.lines().count(), 1, "{}", run.stdout);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn the_schema_is_the_one_that_is_published() {
    let run = sluicegate(&["check", "--schema"], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let published = std::fs::read_to_string(root().join("docs/rules.schema.json")).unwrap();
    assert_eq!(run.stdout, published);
    assert_eq!(sluicegate(&["check", "--schema", "rules.yaml"], "").code, 2, "one or the other");
}

#[test]
fn valid_rules_are_summed_up() {
    let folder = Folder::new();
    let run = check(&[&folder.file("shop.yaml", GOOD)]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for says in [
        "domain shop: 1 rule\n",
        "  user_id  20 per minute, counted even when denied (Envoy)\n",
        "hard · strict · a counter for each user_id · 25 to 30 MB",
        "in the memory store, typical and maximum",
        "valid: 1 domain, 1 rule, 1 limit\n",
    ] {
        assert!(run.stdout.contains(says), "{says}: {}", run.stdout);
    }
}

#[test]
fn every_problem_is_told_with_its_place_and_its_line() {
    let folder = Folder::new();
    let (good, bad) = (folder.file("a.yaml", GOOD), folder.file("b.yaml", BAD));
    let run = check(&[&bad]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr.contains(&format!("{bad}:4:25: descriptors[0].rate_limit.unit: ")),
        "{}",
        run.stderr
    );
    let excerpt = "    4 |     rate_limit: { unit: minut, requests_per_unit: 20 }\n      |                         ^\n";
    assert!(run.stderr.contains(excerpt), "{}", run.stderr);
    assert!(
        run.stderr.ends_with("invalid: 1 problem in 1 file; nothing of it would be loaded\n"),
        "{}",
        run.stderr
    );

    let run = check(&[&good, &bad]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("duplicate domain"),
        "several paths are one configuration: {}",
        run.stderr
    );
    assert!(run.stderr.contains("in 2 files"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_read_exits_2() {
    let run = check(&["/nowhere/a.yaml", "/nowhere/b.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    for path in ["/nowhere/a.yaml", "/nowhere/b.yaml"] {
        assert!(
            run.stderr.contains(&format!("sluicegate: {path}: there is no such file")),
            "{}",
            run.stderr
        );
    }
    let run = check(&["--json", "/nowhere/a.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    let run = check(&[]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("no rules given") && run.stderr.contains("sluicegate check rules.yaml"),
        "{}",
        run.stderr
    );
    let folder = Folder::new();
    folder.bytes("x.yaml", b"domain: \xff\n");
    let run = check(&[folder.path()]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("not UTF-8"), "{}", run.stderr);
}

#[test]
fn a_directory_is_read_with_those_below_it() {
    let folder = Folder::new();
    folder.file("shop.yaml", GOOD);
    folder.file("deeper/api.yml", &GOOD.replace("shop", "api"));
    folder.file(".hidden.yaml", &GOOD.replace("shop", "hidden"));
    let run = check(&[folder.path()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.ends_with("valid: 2 domains, 2 rules, 2 limits\n"), "{}", run.stdout);
    let run = check(&["--include-dot-files", folder.path()]);
    assert!(run.stdout.ends_with("valid: 3 domains, 3 rules, 3 limits\n"), "{}", run.stdout);
}

#[test]
fn a_directory_without_files_is_refused_as_by_serve() {
    let folder = Folder::new();
    for run in [check(&[folder.path()]), sluicegate(&["serve", "--rules", folder.path()], "")] {
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        let error = format!("sluicegate: {}: there are no files in this directory", folder.path());
        assert!(run.stderr.starts_with(&error), "{}", run.stderr);
    }
}

#[test]
fn the_variables_of_serve_are_read() {
    let folder = Folder::new();
    folder.file("config/a.yaml", GOOD);
    folder.file("config/.b.yaml", &GOOD.replace("user_id", "path"));
    let run = |line: &str| shell(line, Path::new(folder.path()));
    for variable in ["SLUICEGATE_RULES=config", "RUNTIME_ROOT=$PWD"] {
        let checked = run(&format!("{variable} sluicegate check"));
        assert!(
            checked.stdout.ends_with("valid: 1 domain, 1 rule, 1 limit\n"),
            "{}",
            checked.stderr
        );
        let explained = run(&format!("{variable} sluicegate explain shop user_id=1"));
        assert_eq!(explained.code, 0, "{}", explained.stderr);
    }
    let all =
        "SLUICEGATE_MERGE_DOMAINS=true SLUICEGATE_INCLUDE_DOT_FILES=true SLUICEGATE_RULES=config";
    let checked = run(&format!("{all} sluicegate check"));
    assert!(checked.stdout.ends_with("valid: 1 domain, 2 rules, 2 limits\n"), "{}", checked.stderr);
    let checked = run("CONFIG_TYPE=GRPC_XDS_SOTW sluicegate check");
    assert!(
        checked.stderr.contains("CONFIG_TYPE: rules come from the control plane"),
        "{}",
        checked.stderr
    );
    assert_eq!(run("CONFIG_TYPE=GRPC_XDS_SOTW sluicegate check config/a.yaml").code, 0);
}

#[test]
fn a_blocklist_is_no_mistake() {
    let folder = Folder::new();
    let block =
        folder.file("block.yaml", &GOOD.replace("requests_per_unit: 20", "requests_per_unit: 0"));
    let run = check(&["--strict", &block]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let forgotten = folder.file("forgotten.yaml", &GOOD.replace(", requests_per_unit: 20", ""));
    assert_eq!(check(&["--strict", &forgotten]).code, 1);
}

/// Kubernetes mounts a ConfigMap as links into `..data`, itself a link to a directory with a date.
#[test]
#[cfg(unix)]
fn a_config_map_is_read_once() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    folder.file("..2026_11_15/shop.yaml", GOOD);
    let inside = |name: &str| Path::new(folder.path()).join(name);
    symlink("..2026_11_15", inside("..data")).unwrap();
    symlink("..data/shop.yaml", inside("shop.yaml")).unwrap();
    let run = check(&[folder.path()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.ends_with("valid: 1 domain, 1 rule, 1 limit\n"), "{}", run.stdout);
    let run = check(&["--include-dot-files", "--json", folder.path()]);
    assert_eq!(run.code, 0, "each file once, whatever leads to it: {}", run.stdout);
}

#[test]
fn domains_are_merged_on_demand() {
    let folder = Folder::new();
    folder.file("a.yaml", GOOD);
    folder.file("b.yaml", &GOOD.replace("user_id", "path"));
    assert_eq!(check(&[folder.path()]).code, 1);
    let run = check(&["--merge-domains", folder.path()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.ends_with("valid: 1 domain, 2 rules, 2 limits\n"), "{}", run.stdout);
    let with = |value: &str| {
        shell(&format!("MERGE_DOMAIN_CONFIG={value} sluicegate check {}", folder.path()), &root())
    };
    assert_eq!(
        (with("true").code, with("1").code, with("false").code, with("").code),
        (0, 0, 1, 1)
    );
    let run = with("perhaps");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("MERGE_DOMAIN_CONFIG") && run.stderr.contains("`perhaps`"),
        "{}",
        run.stderr
    );
}

#[test]
fn warnings_are_marked_and_strict_obeys_them() {
    let folder = Folder::new();
    let odd = folder.file("odd.yaml", ODD);
    let run = check(&[&odd]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains(":4:5: warning: descriptors[0].shadow_mode: "), "{}", run.stderr);
    assert!(
        run.stdout.ends_with("valid: 1 domain, 1 rule, 1 limit, 1 warning\n"),
        "{}",
        run.stdout
    );
    let run = check(&["--strict", &odd]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("invalid by --strict: "), "{}", run.stdout);
    assert_eq!(parsed(&check(&["--strict", "--json", &odd]))["valid"], false);
}

#[test]
fn json_has_everything() {
    let run = check(&["--json", root().join("docs/examples/shop.yaml").to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let all = parsed(&run);
    assert_eq!(all["valid"], true);
    assert_eq!(all["totals"], serde_json::json!({ "domains": 1, "rules": 5, "limits": 6 }));
    let shop = &all["domains"][0];
    assert_eq!(shop["domain"], "shop");
    assert_eq!(shop["deny"], serde_json::json!(["user_id=mallory"]));
    let rules = shop["rules"].as_array().unwrap();
    let ids: Vec<&str> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(
        ids,
        [
            "shop/user_id",
            "shop/user_id/path=/login*",
            "shop/partners",
            "shop/remote_address",
            "shop/report"
        ]
    );
    assert_eq!(rules[0]["consistency"], "leased");
    assert_eq!(rules[0]["limits"][1]["zone"], "Europe/Berlin");
    assert_eq!(rules[0]["limits"][0]["burst"], 50);
    assert_eq!(rules[0]["bytes_per_million_keys"]["most"], 60_000_000);
    assert_eq!(rules[1]["on_store_failure"], "deny");
    assert_eq!(rules[2]["one_counter"], true);
    assert_eq!(rules[3]["mode"], serde_json::json!({ "soft": "10%" }));

    let folder = Folder::new();
    let bad = folder.file("bad.yaml", BAD);
    let run = check(&["--json", &bad]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let all = parsed(&run);
    assert_eq!(
        (&all["valid"], &all["problems"][0]["line"], &all["problems"][0]["column"]),
        (&false.into(), &4.into(), &25.into())
    );
    assert_eq!(all["problems"][0]["path"], "descriptors[0].rate_limit.unit");
    assert_eq!(all["problems"][0]["file"], bad);
}

#[test]
fn of_many_rules_the_first_are_shown() {
    let folder = Folder::new();
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    for user in 0..10_000 {
        text.push_str(&format!("  - {{ key: user_id, value: u{user}, rate_limit: {{ unit: minute, requests_per_unit: 20 }} }}\n"));
    }
    let many = folder.file("many.yaml", &text);
    let run = check(&[&many]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("user_id=u19 ") && !run.stdout.contains("user_id=u20 "),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("  and 9,980 more (`--all` shows them)\n"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with("valid: 1 domain, 10,000 rules, 10,000 limits\n"),
        "{}",
        run.stdout
    );
    let run = check(&["--all", &many]);
    assert!(run.stdout.contains("user_id=u9999 "));
    let all = parsed(&check(&["--json", &many]));
    assert_eq!(all["domains"][0]["rules"].as_array().unwrap().len(), 10_000);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let line = "set -o pipefail; sluicegate check docs/examples/shop.yaml | head -n 1";
    let run = shell(line, &root());
    assert!(
        !run.stderr.contains("panicked") && !run.stderr.contains("Broken pipe"),
        "{}",
        run.stderr
    );
}

#[test]
fn the_help_has_examples() {
    let run = check(&["--help"]);
    assert_eq!(run.code, 0);
    assert!(
        run.stdout.contains("sluicegate check rules.yaml") && run.stdout.contains("Exit codes"),
        "{}",
        run.stdout
    );
}

/// Blocks that begin with a descriptor are shown without the file around them.
#[test]
fn every_example_of_the_guide_is_valid() {
    let guide = std::fs::read_to_string(root().join("docs/guide/rules.md")).unwrap();
    let folder = Folder::new();
    let mut count = 0;
    for block in guide.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let text = match text.starts_with("domain:") || text.contains("\ndomain:") {
            true => text.to_owned(),
            false => format!("domain: guide\ndescriptors:\n{text}"),
        };
        let run = check(&["--strict", &folder.file("block.yaml", &text)]);
        assert_eq!(run.code, 0, "{}\n{text}", run.stderr);
        count += 1;
    }
    assert!(count >= 8, "only {count} examples were found");
}

#[test]
fn what_proxies_are_asked_to_tell_is_shown() {
    let folder = Folder::new();
    let rules = format!(
        "{GOOD}forward_auth:\n  trusted_proxies: 10.0.0.0/8\n  deny_status: 403\n  hits: header X-Cost\n  descriptors: [{{ user_id: header \
         X-User or nobody }}]\n"
    );
    let path = folder.file("web.yaml", &rules);
    let run = check(&[&path]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let shown = "  forward auth  user_id: header X-User or nobody\n                for proxies in 10.0.0.0/8 · hits: header X-Cost · denied with 403\n";
    assert!(run.stdout.contains(shown), "{}", run.stdout);
    let web = &parsed(&check(&["--json", &path]))["domains"][0]["forward_auth"];
    let expected = serde_json::json!({
        "trusted_proxies": ["10.0.0.0/8"],
        "descriptors": [{ "user_id": "header X-User or nobody" }],
        "hits": "header X-Cost",
        "deny_status": 403,
    });
    assert_eq!(*web, expected);
    assert!(
        parsed(&check(&["--json", &folder.file("a.yaml", GOOD)]))["domains"][0]["forward_auth"]
            .is_null()
    );
}

#[test]
fn values_that_metrics_will_not_have_are_a_note() {
    let folder = Folder::new();
    let text = GOOD.replace("    rate_limit", "    detailed_metric: true\n    rate_limit");
    let rules = folder.file("rules.yaml", &text);
    let run = check(&["--strict", &rules]);
    assert_eq!(run.code, 0, "files of envoyproxy/ratelimit pass: {}", run.stderr);
    let note = "note: 1 rule asks for values in metrics (`detailed_metric`, `value_to_metric`), such as `shop/user_id`";
    assert!(run.stderr.starts_with(note), "{}", run.stderr);
    assert!(run.stderr.contains("`--metric-values 100` (SLUICEGATE_METRIC_VALUES=100)"));
    let json = parsed(&check(&["--strict", "--json", &rules]));
    assert_eq!((&json["valid"], &json["warnings"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(format!("note: {}\n", json["notes"][0].as_str().unwrap()), run.stderr);
    let run = check(&["--strict", "--metric-values", "100", &rules]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let run = check(&["--metric-values", "1001", &rules]);
    assert_eq!(run.code, 2);
    let expected = "--metric-values: must be a whole number from 0 to 1000, got `1001`";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}
