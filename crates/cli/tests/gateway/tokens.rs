//! Tokens: each algorithm, tokens that must be refused, and keys that change or cannot be had.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluicegate_testkit::jwt::{ALGORITHMS, SigningKey, encoded};

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::{Answer, get};
use crate::support::upstream::Upstream;

const RULES: &str = "domain: api\ndescriptors:\n  - key: user\n    limits: { algorithm: fixed_window, rate: 1/year }\n    descriptors:\n      - { key: path, limits: { algorithm: fixed_window, rate: 2/year } }\n";

/// A gateway that admits one request of each user below `/`, and two to each template below
/// `/each`.
fn start(folder: &Folder, jwks: &str, options: &str) -> Gateway {
    folder.file("rules.yaml", RULES);
    let ok = "respond: { status: 200 }";
    let text = format!(
        "rules: rules.yaml
identity: {{ jwt: {{ jwks: \"{jwks}\", issuer: https://id.example, audience: api{options} }} }}
routes:
  - {{ path: /*, {ok}, require: jwt, limit: {{ domain: api, descriptors: [{{ user: jwt sub }}] }} }}
  - {{ path: \"/each/{{id}}\", {ok}, limit: {{ domain: api, descriptors: [{{ user: jwt sub, path: path_template }}] }} }}
  - {{ path: /other, {ok}, limit: {{ domain: api, descriptors: [{{ user: jwt sub, path: path_template }}] }} }}
"
    );
    Gateway::start(&["--config", &folder.file("gateway.yaml", &text)])
}

fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn with_id(mut jwk: Value, id: &str) -> Value {
    jwk["kid"] = json!(id);
    jwk
}

#[expect(clippy::disallowed_methods, reason = "tokens expire by the clock of the system")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(user: &str) -> Value {
    json!({ "sub": user, "exp": now() + 600, "iss": "https://id.example", "aud": "api" })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn token(key: &SigningKey, algorithm: &str, id: &str, user: &str) -> String {
    key.token_with(&json!({ "alg": algorithm, "kid": id }), &claims(user))
}

fn send(gateway: &Gateway, path: &str, token: &str) -> Answer {
    let value = format!("Bearer {token}");
    get(&gateway.address, path, &[("authorization", value.as_bytes())])
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    send(gateway, "/", token).status
}

#[test]
fn a_valid_token_of_each_algorithm_is_limited_by_its_claim() {
    let folder = Folder::new();
    let keys = ALGORITHMS.map(|algorithm| (algorithm, SigningKey::new(algorithm)));
    let set = keys.each_ref().map(|(id, key)| with_id(key.jwk(), id));
    folder.file("jwks.json", &jwks(&set));
    let gateway = start(&folder, "jwks.json", "");
    for (algorithm, key) in &keys {
        let valid = token(key, algorithm, algorithm, algorithm);
        let statuses = [(); 2].map(|()| status(&gateway, &valid));
        assert_eq!(statuses, [200, 429], "{algorithm}");
        // The claims of one token with the signature of another.
        let [head, _, signature] = valid.split('.').collect::<Vec<_>>()[..] else { panic!() };
        let forged = format!("{head}.{}.{signature}", encoded(claims("other").to_string()));
        assert_eq!(status(&gateway, &forged), 401, "{algorithm}");
    }
    assert_eq!(gateway.metric("sluicegate_gateway_tokens_refused_total").unwrap(), "12");
}

#[test]
fn tokens_that_prove_nothing_are_refused() {
    let (folder, key) = (Folder::new(), SigningKey::new("RS256"));
    folder.file("jwks.json", &jwks(&[key.jwk()]));
    let gateway = start(&folder, "jwks.json", "");
    let challenge = |token: &str| {
        let answer = send(&gateway, "/", token);
        assert_eq!(answer.status, 401, "{token}");
        answer.header("www-authenticate").unwrap().to_owned()
    };
    let unsigned = |algorithm: &str| {
        let header = json!({ "alg": algorithm }).to_string();
        format!("{}.{}.", encoded(header), encoded(claims("a").to_string()))
    };
    let invalid = "Bearer error=\"invalid_token\"";
    for text in [unsigned("none"), unsigned("None"), unsigned("RS256"), "x".to_owned()] {
        assert_eq!(challenge(&text), invalid);
    }
    // The public key as a shared secret.
    for secret in [key.public_der(), key.jwk().to_string().into_bytes()] {
        assert_eq!(challenge(&SigningKey::secret(secret).token(&claims("a"))), invalid);
    }
    for (name, value) in [
        ("aud", json!("other")),
        ("aud", Value::Null),
        ("iss", json!("https://other.example")),
        ("nbf", json!(now() + 600)),
        ("exp", Value::Null),
    ] {
        assert_eq!(challenge(&key.token(&with(claims("a"), name, value))), invalid, "{name}");
    }
    let expired = challenge(&key.token(&with(claims("a"), "exp", json!(now() - 120))));
    assert!(expired.ends_with("error_description=\"The token has expired\""), "{expired}");
    let none = gateway.get("/");
    assert_eq!((none.status, none.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(status(&gateway, &key.token(&claims("a"))), 200, "none of them was charged");
}

#[test]
fn a_limit_by_a_claim_cannot_be_evaded_without_a_token() {
    let (folder, key) = (Folder::new(), SigningKey::new("ES256"));
    folder.file("jwks.json", &jwks(&[key.jwk()]));
    let gateway = start(&folder, "jwks.json", "");
    // The route has no `require`.
    assert_eq!(gateway.get("/each/1").status, 401);
    assert_eq!(send(&gateway, "/each/1", "x").status, 401);
    let without_claim = key.token(&with(claims("a"), "sub", Value::Null));
    let answer = send(&gateway, "/each/1", &without_claim);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("\"identity_missing\""), "{}", answer.body);
    // Claim and template together: two for each user and template.
    let statuses = |user: &str, paths: [&str; 4]| {
        let token = key.token(&claims(user));
        paths.map(|path| send(&gateway, path, &token).status)
    };
    assert_eq!(statuses("a", ["/each/1", "/each/2", "/each/3", "/other"]), [200, 200, 429, 200]);
    assert_eq!(statuses("b", ["/each/1", "/other", "/other", "/other"]), [200, 200, 200, 429]);
}

#[test]
fn a_cookie_can_carry_the_token() {
    let (folder, key) = (Folder::new(), SigningKey::new("EdDSA"));
    folder.file("jwks.json", &jwks(&[key.jwk()]));
    let gateway = start(&folder, "jwks.json", ", cookie: session");
    let cookie = format!("a=b; session={}", key.token(&claims("a")));
    let status = |name: &str| get(&gateway.address, "/", &[(name, cookie.as_bytes())]).status;
    assert_eq!((status("cookie"), status("x-cookie")), (200, 401));
}

#[test]
fn a_changed_key_file_is_loaded_and_an_invalid_one_is_not() {
    let (folder, old, new) = (Folder::new(), SigningKey::new("ES256"), SigningKey::new("ES256"));
    folder.file("jwks.json", &jwks(&[old.jwk()]));
    let mut gateway = start(&folder, "jwks.json", "");
    let cached = old.token(&claims("a"));
    assert_eq!(send(&gateway, "/each/1", &cached).status, 200);
    folder.file("jwks.json", "{}");
    gateway.process.says("JWKS not loaded; the last good one stays in force");
    assert_eq!(status(&gateway, &old.token(&claims("b"))), 200);
    folder.file("jwks.json", &jwks(&[new.jwk()]));
    gateway.process.says("JWKS reloaded");
    assert_eq!(send(&gateway, "/each/1", &cached).status, 401, "also one that was verified before");
    assert_eq!(status(&gateway, &new.token(&claims("c"))), 200);
}

/// An issuer, and the keys that it publishes.
fn issuer(keys: &[Value]) -> (Upstream, Arc<Mutex<String>>) {
    let published = Arc::new(Mutex::new(jwks(keys)));
    let shared = Arc::clone(&published);
    let server = Upstream::answering(move |_| {
        let body = shared.lock().unwrap().clone();
        async { body }
    });
    (server, published)
}

#[test]
fn keys_of_a_url_rotate_with_the_first_token_of_a_new_key() {
    let (folder, old, new) = (Folder::new(), SigningKey::new("ES256"), SigningKey::new("RS256"));
    let (issuer, published) = issuer(&[with_id(old.jwk(), "1")]);
    let mut gateway = start(&folder, &format!("http://{}/jwks", issuer.address), "");
    gateway.process.has_said("JWKS loaded");
    assert_eq!(status(&gateway, &token(&old, "ES256", "1", "a")), 200);
    assert_eq!(issuer.reached(), 1, "the keys are cached");
    *published.lock().unwrap() = jwks(&[with_id(new.jwk(), "2")]);
    assert_eq!(status(&gateway, &token(&new, "RS256", "2", "b")), 200);
    assert_eq!(status(&gateway, &token(&old, "ES256", "1", "c")), 401, "a withdrawn key");
    // Invented key ids do not flood the issuer.
    for id in 0..20 {
        assert_eq!(status(&gateway, &token(&new, "RS256", &format!("x{id}"), "d")), 401);
    }
    assert_eq!(issuer.reached(), 2);
}

#[test]
fn the_last_keys_stay_while_their_url_is_away() {
    let (folder, key) = (Folder::new(), SigningKey::new("ES384"));
    let (issuer, _) = issuer(&[with_id(key.jwk(), "1")]);
    let mut gateway = start(&folder, &format!("http://{}/jwks", issuer.address), "");
    gateway.process.has_said("JWKS loaded");
    drop(issuer);
    assert_eq!(status(&gateway, &token(&key, "ES384", "2", "a")), 401, "an unknown key id");
    gateway.process.has_said("JWKS not loaded; the last keys stay in force");
    assert_eq!(status(&gateway, &token(&key, "ES384", "1", "a")), 200);
}

#[test]
fn tokens_are_unavailable_and_not_refused_before_the_first_keys() {
    let (folder, key) = (Folder::new(), SigningKey::new("ES256"));
    let mut gateway = start(&folder, "http://127.0.0.1:1/jwks", "");
    gateway.process.has_said("JWKS not loaded");
    for path in ["/", "/each/1"] {
        let answer = send(&gateway, path, &key.token(&claims("a")));
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert!(answer.body.contains("\"keys_unavailable\""), "{}", answer.body);
        assert_eq!(gateway.get(path).status, 401, "without a token");
    }
}

#[test]
fn a_claim_balances_without_being_required() {
    let (folder, key) = (Folder::new(), SigningKey::new("HS256"));
    folder.file("jwks.json", &jwks(&[key.jwk()]));
    let servers =
        ["0", "1", "2", "3"].map(|name| Upstream::answering(move |_| async move { name }));
    let urls = servers.each_ref().map(|server| format!("http://{}", server.address)).join(", ");
    let text = format!(
        "identity: {{ jwt: {{ jwks: jwks.json, audience: api }} }}
upstreams: {{ app: {{ servers: [{urls}], balance: {{ hash: jwt sub }} }} }}
routes: [{{ path: /*, upstream: app }}]\n"
    );
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &text)]);
    let mut used = std::collections::BTreeSet::new();
    for user in 0..16 {
        let token = key.token(&claims(&user.to_string()));
        let bodies = [(); 6].map(|()| send(&gateway, "/", &token).body);
        assert!(bodies.iter().all(|body| *body == bodies[0]), "user {user}: {bodies:?}");
        used.insert(bodies[0].clone());
    }
    assert!(used.len() > 1, "16 users at {used:?}");
    assert_eq!(gateway.get("/").status, 200, "without a token: round robin");
}
