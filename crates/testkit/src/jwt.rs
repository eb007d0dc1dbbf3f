//! Signed tokens of every algorithm, made by ring.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

/// Algorithms of tokens (RFC 7518, RFC 8037).
pub const ALGORITHMS: [&str; 12] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256",
    "HS384", "HS512",
];

/// A key that signs tokens.
pub struct SigningKey {
    algorithm: &'static str,
    key: Key,
}

enum Key {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
    Secret(hmac::Algorithm, Vec<u8>),
}

/// Bytes in the alphabet of tokens.
pub fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl SigningKey {
    /// A key for an algorithm: RSA and HMAC keys are always the same, others are new.
    pub fn new(algorithm: &'static str) -> Self {
        let rsa = |padding| {
            let text = include_str!("rsa_private_key.b64").replace('\n', "");
            let bytes = STANDARD.decode(text).expect("base64");
            Key::Rsa(RsaKeyPair::from_pkcs8(&bytes).expect("a key"), padding)
        };
        let ec = |algorithm: &'static EcdsaSigningAlgorithm, curve| {
            let random = SystemRandom::new();
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
            let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key");
            Key::Ec(key, curve)
        };
        let key = match algorithm {
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            "ES256" => ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            "ES384" => ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            "EdDSA" => {
                let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
                Key::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key"))
            }
            "HS256" => Key::Secret(hmac::HMAC_SHA256, vec![7; 32]),
            "HS384" => Key::Secret(hmac::HMAC_SHA384, vec![7; 48]),
            "HS512" => Key::Secret(hmac::HMAC_SHA512, vec![7; 64]),
            other => panic!("no such algorithm: {other}"),
        };
        Self { algorithm, key }
    }

    /// A shared secret for HS256.
    pub fn secret(bytes: Vec<u8>) -> Self {
        Self { algorithm: "HS256", key: Key::Secret(hmac::HMAC_SHA256, bytes) }
    }

    /// The key that verifies, as an item of a JWKS.
    pub fn jwk(&self) -> Value {
        match &self.key {
            Key::Rsa(key, _) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({ "kty": "RSA", "n": encoded(n), "e": encoded(e) })
            }
            Key::Ec(key, curve) => {
                let point = key.public_key().as_ref().get(1..).expect("an uncompressed point");
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y) })
            }
            Key::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key()) })
            }
            Key::Secret(_, secret) => json!({ "kty": "oct", "k": encoded(secret) }),
        }
    }

    /// The public key in DER; empty for a secret.
    pub fn public_der(&self) -> Vec<u8> {
        match &self.key {
            Key::Rsa(key, _) => key.public().as_ref().to_vec(),
            Key::Ec(key, _) => key.public_key().as_ref().to_vec(),
            Key::Ed(key) => key.public_key().as_ref().to_vec(),
            Key::Secret(..) => Vec::new(),
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(key, padding) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*padding, &random, message, &mut signature).expect("a signature");
                signature
            }
            Key::Ec(key, _) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Key::Ed(key) => key.sign(message).as_ref().to_vec(),
            Key::Secret(algorithm, secret) => {
                hmac::sign(&hmac::Key::new(*algorithm, secret), message).as_ref().to_vec()
            }
        }
    }

    /// A signed token with this header.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = encoded(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    /// A signed token whose header names the algorithm.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.algorithm }), claims)
    }
}
