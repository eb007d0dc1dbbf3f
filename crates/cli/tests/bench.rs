//! `sluicegate bench` against real servers: a few hundred requests each, and all of them are
//! accounted for.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::net::TcpListener;

use serde_json::Value;
use support::service::Service;
use support::{Folder, Run, sluicegate};

const RULES: &str = "\
domain: load
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: all
    rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

fn service(folder: &Folder) -> Service {
    Service::start(&folder.file("rules.yaml", RULES), "127.0.0.1:0", &[])
}

/// Runs it without warm-up; what it printed as JSON.
fn json(args: &[&str]) -> Value {
    let args = [&["bench"], args, &["--warm-up", "0s", "--json"]].concat();
    let run = sluicegate(&args, "");
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let Run { code, stdout, stderr } = sluicegate(&[&["bench"], args].concat(), "");
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    stderr
}

fn sluicegate_with(args: &[&str], name: &str, value: &str) -> Run {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    support::shell(&format!("{name}='{value}' sluicegate {}", quoted.join(" ")), &support::root())
}

fn numbers<const N: usize>(report: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| report[name].as_u64().unwrap_or_else(|| panic!("`{name}` in {report}")))
}

#[test]
fn counts_over_every_door_add_up_to_what_the_rules_say() {
    let folder = Folder::new();
    let service = service(&folder);
    // Each of a hundred keys comes four times, and may twice; the second door finds nothing left.
    let keys = ["--domain", "load", "--keys", "100", "--sequential", "-n", "400", "-c", "4"];
    let first = json(&[&["rls", &service.grpc, "--streams", "8"], &keys[..]].concat());
    assert_eq!(numbers(&first, ["requests", "allowed", "denied", "errors"]), [400, 200, 200, 0]);
    let second = json(&[&["http", &service.http], &keys[..]].concat());
    assert_eq!(numbers(&second, ["requests", "allowed", "denied", "errors"]), [400, 0, 400, 0]);
    for report in [&first, &second] {
        let series: u64 = report["series"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["answered"].as_u64().unwrap())
            .sum();
        assert_eq!(series, 400, "{report}");
        let latency = &report["latency_us"];
        let rising =
            ["p50", "p90", "p99", "p99_9", "max"].map(|name| latency[name].as_f64().unwrap());
        assert!(rising[0] > 0.0 && rising.is_sorted(), "{latency}");
        assert_eq!(report["loop"], "closed");
        assert_eq!(report["unsent"], 0);
    }
}

#[test]
fn commands_of_redis_clients_are_understood() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let door = ["--rules", &rules, "--resp", "127.0.0.1:0"];
    let service = Service::with(&door, &[("SLUICEGATE_RESP_PASSWORD", "secret")]);
    let json = |command: &str, pipeline: &str| {
        let counts = ["-n", "400", "-c", "4", "--keys", "100", "--sequential", "--warm-up", "0s"];
        let asked = ["--command", command, "--pipeline", pipeline, "--json"];
        let args = [&["bench", "resp", &service.resp], &counts[..], &asked].concat();
        let run = sluicegate_with(&args, "SLUICEGATE_RESP_PASSWORD", "secret");
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        numbers(&report, ["requests", "allowed", "denied", "errors"])
    };
    // Each of a hundred keys comes four times: three are a burst, of the rules two may go, and what
    // limits nothing says yes.
    assert_eq!(json("CL.THROTTLE {key} 2 1 31536000", "16"), [400, 300, 100, 0]);
    assert_eq!(json("SG.CHECK load user={key}", "1"), [400, 200, 200, 0]);
    assert_eq!(json("PING", "7"), [400, 400, 0, 0]);
    let run = sluicegate(&["bench", "resp", &service.resp, "-n", "10", "--warm-up", "0s"], "");
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stdout.contains(" 10 x NOAUTH "), "{}", run.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn the_servers_process_is_found_by_its_port() {
    let folder = Folder::new();
    let service = service(&folder);
    let report = json(&["http", &service.http, "--domain", "load", "-n", "200"]);
    assert_eq!(report["server"]["processes"], serde_json::json!([service.id()]));
    assert!(report["server"]["resident_bytes"].as_u64().unwrap() > 1_000_000);
    assert!(report["server"]["cpu_us_per_request"].as_f64().unwrap() >= 0.0);
    assert!(report["load_busy"].is_number() && report["stolen"].is_number());
}

#[test]
fn an_open_loop_sends_what_was_asked_for() {
    let folder = Folder::new();
    let service = service(&folder);
    let report = json(&[
        "rls",
        &service.grpc,
        "--rate",
        "2k/s",
        "-n",
        "300",
        "--descriptor",
        "all=x",
        "--domain",
        "load",
        "--poisson",
        "--threads",
        "2",
        "--fill",
    ]);
    assert_eq!(numbers(&report, ["requests", "allowed", "denied", "keys"]), [300, 300, 0, 1]);
    assert_eq!((&report["loop"], &report["arrivals"]), (&"open".into(), &"poisson".into()));
    assert_eq!(report["rate_wanted"], 2000.0);
    // It can be slower than that, on a busy machine, and never faster.
    assert!(report["seconds"].as_f64().unwrap() > 0.05, "{report}");
    assert!(numbers(&report, ["late_starts"])[0] <= 300);
}

