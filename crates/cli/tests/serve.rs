//! `sluicegate serve`, as a person or a script starts it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::path::Path;

use support::http::get;
use support::process::Process;
use support::service::Service;
use support::{Folder, shell, sluicegate};

/// Nothing of it comes back while a test runs.
const ONE_A_YEAR: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]\n";
const TWO_A_YEAR: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]\n";

#[test]
fn without_rules_the_fourth_request_of_a_minute_is_denied() {
    let mut service = Service::with(&[], &[]);
    let line = service.has_said("no rules are configured: the example rules are served");
    assert!(line.contains("WARN"), "{line}");
    assert_eq!(get(&service.http, "/healthcheck", &[]).body, "OK");
    // A minute may turn in between: then three more pass, and not a fourth.
    let statuses: Vec<u16> = (0..8).map(|_| service.check("example", "me")).collect();
    assert_eq!((statuses[0], statuses[7]), (200, 429), "{statuses:?}");
    let metrics = service.admin("/metrics").body;
    let counted = r#"total_hits{domain="example",key1="user",rule="example/user"} 8"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn it_serves_the_rules_that_it_is_given_and_ends_when_told() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let mut service = Service::with(&["--rules", &rules], &[]);
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 429]);
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
}

#[test]
fn a_hang_up_has_the_rules_read_again() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let mut service = Service::with(&["--rules", &rules], &[]);
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 429]);
    folder.file("rules.yaml", "domain: [");
    service.signal("HUP");
    service.says("rules not loaded");
    assert_eq!(service.check("shop", "bob"), 200, "the old ones go on");
    folder.file("rules.yaml", "domain: shop\n");
    service.signal("HUP");
    service.says("rules withheld");
    assert_eq!(service.check("shop", "alice"), 429, "the old ones go on");
    folder.file("rules.yaml", "domain: shop\nremoved: true\n");
    service.signal("HUP");
    service.says("rules reloaded");
    assert_eq!(service.check("shop", "alice"), 200, "nothing is limited any more");
}

#[test]
fn what_is_counted_outlives_the_process() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", TWO_A_YEAR);
    let snapshot = format!("{}/counts", folder.path());
    let start = || Service::with(&["--rules", &rules, "--snapshot", &snapshot], &[]);
    let mut service = start();
    assert_eq!(service.check("shop", "alice"), 200);
    service.signal("TERM");
    service.says("snapshot saved");
    assert_eq!(service.ends(), Some(0));

    let mut service = start();
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 429]);
    assert_eq!(service.check("shop", "bob"), 200);
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));

    let whole = std::fs::read(&snapshot).unwrap();
    folder.bytes("counts", &whole[..whole.len() / 2]);
    let mut service = start();
    service.has_said("not restored: counters start at zero");
    assert_eq!(service.check("shop", "alice"), 200);
}

#[test]
fn what_is_no_snapshot_is_not_replaced_by_one() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let run = sluicegate(&["serve", "--rules", &rules, "--snapshot", "/nowhere/counts"], "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("/nowhere/counts: its folder does not exist"), "{}", run.stderr);
    for path in [rules.as_str(), folder.path(), "/dev/null"] {
        let run = sluicegate(&["serve", "--rules", &rules, "--snapshot", path], "");
        assert_eq!(run.code, 2, "{path}: {}", run.stderr);
        assert!(run.stderr.contains("this is no snapshot"), "{path}: {}", run.stderr);
    }
    assert_eq!(std::fs::read_to_string(rules).unwrap(), ONE_A_YEAR);
}

#[test]
fn while_it_drains_it_answers_and_is_not_ready() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let mut service = Service::with(&["--rules", &rules, "--drain-delay", "1h"], &[]);
    assert_eq!(service.admin("/ready").status, 200);
    service.signal("TERM");
    service.says("draining");
    let ready = service.admin("/ready");
    assert_eq!((ready.status, ready.body.trim()), (503, "shutting down"));
    assert_eq!(service.admin("/live").status, 200);
    assert_eq!(get(&service.http, "/healthcheck", &[]).status, 500);
    assert_eq!(service.check("shop", "alice"), 200);
}

#[test]
fn without_valid_rules_it_starts_only_if_it_may_and_then_unready() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", "domain: [");
    let args = ["--rules", rules.as_str()];
    let run = sluicegate(&["serve", args[0], args[1]], "");
    assert_eq!(run.code, 1, "{}", run.stderr);

    let force = [("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")];
    let mut service = Service::with(&args, &force);
    assert_eq!(service.admin("/ready").status, 503);
    assert_eq!(service.check("shop", "alice"), 503);
    folder.file("rules.yaml", ONE_A_YEAR);
    service.says("rules reloaded");
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(service.check("shop", "alice"), 200);
}

