//! `sluicegate serve`, as a person or a script starts it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Folder, sluicegate};

/// A service that runs; ends with this value.
struct Running {
    child: Child,
    http: String,
}

impl Running {
    fn start(more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--json"]);
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        assert!(told["grpc"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
        Self { child, http: told["http"].as_str().unwrap().to_owned() }
    }

    /// The status line, and everything after it.
    fn ask(&self, request: &str) -> (String, String) {
        let mut connection = TcpStream::connect(&self.http).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (status, rest) = answer.split_once("\r\n").unwrap();
        (status.to_owned(), rest.to_owned())
    }

    fn json(&self, domain: &str, key: &str) -> String {
        let body = format!(
            r#"{{"domain":"{domain}","descriptors":[{{"entries":[{{"key":"{key}","value":"me"}}]}}]}}"#
        );
        let length = body.len();
        let request = format!(
            "POST /json HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.ask(&request).0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_rules_the_fourth_request_of_a_minute_is_denied() {
    let service = Running::start(&[]);
    let (status, rest) =
        service.ask("GET /healthcheck HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(status.contains("200") && rest.ends_with("OK"), "{status} {rest}");
    // A minute may turn in between: then three more pass, and not a fourth.
    let statuses: Vec<String> = (0..8).map(|_| service.json("example", "user")).collect();
    assert!(statuses[0].contains("200"), "{statuses:?}");
    assert!(statuses[7].contains("429"), "{statuses:?}");
}

#[test]
fn it_serves_the_rules_that_it_is_given_and_ends_when_told() {
    let folder = Folder::new();
    let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]\n";
    let path = folder.file("rules.yaml", rules);
    let mut service = Running::start(&["--rules", &path]);
    let statuses = [(); 2].map(|()| service.json("shop", "user"));
    assert!(statuses[0].contains("200") && statuses[1].contains("429"), "{statuses:?}");
    let id = service.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(service.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_wrong_is_told_at_once() {
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
    let service = Running::start(&[]);
    let run = sluicegate(&["serve", "--grpc", "127.0.0.1:0", "--http", &service.http], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains(&format!("cannot listen on `{}`", service.http)), "{}", run.stderr);
}
