//! `on_limit: queue`: requests over their limit are stored, answered with 202, and sent later.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::{Answer, get};
use crate::support::upstream::Upstream;
use crate::support::{Folder, sluicegate};

/// `slow` is over its limit after the first request, for the rest of the year.
pub const RULES: &str = "domain: api
descriptors:
  - { key: user, limits: { algorithm: token_bucket, rate: 10/s, burst: 1 } }
  - { key: slow, limits: { algorithm: fixed_window, rate: 1/year } }
  - { key: ruled, on_limit: queue, limits: { algorithm: token_bucket, rate: 10/s, burst: 1 } }
  - { key: job, limits: { algorithm: concurrency, max: 1, lease: 1m } }
";

/// What the upstream got, in order.
#[derive(Clone, Default)]
pub struct Recorder {
    pub requests: Arc<Mutex<Vec<Delivered>>>,
    /// Whether it answers 503.
    pub is_down: Arc<AtomicBool>,
}

#[derive(Clone)]
pub struct Delivered {
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl Delivered {
    pub fn key(&self) -> &str {
        self.headers["idempotency-key"].to_str().unwrap()
    }
}

impl Recorder {
    fn upstream(&self) -> Upstream {
        let recorder = self.clone();
        Upstream::answering(move |request: Request| {
            let recorder = recorder.clone();
            async move { recorder.answer(request).await }
        })
    }

    async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let path = head.uri.to_string();
        let made = format!("made {body}");
        self.requests.lock().unwrap().push(Delivered { path, headers: head.headers, body });
        match self.is_down.load(Relaxed) {
            true => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            false => (StatusCode::CREATED, [("x-made", "yes")], made).into_response(),
        }
    }

    pub fn bodies(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|one| one.body.clone()).collect()
    }
}

/// A gateway before an upstream.
pub struct Deferring {
    pub folder: Folder,
    pub recorder: Recorder,
    pub upstream: Upstream,
    pub gateway: Gateway,
    pub config: String,
}

pub const QUEUE: &str = "{ attempts: 2, per_identity: { count: 3 }, max_bytes: 1KiB, callback: \"http://127.0.0.1:9/x\" }";

impl Deferring {
    pub fn start(place: &str, queue: &str, more: &[&str]) -> Self {
        let (folder, recorder) = (Folder::new(), Recorder::default());
        folder.file("rules.yaml", RULES);
        let upstream = recorder.upstream();
        let route = |path: &str, key: &str, on_limit: &str| {
            format!(
                "  - {{ path: /{path}/*, name: {path}, upstream: app, limit: {{ domain: api, descriptors: \
                 [{{ {key}: header X-User }}] }}{on_limit}, queue: {queue} }}\n"
            )
        };
        let config = format!(
            "access_log: json\nrules: rules.yaml\ndeferred: {place}\nupstreams: {{ app: \"http://{}\" }}\nroutes:\n{}{}{}{}",
            upstream.address,
            route("jobs", "user", ", on_limit: queue"),
            route("slow", "slow", ", on_limit: queue"),
            route("ruled", "ruled", ""),
            route("slots", "job", ", on_limit: queue"),
        );
        let config = folder.file("gateway.yaml", &config);
        let gateway = Gateway::start(&[&["--config", &config], more].concat());
        Self { folder, recorder, upstream, gateway, config }
    }

    pub fn post(&self, path: &str, user: &str, body: &str) -> Answer {
        post(&self.gateway.address, path, &[("x-user", user)], body)
    }

    pub fn ticket(&self, location: &str) -> Value {
        let answer = get(&self.gateway.address, location, &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The ticket as soon as it is in this state.
    pub fn until_state(&self, location: &str, state: &str) -> Value {
        until(state, || Some(self.ticket(location)).filter(|ticket| ticket["state"] == state))
    }

    fn cli(&self, args: &[&str]) -> (i32, String) {
        let admin = format!("http://{}", self.gateway.admin);
        let run = sluicegate(&[&["deferred", "--admin", &admin], args].concat(), "");
        (run.code, run.stdout + &run.stderr)
    }
}

pub fn try_post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<String> {
    let mut connection = TcpStream::connect(address).ok()?;
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    let _ = connection.read_to_end(&mut bytes);
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| text.contains("\r\n\r\n"))
}

pub fn post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let text = try_post(address, path, headers, body).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    };
    Answer { status, headers: lines.map(header).collect(), body: body.to_owned() }
}

pub fn location(answer: &Answer) -> &str {
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.header("location").unwrap()
}