#[test]
fn any_url_can_be_asked_and_a_picture_drawn() {
    let folder = Folder::new();
    let service = service(&folder);
    let plot = format!("{}/run.svg", folder.path());
    let url = format!("http://{}/openapi.json", service.http);
    let run = sluicegate(
        &["bench", "http-get", &url, "-n", "100", "-c", "2", "--warm-up", "0s", "--plot", &plot],
        "",
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let first = format!("http-get {}, closed loop", service.http);
    assert_eq!(run.stdout.lines().next(), Some(first.as_str()));
    for line in
        ["answers             100 ", "  allowed           100   100.0 %", "  errors              0"]
    {
        assert!(run.stdout.contains(line), "`{line}` in\n{}", run.stdout);
    }
    let svg = std::fs::read_to_string(plot).unwrap();
    for text in ["<svg", "99 %", "answers per second", "http-get 127.0.0.1"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn errors_are_counted_by_their_words_and_end_in_1() {
    let folder = Folder::new();
    let service = service(&folder);
    let url = format!("http://{}/nothing/{{key}}", service.http);
    let args = ["bench", "http-get", &url, "-n", "50", "--warm-up", "0s", "--json"];
    let run = sluicegate(&args, "");
    assert_eq!(run.code, 1, "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(numbers(&report, ["requests", "answered", "errors"]), [50, 0, 50]);
    let texts = report["errors_by_text"].as_object().unwrap();
    assert_eq!(texts.len(), 1, "{report}");
    assert!(texts.keys().all(|text| text.starts_with("HTTP status 404: ")), "{report}");
    assert!(run.stderr.contains("50 of 50 requests failed"), "{}", run.stderr);
    // With another view of what a no is, it is none.
    let run = sluicegate(&[&args[..], &["--denied", "404"]].concat(), "");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, numbers(&report, ["denied", "errors"])), (0, [50, 0]));
}

#[test]
fn a_server_of_another_kind_is_told() {
    let folder = Folder::new();
    let service = service(&folder);
    let run =
        sluicegate(&["bench", "resp", &service.http, "-n", "1", "-c", "1", "--warm-up", "0s"], "");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("1 x not a RESP reply: `HTTP/1.1 400"), "{}", run.stdout);
    let run =
        sluicegate(&["bench", "http", &service.grpc, "-n", "1", "-c", "1", "--warm-up", "0s"], "");
    assert_eq!(run.code, 1, "{}", run.stdout);
}

#[test]
fn where_nobody_listens_there_is_a_remedy() {
    // Taken and given back: nobody else gets it that soon.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (target, remedy) in
        [("rls", "`sluicegate serve` starts one"), ("resp", "--resp"), ("http-get", "port right?")]
    {
        let said = refused(&[target, &address]);
        assert!(said.contains(&address) && said.contains(remedy), "{said}");
    }
}

#[test]
fn strangers_are_not_loaded() {
    // An address of documentation, which nobody has; it is refused before anything is sent.
    let said = refused(&["rls", "192.0.2.1:8081"]);
    assert!(
        said.contains("192.0.2.1 is a remote address") && said.contains("--anywhere"),
        "{said}"
    );
}

#[test]
fn wrong_flags_name_the_remedy() {
    let cases: [(&[&str], &str); 14] = [
        (&["rls", "--keys", "many"], "`100k`"),
        (&["rls", "--rate", "5/day"], "`600/m`"),
        (&["rls", "--duration", "ten"], "--duration: "),
        (&["rls", "--duration", "2day"], "at most 24 hours"),
        (&["rls", "--pipeline", "2"], "--pipeline has no effect on `rls`, only on `resp`"),
        (&["resp", "--streams", "2"], "only on `rls`"),
        (&["resp", "--command", "'x"], "--command: `'` is not closed"),
        (&["http", "--descriptor", "user"], "--descriptor: "),
        (&["http", "http://127.0.0.1:1/else"], "--body"),
        (&["http", "https://127.0.0.1:1"], "TLS"),
        (&["http-get"], "no URL given"),
        (&["rls", "--threads", "9"], "9 threads need a connection each"),
        (&["rls", "--zipf", "0"], "exponent"),
        (&["rls", "--poisson"], "--rate"),
    ];
    for (args, remedy) in cases {
        let said = refused(args);
        assert!(said.contains(remedy), "{args:?}: `{remedy}` in\n{said}");
    }
}

#[test]
fn help_has_three_examples() {
    let help = sluicegate(&["bench", "--help"], "").stdout;
    assert_eq!(help.matches("\n  sluicegate bench ").count(), 3, "{help}");
}

/// Every line to paste of the guide, with fewer requests.
#[test]
fn the_commands_of_the_guide_are_answered() {
    let page = std::fs::read_to_string(support::root().join("docs/guide/load.md")).unwrap();
    let rules = support::root().join("docs/examples/service.yaml");
    let service =
        Service::with(&["--rules", rules.to_str().unwrap(), "--resp", "127.0.0.1:0"], &[]);
    let mut inside = false;
    let mut count = 0;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        }
        if !inside || !line.starts_with("sluicegate bench ") {
            continue;
        }
        let fewer = line.replace("--duration 30s", "").replace("--keys 10k", "--keys 100");
        let doors = [("8081", &service.grpc), ("8080", &service.http), ("6380", &service.resp)];
        let here = doors
            .into_iter()
            .fold(fewer, |line, (port, real)| line.replace(&format!("localhost:{port}"), real));
        let run = support::shell(&format!("{here} --requests 50 --warm-up 0s"), &support::root());
        assert_eq!(run.code, 0, "{line}\n{}{}", run.stdout, run.stderr);
        count += 1;
    }
    assert_eq!(count, 8);
}
