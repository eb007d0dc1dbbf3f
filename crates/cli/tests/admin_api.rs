//! The admin API conforms to its OpenAPI document: every route is described, every description
//! is a route with the role that it names, and real responses match their schemas.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};
use sluicegate_testkit::until;
use support::http::{Answer, asked_on, post};
use support::service::Service;
use support::{Folder, root, sluicegate};

const RULES: &str = "domain: shop
descriptors:
  - { key: user, id: users, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: client, rate_limit: { unit: hour, requests_per_unit: 100 }, shadow_mode: true }
";
const TOKENS: [(&str, &str); 4] =
    [("reader", "read"), ("operator", "operate"), ("editor", "edit"), ("second", "edit")];
const BASE: &str = "https://sluicegate.test/openapi.json";

/// A service with tokens, and its document.
struct Api {
    service: Service,
    document: Value,
    answered: RefCell<BTreeSet<(String, String)>>,
    _folders: [Folder; 2],
}

/// The secret of a token.
fn secret(name: &str) -> String {
    format!("the secret of {name}")
}

fn files(text: &str) -> Value {
    json!([{ "name": "shop.yaml", "text": text }])
}

impl Api {
    fn start(more: &[&str]) -> Self {
        let (folder, rules) = (Folder::new(), Folder::new());
        rules.file("shop.yaml", RULES);
        let line = |(name, role): (&str, &str)| {
            sluicegate(&["hash-token", name, "--role", role], &secret(name)).stdout
        };
        let tokens = folder.file("tokens.yaml", &TOKENS.map(line).concat());
        let usage = format!("{}/usage", folder.path());
        let audit = format!("{}/audit.jsonl", folder.path());
        let args = ["--rules", rules.path(), "--admin-tokens", &tokens, "--audit-log", &audit];
        let args = [&args[..], &["--usage", &usage, "--usage-rules", "shop"], more].concat();
        let service = Service::with(&args, &[]);
        let answered = RefCell::default();
        let mut api = Self { service, document: Value::Null, answered, _folders: [folder, rules] };
        let answer = api.send(Some("reader"), "GET", "/api/v1/openapi.json", "");
        api.document = serde_json::from_str(&answer.body).unwrap();
        api
    }

    fn send(&self, token: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        let address = &self.service.admin;
        let token = token.map(|name| format!("authorization: Bearer {}\r\n", secret(name)));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{}content-length: {}\r\n\r\n{body}",
            token.unwrap_or_default(),
            body.len()
        );
        asked_on(TcpStream::connect(address).unwrap(), request.as_bytes())
    }

    /// Operations: method, path and role.
    fn operations(&self) -> Vec<(String, String, String)> {
        let mut operations = Vec::new();
        for (path, item) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let role = operation["x-role"].as_str().unwrap().to_owned();
                operations.push((method.clone(), path.clone(), role));
            }
        }
        operations
    }

    /// Validates a response against the schema of its status.
    fn validate(&self, method: &str, template: &str, answer: &Answer) {
        let (method, path) = (method.to_lowercase(), template.replace('/', "~1"));
        let at = format!("/paths/{path}/{method}/responses/{}", answer.status);
        let response = self.document.pointer(&at);
        let response = response.unwrap_or_else(|| panic!("{at} is not described: {answer:?}"));
        let (kind, _) = response["content"].as_object().unwrap().iter().next().unwrap();
        let sent = answer.header("content-type").unwrap();
        assert!(sent.starts_with(kind.as_str()), "{at}: {kind} is described, {sent} is sent");
        if kind != "application/json" {
            return;
        }
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.add_resource(BASE, self.document.clone()).unwrap();
        // A path parameter is in braces, which a URL has percent-encoded.
        let at = at.replace('{', "%7B").replace('}', "%7D");
        let place = format!("{BASE}#{at}/content/application~1json/schema");
        let schema = compiler.compile(&place, &mut schemas).unwrap();
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        if let Err(error) = schemas.validate(&body, schema) {
            panic!("{method} {template}: {body:#} does not match: {error:#}");
        }
    }

    /// Sends a request to an operation with a token of its role, and validates the response.
    fn call(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let is_same = |template: &str, path: &str| {
            let (mut wanted, mut given) = (template.split('/'), path.split('/'));
            let count = |path: &str| path.split('/').count();
            let is_open = template.ends_with("{id}");
            (count(template) == count(path) || (is_open && count(template) < count(path)))
                && wanted.by_ref().all(|one| given.next() == Some(one) || one.starts_with('{'))
        };
        let bare = path.split('?').next().unwrap();
        let operations = self.operations();
        let matching = |with: &dyn Fn(&str) -> bool| {
            let found = operations
                .iter()
                .find(|(name, template, _)| name.eq_ignore_ascii_case(method) && with(template));
            found.cloned()
        };
        let exact = matching(&|template| template == bare);
        let found = exact.or_else(|| matching(&|template| is_same(template, bare)));
        let (name, template, role) = found.unwrap_or_else(|| panic!("{method} {path}"));
        let token = TOKENS.iter().find(|(_, of)| *of == role).unwrap().0;
        let body = match body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        };
        let answer = self.send(Some(token), method, path, &body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        self.validate(method, &template, &answer);
        if status < 300 {
            self.answered.borrow_mut().insert((name, template));
        }
        serde_json::from_str(&answer.body).unwrap_or_default()
    }

    fn get(&self, path: &str) -> Value {
        self.call("GET", path, &Value::Null, 200)
    }
}

