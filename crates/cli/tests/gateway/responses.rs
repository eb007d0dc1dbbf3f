//! Responses of a limit: denials, marks, headers, exempt clients, slots, and a store that is away.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use axum::extract::Request;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::{asked_on, get};
use crate::support::upstream::Upstream;

const BY_ADDRESS: &str = "limit: { domain: api, descriptors: [{ remote_address: client_ip }] }";

/// A server that answers with the header that marks a request.
fn marks() -> Upstream {
    Upstream::answering(|request: Request| async move {
        let lines = request.headers().get_all("x-ratelimit-exceeded").iter();
        lines.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>().join("|")
    })
}

fn rules(limits: &str) -> String {
    format!("domain: api\ndescriptors:\n  - key: remote_address\n    limits:\n{limits}")
}

fn yearly(name: &str, count: u32) -> String {
    format!("      - {{ name: {name}, algorithm: fixed_window, rate: {count}/year }}\n")
}

/// A gateway with one route; `options` are its further lines, `top` those of the file.
fn started(folder: &Folder, app: &str, rules: &str, options: &str, top: &str) -> Gateway {
    folder.file("rules.yaml", rules);
    let text = format!(
        "{top}\nrules: rules.yaml\nupstreams: {{ app: \"http://{app}\" }}\nroutes:\n  - path: /*\n    upstream: app\n    {BY_ADDRESS}\n{options}"
    );
    Gateway::start(&["--config", &folder.file("gateway.yaml", &text)])
}

