//! Every part of a request as an identity; files of identities that cannot be used.

use crate::gateway::Gateway;
use crate::support::http::asked_on;
use crate::support::{Folder, sluicegate};

/// Each part, with two requests whose values differ.
const PARTS: [(&str, &str, &str); 12] = [
    ("method", "GET /0", "PUT /0"),
    ("host", "GET /1|host: a", "GET /1|host: b"),
    ("path", "GET /2/a", "GET /2/b"),
    ("uri", "GET /3?a", "GET /3?b"),
    ("query key", "GET /4?x=1&key=a%20b", "GET /4?key=a"),
    ("header X-User", "GET /5|x-user: a", "GET /5|x-user: b"),
    ("cookie id", "GET /6|cookie: x=1; id=a", "GET /6|cookie: id=b"),
    ("bearer", "GET /7|authorization: Bearer a", "GET /7|authorization: Bearer b"),
    ("json a.b", "POST /8|{\"a\":{\"b\":1}}", "POST /8|{\"a\":{\"b\":\"2\"}}"),
    ("path_template", "GET /9/a", "GET /9"),
    ("route", "GET /10/a", "GET /10"),
    ("header X-User or none", "GET /11", "GET /11|x-user: b"),
];

/// The status of a request: its line, header lines and JSON body, separated.
fn status(gateway: &Gateway, text: &str) -> u16 {
    let mut lines = text.split('|');
    let mut head = format!("{} HTTP/1.1\r\nconnection: close\r\n", lines.next().unwrap());
    if !text.contains("host:") {
        head.push_str("host: a\r\n");
    }
    let mut body = "";
    for line in lines {
        if line.starts_with('{') {
            let length = line.len();
            head += &format!("content-type: application/json\r\ncontent-length: {length}\r\n");
            body = line;
        } else {
            head += &format!("{line}\r\n");
        }
    }
    let connection = std::net::TcpStream::connect(&gateway.address).unwrap();
    asked_on(connection, format!("{head}\r\n{body}").as_bytes()).status
}

#[test]
fn every_part_of_a_request_identifies_clients() {
    let folder = Folder::new();
    let mut rules = "domain: web\ndescriptors:\n".to_owned();
    let mut config = "rules: rules.yaml\nroutes:\n".to_owned();
    for (number, (part, ..)) in PARTS.iter().enumerate() {
        let limit = "limits: { algorithm: fixed_window, rate: 1/year }";
        rules += &format!("  - {{ key: part{number}, {limit} }}\n");
        for path in [format!("/{number}"), format!("/{number}/{{x}}")] {
            config += &format!(
                "  - {{ path: \"{path}\", respond: {{ status: 200 }}, limit: {{ domain: web, descriptors: [{{ part{number}: {part} }}] }} }}\n"
            );
        }
    }
    folder.file("rules.yaml", &rules);
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]);
    for (part, one, other) in PARTS {
        let statuses = [one, one, other, other].map(|text| status(&gateway, text));
        assert_eq!(statuses, [200, 429, 200, 429], "{part}");
    }
}

#[test]
fn check_reads_the_files_of_identities() {
    let folder = Folder::new();
    folder.file("keys.yaml", "- { name: acme, sha256: secret }\n");
    folder.file("jwks.json", "{\"keys\":[]}");
    folder.file("asn.mmdb", "nothing");
    let text = "identity:
  api_keys: { file: keys.yaml }
  jwt: { jwks: jwks.json, audience: api }
  geo: { asn: asn.mmdb }
routes: [{ path: /*, respond: { status: 200 }, require: jwt }]\n";
    let path = folder.file("gateway.yaml", text);
    let run = sluicegate(&["check", &path], "");
    assert_eq!(run.code, 1, "{}", run.stdout);
    for expected in [
        "gateway.yaml:2:21: identity.api_keys.file: ",
        "keys.yaml:1:25: [0].sha256: must be 64 hexadecimal digits, got 6 characters; write the output of `sluicegate gateway hash-key NAME`",
        "gateway.yaml:3:16: identity.jwt.jwks: has no key",
        "gateway.yaml:4:15: identity.geo.asn: ",
        "it must be a database in MaxMind's format",
    ] {
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("secret"), "a value may be the key itself: {}", run.stderr);
}
