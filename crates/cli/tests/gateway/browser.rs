//! A real browser before the gateway, over TLS and HTTP/2.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse};
use serde_json::{Value, json};

use crate::clients::peers;
use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::browser::Browser;
use crate::support::upstream::Upstream;
use crate::wire::{HANG, read_head};

/// Head of a page for which the browser requests no icon.
const HEAD: &str = "<link rel=icon href='data:,'><title>";

/// A gateway with TLS before these routes; the origin of its pages.
fn started(folder: &Folder, upstreams: &str, routes: &str) -> (Gateway, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    folder.file("cert.pem", &signed.cert.pem());
    folder.file("key.pem", &signed.signing_key.serialize_pem());
    let config = format!(
        "listen: {{ address: 127.0.0.1:0, tls: {{ certificates: {{ cert: cert.pem, key: key.pem }} }} }}
limit_headers: true\nrules: rules.yaml\nupstreams: {{ {upstreams} }}\nroutes:\n{routes}"
    );
    folder.file(
        "rules.yaml",
        "domain: api\ndescriptors:\n  - { key: remote_address, limits: { algorithm: fixed_window, rate: 2/year } }\n",
    );
    let gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", &config));
    let origin = format!("https://{}", gateway.address.replace("127.0.0.1", "localhost"));
    (gateway, origin)
}

/// A server that sends an event at once, and the next one for each message to it.
fn events() -> (String, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (release, released) = mpsc::channel();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        read_head(&mut socket);
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        socket.write_all(head).unwrap();
        for event in ["one", "two", "three"] {
            write!(socket, "data: {event}\n\n").unwrap();
            let _ = released.recv_timeout(HANG);
        }
    });
    (address, release)
}

#[test]
fn pages_denials_sockets_events_and_files_in_a_browser() {
    let (events, release) = events();
    let release = Arc::new(Mutex::new(release));
    let app = Upstream::answering(move |request: Request| {
        let release = release.clone();
        async move {
            match request.uri().path() {
                "/limited/page" => {
                    Html(format!("{HEAD}Shop</title><h1>Welcome</h1>")).into_response()
                }
                "/limited/data" => {
                    ([("content-type", "application/json")], r#"{"items":3}"#).into_response()
                }
                "/release" => {
                    release.lock().unwrap().send(()).unwrap();
                    StatusCode::NO_CONTENT.into_response()
                }
                _ => StatusCode::NOT_FOUND.into_response(),
            }
        }
    });
    let (_peers, websocket, _) = peers();
    let folder = Folder::new();
    folder.file("public/file.bin", &"0123456789".repeat(100_000));
    let upstreams = format!(
        "app: \"http://{}\", events: \"http://{events}\", socket: \"http://{websocket}\"",
        app.address
    );
    let routes = "  - path: /limited/*
    upstream: app
    limit: { domain: api, descriptors: [{ remote_address: client_ip }] }
    denial: { html: \"HEADToo fast</title><h1>Slow down</h1>\" }
  - { path: /events, upstream: events }
  - { path: /socket, upstream: socket }
  - { path: /files/*, files: public }
  - { path: /*, upstream: app }\n"
        .replace("HEAD", HEAD);
    let (_gateway, origin) = started(&folder, &upstreams, &routes);
    let browser = Browser::start();
    let fetched = |path: &str, headers: Value| {
        let script = "const [path, headers] = arguments;
            fetch(path, { headers, cache: 'no-store' }).then(async answer => done({
                status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text(),
            })).catch(error => done(String(error)))";
        browser.run_async(script, &[json!(path), headers])
    };
    let shown = || {
        let script = "const [page] = performance.getEntriesByType('navigation');
            return [page.nextHopProtocol, page.responseStatus, document.title, document.body.innerText]";
        browser.run(script, &[])
    };
    let page = format!("{origin}/limited/page");

    browser.open(&page);
    assert_eq!(shown(), json!(["h2", 200, "Shop", "Welcome"]));
    let data = fetched("/limited/data", json!({}));
    assert_eq!((&data["status"], &data["body"]), (&json!(200), &json!(r#"{"items":3}"#)));
    assert_eq!(data["headers"]["x-ratelimit-limit"], "2", "{data}");
    assert_eq!(data["headers"]["x-ratelimit-remaining"], "0", "{data}");

    browser.open(&page);
    assert_eq!(shown(), json!(["h2", 429, "Too fast", "Slow down"]));
    let denied = fetched("/limited/data", json!({ "Accept": "application/json" }));
    assert_eq!(denied["status"], 429, "{denied}");
    assert_eq!(denied["headers"]["content-type"], "application/json");
    assert!(denied["headers"]["retry-after"].is_string(), "{denied}");
    assert!(denied["body"].as_str().unwrap().contains(r#""code":"rate_limited""#), "{denied}");
    assert_eq!(app.reached(), 2);

    // The scripts below run in the denial page: its origin is that of the gateway.
    let socket = "const socket = new WebSocket(`wss://${location.host}/socket`), seen = [];
        socket.onopen = () => { socket.send('text \\u00e9'); socket.send('x'.repeat(1 << 20)) };
        socket.onmessage = event => { seen.push(event.data.length); if (seen.length == 2) socket.close(4000, 'enough') };
        socket.onclose = event => done([seen, event.code, event.wasClean])";
    assert_eq!(browser.run_async(socket, &[]), json!([[6, 1 << 20], 4000, true]));

    // The server sends an event after the browser has received the one before.
    let events = "const source = new EventSource('/events'), seen = [];
        source.onmessage = event => {
            seen.push(event.data);
            if (seen.length < 3) fetch('/release'); else { source.close(); done(seen) }
        };
        source.onerror = () => done(['error after', ...seen])";
    assert_eq!(browser.run_async(events, &[]), json!(["one", "two", "three"]));

    let file = fetched("/files/file.bin", json!({}));
    assert_eq!(file["status"], 200);
    assert_eq!(file["body"].as_str().map(str::len), Some(1_000_000));
    let part = fetched("/files/file.bin", json!({ "Range": "bytes=500002-500004" }));
    assert_eq!((&part["status"], &part["body"]), (&json!(206), &json!("234")));
    assert_eq!(part["headers"]["content-range"], "bytes 500002-500004/1000000");
}
