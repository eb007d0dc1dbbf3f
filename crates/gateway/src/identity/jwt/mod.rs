//! Verification of JSON Web Tokens (RFC 7519).
//!
//! A token is verified once by each worker: signature, `exp`, `nbf`, `iss`, `aud`. What limits need
//! of it is cached by its hash until it expires or the keys change. The key decides which
//! algorithms it is for, never the token: `none` does not exist, and a public key is never used as
//! a shared secret.

mod cache;
mod crypto;
mod keys;
mod remote;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use parking_lot::Mutex;
use ring::digest;
use serde_json::Value;
use sluicegate_config::gateway::{JwksSource, JwtConfig};

use self::cache::{TokenCache, TokenHash};
use self::keys::KeySet;
use self::remote::Remote;
use super::follow::{FollowedFiles, TaskGuard};
use super::{IdentityError, json};

/// Longest token that is verified.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Verified tokens that each worker remembers.
const CACHE_TOKENS: usize = 8_192;
/// Largest difference of clocks.
const LEEWAY_MAX: Duration = Duration::from_secs(3_600);

/// Verifies tokens.
#[derive(Debug)]
pub(crate) struct JwtVerifier {
    keys: Arc<Keys>,
    /// The URL of the keys, the algorithms that they are restricted to, and the task that keeps
    /// them fresh.
    remote: Option<(String, Vec<Algorithm>, Arc<TaskGuard>)>,
    /// The claims that routes use.
    claims: Box<[Box<str>]>,
    issuer: Option<String>,
    audience: Vec<String>,
    leeway: u64,
    cookie: Option<String>,
    /// By worker, so that no two threads share a lock.
    caches: Box<[Mutex<TokenCache>]>,
}

/// A verified token.
#[derive(Debug)]
pub(crate) struct Token {
    /// Seconds since 1970.
    expires_at: u64,
    /// In the order of the verifier's claims.
    claims: Box<[Option<Box<str>>]>,
}

/// Why a request has no verified token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It has no token.
    Missing,
    /// Its token has expired.
    Expired,
    /// Its token is not valid.
    Invalid,
    /// No keys were loaded yet.
    KeysUnavailable,
}

/// The keys in force.
#[derive(Debug, Default)]
pub(super) struct Keys {
    current: ArcSwapOption<Revision>,
    revisions: AtomicU64,
    remote: Option<Remote>,
}

#[derive(Debug)]
struct Revision {
    set: KeySet,
    number: u64,
}

impl Keys {
    fn replace(&self, set: KeySet) {
        // Tokens that the same keys verified stay verified.
        let current = self.current.load();
        if current.as_ref().is_some_and(|current| current.set.digest == set.digest) {
            return;
        }
        let number = self.revisions.fetch_add(1, Relaxed) + 1;
        self.current.store(Some(Arc::new(Revision { set, number })));
    }
}

impl JwtVerifier {
    /// Loads the keys. Those of a URL are loaded in the background.
    pub(super) fn new(
        config: &JwtConfig,
        claims: Vec<Box<str>>,
        workers: usize,
        previous: Option<&Self>,
        files: &mut FollowedFiles,
    ) -> Result<Self, IdentityError> {
        crypto::install();
        let accepted = algorithms(&config.algorithms)?;
        let (keys, remote) = match &config.jwks {
            JwksSource::File(path) => (file_keys(path, accepted, files)?, None),
            JwksSource::Url(url) => {
                let same = previous.and_then(|previous| {
                    let (known, algorithms, task) = previous.remote.as_ref()?;
                    let is_same = known == url && *algorithms == accepted;
                    is_same.then(|| (previous.keys.clone(), task.clone()))
                });
                let (keys, task) = match same {
                    Some(same) => same,
                    None => remote::start(url, accepted.clone())?,
                };
                (keys, Some((url.clone(), accepted, task)))
            }
        };
        Ok(Self {
            keys,
            remote,
            claims: claims.into(),
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            leeway: config.leeway.min(LEEWAY_MAX).as_secs(),
            cookie: config.cookie.clone(),
            caches: (0..workers.max(1))
                .map(|_| Mutex::new(TokenCache::new(CACHE_TOKENS)))
                .collect(),
        })
    }