#[test]
fn without_files_it_starts_only_if_it_may_and_the_log_claims_no_rules() {
    let folder = Folder::new();
    let root = [("RUNTIME_ROOT", folder.path()), ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")];
    std::fs::create_dir(format!("{}/config", folder.path())).unwrap();
    let mut service = Service::with(&[], &root);
    let line = service.has_said("rules not loaded: ");
    assert!(line.contains("no rules are in force, and the service is not ready"), "{line}");
    let ready = service.admin("/ready");
    assert_eq!((ready.status, ready.body.trim()), (503, "no rules are loaded"));
    assert_eq!(get(&service.http, "/healthcheck", &[]).status, 200, "as in envoyproxy/ratelimit");
    assert_eq!(service.check("shop", "alice"), 503);
    folder.file("config/rules.yaml", ONE_A_YEAR);
    service.says("rules reloaded");
    assert_eq!(service.admin("/ready").status, 200);
    folder.file("config/rules.yaml", "domain: [");
    let line = service.says("rules not loaded: ");
    assert!(line.contains("the previous rules stay in force"), "{line}");
    let page = service.admin("/rlconfig").body;
    let [comment, rule] = page.lines().collect::<Vec<_>>()[..] else { panic!("{page}") };
    assert!(comment.starts_with("# rejected at 20") && comment.contains("rules.yaml:1:"), "{page}");
    assert!(comment.ends_with("; the rules below are still in force, the log has all errors"));
    assert!(rule.starts_with("shop."), "{page}");
    folder.file("config/rules.yaml", ONE_A_YEAR);
    service.says("rules reloaded");
    assert_eq!(service.admin("/rlconfig").body, format!("{rule}\n"));
}

#[test]
fn a_missing_rules_directory_is_named_with_its_variables() {
    let vars = "RUNTIME_ROOT=/nowhere RUNTIME_SUBDIRECTORY=ratelimit";
    for command in ["serve", "check", "explain shop user=a"] {
        let run = shell(&format!("{vars} sluicegate {command}"), Path::new("/"));
        assert_eq!(run.code, 2, "{command}: {}", run.stderr);
        let path = "sluicegate: /nowhere/ratelimit/config: there is no such file";
        assert!(run.stderr.contains(path), "{command}: {}", run.stderr);
        let source = "RUNTIME_ROOT=`/nowhere`; RUNTIME_SUBDIRECTORY=`ratelimit`; RUNTIME_APPDIRECTORY is not set";
        assert!(run.stderr.contains(source), "{command}: {}", run.stderr);
    }
}

#[test]
fn unknown_variables_are_errors_of_every_command_each_on_a_line_of_its_own() {
    for command in ["serve", "check a.yaml", "explain --rules a.yaml shop user=a"] {
        let vars = "SLUICEGATE_RULE=x SLUICEGATE_PORT=8081";
        let run = shell(&format!("{vars} sluicegate {command}"), Path::new("/"));
        assert_eq!(run.code, 2, "{command}: {}", run.stderr);
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{command}: {}", run.stderr);
        assert!(lines[0].starts_with("sluicegate: SLUICEGATE_PORT: unknown setting; set "));
        assert!(lines[1].starts_with("sluicegate: SLUICEGATE_RULE: unknown setting; did you"));
    }
}

#[test]
fn shadow_mode_is_in_the_log_the_rules_and_the_metrics() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let mut service = Service::with(&["--rules", &rules, "--shadow"], &[]);
    let line = service.has_said("shadow mode is on, and nothing is enforced");
    assert!(line.contains("WARN") && line.contains("remove --shadow to enforce"), "{line}");
    let line = service.has_said("INFO  started ");
    assert!(line.contains(" shadow=true "), "{line}");
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 200]);
    let page = service.admin("/rlconfig").body;
    assert!(page.starts_with("# shadow mode: nothing is enforced"), "{page}");
    assert!(service.admin("/metrics").body.contains("\nsluicegate_shadow_mode 1\n"));
}

#[test]
fn operators_of_other_machines_need_a_token() {
    let run = sluicegate(&["serve", "--admin", "0.0.0.0:0"], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("set SLUICEGATE_ADMIN_TOKEN"), "{}", run.stderr);

    let service = Service::with(&[], &[("SLUICEGATE_ADMIN_TOKEN", "open sesame")]);
    assert_eq!(service.admin("/metrics").status, 401);
    assert_eq!(service.admin("/ready").status, 200);
    let shown = get(&service.admin, "/config", &[("authorization", b"Bearer open sesame")]);
    assert_eq!(shown.status, 200);
    assert!(!shown.body.contains("sesame"), "{}", shown.body);
}

