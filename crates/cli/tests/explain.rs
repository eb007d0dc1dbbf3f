//! `sluicegate explain`, as a person or a script uses it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use serde_json::Value;
use support::{Folder, Run, root, sluicegate};

fn explain(rules: &str, args: &[&str]) -> Run {
    sluicegate(&[&["explain", "--rules", rules], args].concat(), "")
}

fn shop(args: &[&str]) -> Run {
    explain(root().join("docs/examples/shop.yaml").to_str().unwrap(), args)
}

fn edge(args: &[&str]) -> Run {
    explain(root().join("docs/examples/envoy.yaml").to_str().unwrap(), args)
}

fn assert_says(run: &Run, code: i32, says: &[&str]) {
    assert_eq!(run.code, code, "{}{}", run.stdout, run.stderr);
    for text in says {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
}

#[test]
fn every_look_is_told_and_the_plan() {
    let run = shop(&["shop", "user_id=42,path=/login/now"]);
    assert_says(
        &run,
        0,
        &[
            "  user_id=42\n",
            "    configured  user_id, api_key=^partner-[a-z]+$, remote_address, report\n",
            "    tried       exactly `user_id=42`, networks, patterns, any value\n",
            "    taken       user_id: it takes any value\n",
            "    taken       path=/login*: the first pattern in the file that matches\n",
            "  rule        shop/user_id/path=/login*\n",
            "  limit       sliding log 5/m, denied ones counted, at least 200ms apart\n",
            "  cost        1\n",
            "  counter of  shop · user_id=42 · path=/login/now\n",
            "now: allowed\n",
        ],
    );
}

#[test]
fn several_descriptors_are_one_request() {
    let run = shop(&["--hits", "3", "shop", "user_id=42", "remote_address=2001:db8:1:2::7"]);
    assert_says(
        &run,
        0,
        &[
            "domain shop, 3 hits\n",
            "  now         allowed, 50 left of `burst` before it\n",
            "remote_address in 2001:db8:1:2::/64\n",
            "addresses of 2001:db8:1:2::/64 share a counter\n",
        ],
    );
    let run = shop(&["shop", "api_key=partner-acme"]);
    assert_says(&run, 0, &["shop/partners", "(shared by all of it)"]);
}

#[test]
fn without_a_rule_the_reason_is_told() {
    let run = edge(&["edge", "user_id=42"]);
    assert_says(
        &run,
        0,
        &[
            "`user_id=42` matched, but it has no limit of its own and the descriptor ends there; `path=/login*`, `path` could follow",
            "now: allowed, not counted: nothing limits it\n",
        ],
    );
    assert_says(
        &edge(&["edge", "remote_address=10.0.0.1"]),
        0,
        &["exactly this value", "has no limit of its own"],
    );
    assert_says(
        &edge(&["edge", "remote_address=192.0.2.7,path=/"]),
        0,
        &[
            "`remote_address=192.0.2.7` matched, but nothing is configured below it, and `path=/` is left over",
        ],
    );
    assert_says(
        &edge(&["edge", "path=/login"]),
        0,
        &[
            "`path` is configured at `user_id/path=/login*`: entries are matched one after the other",
        ],
    );
    assert_says(
        &edge(&["edge", "usr_id=42"]),
        0,
        &["no key there is `usr_id`: did you mean `user_id`?"],
    );
}

#[test]
fn an_unknown_domain_is_told_with_what_may_have_been_meant() {
    assert_says(
        &shop(&["shpo", "user_id=42"]),
        0,
        &["no domain is called `shpo`: did you mean `shop`?", "allowed, not counted"],
    );
    assert_says(&shop(&["x", "user_id=42"]), 0, &["there are rules for `shop`"]);
}

#[test]
fn who_would_be_denied_exits_1() {
    let run = shop(&["shop", "user_id=mallory"]);
    assert_says(&run, 1, &["now: denied: `user_id=mallory` is on the deny list\n"]);
    let run = shop(&["shop", "user_id=42", "remote_address=10.1.2.3"]);
    assert_says(
        &run,
        0,
        &["allowed, not counted: `remote_address=10.1.2.3` is on the allow list\n"],
    );
    let run = shop(&["--hits", "60", "shop", "user_id=42"]);
    assert_says(
        &run,
        1,
        &["now: always denied by shop/user_id: it costs 60, and `burst` can hold at most 50\n"],
    );
    let folder = Folder::new();
    let none = folder.file(
        "none.yaml",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 0 } }]\n",
    );
    assert_says(
        &explain(&none, &["d", "a=b"]),
        1,
        &["0 per day: nothing passes", "always denied by d/a: `requests_per_unit` is 0\n"],
    );
}

