//! Real clients, with real servers behind the gateway.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;

use crate::gateway::Gateway;
use crate::support::process::Process;
use crate::support::upstream::Upstream;
use crate::support::{Folder, root, server};
use crate::wire::{HANG, read_head};

const RULES: &str = "domain: api
descriptors:
  - { key: remote_address, limits: { algorithm: fixed_window, rate: 30/year } }
";

/// A server that answers with method, version and length of the body of a request.
fn app() -> Upstream {
    Upstream::answering(|request: Request| async move {
        let (head, body) = request.into_parts();
        let length = to_bytes(body, usize::MAX).await.unwrap().len();
        let text = format!("{} {:?} {length}", head.method, head.version);
        Response::builder().header("x-app", "yes").body(Body::from(text)).unwrap()
    })
}

/// A gateway with TLS on its second address, before this upstream; the second address.
fn started(folder: &Folder, upstream: &str, limit: &str) -> (Gateway, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    folder.file("cert.pem", &signed.cert.pem());
    folder.file("key.pem", &signed.signing_key.serialize_pem());
    folder.file("rules.yaml", RULES);
    folder.file("public/file.txt", "0123456789");
    let tls = "tls: { certificates: { cert: cert.pem, key: key.pem } }";
    let config = format!(
        "listen: [127.0.0.1:0, {{ address: 127.0.0.1:0, {tls} }}]\nrules: rules.yaml
upstreams: {{ app: \"{upstream}\" }}\nroutes:
  - {{ path: /*, upstream: app{limit} }}\n  - {{ path: /files/*, files: public }}\n"
    );
    let gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", &config));
    let tls = gateway.addresses[1].replace("127.0.0.1", "localhost");
    (gateway, tls)
}

const LIMIT: &str = ", limit: { domain: api, descriptors: [{ remote_address: client_ip }] }";

/// Runs a client to its end; what it wrote to its standard output.
fn run(name: &str, args: &[&str], input: &[u8]) -> String {
    let mut command = Command::new(server(name));
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feed = thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name} {args:?}: {errors}");
    // curl writes what it sends and gets to its standard error.
    String::from_utf8(output.stdout).unwrap() + &errors
}

#[test]
fn curl_with_every_version_and_kind_of_body() {
    let (folder, app) = (Folder::new(), app());
    let (gateway, tls) = started(&folder, &format!("http://{}", app.address), "");
    let (plain, tls) = (format!("http://{}", gateway.address), format!("https://{tls}"));
    let ca = format!("{}/cert.pem", folder.path());
    let upload = vec![b'x'; 3 << 20];
    for (url, version, number) in [
        (&plain, "--http1.1", "1.1"),
        (&plain, "--http2-prior-knowledge", "2"),
        (&tls, "--http1.1", "1.1"),
        (&tls, "--http2", "2"),
    ] {
        let curl = |args: &[&str], input: &[u8]| {
            let format = "\n%{http_code} %{http_version}";
            let common = ["-sS", "-m", "60", "--cacert", &ca, version, "-w", format];
            run("curl", &[&common, args].concat(), input)
        };
        let url = format!("{url}/");
        let end = |status: u16| format!("\n{status} {number}");
        assert_eq!(curl(&[&url], b""), format!("GET HTTP/1.1 0{}", end(200)));
        // Sent before its length is known.
        let streamed = curl(&["-T", "-", &url], &upload);
        assert_eq!(streamed, format!("PUT HTTP/1.1 3145728{}", end(200)));
        let posted = curl(&["--data-binary", "@-", &url], &upload);
        assert_eq!(posted, format!("POST HTTP/1.1 3145728{}", end(200)));
        let head = curl(&["-I", &url], b"").to_ascii_lowercase();
        assert!(head.contains("x-app: yes\r\n") && head.ends_with(&end(200)), "{head}");
        let part = curl(&["-r", "2-4", &format!("{url}files/file.txt")], b"");
        assert!(part.starts_with("234\n206"), "{part}");
    }
    let old = run("curl", &["-sS", "-m", "60", "--http1.0", &plain], b"");
    assert_eq!(old, "GET HTTP/1.1 0");
    let expecting = ["-sSv", "-m", "60", "-H", "Expect: 100-continue", "-d", "body", &plain];
    let trace = run("curl", &expecting, b"");
    assert!(trace.contains("< HTTP/1.1 100 Continue"), "{trace}");
    assert!(trace.starts_with("POST HTTP/1.1 4"), "{trace}");
}

#[test]
fn curl_gets_an_event_before_the_next_one_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let (release, released) = mpsc::channel::<()>();
    thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            read_head(&mut socket);
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: one\n\n";
            socket.write_all(head).unwrap();
            released.recv_timeout(HANG).unwrap();
            socket.write_all(b"data: two\n\n").unwrap();
        }
    });
    let gateway = Gateway::start(&["--upstream", &upstream]);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut curl = Command::new(server("curl"));
        let url = format!("http://{}/", gateway.address);
        let mut curl = curl.args(["-sSN", "-m", "60", version, &url]);
        curl = curl.stdout(Stdio::piped());
        let mut curl = curl.spawn().unwrap();
        let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "data: one", "{version}");
        release.send(()).unwrap();
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!(rest, ["", "data: two", ""], "{version}");
        assert!(curl.wait().unwrap().success());
    }
}

#[test]
fn h2load_gets_exactly_the_requests_of_the_rule() {
    let app = app();
    let upstream = format!("http://{}", app.address);
    for (is_tls, version) in [(false, "--h1"), (false, "-ph2c"), (true, "--npn-list=h2")] {
        let folder = Folder::new();
        let (gateway, tls) = started(&folder, &upstream, LIMIT);
        let plain = format!("http://{}/", gateway.address);
        let url = if is_tls { format!("https://{tls}/") } else { plain };
        let load = run("h2load", &[version, "-n", "200", "-c", "4", "-m", "8", &url], b"");
        let expected = "status codes: 30 2xx, 0 3xx, 170 4xx, 0 5xx";
        assert!(load.contains(expected), "{version}: {load}");
    }
    assert_eq!(app.reached(), 3 * 30);
}

/// Servers of WebSocket and gRPC; their addresses.
pub fn peers() -> (Process, String, String) {
    let script = root().join("crates/cli/tests/gateway/peers.py");
    let mut command = Command::new(server("gateway-python"));
    let mut process = Process::start("peers.py", command.arg(script).arg("serve"));
    let line = process.says("ports ");
    let ports: Vec<_> = line.split(' ').skip(1).map(|port| format!("127.0.0.1:{port}")).collect();
    (process, ports[0].clone(), ports[1].clone())
}

fn peer(mode: &str, address: &str) -> String {
    let script = root().join("crates/cli/tests/gateway/peers.py");
    run("gateway-python", &[script.to_str().unwrap(), mode, address], b"")
}

#[test]
fn clients_of_websocket_and_grpc() {
    let (_process, websocket, grpc) = peers();
    let gateway = Gateway::start(&["--upstream", &format!("http://{websocket}")]);
    assert_eq!(peer("websocket", &format!("ws://{}", gateway.address)), "");
    let upstream = format!("h2c://{grpc}");
    let gateway = Gateway::start(&["--upstream", &upstream]);
    assert_eq!(peer("grpc", &gateway.address), "");
    let gateway = Gateway::start(&["--upstream", &upstream, "--limit", "2/h"]);
    let statuses = peer("grpc-denied", &gateway.address);
    assert_eq!(statuses.trim(), "OK OK RESOURCE_EXHAUSTED RESOURCE_EXHAUSTED");
}