#[test]
fn what_has_no_effect_is_named_and_what_is_wrong_is_told() {
    let mut service = Service::with(&[], &[("EXTRA_TAGS", "a:b")]);
    service.has_said("EXTRA_TAGS is set and has no effect");
    let run = sluicegate(&["serve", "--http", "nowhere", "--headers", "all"], "");
    assert_eq!(run.code, 2);
    for part in ["--http: must be an address", "--headers: must be one of `both`"] {
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_socket_of_this_machine_is_there_as_long_as_the_service() {
    let folder = Folder::new();
    let socket = format!("{}/grpc.sock", folder.path());
    let mut service = Service::with(&["--grpc", &format!("unix:{socket}")], &[]);
    assert_eq!(service.grpc, format!("unix:{socket}"));
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
    assert!(!Path::new(&socket).exists());
}

#[test]
fn what_is_wrong_with_rules_and_addresses_is_told_at_once() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", "domain: shop\ndescriptiors: []\n");
    let run = sluicegate(&["serve", "--rules", &path], "");
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("rules.yaml:2:1") && run.stderr.contains("did you mean `descriptors`?"),
        "{}",
        run.stderr
    );
    let run = sluicegate(&["serve", "--rules", "no/such/file"], "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    let service = Service::with(&[], &[]);
    let run = sluicegate(&["serve", "--grpc", "127.0.0.1:0", "--http", &service.http], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains(&format!("cannot listen on `{}`", service.http)), "{}", run.stderr);
}

#[test]
fn one_line_says_what_is_enforced_and_where() {
    let folder = Folder::new();
    let leased = "domain: web\ndescriptors: [{ key: user, consistency: leased, limits: { algorithm: fixed_window, rate: 1/year } }]\n";
    let (one, two) = (folder.file("one.yaml", ONE_A_YEAR), folder.file("two.yaml", leased));
    let mut service = Service::with(&["--rules", &one, "--rules", &two], &[]);
    let line = service.has_said("INFO  started ");
    let page = service.admin("/metrics").body;
    let hash = page.lines().find_map(|line| line.strip_prefix("sluicegate_rules_hash{hash=\""));
    let hash = hash.unwrap().split('"').next().unwrap();
    for part in [
        &format!("version={}", env!("CARGO_PKG_VERSION")),
        &format!("rules={one},{two} count=2 hash={hash} levels=leased:1,strict:1 store=memory"),
        &format!("grpc={} http={} admin={}", service.grpc, service.http, service.admin),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_json_log_has_every_line_also_the_first_and_the_last() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let json = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    let mut free = vec!["serve", "--log-format", "json"];
    for door in ["--http", "--grpc", "--admin"] {
        free.extend([door, "127.0.0.1:0"]);
    }
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    serve.args(&free).args(["--rules", &rules]);
    let mut process = Process::start("sluicegate", &mut serve);
    let started = json(&process.has_said("started")).remove(0);
    assert_eq!((&started["level"], &started["count"]), (&"info".into(), &1.into()));
    assert!(started["http"].as_str().unwrap().starts_with("127.0.0.1:"), "{started}");

    let bad = folder.file("bad.yaml", "domain: shop\ndescriptiors: []\n");
    let failures: [(&[&str], i32, &str); 5] = [
        (&["--htp", "127.0.0.1:0"], 2, "unexpected argument '--htp'"),
        (&["--rules", &bad], 1, "did you mean `descriptors`?"),
        (&["--rules", "no/such/file"], 2, "there is no such file"),
        (&["--snapshot", "/nowhere/counts"], 2, "its folder does not exist"),
        (&["--headers", "all"], 2, "--headers: must be one of `both`"),
    ];
    for (args, code, message) in failures {
        let run = sluicegate(&[&free, args].concat(), "");
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{}", run.stderr);
        let lines = json(&run.stderr);
        let is_fatal = |line: &serde_json::Value| {
            line["level"] == "fatal" && line["@message"].as_str().unwrap().contains(message)
        };
        assert!(lines.iter().any(is_fatal), "{message}: {}", run.stderr);
    }
}

#[test]
fn metrics_have_an_endpoint_of_their_own() {
    let vars = [("PROMETHEUS_ADDR", "localhost:0"), ("PROMETHEUS_PATH", "/stats/prometheus")];
    let service = Service::with(&[], &[vars[0], vars[1], ("SLUICEGATE_ADMIN_TOKEN", "secret")]);
    let page = get(&service.metrics, "/stats/prometheus", &[]);
    assert_eq!(page.status, 200);
    assert!(page.body.contains("\nsluicegate_ready 1\n"), "{}", page.body);
    for path in ["/", "/metrics", "/config", "/rlconfig", "/ready"] {
        let answer = get(&service.metrics, path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.contains("metrics only, at `/stats/prometheus`"), "{}", answer.body);
    }
    assert_eq!(service.admin("/metrics").status, 401);
}

#[test]
fn the_operator_token_comes_from_a_file() {
    let folder = Folder::new();
    let file = folder.file("token", "open sesame\n");
    let service = Service::with(&["--admin-token-file", &file], &[]);
    assert_eq!(service.admin("/metrics").status, 401);
    let right = [("authorization", b"Bearer open sesame".as_slice())];
    assert_eq!(get(&service.admin, "/metrics", &right).status, 200);
    folder.file("token", "another\n");
    assert_eq!(get(&service.admin, "/metrics", &right).status, 200, "read at startup only");
    let help = sluicegate(&["serve", "--help"], "").stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("read at startup only, so restart to change it"), "{help}");
    let empty = folder.file("empty", "\n");
    for (path, error) in [("/nowhere/token", "cannot read the token"), (&empty, "is empty")] {
        let run = sluicegate(&["serve", "--admin-token-file", path], "");
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains("--admin-token-file: "), "{}", run.stderr);
        assert!(run.stderr.contains(error), "{}", run.stderr);
    }
}

