//! Challenges that the authority is about to verify (RFC 8555, RFC 8737).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use instant_acme::KeyAuthorization;
use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use tokio::sync::Semaphore;

use super::shared::SharedState;
use crate::body::ResponseBody;

/// ALPN protocol of TLS-ALPN-01.
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Path of HTTP-01, before the token.
pub(crate) const PATH: &str = "/.well-known/acme-challenge/";

/// Concurrent look-ups in the store: any client can request a path.
const LOOKUPS_MAX: usize = 8;
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// Pending challenges of all certificates.
#[derive(Debug)]
pub(crate) struct Challenges {
    /// Whether any certificate is automatic.
    is_used: AtomicBool,
    /// Key authorizations by token.
    tokens: RwLock<HashMap<String, String>>,
    /// Certificates by name.
    certificates: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    /// Has the tokens of other nodes.
    shared: OnceLock<SharedState>,
    lookups: Semaphore,
}

/// A challenge that is answered as long as this value exists.
#[derive(Debug)]
pub(super) struct PendingChallenge {
    challenges: Arc<Challenges>,
    /// A token, or a name.
    key: String,
}

impl Default for Challenges {
    fn default() -> Self {
        let (is_used, tokens, certificates, shared) = Default::default();
        Self { is_used, tokens, certificates, shared, lookups: Semaphore::new(LOOKUPS_MAX) }
    }
}

impl Challenges {
    /// Whether there can be challenges.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Answers challenges from now on, with those of other nodes.
    pub(super) fn enable(&self, shared: Option<&SharedState>) {
        if let Some(shared) = shared {
            self.shared.get_or_init(|| shared.clone());
        }
        self.is_used.store(true, Relaxed);
    }

    /// The response to a request of the authority; `None` for all other requests.
    pub(crate) async fn answer(&self, head: &Parts) -> Option<Response<ResponseBody>> {
        let token = head.uri.path().strip_prefix(PATH)?;
        if !matches!(head.method, Method::GET | Method::HEAD) || !is_token(token) {
            return None;
        }
        let local = self.tokens.read().get(token).cloned();
        let text = match (local, self.shared.get()) {
            (Some(text), _) => text,
            (None, Some(shared)) => {
                let _permit = self.lookups.try_acquire().ok()?;
                shared.token(token).await?
            }
            (None, None) => return None,
        };
        let mut response = Response::new(ResponseBody::full(text.into()));
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Some(response)
    }

    /// The certificate that proves the control of a name.
    pub(super) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.certificates.read().get(name).cloned()
    }

    /// Answers HTTP-01 from now on.
    pub(super) async fn add_token(
        self: &Arc<Self>,
        token: &str,
        value: &KeyAuthorization,
    ) -> Result<PendingChallenge, String> {
        self.tokens.write().insert(token.to_owned(), value.as_str().to_owned());
        let pending = PendingChallenge { challenges: self.clone(), key: token.to_owned() };
        if let Some(shared) = self.shared.get() {
            let added = shared.add_token(token, value.as_str()).await;
            added.map_err(|error| format!("the store does not take the challenge: {error}"))?;
        }
        Ok(pending)
    }

    /// Answers TLS-ALPN-01 from now on.
    pub(super) fn add_certificate(
        self: &Arc<Self>,
        name: &str,
        value: &KeyAuthorization,
    ) -> Result<PendingChallenge, String> {
        let certificate = challenge_certificate(name, value.digest().as_ref())?;
        self.certificates.write().insert(name.to_owned(), Arc::new(certificate));
        Ok(PendingChallenge { challenges: self.clone(), key: name.to_owned() })
    }
}

impl PendingChallenge {
    /// Ends it, for other nodes too.
    pub(super) async fn end(self) {
        if let Some(shared) = self.challenges.shared.get() {
            shared.remove_token(&self.key).await;
        }
    }
}

impl Drop for PendingChallenge {
    fn drop(&mut self) {
        self.challenges.tokens.write().remove(&self.key);
        self.challenges.certificates.write().remove(&self.key);
    }
}

/// Whether a text can be a token: base64url.
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    TOKEN_BYTES.contains(&text.len()) && text.bytes().all(fits)
}

fn challenge_certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let failed = |error: rcgen::Error| error.to_string();
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    // Not verified with the certificate, whose critical extension is unknown to the verifier.
    let key = ring::sign::any_ecdsa_type(&key).map_err(|error| error.to_string())?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const TOKEN: &str = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";

    async fn status(challenges: &Challenges, method: &str, path: &str) -> Option<u16> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let (head, ()) = request.into_parts();
        challenges.answer(&head).await.map(|response| response.status().as_u16())
    }

    #[tokio::test]
    async fn only_pending_tokens_are_answered() {
        let challenges = Arc::<Challenges>::default();
        let path = format!("{PATH}{TOKEN}");
        assert_eq!(status(&challenges, "GET", &path).await, None);
        challenges.tokens.write().insert(TOKEN.to_owned(), "value".to_owned());
        let pending = PendingChallenge { challenges: challenges.clone(), key: TOKEN.to_owned() };
        assert_eq!(status(&challenges, "GET", &path).await, Some(200));
        assert_eq!(status(&challenges, "HEAD", &format!("{path}?x")).await, Some(200));
        for (method, path) in [
            ("POST", path.as_str()),
            ("GET", &format!("{path}/")),
            ("GET", &format!("{path}A")),
            ("GET", PATH),
            ("GET", "/"),
        ] {
            assert_eq!(status(&challenges, method, path).await, None, "{method} {path}");
        }
        drop(pending);
        assert_eq!(status(&challenges, "GET", &path).await, None);
    }

    #[test]
    fn the_certificate_of_a_challenge_has_the_digest() {
        let certificate = challenge_certificate("a.example", &[7; 32]).unwrap();
        let der = certificate.end_entity_cert().unwrap();
        // A critical octet string of 32 bytes, under the object identifier of RFC 8737.
        let extension = [&[6, 8, 43, 6, 1, 5, 5, 7, 1, 31, 1, 1, 255, 4, 34, 4, 32][..], &[7; 32]];
        let extension = extension.concat();
        assert!(der.windows(extension.len()).any(|window| window == extension));
    }
}
