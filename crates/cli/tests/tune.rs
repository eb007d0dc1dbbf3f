//! `sluicegate tune` on logs, and its candidates on a real node.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::net::TcpStream;

use serde_json::Value;
use sluicegate_testkit::until;
use support::http::asked_on;
use support::service::Service;
use support::{Folder, Run, sluicegate};

/// A log of 150 users with three requests each minute, and one with a hundred in each.
fn log(folder: &Folder) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for minute in 0..30_u64 {
        for user in 0..150_u64 {
            for request in 0..3 {
                let ms = minute * 60_000 + user * 300 + request * 20;
                lines.push((ms, format!("user-{user}")));
            }
        }
        lines.extend(
            (0..100).map(|request| (minute * 60_000 + request * 500 + 7, "bot".to_owned())),
        );
    }
    lines.sort();
    let line = |(ms, user): &(u64, String)| {
        format!("{}.{:03},{user}\n", 1_763_280_000 + ms / 1_000, ms % 1_000)
    };
    let text: String = lines.iter().map(line).collect();
    folder.file("log.csv", &format!("time,user\n{text}"))
}

fn tune(log: &str, more: &[&str]) -> Run {
    let format = ["--format", "csv:time=time,header.x-user=user", "--client", "header X-User"];
    let mut arguments = vec!["tune", log];
    arguments.extend(format);
    arguments.extend(more);
    sluicegate(&arguments, "")
}

#[test]
fn a_goal_becomes_a_limit_a_rules_file_and_a_report() {
    let folder = Folder::new();
    let log = log(&folder);
    let (rules, report) = (folder.file("rules.yaml", ""), folder.file("report.html", ""));
    let run = tune(
        &log,
        &["--deny-at-most", "5% of users", "--out", &rules, "--report", &report, "--json"],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["limit"]["algorithm"], "token_bucket");
    assert_eq!(json["limit"]["burst"], 3, "{}", json["limit"]);
    assert_eq!(json["traffic"]["clients"], 151);
    assert_eq!(json["denied_clients"][0]["client"], "bot");
    assert_eq!(json["held_out"]["denied_clients"], 1);
    assert_eq!(json["lines"]["malformed"], 0);
    let rule = json["limit"]["rule"].as_str().unwrap();

    let check = sluicegate(&["check", "--strict", &rules], "");
    assert_eq!(check.code, 0, "{}", check.stderr);
    let text = std::fs::read_to_string(&rules).unwrap();
    assert!(text.contains(rule) && text.starts_with("# Goal: deny at most 5% of users."), "{text}");
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("Rate and burst") && html.contains("<svg"));

    // The engine denies what the recommendation states.
    let format = "csv:time=time,header.x-user=user";
    let replay = sluicegate(&["replay", &log, "--format", format, "--rules", &rules, "--json"], "");
    assert_eq!(replay.code, 0, "{}", replay.stderr);
    let replayed: Value = serde_json::from_str(&replay.stdout).unwrap();
    let stated =
        ["training", "held_out"].map(|part| json[part]["denied_requests"].as_u64().unwrap());
    assert_eq!(replayed["rules"][0]["denied"].as_u64(), Some(stated.iter().sum()));

    let text = tune(&log, &["--deny-at-most", "5% of users"]).stdout;
    assert!(text.contains(&format!("each client   {rule}")), "{text}");
}

#[test]
fn too_few_clients_and_bad_arguments_have_their_exit_codes() {
    let folder = Folder::new();
    let log = log(&folder);
    let run = tune(&log, &["--deny-at-most", "0.1% of users", "--out", &format!("{log}.yaml")]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stdout.contains("at least 2,995 are needed"), "{}", run.stdout);
    assert!(!std::path::Path::new(&format!("{log}.yaml")).exists());
    for (arguments, expected) in [
        (&["--deny-at-most", "few"][..], "--deny-at-most: must be a percentage, got `few`"),
        (&["--keep", "most"], "--keep: must be a quantile"),
        (&["--protect", "fast"], "--protect: "),
        (&["--protect", "5/s", "--horizon", "1day"], "horizon: must be at most"),
        (&[], "required"),
        (&["--protect", "5/s", "--keep", "p99"], "cannot be used with"),
        (&["--protect", "5/s", "--confidence", "2"], "percentage, like `95%`"),
    ] {
        let run = tune(&log, arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stdout);
        assert!(run.stderr.contains(expected), "{arguments:?}: {}", run.stderr);
    }
    let empty = folder.file("empty.csv", "");
    assert_eq!(tune(&empty, &["--protect", "5/s"]).code, 2);
}

/// The candidate of a node; the API wants its own address as the host.
fn candidate(admin: &str) -> Value {
    let request = format!(
        "GET /api/v1/rules/candidate HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n"
    );
    let answer = asked_on(TcpStream::connect(admin).unwrap(), request.as_bytes());
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_limit_is_proposed_to_a_node_as_a_candidate() {
    let folder = Folder::new();
    let log = log(&folder);
    let active = "domain: shop\ndescriptors:\n  - key: user\n    limits: { algorithm: token_bucket, rate: 1/m, burst: 2 }\n  - key: other\n    limits: { algorithm: token_bucket, rate: 9/s }\n";
    let path = folder.file("rules.yaml", active);
    let service = Service::with(&["--rules", &path], &[]);
    let url = format!("http://{}", service.admin);
    let goal = ["--deny-at-most", "5% of users", "--domain", "shop", "--key", "user"];
    let run = tune(&log, &[&goal[..], &["--propose", &url, "--json"]].concat());
    assert_eq!(run.code, 0, "{}{}", run.stderr, run.stdout);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let number = json["proposed"]["revision"].as_u64().unwrap();
    assert_eq!(json["proposed"]["file"], "rules.yaml");

    // It runs beside the enforced rules, which stay.
    until("the candidate runs", || {
        let now = candidate(&service.admin);
        (now["state"] == "running" && now["revision"]["number"] == number).then_some(())
    });
    assert_eq!([(); 3].map(|()| service.check("shop", "alice")), [200, 200, 429]);
    let now = candidate(&service.admin);
    // The recommended burst is 3.
    assert_eq!(now["requests"]["only_enforced_denies"], 1, "{now}");

    let show = sluicegate(&["rules", "show", &number.to_string(), "--admin", &url], "");
    let rule = json["limit"]["rule"].as_str().unwrap();
    assert!(show.stdout.contains(&format!("+    limits: {rule}")), "{}", show.stdout);
    assert_eq!(show.stdout.lines().filter(|line| line.starts_with("+ ")).count(), 1);
    let activate = sluicegate(&["rules", "activate", &number.to_string(), "--admin", &url], "");
    assert_eq!(activate.code, 0, "{}", activate.stderr);
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        active.replace("{ algorithm: token_bucket, rate: 1/m, burst: 2 }", rule)
    );
    let nobody = tune(&log, &[&goal[..], &["--propose", "http://127.0.0.1:1"]].concat());
    assert_eq!(nobody.code, 2, "{}", nobody.stdout);
}
