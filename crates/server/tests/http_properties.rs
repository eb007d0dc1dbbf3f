//! Whatever is sent, it is answered: with 200, 429 or a 4xx that says why.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use http_support::{app, post};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sluicegate_server::http::{KeysAccess, Options};

const ROUTES: [&str; 6] =
    ["/v1/check", "/v1/peek", "/v1/refund", "/v1/keys/inspect", "/v1/keys/reset", "/json"];

fn answered(path: &str, body: Vec<u8>) -> u16 {
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    let (app, ..) = app(options);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told = runtime.block_on(post(&app, path, body));
    if path != "/json" {
        let told = told.json();
        let is_answer = told.get("allowed").or(told.get("answers")).or(told.get("keys")).is_some();
        assert!(is_answer || told["error"]["message"].is_string(), "{told}");
    }
    told.status.as_u16()
}

/// JSON that is more or less a request.
fn nearly() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("shop".to_owned()),
        Just("user".to_owned()),
        Just("minute".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("domain"),
        Just("descriptors"),
        Just("hits"),
        Just("checks"),
        Just("entries"),
        Just("key"),
        Just("value"),
        Just("limit"),
        Just("unit"),
        Just("requests_per_unit"),
        Just("user"),
        Just("team"),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn bytes(body in prop::collection::vec(any::<u8>(), 0..200), route in 0..ROUTES.len()) {
        prop_assert!(answered(ROUTES[route], body) < 500);
    }

    #[test]
    fn json(body in nearly(), route in 0..ROUTES.len()) {
        prop_assert!(answered(ROUTES[route], body.to_string().into_bytes()) < 500);
    }

    #[test]
    fn requests(
        values in prop::collection::vec((prop::sample::select(vec!["user", "team", "soft", "free", "x"]), ".{0,8}"), 1..6),
        hits in any::<u64>(),
        route in 0..5usize,
    ) {
        let descriptors: Vec<Value> = values.iter().map(|(key, value)| json!({ *key: value })).collect();
        let body = json!({ "domain": "shop", "descriptors": descriptors, "hits": hits });
        let status = answered(ROUTES[route], body.to_string().into_bytes());
        prop_assert!(status == 200 || (status == 429 && route == 0), "{}", status);
    }
}
