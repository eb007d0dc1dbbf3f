//! The access log, the metrics of routes, and traces.

use std::io::{Read, Write};

use axum::extract::Request;
use serde_json::Value;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::get;
use crate::support::upstream::Upstream;
use crate::support::{Folder, root};

const RULES: &str = "domain: api
descriptors:
  - key: remote_address
    limits: { name: yearly, algorithm: fixed_window, rate: 1/year }
  - key: path
    shadow_mode: true
    limits: { name: trial, algorithm: fixed_window, rate: 0/year }
";

/// Writes the files of a gateway; the path of its configuration.
fn written(folder: &Folder, app: &Upstream, top: &str) -> String {
    folder.file("rules.yaml", RULES);
    let text = format!(
        "{top}\nrequest_id: X-Request-Id\nrules: rules.yaml\nupstreams: {{ app: \"http://{}\" }}\nroutes:
  - name: api
    path: /api/*
    upstream: app
    limit: {{ domain: api, descriptors: [{{ remote_address: client_ip }}] }}
  - name: trial
    path: /trial
    upstream: app
    limit: {{ domain: api, descriptors: [{{ path: path }}] }}
",
        app.address
    );
    folder.file("gateway.yaml", &text)
}

fn started(folder: &Folder, app: &Upstream, top: &str) -> Gateway {
    Gateway::start(&["--config", &written(folder, app, top)])
}

fn app() -> Upstream {
    Upstream::answering(|request: Request| async move {
        let trace = request.headers().get("traceparent");
        trace.map_or("hello".to_owned(), |value| value.to_str().unwrap().to_owned())
    })
}

#[test]
fn a_line_of_json_for_each_request() {
    let (folder, app) = (Folder::new(), app());
    let mut gateway = started(&folder, &app, "access_log: { format: json }");
    let mut line = |path: &str| -> Value {
        let answer = gateway.get(path);
        let line: Value = serde_json::from_str(&gateway.process.says("\"verdict\":")).unwrap();
        assert_eq!(line["status"], answer.status, "{line}");
        assert_eq!(line["bytes"], answer.body.len(), "{line}");
        assert_eq!(line["client"], "127.0.0.1", "{line}");
        if answer.status != 404 {
            assert_eq!(line["request_id"], answer.header("x-request-id").unwrap(), "{line}");
        }
        line
    };
    let passed = line("/api/a?key=secret");
    assert_eq!(passed["path"], "/api/a", "queries may have secrets");
    assert_eq!((&passed["route"], &passed["upstream"]), (&"api".into(), &"app".into()));
    assert_eq!((&passed["verdict"], &passed["cost"]), (&"passed".into(), &1.into()));
    assert_eq!(passed["identity"], "remote_address");
    assert_eq!(passed["server"], format!("http://{}", app.address));
    assert!(passed["duration_ms"].as_f64() >= passed["upstream_ms"].as_f64());
    let denied = line("/api/a");
    assert_eq!((&denied["verdict"], &denied["status"]), (&"denied".into(), &429.into()));
    assert_eq!(denied["rule"], "api/remote_address");
    assert!(denied["wait_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(denied["upstream"], Value::Null);
    let trial = line("/trial");
    assert_eq!((&trial["verdict"], &trial["status"]), (&"dry_run_denied".into(), &200.into()));
    assert_eq!(trial["rule"], "api/path");
    let unmatched = line("/nowhere");
    assert_eq!(
        (&unmatched["route"], &unmatched["error"]),
        (&"unmatched".into(), &"no_route".into())
    );
}

#[test]
fn a_file_in_the_combined_format_is_reopened_on_sighup() {
    let (folder, app) = (Folder::new(), app());
    let top = "access_log: { path: access.log, format: combined }";
    let mut gateway = started(&folder, &app, top);
    let [log, rotated] =
        ["access.log", "access.log.1"].map(|name| format!("{}/{name}", folder.path()));
    let line = |path: &str| {
        let read = || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'));
        until("the line is written", read)
    };
    get(&gateway.address, "/api/a", &[("user-agent", b"curl \"8\"")]);
    let first = line(&log);
    assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
    assert!(
        first.ends_with("\"GET /api/a HTTP/1.1\" 200 5 \"-\" \"curl \\x228\\x22\" passed\n"),
        "{first}"
    );
    std::fs::rename(&log, &rotated).unwrap();
    gateway.signal("HUP");
    gateway.process.says("reloaded");
    gateway.get("/api/b");
    assert!(line(&log).contains("GET /api/b"));
    assert_eq!(std::fs::read_to_string(&rotated).unwrap(), first);
}

#[test]
fn requests_beyond_the_bound_in_flight_are_logged_and_counted() {
    let (folder, (arrival, arrived)) = (Folder::new(), std::sync::mpsc::channel());
    let app = Upstream::answering(move |_| {
        arrival.send(()).unwrap();
        std::future::pending::<()>()
    });
    let path = written(&folder, &app, "access_log: json");
    let bound = [("SLUICEGATE_MAX_IN_FLIGHT", "1"), ("SLUICEGATE_WORKERS", "1")];
    let mut gateway = Gateway::with(&["--config", &path], &bound);
    let mut held = std::net::TcpStream::connect(&gateway.address).unwrap();
    held.write_all(b"GET /trial HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    arrived.recv().unwrap();
    let refused = gateway.get("/api/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let line: Value = serde_json::from_str(&gateway.process.says("\"verdict\":")).unwrap();
    assert_eq!((&line["status"], &line["error"]), (&503.into(), &"overload".into()), "{line}");
    assert_eq!(line["verdict"], "none", "its limits were not checked");
    assert_eq!((&line["client"], &line["path"]), (&"127.0.0.1".into(), &"/api/a".into()), "{line}");
    assert_eq!(gateway.metric("sluicegate_gateway_overload_total").unwrap(), "1");
}

#[test]
fn a_rejected_connection_is_logged_with_its_reason() {
    let (folder, app) = (Folder::new(), app());
    let mut gateway = started(&folder, &app, "access: { deny: [127.0.0.1] }");
    let mut client = std::net::TcpStream::connect(&gateway.address).unwrap();
    // Closed without a response.
    assert!(client.read(&mut [0]).map_or(true, |count| count == 0));
    let line = gateway.process.says("connection rejected");
    assert!(line.contains("127.0.0.1") && line.contains("denied"), "{line}");
}

#[test]
fn metrics_of_each_route() {
    let (folder, app) = (Folder::new(), app());
    let gateway = started(&folder, &app, "");
    for path in ["/api/a", "/api/a", "/trial", "/nowhere"] {
        gateway.get(path);
    }
    let requests = |route: &str, status: &str, verdict: &str| {
        let labels = format!(r#"{{route="{route}",status="{status}",verdict="{verdict}"}}"#);
        gateway.metric(&format!("sluicegate_gateway_requests_total{labels}"))
    };
    assert_eq!(requests("api", "2xx", "passed").as_deref(), Some("1"));
    assert_eq!(requests("api", "4xx", "denied").as_deref(), Some("1"));
    assert_eq!(requests("trial", "2xx", "dry_run_denied").as_deref(), Some("1"));
    assert_eq!(requests("unmatched", "4xx", "none").as_deref(), Some("1"));
    let value = |name: &str| gateway.metric(name).unwrap();
    assert_eq!(value(r#"sluicegate_gateway_request_duration_seconds_count{route="api"}"#), "2");
    assert_eq!(value(r#"sluicegate_gateway_requests_in_flight{route="api"}"#), "0");
    let denied = gateway.get("/api/a").body.len();
    let bytes: usize =
        value(r#"sluicegate_gateway_response_bytes_total{route="api"}"#).parse().unwrap();
    assert!(bytes > 5 + denied, "{bytes}");
}

#[test]
fn every_metric_of_the_gateway_has_its_line_in_the_guide() {
    let (folder, app) = (Folder::new(), app());
    let gateway = started(&folder, &app, "access_log: json\ndeferred: deferred.redb");
    let guide = std::fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
    let page = get(&gateway.admin, "/metrics", &[]).body;
    let names: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|name| name.starts_with("sluicegate_gateway_"))
        .collect();
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        assert!(guide.contains(&format!("| `{name}` | gateway: ")), "{name} is not in the guide");
    }
    let listed = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    // Those of automatic certificates are on the page of a gateway that has some.
    let listed = listed.filter(|name| !name.starts_with("sluicegate_gateway_certificate_"));
    for name in listed.filter(|name| name.starts_with("sluicegate_gateway_")) {
        assert!(names.contains(&name), "{name} is in the guide only");
    }
}

#[test]
fn the_trace_of_a_caller_goes_on_at_the_upstream() {
    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (folder, app) = (Folder::new(), app());
    let gateway = started(&folder, &app, "");
    let sent = ("traceparent", CALLER.as_bytes());
    assert_eq!(get(&gateway.address, "/trial", &[sent]).body, CALLER, "without traces of its own");

    let path = written(&folder, &app, "");
    // Nobody listens there: spans are dropped, and requests do not wait.
    let variables =
        [("TRACING_ENABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let gateway = Gateway::with(&["--config", &path], &variables);
    let child = get(&gateway.address, "/trial", &[sent]).body;
    assert!(
        child.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && child != CALLER,
        "{child}"
    );
}

#[test]
fn a_span_of_a_request_names_route_verdict_and_rule() {
    let (sender, spans) = std::sync::mpsc::channel();
    let collector = Upstream::answering(move |request: Request| {
        let sender = sender.clone();
        async move {
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            sender.send(String::from_utf8_lossy(&body).into_owned()).unwrap();
        }
    });
    let (folder, app) = (Folder::new(), app());
    let path = written(&folder, &app, "");
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("TRACING_ENABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ];
    let gateway = Gateway::with(&["--config", &path], &variables);
    assert_eq!(gateway.get("/api/a").status, 200);
    assert_eq!(gateway.get("/api/a").status, 429);
    let mut seen = String::new();
    while !seen.contains("api/remote_address") {
        seen.push_str(&spans.recv_timeout(std::time::Duration::from_secs(60)).unwrap());
    }
    for text in ["gateway", "http.route", "http.response.status_code", "denied", "passed"] {
        assert!(seen.contains(text), "{text}: {seen}");
    }
    assert!(!seen.contains("127.0.0.1"), "clients are not in traces");
}