/// Routes below `/api/v1`, by the source of the admin endpoint.
fn routes() -> BTreeSet<(String, String)> {
    let mut routes = BTreeSet::new();
    let mut collect = |text: &str, prefix: &str| {
        for route in text.split(".route(").skip(1) {
            let route = route.split("\n}").next().unwrap();
            let path = route.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            let path = format!("{prefix}{}", path.unwrap_or_default()).replace("{*", "{");
            for method in ["get", "post", "put", "delete", "patch"] {
                let is_there = |before: char| route.contains(&format!("{before}{method}("));
                if path.starts_with("/api/v1") && (is_there(' ') || is_there('.')) {
                    routes.insert((method.to_owned(), path.clone()));
                }
            }
        }
    };
    let source = root().join("crates/server/src");
    let mut folders = vec![source.join("admin")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|ending| ending == "rs") => {
                    collect(&std::fs::read_to_string(path).unwrap(), "");
                }
                _ => {}
            }
        }
    }
    let http = std::fs::read_to_string(source.join("http/mod.rs")).unwrap();
    let (_, operator) = http.split_once("fn operator_routes").unwrap();
    collect(operator.split("\n}").next().unwrap(), "/api/v1");
    routes
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let api = Api::start(&[]);
    let described: BTreeSet<_> =
        api.operations().into_iter().map(|(method, path, _)| (method, path)).collect();
    let routes = routes();
    assert!(routes.len() > 25, "{routes:?}");
    assert_eq!(described, routes);
}

#[test]
fn every_operation_needs_a_token_of_its_role() {
    let api = Api::start(&[]);
    for (method, template, role) in api.operations() {
        let (method, path) = (method.to_uppercase(), template.replace("{number}", "1"));
        let path = path.replace("{id}", "shop/users");
        let answer = api.send(None, &method, &path, "");
        assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        api.validate(&method, &template, &answer);
        let below = match &*role {
            "operate" => "reader",
            "edit" => "operator",
            _ => continue,
        };
        let answer = api.send(Some(below), &method, &path, "");
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        assert!(answer.body.contains(&format!("needs the role `{role}`")), "{answer:?}");
        api.validate(&method, &template, &answer);
    }
    let audit = api.get("/api/v1/audit");
    assert_eq!(audit["entries"], json!([]), "nothing was changed");
}