    /// A claim of a token that this verified.
    pub(super) fn claim<'a>(&self, token: &'a Token, name: &str) -> Option<&'a str> {
        let index = self.claims.iter().position(|claim| **claim == *name)?;
        token.claims.get(index)?.as_deref()
    }

    /// Verifies the token of a request.
    pub(super) async fn verify(
        &self,
        worker: usize,
        headers: &HeaderMap,
    ) -> Result<Arc<Token>, TokenError> {
        let token = self.token_of(headers).ok_or(TokenError::Missing)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Invalid);
        }
        let revision = self.keys.current.load_full().ok_or(TokenError::KeysUnavailable)?;
        let hash = hash(token);
        let cache = self.caches.get(worker % self.caches.len());
        let cached = cache.and_then(|cache| cache.lock().get(&hash, revision.number, now()));
        if let Some(token) = cached {
            return Ok(token);
        }
        let header = decode_header(token).map_err(|_| TokenError::Invalid)?;
        let mut revision = revision;
        if let Some(remote) = &self.keys.remote
            && !revision.set.knows(header.kid.as_deref())
        {
            remote.refresh().await;
            revision = self.keys.current.load_full().ok_or(TokenError::KeysUnavailable)?;
        }
        let verified = Arc::new(self.verify_by(&revision.set, &header, token)?);
        if let Some(cache) = cache {
            cache.lock().insert(hash, revision.number, verified.clone());
        }
        Ok(verified)
    }

    fn verify_by(
        &self,
        set: &KeySet,
        header: &jsonwebtoken::Header,
        token: &str,
    ) -> Result<Token, TokenError> {
        // None of the extensions that a token may demand is known (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::Invalid);
        }
        let validation = self.validation(header.alg);
        let mut error = TokenError::Invalid;
        for key in set.candidates(header.kid.as_deref(), header.alg) {
            match decode::<Value>(token, &key.key, &validation) {
                Ok(data) => return self.extract(&data.claims),
                Err(refused) => error = reason(&refused, error),
            }
        }
        Err(error)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        let mut required = vec!["exp"];
        validation.leeway = self.leeway;
        validation.validate_nbf = true;
        validation.validate_aud = !self.audience.is_empty();
        if validation.validate_aud {
            validation.set_audience(&self.audience);
            required.push("aud");
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    /// What limits need of a token.
    fn extract(&self, claims: &Value) -> Result<Token, TokenError> {
        let exp = claims.get("exp").ok_or(TokenError::Invalid)?;
        let exp = exp.as_u64().or_else(|| exp.as_f64().map(|exp| exp as u64));
        let expires_at = exp.ok_or(TokenError::Invalid)?.saturating_add(self.leeway);
        let claims = self.claims.iter().map(|name| json::field(claims, name)).collect();
        Ok(Token { expires_at, claims })
    }

    fn token_of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let Some(name) = &self.cookie else {
            let mut lines = headers.get_all(AUTHORIZATION).iter();
            let line = lines.next()?.to_str().ok()?;
            // Several could be read differently by the upstream.
            if lines.next().is_some() {
                return None;
            }
            let (scheme, token) = line.trim().split_once(' ')?;
            return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim());
        };
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
        let mut tokens = pairs.filter(|(key, _)| key.trim() == name);
        let (_, token) = tokens.next()?;
        tokens.next().is_none().then(|| token.trim())
    }
}

/// The reason to report when several keys refuse a token: the one that is not about the signature.
fn reason(error: &Error, before: TokenError) -> TokenError {
    match error.kind() {
        ErrorKind::ExpiredSignature => TokenError::Expired,
        _ => before,
    }
}

fn file_keys(
    path: &Path,
    accepted: Vec<Algorithm>,
    files: &mut FollowedFiles,
) -> Result<Arc<Keys>, IdentityError> {
    let keys = Arc::new(Keys::default());
    let target = keys.clone();
    files.follow_text("JWKS", path, move |source| {
        target.replace(KeySet::read(&source.text, &accepted)?);
        Ok(())
    })?;
    Ok(keys)
}

fn algorithms(names: &[String]) -> Result<Vec<Algorithm>, IdentityError> {
    let parse = |name: &String| {
        name.parse().map_err(|_| IdentityError {
            step: "read `identity.jwt.algorithms`".to_owned(),
            reason: format!(
                "`{name}` is unknown; write RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, \
                 EdDSA, HS256, HS384 or HS512"
            ),
        })
    };
    names.iter().map(parse).collect()
}

fn hash(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// Seconds since 1970, by the clock that `jsonwebtoken` verifies with.
#[expect(clippy::disallowed_methods, reason = "a cached token expires when its verification does")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
