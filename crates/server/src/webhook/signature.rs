//! Signatures of Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// Prefix of a secret in base64.
const PREFIX: &str = "whsec_";

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// The secret is empty, or begins with `whsec_` and is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSecret;

impl SigningSecret {
    /// Reads a secret: `whsec_` and base64, or any other text.
    ///
    /// # Errors
    /// When it is empty, or no base64 follows `whsec_`.
    pub fn new(text: &str) -> Result<Self, InvalidSecret> {
        let text = text.trim();
        let bytes = match text.strip_prefix(PREFIX) {
            Some(base64) => BASE64_STANDARD.decode(base64).map_err(|_| InvalidSecret)?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.is_empty() { Err(InvalidSecret) } else { Ok(Self(bytes)) }
    }

    /// The signature of a request, as its header has it.
    ///
    /// ```
    /// use sluicegate_server::webhook::SigningSecret;
    ///
    /// // The example of Standard Webhooks.
    /// let secret = SigningSecret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    /// let body = r#"{"test": 2432232314}"#;
    /// let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
    /// assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    /// assert_eq!(format!("{secret:?}"), "SigningSecret(hidden)");
    /// # Ok::<(), sluicegate_server::webhook::InvalidSecret>(())
    /// ```
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let signed = format!("{id}.{timestamp}.{body}");
        format!("v1,{}", BASE64_STANDARD.encode(hmac::sign(&key, signed.as_bytes())))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(hidden)")
    }
}

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret must not be empty, and after `whsec_` it is base64")
    }
}

impl std::error::Error for InvalidSecret {}