#[test]
fn responses_match_their_schemas() {
    let api = Api::start(&[]);
    let check = json!({ "domain": "shop", "descriptors": [{ "user": "ann" }] });
    let statuses: Vec<u16> =
        (0..5).map(|_| post(&api.service.http, "/v1/check", &check.to_string()).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    // The statistics move on once a second.
    until("the rule has figures", || {
        let row = api.get("/api/v1/traffic/rules/shop/users");
        row["hits"].as_u64().filter(|hits| *hits == 5).map(drop)
    });
    for series in ["both", "seconds", "minutes", "none"] {
        api.get(&format!("/api/v1/traffic?series={series}"));
    }
    let rows = api.get("/api/v1/traffic/rules?sort=rule&limit=10");
    assert_eq!(rows["count"], 2);
    let limited = api.get("/api/v1/traffic/limited?key=user");
    assert_eq!(limited["identities"][0]["value"], "ann", "{limited}");
    assert_eq!(api.get("/api/v1/traffic/talkers")["identities"][0]["hits"], 5);
    let other = json!({ "rule": "shop/users", "limits": { "algorithm": "fixed_window", "rate": "1/year" } });
    api.call("POST", "/api/v1/traffic/what-if", &other, 200);
    let other = json!({ "files": files(RULES) });
    api.call("POST", "/api/v1/traffic/what-if", &other, 200);
    for (body, status) in [
        (json!({}), 400),
        (json!({ "rule": "shop/none", "limits": "1/year" }), 404),
        (json!({ "files": files("domain: [") }), 422),
        (json!("x".repeat((4 << 20) + 1)), 413),
    ] {
        api.call("POST", "/api/v1/traffic/what-if", &body, status);
    }
    api.call("GET", "/api/v1/traffic/rules/none", &Value::Null, 404);
    api.call("GET", "/api/v1/traffic?series=hours", &Value::Null, 400);

    for path in ["/api/v1/keys/inspect", "/api/v1/explain"] {
        api.call("POST", path, &check, 200);
        api.call("POST", path, &json!({ "checks": [check, check] }), 200);
        api.call("POST", path, &json!("{"), 400);
    }
    let credit = json!({ "domain": "shop", "descriptors": [{ "user": "ann" }], "hits": 1 });
    api.call("POST", "/api/v1/keys/credit", &credit, 200);
    api.call("POST", "/api/v1/keys/credit", &check, 400);
    api.call("POST", "/api/v1/keys/reset", &check, 200);
    api.call("POST", "/api/v1/keys/reset", &json!("x".repeat((256 << 10) + 1)), 413);

    let usage = api.get("/api/v1/usage?rule=shop%2Fusers&identity=user%3Dann");
    assert_eq!((&usage["total"]["admitted"], &usage["total"]["denied"]), (&json!(3), &json!(2)));
    api.call("GET", "/api/v1/usage?from=yesterday", &Value::Null, 400);

    changes_match_their_schemas(&api);

    let entries = api.get("/api/v1/audit")["entries"].clone();
    let actions: Vec<&str> =
        entries.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions.len(), 11, "{actions:?}");
    assert_eq!(actions[10], "keys.credit");
    let metrics = api.send(Some("reader"), "GET", "/metrics", "").body;
    assert!(metrics.contains("\nsluicegate_audit_entries_total 11\n"), "{metrics}");
    assert!(metrics.contains("\nsluicegate_admin_sessions 0\n"), "{metrics}");

    events_are_a_stream(&api);
    api.get("/api/v1/openapi.json");
    let described: BTreeSet<_> =
        api.operations().into_iter().map(|(method, path, _)| (method, path)).collect();
    let answered = api.answered.borrow().clone();
    let rest: Vec<_> = described.difference(&answered).collect();
    let approve = "/api/v1/rules/revisions/{number}/approve".to_owned();
    assert_eq!(rest, [&("post".to_owned(), approve)], "these were not called with success");
}

