//! Bearer token of operators: `Authorization: Bearer …`.

use std::fmt;

use http::{HeaderMap, header};

/// Secret that is never printed.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header};
/// use sluicegate_server::token::Token;
///
/// let token = Token::new("open sesame")?;
/// let mut headers = HeaderMap::new();
/// assert!(!token.authorizes(&headers));
/// headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer open sesame"));
/// assert!(token.authorizes(&headers));
/// assert_eq!(format!("{token:?}"), "Token(hidden)");
/// # Ok::<(), sluicegate_server::token::EmptyToken>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The token is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyToken;

impl Token {
    /// Trims the secret.
    ///
    /// # Errors
    /// When nothing is left of it.
    pub fn new(secret: &str) -> Result<Self, EmptyToken> {
        let secret = secret.trim();
        if secret.is_empty() { Err(EmptyToken) } else { Ok(Self(secret.to_owned())) }
    }

    /// Whether the headers contain the token.
    #[must_use]
    pub fn authorizes(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some_and(|secret| self.matches(secret))
    }

    /// The secret, to hash it.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends only on the length.
    #[must_use]
    pub fn matches(&self, guess: &str) -> bool {
        let (secret, guess) = (self.0.as_bytes(), guess.as_bytes());
        let differ = secret.iter().zip(guess).fold(0, |differ, (a, b)| differ | (a ^ b));
        differ == 0 && secret.len() == guess.len()
    }
}

/// The secret of `Authorization: Bearer …`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl fmt::Display for EmptyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token must not be empty")
    }
}

impl std::error::Error for EmptyToken {}