#[test]
fn counters_are_sent_to_statsd() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", ONE_A_YEAR);
    let vars = [
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", &port),
        ("EXTRA_TAGS", "zone:a"),
    ];
    let service = Service::with(&["--rules", &rules], &vars);
    assert_eq!(service.check("shop", "alice"), 200);
    // The last flush is at the end.
    service.signal("TERM");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut listener.accept().unwrap().0, &mut text).unwrap();
    assert!(
        text.contains("ratelimit.service.rate_limit.shop.user.total_hits.__zone=a:1|c\n"),
        "{text}"
    );
}

const BY_USER: &str = "domain: shop
descriptors:
  - key: user
    value_to_metric: true
    rate_limit: { unit: year, requests_per_unit: 2 }
";

#[test]
fn metrics_list_the_most_frequent_values_of_a_rule() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", BY_USER);
    let service = Service::with(&["--rules", &rules, "--metric-values", "2"], &[]);
    for user in ["alice", "alice", "alice", "bob", "carol"] {
        service.check("shop", user);
    }
    let page = service.admin("/metrics").body;
    for (name, key, count) in [
        ("total_hits", "user_alice", 3),
        ("over_limit", "user_alice", 1),
        ("total_hits", "user_bob", 1),
        ("total_hits", "other", 1),
        ("over_limit", "other", 0),
    ] {
        let name = format!("sluicegate_rule_values_{name}");
        let labels = format!(r#"domain="shop",rule="shop/user",key="{key}""#);
        let line = format!("{name}{{{labels}}} {count}");
        assert!(page.lines().any(|one| one == line), "{line}: {page}");
    }
    let total =
        r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",rule="shop/user"} 5"#;
    assert!(page.lines().any(|line| line == total), "{page}");
    assert!(!page.contains("carol"), "{page}");
}

#[test]
fn without_the_option_metrics_have_no_values_and_the_log_says_so() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", BY_USER);
    let mut service = Service::with(&["--rules", &rules], &[]);
    let line = service.has_said("values in metrics");
    assert!(line.contains("WARN  1 rule asks") && line.contains("`shop/user`"), "{line}");
    service.check("shop", "alice");
    let page = service.admin("/metrics").body;
    assert!(!page.contains("alice") && !page.contains("sluicegate_rule_values"), "{page}");
    // Once, and again only if the rules that ask for values are others.
    folder.file("rules.yaml", &BY_USER.replace("requests_per_unit: 2", "requests_per_unit: 3"));
    service.signal("HUP");
    service.says("rules reloaded");
    let limits =
        "    value_to_metric: true\n    rate_limit: { unit: year, requests_per_unit: 2 }\n";
    let more = format!("{BY_USER}  - key: team\n{limits}");
    folder.file("rules.yaml", &more);
    service.signal("HUP");
    let line = service.says("values in metrics");
    assert!(line.contains("2 rules ask"), "{line}");
}