/// Rules and overrides.
fn changes_match_their_schemas(api: &Api) {
    assert_eq!(api.get("/api/v1/rules")["revision"]["number"], 1);
    let stricter = RULES.replace("3/year", "2/year");
    let preview = json!({ "files": files(&stricter), "base": 1 });
    assert_eq!(api.call("POST", "/api/v1/rules/check", &preview, 200)["valid"], true);
    let invalid = json!({ "files": files(&RULES.replace("rate:", "rat:")) });
    let preview = api.call("POST", "/api/v1/rules/check", &invalid, 200);
    assert_eq!(preview["problems"][0]["line"], 3, "{preview}");
    api.call("POST", "/api/v1/rules/check", &json!({ "file": [] }), 400);
    // A large set of files is valid, and one beyond the limit is not.
    let large = format!("{RULES}# {}\n", "x".repeat(3 << 20));
    let large = json!({ "files": files(&large) });
    assert_eq!(api.call("POST", "/api/v1/rules/check", &large, 200)["valid"], true);
    api.call("POST", "/api/v1/rules/check", &json!("x".repeat((12 << 20) + 1)), 413);

    let revisions = "/api/v1/rules/revisions";
    let proposal = json!({ "files": files(&stricter), "base": 1, "note": "half" });
    let body = api.call("POST", revisions, &proposal, 201);
    assert_eq!((&body["revision"]["author"], &body["enforced"]), (&json!("editor"), &json!(true)));
    let conflict = api.call("POST", revisions, &proposal, 409);
    assert_eq!(conflict["error"]["newer"]["number"], 2, "{conflict}");
    let bad = json!({ "files": files("domain: ["), "base": 2, "note": "bad" });
    api.call("POST", revisions, &bad, 422);
    api.call("POST", revisions, &json!({ "files": files(RULES), "base": 2 }), 400);
    for (rate, verb) in [("4/year", "activate"), ("5/year", "withdraw")] {
        let text = RULES.replace("3/year", rate);
        let base = &api.get("/api/v1/rules")["revision"]["number"];
        let body =
            json!({ "files": files(&text), "base": base, "note": verb, "activate": "shadow" });
        let number = &api.call("POST", revisions, &body, 201)["revision"]["number"];
        assert_eq!(api.get("/api/v1/rules")["candidate"]["number"], *number);
        let state =
            |state: &str| (api.get("/api/v1/rules/candidate")["state"] == state).then_some(());
        until("the candidate runs", || state("running"));
        api.service.check("shop", "bob");
        let candidate = api.get("/api/v1/rules/candidate");
        assert!(candidate["requests"]["total"].as_u64() > Some(0), "{candidate}");
        api.call("POST", &format!("{revisions}/{number}/{verb}"), &Value::Null, 200);
    }
    api.call("POST", &format!("{revisions}/1/approve"), &Value::Null, 409);
    let rollback = json!({ "note": "back", "base": 3 });
    api.call("POST", &format!("{revisions}/1/rollback"), &rollback, 201);
    let page = api.get(&format!("{revisions}?limit=2"));
    assert_eq!(page["next_before"], 4, "{page}");
    api.get(&format!("{revisions}/2?against=1"));
    for (path, status) in [("/99", 404), ("/two", 400), ("?limit=two", 400)] {
        api.call("GET", &format!("{revisions}{path}"), &Value::Null, status);
    }
    api.call("GET", "/api/v1/rules/export?revision=2", &Value::Null, 200);
    let exported = api.send(Some("reader"), "GET", "/api/v1/rules/export", "").body;
    api.call("POST", "/api/v1/rules/import?note=again", &json!(exported), 201);
    // Files are of one node.
    assert_eq!(api.get("/api/v1/rules/nodes"), json!({ "nodes": [] }));

    let overrides = "/api/v1/overrides";
    let block = json!({ "domain": "shop", "match": { "user": "ann" }, "block": true, "for_s": 60, "note": "abuse" });
    api.call("POST", overrides, &block, 201);
    let listed = api.get(overrides);
    assert_eq!(listed["overrides"][0]["match"]["user"], "ann", "{listed}");
    let mistake = json!({ "domain": "shop", "match": { "user": "ann" }, "note": "no end" });
    api.call("POST", overrides, &mistake, 422);
    let past = json!({ "domain": "shop", "match": { "user": "ann" }, "block": true, "until": "2020-01-01T00:00:00Z", "note": "x" });
    let refused = api.call("POST", overrides, &past, 422);
    assert!(refused.to_string().contains("must be in the future"), "{refused}");
    let misspelt = json!({ "domain": "shop", "match": { "usr": "ann" }, "block": true, "for_s": 60, "note": "x" });
    let refused = api.call("POST", overrides, &misspelt, 400);
    assert!(refused.to_string().contains("has the key `usr`"), "{refused}");
    let lift = json!({ "domain": "shop", "match": { "user": "ann" }, "note": "a mistake" });
    api.call("POST", &format!("{overrides}/lift"), &lift, 200);
    api.call("POST", &format!("{overrides}/lift"), &lift, 400);
}

