//! Usage records of `sluicegate serve`: the sums of the files are what a client sent.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use sluicegate_testkit::until;
use support::http::{Answer, asked_on, post};
use support::service::Service;
use support::{Folder, sluicegate};

const RULES: &str = "domain: llm
descriptors:
  - { key: team, id: team, limits: { algorithm: fixed_window, rate: 100/year } }
  - { key: seat, id: seat, rate_limit: { unlimited: true } }
  - { key: free, id: free, rate_limit: { unlimited: true } }
";

fn service(folder: &Folder, more: &[(&str, &str)]) -> Service {
    let rules = folder.file("rules.yaml", RULES);
    let usage = format!("{}/usage", folder.path());
    let args = ["--rules", &rules, "--usage", &usage, "--usage-rules", "llm/team, llm/se*"];
    Service::with(&args, more)
}

fn check(service: &Service, key: &str, value: &str, hits: u64) -> u16 {
    let body = json!({ "domain": "llm", "descriptors": [{ key: value }], "hits": hits });
    post(&service.http, "/v1/check", &body.to_string()).status
}

/// The lines of all files.
fn rows(folder: &Folder) -> Vec<Value> {
    let directory = Path::new(folder.path()).join("usage");
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    let lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Admitted, denied and refunded costs of an identity in rows.
fn sums(rows: &[Value], identity: &Value) -> [u64; 3] {
    let of = rows.iter().filter(|row| row["descriptor"] == *identity);
    of.fold([0; 3], |sums, row| {
        let names = ["admitted", "denied", "refunded"];
        std::array::from_fn(|index| sums[index] + row[names[index]].as_u64().unwrap())
    })
}

fn metric(service: &Service, name: &str) -> u64 {
    let page = service.admin("/metrics").body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// With the real host: the API of operators refuses others.
fn query_usage(service: &Service, query: &str) -> Answer {
    let host = &service.admin;
    let request =
        format!("GET /api/v1/usage{query} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    asked_on(TcpStream::connect(host).unwrap(), request.as_bytes())
}

fn report(service: &Service, query: &str) -> Value {
    let answer = query_usage(service, query);
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn files_and_reports_have_what_a_client_sent_across_a_restart_and_a_kill() {
    let folder = Folder::new();
    let mut first = service(&folder, &[("SLUICEGATE_USAGE_EVERY", "1h")]);
    let sent = [check(&first, "team", "acme", 60), check(&first, "team", "acme", 60)];
    assert_eq!(sent, [200, 429]);
    assert_eq!([check(&first, "seat", "a|b", 1), check(&first, "free", "x", 1)], [200, 200]);
    assert!(rows(&folder).is_empty(), "not written yet");
    let total = report(&first, "?identity=team%3Dacme")["total"].clone();
    assert_eq!(total, json!({ "admitted": 60, "denied": 60, "refunded": 0 }));
    first.signal("TERM");
    assert_eq!(first.ends(), Some(0));
    assert_eq!(sums(&rows(&folder), &json!("team=acme")), [60, 60, 0]);
    assert_eq!(sums(&rows(&folder), &json!("seat=a%7Cb")), [1, 0, 0]);
    assert_eq!(rows(&folder).len(), 2, "the other rule is not selected");

    // A second row of the same hour, and another one after a kill.
    let mut second = service(&folder, &[("SLUICEGATE_USAGE_EVERY", "50ms")]);
    assert_eq!(check(&second, "team", "acme", 7), 200);
    until("it is written", || (metric(&second, "sluicegate_usage_rows_total") == 1).then_some(()));
    second.kill();
    assert_eq!(sums(&rows(&folder), &json!("team=acme")), [67, 60, 0]);

    // The kill has torn a line.
    let file = fs::read_dir(format!("{}/usage", folder.path())).unwrap().next().unwrap().unwrap();
    let mut text = fs::read_to_string(file.path()).unwrap();
    text.push_str(r#"{"hour":"2026-11-1"#);
    fs::write(file.path(), text).unwrap();
    let third = service(&folder, &[("SLUICEGATE_USAGE_EVERY", "50ms")]);
    assert_eq!(check(&third, "team", "acme", 3), 200);
    until("it is written", || (metric(&third, "sluicegate_usage_rows_total") == 1).then_some(()));
    assert_eq!(sums(&rows(&folder), &json!("team=acme")), [70, 60, 0]);
    let all = report(&third, "?rule=llm/team&identity=team%3Dacme");
    assert_eq!(all["total"], json!({ "admitted": 70, "denied": 60, "refunded": 0 }));
    let row = &all["rows"][0];
    assert_eq!((&row["domain"], &row["rule"]), (&json!("llm"), &json!("llm/team")));
    assert!(row["hour"].as_str().unwrap().ends_with(":00:00Z"), "{row}");
    assert!(row["first"].as_str() <= row["last"].as_str(), "{row}");
    let none = report(&third, "?from=2026-01-01&to=2026-02-01");
    assert_eq!((&none["total"]["admitted"], &none["rows"]), (&json!(0), &json!([])));
    assert_eq!(query_usage(&third, "?when=now").status, 400);
}

#[test]
fn identities_beyond_the_maximum_are_counted_together() {
    let folder = Folder::new();
    let variables = [("SLUICEGATE_USAGE_EVERY", "1h"), ("SLUICEGATE_USAGE_MAX_IDENTITIES", "2")];
    let mut service = service(&folder, &variables);
    for team in ["a", "b", "c", "d", "a"] {
        assert_eq!(check(&service, "team", team, 2), 200);
    }
    assert_eq!(metric(&service, "sluicegate_usage_other_total"), 2);
    assert_eq!(metric(&service, "sluicegate_usage_pending_identities"), 2);
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
    let rows = rows(&folder);
    let of = |identity: Value| sums(&rows, &identity)[0];
    assert_eq!([of(json!("team=a")), of(json!("team=b")), of(json!(null))], [4, 2, 4]);
    assert_eq!(of(json!("team=c")), 0);
}

#[test]
fn a_write_that_fails_is_loud_and_loses_nothing() {
    let folder = Folder::new();
    let mut service = service(&folder, &[("SLUICEGATE_USAGE_EVERY", "50ms")]);
    let directory = format!("{}/usage", folder.path());
    // The directory becomes a file: nobody, not even root, can write there.
    fs::rename(&directory, format!("{directory}.away")).unwrap();
    fs::write(&directory, "").unwrap();
    assert_eq!(check(&service, "team", "acme", 5), 200);
    let line = service.says("usage records not written");
    assert!(line.contains("ERROR") && line.contains(&directory), "{line}");
    assert_eq!(check(&service, "team", "acme", 6), 200, "decisions go on");
    assert!(metric(&service, "sluicegate_usage_write_failures_total") >= 1);
    fs::remove_file(&directory).unwrap();
    fs::rename(format!("{directory}.away"), &directory).unwrap();
    until("it is written", || (sums(&rows(&folder), &json!("team=acme"))[0] == 11).then_some(()));

    let file = folder.file("file", "");
    let args = ["serve", "--usage", &file, "--usage-rules", "*"];
    let run = sluicegate(&args, "");
    assert!(run.code == 2 && run.stderr.contains("cannot record usage"), "{}", run.stderr);
    let run = sluicegate(&["serve", "--usage", "/tmp"], "");
    assert!(run.stderr.contains("--usage: no rule is selected"), "{}", run.stderr);
}

#[test]
fn old_files_are_deleted() {
    let folder = Folder::new();
    let old = folder.file("usage/usage-2020-01-01.jsonl", "{}\n");
    let other = folder.file("usage/notes.txt", "mine");
    let variables =
        [("SLUICEGATE_USAGE_EVERY", "50ms"), ("SLUICEGATE_USAGE_RETENTION_DAYS", "400")];
    let _service = service(&folder, &variables);
    until("it is deleted", || (!Path::new(&old).exists()).then_some(()));
    assert!(Path::new(&other).exists());
}