#[test]
fn a_request_over_its_limit_gets_a_ticket_and_its_response_later() {
    let mut it = Deferring::start("deferred.redb", QUEUE, &[]);
    assert_eq!(it.post("/jobs/a", "alice", "one").status, 201);
    let headers = [("x-user", "alice"), ("connection", "x-hop"), ("x-hop", "1")];
    let deferred = post(&it.gateway.address, "/jobs/b?c=d", &headers, "two");
    let location = location(&deferred).to_owned();
    assert_eq!(deferred.header("retry-after"), Some("1"));
    let ticket: Value = serde_json::from_str(&deferred.body).unwrap();
    assert_eq!((&ticket["state"], &ticket["position"]), (&"queued".into(), &0.into()));
    assert!(ticket["estimated_at"].is_string(), "{ticket}");
    let id = ticket["id"].as_str().unwrap();
    assert_eq!(location, format!("/.sluicegate/tickets/{id}"));
    assert_eq!(id.len(), 40, "200 bits");
    let done = it.until_state(&location, "done");
    assert_eq!((&done["response"]["status"], &done["attempts"]), (&201.into(), &1.into()));
    assert!(done.get("position").is_none() && done.get("estimated_at").is_none());
    let response = get(&it.gateway.address, &format!("{location}/response"), &[]);
    assert_eq!((response.status, response.body.as_str()), (201, "made two"));
    assert_eq!(response.header("x-made"), Some("yes"));
    let delivered = it.recorder.requests.lock().unwrap()[1].clone();
    assert_eq!((delivered.path.as_str(), delivered.key()), ("/jobs/b?c=d", id));
    assert_eq!(delivered.headers["x-forwarded-for"], "127.0.0.1");
    assert!(!delivered.headers.contains_key("x-hop"));
    it.gateway.process.has_said(r#""verdict":"deferred""#);
    let delivered = "sluicegate_gateway_deferred_delivered_total";
    assert_eq!(it.gateway.metric(delivered).as_deref(), Some("1"));
    assert_eq!(get(&it.gateway.address, "/.sluicegate/tickets/none", &[]).status, 404);
    assert_eq!(post(&it.gateway.address, &location, &[], "").status, 405);
}

#[test]
fn the_key_of_the_client_is_that_of_the_upstream() {
    let it = Deferring::start("deferred.redb", QUEUE, &[]);
    assert_eq!(it.post("/jobs/a", "alice", "one").status, 201);
    let headers = [("x-user", "alice"), ("idempotency-key", "mine")];
    let deferred = post(&it.gateway.address, "/jobs/b", &headers, "two");
    it.until_state(location(&deferred), "done");
    assert_eq!(it.recorder.requests.lock().unwrap()[1].key(), "mine");
}

#[test]
fn requests_of_an_identity_are_sent_in_order_without_overtaking() {
    let it = Deferring::start("deferred.redb", "{ per_identity: { count: 100 } }", &[]);
    // Also one whose limits say so by their rule, and one of the same user under other limits.
    for (path, count) in [("/jobs/a", 8), ("/ruled/a", 4)] {
        let answers: Vec<_> =
            (0..count).map(|number| it.post(path, "bob", &format!("{path} {number}"))).collect();
        assert_eq!(answers[0].status, 201);
        let last = location(&answers[count - 1]).to_owned();
        let tickets =
            answers[1..].iter().map(|one| serde_json::from_str::<Value>(&one.body).unwrap());
        // None before the one before it has gone.
        let positions: Vec<_> =
            tickets.map(|ticket| ticket["position"].as_u64().unwrap()).collect();
        assert!(positions.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{positions:?}");
        it.until_state(&last, "done");
        let sent: Vec<_> =
            it.recorder.bodies().into_iter().filter(|body| body.starts_with(path)).collect();
        let expected: Vec<_> = (0..count).map(|number| format!("{path} {number}")).collect();
        assert_eq!(sent, expected);
    }
}

#[test]
fn estimates_are_those_of_the_limit() {
    let it = Deferring::start("deferred.redb", "{ per_identity: { count: 100 } }", &[]);
    assert_eq!(it.post("/slow/a", "alice", "").status, 201);
    let seconds = |answer: &Answer| {
        let ticket: Value = serde_json::from_str(&answer.body).unwrap();
        let year = |field: &str| ticket[field].as_str().unwrap()[..4].parse::<i32>().unwrap();
        (year("estimated_at") - year("created_at"), ticket["position"].as_u64().unwrap())
    };
    let first = seconds(&it.post("/slow/a", "alice", ""));
    let third = {
        it.post("/slow/a", "alice", "");
        seconds(&it.post("/slow/a", "alice", ""))
    };
    assert_eq!((first.1, third.1), (0, 2));
    assert_eq!(third.0 - first.0, 2, "two more windows of a year");
}

#[test]
fn beyond_its_bounds_a_request_is_denied_with_the_reason() {
    let it = Deferring::start("deferred.redb", QUEUE, &[]);
    let reason = |answer: Answer| {
        assert_eq!(answer.status, 429, "{answer:?}");
        assert!(answer.header("retry-after").is_some());
        answer.header("x-ratelimit-queue-refused").unwrap().to_owned()
    };
    assert_eq!(it.post("/slow/a", "alice", "").status, 201);
    assert_eq!(reason(it.post("/slow/a", "alice", &"x".repeat(1_025))), "body_too_large");
    for number in 0..3 {
        assert_eq!(it.post("/slow/a", "alice", &format!("{number}")).status, 202);
    }
    assert_eq!(reason(it.post("/slow/a", "alice", "")), "identity_count");
    assert_eq!(it.post("/slow/a", "bob", "").status, 201, "another identity");
    let headers = [("x-user", "bob"), ("x-callback-url", "http://127.0.0.1/")];
    let refused = post(&it.gateway.address, "/slow/a", &headers, "");
    assert_eq!(reason(refused), "callback_not_allowed");
    let headers = [("x-user", "bob"), ("content-type", "application/x")];
    assert_eq!(post(&it.gateway.address, "/slow/a", &headers, "").status, 202);
    let name = r#"sluicegate_gateway_deferred_refused_total{reason="identity_count"}"#;
    assert_eq!(it.gateway.metric(name).as_deref(), Some("1"));
    // A body of chunks without a length is read within the bound.
    let mut client = TcpStream::connect(&it.gateway.address).unwrap();
    let head =
        "POST /slow/a HTTP/1.1\r\nhost: a\r\nx-user: bob\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(format!("800\r\n{}\r\n", "x".repeat(2_048)).as_bytes()).unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 429");
}

#[test]
fn a_request_that_waits_can_be_cancelled() {
    let it = Deferring::start("deferred.redb", QUEUE, &[]);
    assert_eq!(it.post("/slow/a", "alice", "").status, 201);
    let (first, second) = (it.post("/slow/a", "alice", "a"), it.post("/slow/a", "alice", "b"));
    assert_eq!(it.ticket(location(&second))["position"], 1);
    let early = get(&it.gateway.address, &format!("{}/response", location(&first)), &[]);
    assert_eq!(early.status, 404, "not yet");
    let delete = |path: &str| {
        let mut client = TcpStream::connect(&it.gateway.address).unwrap();
        let request = format!("DELETE {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(delete(location(&first)), "204");
    assert_eq!(get(&it.gateway.address, location(&first), &[]).status, 404);
    assert_eq!(it.ticket(location(&second))["position"], 0);
    assert_eq!(it.post("/jobs/a", "alice", "").status, 201);
    let done = it.post("/jobs/a", "alice", "");
    it.until_state(location(&done), "done");
    assert_eq!(delete(location(&done)), "409");
}

#[test]
fn dead_letters_are_listed_inspected_redriven_and_deleted() {
    let mut it = Deferring::start("deferred.redb", QUEUE, &[]);
    it.recorder.is_down.store(true, Relaxed);
    assert_eq!(it.post("/jobs/a", "alice", "one").status, 503);
    let headers = [("x-user", "alice"), ("authorization", "Bearer hidden")];
    let deferred = post(&it.gateway.address, "/jobs/a", &headers, "two");
    let ticket = it.until_state(location(&deferred), "failed");
    assert_eq!((&ticket["attempts"], &ticket["error"]), (&2.into(), &"status 503".into()));
    it.gateway.process.has_said("dead letter");
    let id = ticket["id"].as_str().unwrap();
    let (code, list) = it.cli(&["list", "--state", "dead", "--route", "jobs"]);
    assert!(code == 0 && list.contains(id) && list.contains("status 503"), "{list}");
    assert_eq!(it.cli(&["list", "--state", "dead", "--route", "x"]).1.lines().count(), 1);
    let (_, json) = it.cli(&["list", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["requests"][0]["id"], id);
    let (code, shown) = it.cli(&["inspect", id]);
    assert!(code == 0 && shown.contains("\"two\"") && !shown.contains("hidden"), "{shown}");
    it.recorder.is_down.store(false, Relaxed);
    assert_eq!(it.cli(&["redrive", id]), (0, "redriven: 1\n".to_owned()));
    it.until_state(location(&deferred), "done");
    assert_eq!(it.cli(&["redrive", id]).0, 1, "not dead any more");
    assert_eq!(it.cli(&["redrive", "--all"]), (0, "redriven: 0\n".to_owned()));
    let keys: BTreeSet<String> =
        it.recorder.requests.lock().unwrap()[1..].iter().map(|one| one.key().to_owned()).collect();
    assert_eq!(keys.len(), 1, "the same key for each attempt");
    assert_eq!(it.cli(&["delete", id]), (0, "deleted: 1\n".to_owned()));
    assert_eq!(it.cli(&["inspect", id]).0, 1);
    let dead = "sluicegate_gateway_deferred_dead_total";
    assert_eq!(it.gateway.metric(dead).as_deref(), Some("1"));
    let nobody = sluicegate(&["deferred", "list", "--admin", "http://127.0.0.1:1"], "");
    assert_eq!(nobody.code, 2, "{}", nobody.stderr);
}

#[test]
fn a_callback_gets_the_result() {
    let hooks = Recorder::default();
    let hook = hooks.upstream();
    let queue = format!("{{ callback: \"http://{}/done/*\" }}", hook.address);
    let it = Deferring::start("deferred.redb", &queue, &[]);
    assert_eq!(it.post("/jobs/a", "alice", "one").status, 201);
    let url = format!("http://{}/done/1", hook.address);
    let headers = [("x-user", "alice"), ("x-callback-url", url.as_str())];
    let deferred = post(&it.gateway.address, "/jobs/a", &headers, "two");
    let ticket = it.until_state(location(&deferred), "done");
    let called =
        until("the callback is called", || hooks.requests.lock().unwrap().first().cloned());
    let result: Value = serde_json::from_str(&called.body).unwrap();
    assert_eq!((&result["id"], &result["response"]["status"]), (&ticket["id"], &201.into()));
    // A redriven request has another result, with another key.
    let key = format!("{}-done", ticket["id"].as_str().unwrap());
    assert_eq!((called.path.as_str(), called.key()), ("/done/1", key.as_str()));
    let location = location(&deferred).to_owned();
    until("it is recorded", || (it.ticket(&location)["callback"] == "delivered").then_some(()));
    let sent = it.recorder.requests.lock().unwrap()[1].clone();
    assert!(!sent.headers.contains_key("x-callback-url"), "not for the upstream");
}

#[test]
fn a_slot_is_held_while_a_deferred_request_is_sent() {
    let it = Deferring::start("deferred.redb", "{ per_identity: { count: 100 } }", &[]);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let posts: Vec<_> = (0..6)
            .map(|number| {
                let it = &it;
                scope.spawn(move || it.post("/slots/a", "alice", &number.to_string()))
            })
            .collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    for answer in answers.iter().filter(|answer| answer.status == 202) {
        let ticket: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(ticket.get("estimated_at").is_none(), "a slot's end cannot be known");
        it.until_state(location(answer), "done");
    }
    assert_eq!(it.recorder.bodies().len(), 6);
}

#[test]
fn a_drain_stores_what_waits_and_the_next_process_gets_the_file() {
    let mut it = Deferring::start("deferred.redb", QUEUE, &[]);
    assert_eq!(it.post("/slow/a", "alice", "").status, 201);
    let deferred = it.post("/slow/a", "alice", "later");
    // While the first process has the file, the second one serves without it.
    let mut next = Gateway::start(&["--config", &it.config]);
    next.process.has_said("in use by another process");
    assert_eq!(post(&next.address, "/slow/a", &[("x-user", "bob")], "").status, 201);
    let denied = post(&next.address, "/slow/a", &[("x-user", "bob")], "");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-ratelimit-queue-refused"), Some("store_unavailable"));
    assert_eq!(get(&next.address, location(&deferred), &[]).status, 503);
    it.gateway.signal("TERM");
    assert_eq!(it.gateway.process.ends(), Some(0));
    next.process.has_said("deferred requests are available");
    let ticket: Value =
        serde_json::from_str(&get(&next.address, location(&deferred), &[]).body).unwrap();
    // The counters of the first process were in its memory, so it is sent at once.
    assert!(["queued", "running", "done"].contains(&ticket["state"].as_str().unwrap()));
    let location = location(&deferred).to_owned();
    until("it is sent", || {
        let ticket = get(&next.address, &location, &[]).body;
        ticket.contains("\"done\"").then_some(())
    });
    drop(it.folder);
}