/// Reads the head of the stream and its first event.
fn events_are_a_stream(api: &Api) {
    let mut stream = TcpStream::connect(&api.service.admin).unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        api.service.admin,
        secret("reader")
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4_096]);
    while !text.contains("event: tick") {
        let length = stream.read(&mut bytes).unwrap();
        assert_ne!(length, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    assert!(text.to_lowercase().contains("content-type: text/event-stream\r\n"), "{text}");
    api.validate("get", "/api/v1/events", &Answer { status: 200, headers, body: String::new() });
    api.answered.borrow_mut().insert(("get".to_owned(), "/api/v1/events".to_owned()));
}

#[test]
fn approvals_and_refusals_match_their_schemas() {
    let api = Api::start(&["--rules-approval"]);
    let proposal =
        json!({ "files": files(&RULES.replace("3/year", "2/year")), "base": 1, "note": "half" });
    let revisions = "/api/v1/rules/revisions";
    let body = api.call("POST", revisions, &proposal, 201);
    assert_eq!(body["revision"]["state"], "pending", "{body}");
    let approve = format!("{revisions}/2/approve");
    api.call("POST", &approve, &Value::Null, 409);
    let answer = api.send(Some("second"), "POST", &approve, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    api.validate("POST", &format!("{revisions}/{{number}}/approve"), &answer);

    let api = Api::start(&["--rules-read-only"]);
    assert_eq!(
        api.get("/api/v1/rules")["read_only"]["code"].as_str().map(str::is_empty),
        Some(false)
    );
    let refused = api.call("POST", revisions, &proposal, 403);
    assert_eq!(refused["error"]["code"], "read_only", "{refused}");
}

#[test]
fn errors_of_the_router_are_json_too() {
    let api = Api::start(&[]);
    for (method, path, status, code) in [
        ("DELETE", "/api/v1/keys/reset", 405, "method_not_allowed"),
        ("POST", "/api/v1/usage", 405, "method_not_allowed"),
        ("PUT", "/api/v1/audit", 405, "method_not_allowed"),
        ("GET", "/api/v1/rules/revisions/two", 400, "bad_request"),
        ("GET", "/api/v1/nothing", 404, "not_found"),
    ] {
        let answer = api.send(Some("editor"), method, path, "");
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["error"]["code"], code, "{answer:?}");
    }
    let log_in = |token: &str| {
        let body = format!("token={token}");
        let address = &api.service.admin;
        let request = format!(
            "POST /console/login HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        asked_on(TcpStream::connect(address).unwrap(), request.as_bytes()).status
    };
    assert_eq!((log_in("wrong"), log_in(&secret("reader").replace(' ', "+"))), (401, 303));
    let metrics = api.send(Some("reader"), "GET", "/metrics", "").body;
    assert!(metrics.contains("\nsluicegate_admin_sessions 1\n"), "{metrics}");
    let failures = "\nsluicegate_auth_failures_total{endpoint=\"admin\"} 1\n";
    assert!(metrics.contains(failures), "{metrics}");
}
