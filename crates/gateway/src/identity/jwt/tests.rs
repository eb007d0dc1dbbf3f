//! Tokens of every algorithm, made by ring, and tokens that must be refused.

use std::fs;
use std::path::PathBuf;

use http::HeaderValue;
use proptest::prelude::*;
use serde_json::json;
use sluicegate_testkit::jwt::{ALGORITHMS, SigningKey, encoded};

use super::*;

/// A file that ends with this value.
struct JwksFile(PathBuf);

impl JwksFile {
    fn new(keys: &[Value]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("sluicegate-jwks-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let file = Self(std::env::temp_dir().join(name));
        fs::write(&file.0, json!({ "keys": keys }).to_string()).unwrap();
        file
    }
}

impl Drop for JwksFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn config(file: &JwksFile) -> JwtConfig {
    JwtConfig {
        jwks: JwksSource::File(file.0.clone()),
        issuer: Some("https://id.example.com".to_owned()),
        audience: vec!["api".to_owned(), "web".to_owned()],
        algorithms: Vec::new(),
        leeway: Duration::from_secs(60),
        cookie: None,
    }
}

fn verifier_of(config: &JwtConfig) -> Result<JwtVerifier, IdentityError> {
    let claims = vec!["sub".into(), "realm.plan".into()];
    JwtVerifier::new(config, claims, 1, None, &mut FollowedFiles::default())
}

fn verifier(keys: &[Value]) -> JwtVerifier {
    verifier_of(&config(&JwksFile::new(keys))).unwrap()
}

fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    [(AUTHORIZATION, value)].into_iter().collect()
}

fn verify(verifier: &JwtVerifier, token: &str) -> Result<Arc<Token>, TokenError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(verifier.verify(0, &bearer(token)))
}

fn valid_claims() -> Value {
    json!({
        "sub": "42", "realm": { "plan": "pro" }, "exp": now() + 600, "nbf": now() - 10,
        "iss": "https://id.example.com", "aud": ["api", "other"],
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

#[test]
fn a_valid_token_of_each_algorithm_is_accepted() {
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm);
        let verifier = verifier(&[key.jwk()]);
        let token = key.token(&valid_claims());
        let verified = verify(&verifier, &token).unwrap_or_else(|e| panic!("{algorithm}: {e:?}"));
        assert_eq!(verifier.claim(&verified, "sub"), Some("42"));
        assert_eq!(verifier.claim(&verified, "realm.plan"), Some("pro"));
        assert_eq!(verifier.claim(&verified, "other"), None);
        let again = verify(&verifier, &token).unwrap();
        assert!(Arc::ptr_eq(&verified, &again), "{algorithm}: it is cached");
    }
}

#[test]
fn a_changed_token_of_each_algorithm_is_refused() {
    for algorithm in ALGORITHMS {
        let key = SigningKey::new(algorithm);
        let verifier = verifier(&[key.jwk()]);
        let token = key.token(&valid_claims());
        let [header, _, signature]: [&str; 3] =
            token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let claims = encoded(with(valid_claims(), "sub", json!("43")).to_string());
        let forged = format!("{header}.{claims}.{signature}");
        assert_eq!(verify(&verifier, &forged).unwrap_err(), TokenError::Invalid, "{algorithm}");
    }
}

#[test]
fn claims_are_verified() {
    let key = SigningKey::new("ES256");
    let verifier = verifier(&[key.jwk()]);
    let refused = |claims: Value| verify(&verifier, &key.token(&claims)).unwrap_err();
    let claims = valid_claims();
    assert_eq!(refused(with(claims.clone(), "exp", json!(now() - 61))), TokenError::Expired);
    for (name, value) in [
        ("exp", Value::Null),
        ("exp", json!("soon")),
        ("nbf", json!(now() + 120)),
        ("iss", json!("https://evil.example.com")),
        ("iss", Value::Null),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", Value::Null),
    ] {
        let claims = with(claims.clone(), name, value.clone());
        assert_eq!(refused(claims), TokenError::Invalid, "{name}: {value}");
    }
    let late = key.token(&with(claims, "exp", json!(now() - 30)));
    assert!(verify(&verifier, &late).is_ok(), "within the leeway");
}

#[test]
fn the_token_does_not_choose_its_algorithm() {
    let rsa = SigningKey::new("RS256");
    let verifier = verifier(&[rsa.jwk()]);
    let claims = valid_claims();
    let message =
        |header: Value| format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    // Without a signature.
    for name in ["none", "None", "NONE", ""] {
        let unsigned = message(json!({ "alg": name }));
        for signature in ["", "AAAA"] {
            let token = format!("{unsigned}.{signature}");
            assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid, "{name}");
        }
    }
    // With the public key as the secret of an HMAC.
    for secret in [rsa.public_der(), rsa.jwk().to_string().into_bytes()] {
        let key = SigningKey::secret(secret);
        let token = key.token(&claims);
        assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid);
    }
    // With a key that the token brings.
    let own = SigningKey::new("ES256");
    let token = own.token_with(&json!({ "alg": "ES256", "jwk": own.jwk() }), &claims);
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid);
    // An extension that is not understood.
    let token = rsa.token_with(&json!({ "alg": "RS256", "crit": ["b64"], "b64": false }), &claims);
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid);
}

