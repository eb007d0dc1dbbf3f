//! Mistakes in the file of a gateway that would otherwise take effect silently, or one by one.

use crate::gateway::Gateway;
use crate::support::{Folder, sluicegate};

const RULES: &str = "domain: api\ndescriptors:\n  - key: remote_address\n    limits: { name: protective, algorithm: fixed_window, rate: 2/year }\n";

/// Routes with six problems: one of a placeholder, and five of what routes are compiled to.
const ROUTES: &str = "routes:
  - { path: /a, respond: { status: 200 }, response_headers: { set: { X-Client: \"{clientip}\" } } }
  - { path: /a, respond: { status: 200 } }
  - { path: /c//d, respond: { status: 200 } }
  - { path: /e, redirect: \"//elsewhere\" }
  - { path: /f, respond: { status: 200 }, request_headers: { set: { Upgrade: x }, remove: [Server, Connection] } }
";

const PROBLEMS: [&str; 6] = [
    "gateway.yaml:2:80: routes[0].response_headers.set.X-Client: unknown placeholder, got `{clientip}`; did you mean `{client_ip}`?",
    "gateway.yaml:3:13: routes[1].path: `/a` is the path of routes[0] too; remove one",
    "gateway.yaml:4:13: routes[2].path: no request has the path `/c//d`",
    "gateway.yaml:5:27: routes[3].redirect: `//elsewhere` would let a request choose the host",
    "gateway.yaml:6:78: routes[4].request_headers.set.Upgrade: `Upgrade` cannot be changed",
    "gateway.yaml:6:100: routes[4].request_headers.remove[1]: `Connection` cannot be changed",
];

#[test]
fn check_reports_all_problems_of_routes_at_once() {
    let folder = Folder::new();
    let run = sluicegate(&["check", &folder.file("gateway.yaml", ROUTES)], "");
    assert_eq!(run.code, 1);
    for problem in PROBLEMS {
        assert!(run.stderr.contains(problem), "{problem}:\n{}", run.stderr);
    }
    assert!(run.stderr.contains("invalid: 6 problems in 1 file"), "{}", run.stderr);
}

#[test]
fn a_reload_reports_all_problems_of_routes_at_once() {
    let folder = Folder::new();
    let path = folder.file("gateway.yaml", "routes: [{ path: /a, respond: { status: 200 } }]\n");
    let mut gateway = Gateway::start(&["--config", &path]);
    folder.file("gateway.yaml", ROUTES);
    gateway.process.says("gateway configuration not loaded: the previous one stays in force");
    for problem in PROBLEMS {
        gateway.process.has_said(problem);
    }
    assert_eq!(gateway.get("/a").status, 200);
}

#[test]
fn a_placeholder_in_two_pairs_of_braces_is_text() {
    let folder = Folder::new();
    let text = "routes:\n  - path: /\n    respond: { status: 200 }\n    response_headers: { set: { X-A: \"{{host}}={host}\", X-B: '{\"a\":{}}' } }\n";
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", text)]);
    let response = gateway.get("/");
    let value = response.header("x-a").unwrap();
    assert!(value.starts_with("{host}=") && !value.ends_with("{host}"), "{value}");
    assert_eq!(response.header("x-b").unwrap(), "{\"a\":{}}");
}

fn hiding(name: &str) -> String {
    format!(
        "rules: rules.yaml\nroutes:\n  - path: /\n    respond: {{ status: 200 }}\n    limit: {{ domain: api, descriptors: [{{ remote_address: client_ip }}] }}\n    denial: {{ hide: [{name}] }}\n"
    )
}

const HIDES_NOTHING: &str = "gateway.yaml:6:22: routes[0].denial.hide[0]: hides nothing, no limit of the domain `api` has this name, got `protectiv`; did you mean `protective`?";

#[test]
fn check_warns_of_hidden_limits_that_no_rule_has() {
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    let path = folder.file("gateway.yaml", &hiding("protectiv"));
    let run = sluicegate(&["check", "--strict", &path], "");
    assert_eq!(run.code, 1);
    let expected = HIDES_NOTHING.replace(": routes", ": warning: routes");
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
    folder.file("gateway.yaml", &hiding("protective"));
    let run = sluicegate(&["check", "--strict", &path], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[test]
fn hidden_limits_that_no_rule_has_are_logged_at_start_and_reload() {
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    let path = folder.file("gateway.yaml", &hiding("protectiv"));
    let mut gateway = Gateway::start(&["--config", &path]);
    gateway.process.has_said(HIDES_NOTHING);
    folder.file("gateway.yaml", &hiding("protective"));
    gateway.process.says("gateway configuration reloaded");
    folder.file("gateway.yaml", &hiding("protectiv"));
    gateway.process.says(HIDES_NOTHING);
    folder.file("gateway.yaml", &hiding("protective"));
    gateway.process.says("gateway configuration reloaded");
    // The rules change, and not the file.
    folder.file("rules.yaml", &RULES.replace("protective", "renamed"));
    gateway.process.says("got `protective`; the limits are `renamed`");
}