#[test]
fn a_denial_has_all_headers_and_the_envelope() {
    let (folder, app) = (Folder::new(), marks());
    let gateway = started(&folder, &app.address, &rules(&yearly("plan", 1)), "", "");
    let admitted = gateway.get("/");
    assert_eq!(admitted.status, 200);
    assert_eq!(admitted.header("x-ratelimit-limit"), None, "only with `limit_headers`");
    let denied = gateway.get("/");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), Some("application/json"));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert!(denied.header("retry-after").is_some() && denied.header("ratelimit").is_some());
    assert!(denied.body.starts_with(r#"{"error":{"code":"rate_limited","message":"#));
    assert_eq!(app.reached(), 1);
}

#[test]
fn a_route_has_its_own_status_body_and_html() {
    let (folder, app) = (Folder::new(), marks());
    let denial = "    denial: { status: 503, body: \"slow down\", content_type: text/x-note, html: \"<h1>Too fast</h1>\" }\n";
    let gateway = started(&folder, &app.address, &rules(&yearly("plan", 0)), denial, "");
    let plain = gateway.get("/");
    assert_eq!((plain.status, plain.body.as_str()), (503, "slow down"));
    assert_eq!(plain.header("content-type"), Some("text/x-note"));
    assert_eq!(plain.header("vary"), Some("Accept"));
    let accept = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8".as_bytes());
    let browser = get(&gateway.address, "/", &[accept]);
    assert_eq!((browser.status, browser.body.as_str()), (503, "<h1>Too fast</h1>"));
    assert_eq!(browser.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(browser.header("cache-control"), Some("no-store"));
}

#[test]
fn a_denial_is_a_problem_by_the_setting_of_the_service() {
    let (folder, app) = (Folder::new(), marks());
    let rules = folder.file("rules.yaml", &rules(&yearly("plan", 0)));
    let upstream = format!("http://{}", app.address);
    let args = ["--upstream", &upstream, "--rules", &rules];
    let gateway = Gateway::with(&args, &[("SLUICEGATE_ERRORS", "problem")]);
    let denied = gateway.get("/");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.body.contains(r#""status":429,"#), "{}", denied.body);
}

#[test]
fn a_marked_request_goes_on_and_only_the_gateway_marks_it() {
    let (folder, app) = (Folder::new(), marks());
    let gateway =
        started(&folder, &app.address, &rules(&yearly("plan", 1)), "    on_limit: mark\n", "");
    let forged = ("x-ratelimit-exceeded", "forged".as_bytes());
    assert_eq!(get(&gateway.address, "/", &[forged]).body, "");
    let marked = get(&gateway.address, "/", &[forged]);
    assert_eq!((marked.status, marked.body.as_str()), (200, "api/remote_address"));
    assert_eq!(marked.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(marked.header("retry-after"), None, "it was admitted");
}

#[test]
fn admitted_responses_have_the_headers_by_flag_and_hidden_limits_never() {
    let (folder, app) = (Folder::new(), marks());
    let limits = format!("{}{}", yearly("protective", 1), yearly("plan", 3));
    let hide = "    denial: { hide: [protective] }\n";
    let gateway = started(&folder, &app.address, &rules(&limits), hide, "limit_headers: true");
    // The protective limit decides, and is hidden.
    let admitted = gateway.get("/");
    assert_eq!(admitted.status, 200);
    assert_eq!(admitted.header("x-ratelimit-limit"), None);
    let denied = gateway.get("/");
    assert_eq!(denied.status, 429);
    assert!(denied.header("retry-after").is_some());
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "ratelimit-policy"] {
        assert_eq!(denied.header(name), None, "{name}");
    }
    assert!(!denied.body.contains("protective"), "{}", denied.body);

    let folder = Folder::new();
    let gateway =
        started(&folder, &app.address, &rules(&yearly("plan", 3)), hide, "limit_headers: true");
    let admitted = gateway.get("/");
    assert_eq!(admitted.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(admitted.header("x-ratelimit-remaining"), Some("2"));
}

#[test]
fn exempt_clients_are_not_limited() {
    let (folder, app) = (Folder::new(), marks());
    let top = "access: { allow: [127.0.0.0/8] }";
    let gateway = started(&folder, &app.address, &rules(&yearly("plan", 0)), "", top);
    assert_eq!(gateway.get("/").status, 200);
    let label = r#"{route="/*",status="2xx",verdict="exempt"}"#;
    assert_eq!(gateway.metric(&format!("sluicegate_gateway_requests_total{label}")).unwrap(), "1");
}

/// A server whose response to `/slow` begins at once, and ends with a message to it.
struct Streaming {
    address: String,
    end: mpsc::Sender<()>,
}

fn streaming() -> Streaming {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (end, ended) = mpsc::channel();
    let ended = Arc::new(Mutex::new(ended));
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let ended = ended.clone();
            std::thread::spawn(move || {
                let head = read_until(&mut socket, b"\r\n\r\n");
                let is_slow = head.starts_with(b"GET /slow");
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close";
                write!(socket, "{head}\r\n\r\n5\r\nbegin\r\n").unwrap();
                if is_slow {
                    let _ = ended.lock().unwrap().recv();
                }
                let _ = socket.write_all(b"0\r\n\r\n");
            });
        }
    });
    Streaming { address, end }
}

fn read_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    while !seen.ends_with(end) {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    seen
}

const SLOTS: &str = "      - { name: parallel, algorithm: concurrency, max: 1, lease: 1h }\n";

/// A request whose response has begun.
fn begun(gateway: &Gateway, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(&gateway.address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    read_until(&mut client, b"begin\r\n");
    client
}

#[test]
fn a_slot_is_held_until_the_response_ends() {
    let (folder, app) = (Folder::new(), streaming());
    let gateway = started(&folder, &app.address, &rules(SLOTS), "", "");
    let mut slow = begun(&gateway, "/slow");
    let denied = gateway.get("/fast");
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains("concurrent requests"), "{}", denied.body);
    app.end.send(()).unwrap();
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    for _ in 0..3 {
        assert_eq!(gateway.get("/fast").status, 200);
    }
}

#[test]
fn a_slot_is_released_when_the_client_goes_away() {
    let (folder, app) = (Folder::new(), streaming());
    let gateway = started(&folder, &app.address, &rules(SLOTS), "", "");
    let slow = begun(&gateway, "/slow");
    assert_eq!(gateway.get("/fast").status, 429);
    drop(slow);
    let in_flight = r#"sluicegate_gateway_requests_in_flight{route="/*"}"#;
    until("the request has ended", || (gateway.metric(in_flight)? == "0").then_some(()));
    assert_eq!(gateway.get("/fast").status, 200);
}

#[test]
fn slots_in_a_store_are_those_of_all_nodes() {
    let (folder, app, redis) = (Folder::new(), streaming(), Single::start());
    let rules = folder.file("rules.yaml", &rules(SLOTS));
    let upstream = format!("http://{}", app.address);
    let args = ["--upstream", &upstream, "--rules", &rules, "--store", redis.url()];
    let [first, second] = [(); 2].map(|()| Gateway::start(&args));
    let mut slow = begun(&first, "/slow");
    assert_eq!(second.get("/fast").status, 429);
    app.end.send(()).unwrap();
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    // The release is on its way to the store; without it the lease would last an hour.
    until("the slot is free", || (second.get("/fast").status == 200).then_some(()));
}

#[test]
fn a_store_that_is_away_follows_the_policy_of_the_rules() {
    let app = marks();
    // Each has a store of its own: nodes of one store divide a local limit.
    let running: Vec<_> = ["allow", "deny", "local", "error"]
        .into_iter()
        .map(|policy| {
            let (folder, redis) = (Folder::new(), Single::start());
            let rules = format!(
                "domain: api\ndescriptors:\n  - key: remote_address\n    on_store_failure: {policy}\n    limits:\n{}",
                yearly("plan", 2)
            );
            let rules = folder.file("rules.yaml", &rules);
            let upstream = format!("http://{}", app.address);
            let args = ["--upstream", &upstream, "--rules", &rules, "--store", redis.url()];
            let gateway = Gateway::start(&args);
            assert_eq!(gateway.get("/").status, 200, "{policy}");
            redis.kill();
            (policy, gateway, folder)
        })
        .collect();
    for (policy, gateway, _folder) in &running {
        let statuses = [(); 4].map(|()| gateway.get("/").status);
        match *policy {
            "allow" => assert_eq!(statuses, [200; 4]),
            "deny" => assert_eq!(statuses, [429; 4]),
            "local" => assert!(statuses[0] == 200 && statuses[3] == 429, "{statuses:?}"),
            _ => assert_eq!(statuses, [503; 4]),
        }
        let verdicts = |status: &str, verdict: &str| {
            let labels = format!(r#"{{route="/*",status="{status}",verdict="{verdict}"}}"#);
            let count = gateway.metric(&format!("sluicegate_gateway_requests_total{labels}"));
            count.map_or(0, |count| count.parse().unwrap())
        };
        match *policy {
            "allow" => {
                assert_eq!((verdicts("2xx", "passed"), verdicts("2xx", "undecided")), (1, 4))
            }
            "deny" => assert_eq!((verdicts("2xx", "passed"), verdicts("4xx", "denied")), (1, 4)),
            "local" => assert_eq!(verdicts("2xx", "passed") + verdicts("4xx", "denied"), 5),
            _ => assert_eq!((verdicts("2xx", "passed"), verdicts("5xx", "undecided")), (1, 4)),
        }
    }
    let (_, gateway, _) = &running[3];
    let failed = gateway.get("/");
    assert!(failed.body.contains(r#""code":"store_unavailable""#), "{}", failed.body);
    assert!(failed.header("retry-after").is_some());
}

#[test]
fn an_upstream_that_is_down_is_not_a_verdict() {
    let (folder, app) = (Folder::new(), marks());
    let mut gateway = started(&folder, &app.address, &rules(&yearly("plan", 9)), "", "");
    drop(app);
    assert_eq!(gateway.get("/").status, 502);
    gateway.process.says("upstream failed");
    let label = r#"{route="/*",reason="upstream_failed"}"#;
    let errors = gateway.metric(&format!("sluicegate_gateway_upstream_errors_total{label}"));
    assert_eq!(errors.unwrap(), "1");
    let client = TcpStream::connect(&gateway.address).unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(asked_on(client, request).header("retry-after").is_some());
}