#[test]
fn a_rule_that_is_replaced_does_not_count() {
    let folder = Folder::new();
    let rules = folder.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n\
         - { key: a, rate_limit: { name: plain, unit: day, requests_per_unit: 0 } }\n\
         - { key: b, rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: plain }] } }\n",
    );
    let run = explain(&rules, &["d", "a=1", "b=1"]);
    assert_says(&run, 0, &["it does not count in this request: d/b replaces it"]);
}

#[test]
fn a_limit_may_come_with_the_last_descriptor() {
    let run = shop(&["--limit", "5/minute", "shop", "user_id=42"]);
    assert_says(
        &run,
        0,
        &[
            "the limit that came with it",
            "5 per minute, counted even when denied (Envoy)",
            "allowed, 5 left before it",
        ],
    );
    let run = shop(&["--limit", "5/fortnight", "shop", "user_id=42"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("`5/fortnight`") && run.stderr.contains("`5/minute`"),
        "{}",
        run.stderr
    );
}

#[test]
fn what_is_typed_wrong_exits_2_and_names_the_place() {
    for (args, says) in [
        (&["shop", "user_id"][..], "entry 1, `user_id`, has no `=`"),
        (&["shop", "user_id=42,"], "entry 2 is empty"),
        (&["shop"], "no descriptor given"),
        (&["user_id=42"], "`user_id=42` was taken for the domain"),
        (&[], "no request given"),
        (&["--hits", "many", "shop", "a=b"], "'many'"),
    ] {
        let run = shop(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
    }
    let run = sluicegate(&["explain", "shop", "user_id=42"], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("no rules given"), "{}", run.stderr);
    assert_eq!(explain("/nowhere.yaml", &["shop", "a=b"]).code, 2);
}

#[test]
fn invalid_rules_exit_1() {
    let run =
        explain(root().join("docs/examples/mistakes.yaml").to_str().unwrap(), &["shop", "a=b"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("did you mean `token_bucket`?"), "{}", run.stderr);
    assert!(run.stderr.contains("sluicegate check"), "{}", run.stderr);
}

#[test]
fn json_has_everything() {
    let run = shop(&["--json", "shop", "user_id=42,path=/login"]);
    let all: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(all["allowed"], true);
    let one = &all["descriptors"][0];
    assert_eq!(one["end"], "rule");
    assert_eq!(one["looks"][0]["met"]["how"], "any_value");
    assert_eq!(one["looks"][1]["met"]["how"], "pattern");
    assert_eq!(one["under"]["rule"]["id"], "shop/user_id/path=/login*");
    assert_eq!(one["under"]["counter"], serde_json::json!(["shop", "user_id=42", "path=/login"]));
    assert_eq!(one["under"]["now"]["remaining"], 5);
    let run = shop(&["--json", "shop", "user_id=mallory"]);
    let all: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (run.code, &all["allowed"], &all["listed"]["list"]),
        (1, &false.into(), &"deny".into())
    );
    let run = shop(&["--json", "nobody", "user_id=42"]);
    let all: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&all["known_domain"], &all["descriptors"][0]["end"]),
        (&false.into(), &"unknown_domain".into())
    );
    let run = shop(&["--json", "shop", "user_id=42", "usr_id=42"]);
    let all: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(all["hint"], all["descriptors"][1]["why_not"]);
    assert!(all["hint"].as_str().unwrap().contains("`user_id`"), "{all}");
}

#[test]
fn networks_patterns_and_exact_values_are_told_apart() {
    let folder = Folder::new();
    let limit = "limits: { algorithm: fixed_window, rate: 5/m }";
    let rules = folder.file(
        "rules.yaml",
        &format!(
            "domain: d\ndescriptors:\n\
             - {{ key: ip, cidr: 10.0.0.0/8, {limit} }}\n\
             - {{ key: ip, cidr: 10.1.0.0/16, {limit} }}\n\
             - {{ key: ip, value: 10.1.2.3, {limit} }}\n\
             - {{ key: 'a=b', regex: '^x,', {limit} }}\n"
        ),
    );
    let takes = |descriptor: &str, says: &str| {
        assert_says(&explain(&rules, &["d", descriptor]), 0, &[says]);
    };
    takes("ip=10.1.9.9", "taken       ip=10.1.0.0/16: the longest network that holds 10.1.9.9\n");
    takes("ip=10.1.2.3", "taken       ip=10.1.2.3: exactly this value\n");
    takes("ip=192.0.2.1", "`ip` is configured there, but not for this value");
    takes(r"a\=b=x\,y", "descriptor a\\=b=x\\,y\n");
    takes(r"a\=b=x\,y", "taken       a=b=^x,: the first pattern in the file that matches\n");
}
