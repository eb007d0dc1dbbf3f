//! What the document promises is kept by the service.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::collections::BTreeSet;

use boon::{Compiler, Schemas};
use http::{Method, Request, StatusCode};
use http_support::{Told, engine_of, send};
use serde_json::Value;
use sluicegate_server::EXAMPLE_RULES;
use sluicegate_server::app::App;
use sluicegate_server::http::{KeysAccess, Options, Peer, openapi, router};

fn example_app() -> axum::Router {
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    router(App::new(engine_of(EXAMPLE_RULES).0), options)
}

/// A method, its path, and the body of its example.
fn operations(document: &Value) -> Vec<(Method, String, Option<Value>)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = operation.pointer("/requestBody/content/application~1json");
            let example = body.map(|body| {
                assert!(!body["example"].is_null(), "{path} has no example");
                body["example"].clone()
            });
            let method = method.to_uppercase().parse().unwrap();
            operations.push((method, path.clone(), example));
        }
    }
    operations
}

async fn ask(app: &axum::Router, method: &Method, path: &str, body: Option<&Value>) -> Told {
    let body = body.map_or_else(String::new, Value::to_string);
    let mut request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
    // As of a proxy on this machine.
    request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
    send(app, request).await
}

/// Whether an answer is as the document says, under its status.
fn fits(document: &Value, method: &Method, path: &str, told: &Told) {
    let method = method.as_str().to_lowercase();
    let escaped = path.replace('/', "~1");
    let at = format!("/paths/{escaped}/{method}/responses/{}", told.status.as_u16());
    let response = document.pointer(&at).unwrap_or_else(|| panic!("{at} is not described"));
    let Some(content) = response["content"].as_object() else { return };
    let (kind, _) = content.iter().next().unwrap();
    let sent = told.headers["content-type"].to_str().unwrap();
    assert!(sent.starts_with(kind.as_str()), "{at}: {kind} is described, {sent} is sent");
    if kind != "application/json" {
        return;
    }
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    compiler.add_resource("https://sluicegate.test/openapi.json", document.clone()).unwrap();
    let place =
        format!("https://sluicegate.test/openapi.json#{at}/content/application~1json/schema");
    let schema = compiler.compile(&place, &mut schemas).unwrap();
    let answer = told.json();
    if let Err(error) = schemas.validate(&answer, schema) {
        panic!("{path}: {answer:#} does not fit: {error:#}");
    }
}

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let document: Value = serde_json::from_str(openapi()).unwrap();
    let app = example_app();
    let described: BTreeSet<String> =
        operations(&document).into_iter().map(|(_, path, _)| path).collect();
    // The hint of a path that is not there lists all that are.
    let hint = ask(&app, &Method::GET, "/nowhere", None).await.json();
    let hint = hint["error"]["message"].as_str().unwrap().to_owned();
    let (_, routes) = hint.split_once("there are ").unwrap();
    let routes: BTreeSet<String> = routes.split(", ").map(str::to_owned).collect();
    assert_eq!(described, routes);
    for path in routes {
        let told = ask(&app, &Method::OPTIONS, &path, None).await;
        assert_ne!(told.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn examples_work_and_answers_fit() {
    let document: Value = serde_json::from_str(openapi()).unwrap();
    let operations = operations(&document);
    assert!(operations.len() >= 8);
    for (method, path, body) in &operations {
        let app = example_app();
        let mut body = body.clone();
        if let Some(name) = body.as_mut().and_then(|body| body.get_mut("reservation")) {
            // It is the name of one that is not there: this is one that is.
            let reserve = operations.iter().find(|(_, path, _)| path == "/v1/reserve").unwrap();
            let reserved = ask(&app, &reserve.0, "/v1/reserve", reserve.2.as_ref()).await;
            *name = reserved.json()["reservation"].clone();
        }
        let told = ask(&app, method, path, body.as_ref()).await;
        assert_eq!(told.status, StatusCode::OK, "{path}: {}", told.text);
        fits(&document, method, path, &told);
        if let Some(body) = body.as_ref().filter(|_| path.starts_with("/v1/")) {
            let many = serde_json::json!({ "checks": [body, body] });
            let told = ask(&app, method, path, Some(&many)).await;
            let one_by_one = ["/v1/reserve", "/v1/commit", "/v1/cancel", "/v1/renew", "/v1/wait"];
            let one_only = one_by_one.contains(&path.as_str());
            let due = if one_only { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            assert_eq!(told.status, due);
            fits(&document, method, path, &told);
            let told = ask(&app, method, path, Some(&Value::Null)).await;
            assert_eq!(told.status, StatusCode::BAD_REQUEST);
            fits(&document, method, path, &told);
        }
    }
}

#[tokio::test]
async fn pasting_the_example_a_few_times_is_denied() {
    let document: Value = serde_json::from_str(openapi()).unwrap();
    for path in ["/v1/check", "/json"] {
        let app = example_app();
        let all = operations(&document);
        let (method, _, body) = all.iter().find(|(_, known, _)| known == path).unwrap();
        let mut statuses = Vec::new();
        for _ in 0..4 {
            let told = ask(&app, method, path, body.as_ref()).await;
            statuses.push(told.status.as_u16());
            fits(&document, method, path, &told);
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{path}");
    }
}

#[test]
fn the_document_names_servers_and_the_operator_token() {
    let document: Value = serde_json::from_str(openapi()).unwrap();
    assert_eq!(document["servers"][0]["url"], "/");
    let scheme = &document["components"]["securitySchemes"]["operator_token"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&"http".into(), &"bearer".into()));
    for path in ["/v1/keys/inspect", "/v1/keys/reset", "/v1/explain"] {
        let security = &document["paths"][path]["post"]["security"];
        assert_eq!(*security, serde_json::json!([{ "operator_token": [] }]), "{path}");
    }
    let refund = &document["paths"]["/v1/refund"]["post"]["security"];
    assert_eq!(*refund, serde_json::json!([{}, { "operator_token": [] }]), "or with proof");
    assert_eq!(document["paths"]["/v1/check"]["post"].get("security"), None);
}