#[test]
fn keys_and_configuration_restrict_algorithms() {
    let key = SigningKey::new("PS256");
    let token = key.token(&valid_claims());
    assert!(verify(&verifier(&[key.jwk()]), &token).is_ok());
    let named = verifier(&[with(key.jwk(), "alg", json!("RS256"))]);
    assert_eq!(verify(&named, &token).unwrap_err(), TokenError::Invalid);
    let file = JwksFile::new(&[key.jwk()]);
    let mut config = config(&file);
    config.algorithms = vec!["RS256".to_owned()];
    let restricted = verifier_of(&config).unwrap();
    assert_eq!(verify(&restricted, &token).unwrap_err(), TokenError::Invalid);
    config.algorithms = vec!["ES256".to_owned()];
    let error = verifier_of(&config).unwrap_err().to_string();
    assert!(error.contains("has no key for the accepted algorithms"), "{error}");
    let encryption = JwksFile::new(&[with(key.jwk(), "use", json!("enc"))]);
    config.jwks = JwksSource::File(encryption.0.clone());
    config.algorithms.clear();
    assert!(verifier_of(&config).is_err(), "a key for encryption signs nothing");
}

#[test]
fn the_key_id_chooses_the_key() {
    let (one, other) = (SigningKey::new("ES256"), SigningKey::new("ES256"));
    let named = |key: &SigningKey, id: &str| with(key.jwk(), "kid", json!(id));
    let verifier = verifier(&[named(&one, "one"), named(&other, "other")]);
    let claims = valid_claims();
    let token =
        |key: &SigningKey, id: &str| key.token_with(&json!({ "alg": "ES256", "kid": id }), &claims);
    assert!(verify(&verifier, &token(&one, "one")).is_ok());
    assert!(verify(&verifier, &token(&other, "other")).is_ok());
    assert_eq!(verify(&verifier, &token(&one, "other")).unwrap_err(), TokenError::Invalid);
    assert_eq!(verify(&verifier, &token(&one, "third")).unwrap_err(), TokenError::Invalid);
    assert!(verify(&verifier, &other.token(&claims)).is_ok());
}

#[test]
fn removed_keys_verify_nothing_that_they_verified_before() {
    let (old, new) = (SigningKey::new("ES256"), SigningKey::new("ES256"));
    let verifier = verifier(&[old.jwk()]);
    let token = old.token(&valid_claims());
    assert!(verify(&verifier, &token).is_ok());
    let set = json!({ "keys": [new.jwk()] }).to_string();
    verifier.keys.replace(KeySet::read(&set, &[]).unwrap());
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid);
}

#[test]
fn tokens_are_where_the_configuration_says() {
    let key = SigningKey::new("HS256");
    let file = JwksFile::new(&[key.jwk()]);
    let mut config = config(&file);
    let token = key.token(&valid_claims());
    let verifier = verifier_of(&config).unwrap();
    let value = |text: String| HeaderValue::try_from(text).unwrap();
    let cookies: HeaderMap =
        [(COOKIE, value(format!("a=b; session={token}; c=d")))].into_iter().collect();
    assert_eq!(verifier.token_of(&cookies), None);
    let mut twice = bearer(&token);
    assert_eq!(verifier.token_of(&twice), Some(&*token));
    twice.append(AUTHORIZATION, value("Bearer x".to_owned()));
    assert_eq!(verifier.token_of(&twice), None);
    let basic: HeaderMap = [(AUTHORIZATION, value("Basic eA==".to_owned()))].into_iter().collect();
    assert_eq!(verifier.token_of(&basic), None);
    config.cookie = Some("session".to_owned());
    let verifier = verifier_of(&config).unwrap();
    assert_eq!(verifier.token_of(&cookies), Some(&*token));
    assert_eq!(verifier.token_of(&bearer(&token)), None);
    let twice = value(format!("session={token}; session=x"));
    assert_eq!(verifier.token_of(&[(COOKIE, twice)].into_iter().collect()), None);
}

#[test]
fn bad_key_sets_are_refused_with_a_reason() {
    for (text, expected) in [
        ("", "must be a JSON Web Key Set"),
        ("{}", "must be a JSON Web Key Set"),
        (r#"{"keys":[]}"#, "has no key"),
        (r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}"#, "at least 32 bytes, got 5"),
        (r#"{"keys":[{"kty":"RSA","n":"!","e":"AQAB"}]}"#, "keys[0] is malformed"),
        (r#"{"keys":[{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}]}"#, "has no key"),
        (r#"{"keys":[{"kty":"new","n":"x"}]}"#, "has no key"),
    ] {
        let error = KeySet::read(text, &[]).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many = json!({ "keys": vec![SigningKey::new("HS256").jwk(); 65] }).to_string();
    assert!(KeySet::read(&many, &[]).unwrap_err().contains("at most 64 keys"));
}

proptest! {
    #[test]
    fn no_text_is_a_valid_token_and_none_panics(text in "[ -~]{0,80}", parts in "[A-Za-z0-9_-]{0,40}(\\.[A-Za-z0-9_-]{0,40}){2}") {
        let verifier = verifier(&[SigningKey::new("HS256").jwk()]);
        prop_assert!(verify(&verifier, &text).is_err());
        prop_assert!(verify(&verifier, &parts).is_err());
        let header = encoded(json!({ "alg": "HS256" }).to_string());
        let token = format!("{header}.{parts}");
        prop_assert!(verify(&verifier, &token).is_err());
    }
}
