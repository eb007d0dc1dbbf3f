//! The keys of tokens, read from a JSON Web Key Set (RFC 7517).

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};

/// Maximum number of keys of a set; a token without a key id is tried with each.
const KEYS_MAX: usize = 64;
/// Bytes of the shortest shared secret: those of SHA-256 (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Keys that verify tokens.
#[derive(Debug)]
pub(super) struct KeySet {
    keys: Vec<VerificationKey>,
    /// Of the text that they were read from.
    pub(super) digest: [u8; 32],
}

/// A key, with the algorithms that it is for.
#[derive(Debug)]
pub(super) struct VerificationKey {
    id: Option<Box<str>>,
    pub(super) key: DecodingKey,
    /// Never mixed: a public key is no shared secret.
    pub(super) algorithms: Vec<Algorithm>,
}

impl KeySet {
    /// Reads a JWKS. `accepted` restricts the algorithms; all if there are none.
    pub(super) fn read(text: &str, accepted: &[Algorithm]) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_str(text).map_err(|error| {
            format!("must be a JSON Web Key Set such as `{{\"keys\": […]}}`: {error}")
        })?;
        if set.keys.len() > KEYS_MAX {
            let count = set.keys.len();
            return Err(format!("must have at most {KEYS_MAX} keys, got {count}; remove old ones"));
        }
        let mut keys = Vec::with_capacity(set.keys.len());
        for (index, jwk) in set.keys.iter().enumerate() {
            let signs = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
            let mut algorithms = if signs { algorithms_of(jwk) } else { Vec::new() };
            if !accepted.is_empty() {
                algorithms.retain(|algorithm| accepted.contains(algorithm));
            }
            if algorithms.is_empty() {
                // Sets have keys for other purposes too.
                continue;
            }
            let key = DecodingKey::from_jwk(jwk)
                .map_err(|error| format!("keys[{index}] is malformed: {error}"))?;
            check(jwk, &key).map_err(|message| format!("keys[{index}]: {message}"))?;
            let id = jwk.common.key_id.as_deref().map(Box::from);
            keys.push(VerificationKey { id, key, algorithms });
        }
        if keys.is_empty() {
            return Err(
                "has no key for the accepted algorithms, so no token is valid; add one, or \
                        check `algorithms`"
                    .to_owned(),
            );
        }
        Ok(Self { keys, digest: super::hash(text) })
    }

    /// The keys that a token may be signed with.
    pub(super) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &VerificationKey> {
        let fits = move |key: &&VerificationKey| match (id, key.id.as_deref()) {
            (Some(id), Some(own)) => id == own,
            _ => true,
        };
        self.keys.iter().filter(fits).filter(move |key| key.algorithms.contains(&algorithm))
    }

    /// Whether a key has this id, or may have it.
    pub(super) fn knows(&self, id: Option<&str>) -> bool {
        let Some(id) = id else { return true };
        self.keys.iter().any(|key| key.id.as_deref().is_none_or(|own| own == id))
    }
}

/// The algorithms of a key: the one that it names, otherwise all of its type.
fn algorithms_of(jwk: &Jwk) -> Vec<Algorithm> {
    let by_type: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
            _ => &[],
        },
        AlgorithmParameters::OctetKey(_) => &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512],
        _ => &[],
    };
    let named = jwk.common.key_algorithm.map(signature_algorithm);
    let fits = |algorithm: &&Algorithm| named.is_none_or(|named| named == Some(**algorithm));
    by_type.iter().filter(fits).copied().collect()
}

fn signature_algorithm(algorithm: KeyAlgorithm) -> Option<Algorithm> {
    algorithm.to_string().parse().ok()
}

/// Refuses secrets that can be guessed.
fn check(jwk: &Jwk, key: &DecodingKey) -> Result<(), String> {
    if !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
        return Ok(());
    }
    let bytes = key.try_get_as_bytes().map_or(0, <[u8]>::len);
    if bytes >= SECRET_BYTES_MIN {
        return Ok(());
    }
    Err(format!(
        "a shared secret must have at least {SECRET_BYTES_MIN} bytes, got {bytes}; make one with \
         `openssl rand 32`"
    ))
}
