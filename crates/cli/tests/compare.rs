//! `sluicegate compare` on logs and on built-in traffic.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use serde_json::Value;
use support::{Folder, Run, sluicegate};

const EDGES: &str = "edge_bursts: { clients: 3, burst: 20, window: 10s, length: 1m }";

fn compare(args: &[&str], input: &str) -> Run {
    sluicegate(&[&["compare"], args].concat(), input)
}

fn json(args: &[&str], input: &str) -> Value {
    let run = compare(&[args, &["--json"]].concat(), input);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn algorithm<'a>(found: &'a Value, name: &str) -> &'a Value {
    let all = found["algorithms"].as_array().unwrap();
    all.iter().find(|one| one["algorithm"] == name).unwrap_or_else(|| panic!("{name} in {found}"))
}

/// A line of a log at this second.
fn line(client: u8, second: u32) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "192.0.2.{client} - - [16/Nov/2026:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
    )
}

#[test]
fn bursts_around_an_edge_are_found_in_a_log() {
    // Five requests in the last second of a minute, five in the first of the next, one of another.
    let mut log: String = [59, 60].iter().flat_map(|at| vec![line(7, *at); 5]).collect();
    log.push_str(&line(8, 61));
    log.push_str("not a line of a log\n");
    let found =
        json(&["-", "--format", "combined", "--client", "client_ip", "--rate", "5/m"], &log);
    assert_eq!((&found["requests"], &found["clients"]), (&11.into(), &2.into()));
    let fixed = algorithm(&found, "fixed_window");
    assert_eq!(
        (&fixed["peak"]["amount"], &fixed["peak"]["times_limit"]),
        (&10.into(), &2.0.into())
    );
    assert_eq!(fixed["peak"]["client"], "192.0.2.7");
    assert_eq!(algorithm(&found, "sliding_log")["denied_requests"], 5);

    let run = compare(&["-", "--format", "combined", "--rate", "5/m"], &log);
    assert_eq!((run.code, run.stderr.trim()), (0, "of 12 lines: 1 malformed"));
    let finding = "- `fixed_window` let 10 requests of `192.0.2.7` pass in 1m: 2 times the limit.";
    assert!(run.stdout.contains(finding), "{}", run.stdout);
}

#[test]
fn a_seed_repeats_itself_and_another_differs() {
    let of = |seed: &str| json(&["--traffic", EDGES, "--rate", "20/10s", "--seed", seed], "");
    assert_eq!(of("1"), of("1"));
    assert_ne!(of("1"), of("2"));
}

#[test]
fn figures_are_printed_for_people_and_written_as_files() {
    let folder = Folder::new();
    let (report, svg) = (folder.file("report.html", ""), folder.file("plot.svg", ""));
    let args = ["--traffic", EDGES, "--rate", "20/10s", "--report", &report, "--svg", &svg];
    let run = compare(&args, "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let rows = run.stdout.lines().filter(|line| line.starts_with("sliding_")).count();
    assert_eq!(rows, 3, "{}", run.stdout);
    let html = std::fs::read_to_string(&report).unwrap();
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(
        html.contains("sluicegate compare --traffic") && html.contains("edge_bursts"),
        "{html}"
    );
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
}

#[test]
fn mistakes_have_a_remedy() {
    let invalid = [
        (vec!["--traffic", "flash_sail", "--rate", "1/s"], 1, "did you mean `flash_sale`?"),
        (vec!["--traffic", "steady: { rate: 0/s }", "--rate", "1/s"], 1, "steady.rate"),
        (vec!["--traffic", "steady", "--rate", "0/s"], 1, "write like `100/m`"),
        (vec!["--traffic", "steady", "--rate", "1/s", "--burst", "0"], 1, "at least `1`"),
        (vec!["--traffic", "steady", "--rate", "5"], 2, "10/s"),
        (vec!["--rate", "1/s"], 2, "LOG"),
        (vec!["/no/such/log", "--rate", "1/s"], 2, "/no/such/log"),
        (vec!["-", "--traffic", "steady", "--rate", "1/s"], 2, "cannot be used with"),
    ];
    for (args, code, remedy) in invalid {
        let run = compare(&args, "");
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(remedy), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn an_algorithm_that_cannot_hold_the_rate_is_left_out_with_the_reason() {
    let found = json(&["--traffic", "steady: { length: 10s }", "--rate", "1000000/day"], "");
    let left_out = found["left_out"][0].as_str().unwrap();
    assert!(left_out.starts_with("sliding_log:1:"), "{left_out}");
    assert_eq!(algorithm(&found, "token_bucket")["admitted_over_exact"], Value::Null);
}
