//! The secret that operators show: `Authorization: Bearer …`.

use std::fmt;

use http::{HeaderMap, header};

/// A secret. It is never printed.
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
/// # Ok::<(), sluicegate_server::token::NoToken>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// It would protect nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoToken;

impl Token {
    /// A secret of at least one character.
    ///
    /// # Errors
    /// When it is empty, or only blanks.
    pub fn new(secret: &str) -> Result<Self, NoToken> {
        let secret = secret.trim();
        if secret.is_empty() { Err(NoToken) } else { Ok(Self(secret.to_owned())) }
    }

    /// Whether whoever sent these headers knows it.
    #[must_use]
    pub fn authorizes(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, secret)) = shown.and_then(|text| text.split_once(' ')) else {
            return false;
        };
        scheme.eq_ignore_ascii_case("bearer") && self.is(secret.trim())
    }

    /// Whether this is it. Takes as long for a good guess as for a bad one of the same length.
    #[must_use]
    pub fn is(&self, guess: &str) -> bool {
        let (secret, guess) = (self.0.as_bytes(), guess.as_bytes());
        let differ = secret.iter().zip(guess).fold(0, |differ, (a, b)| differ | (a ^ b));
        differ == 0 && secret.len() == guess.len()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl fmt::Display for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token must not be empty")
    }
}

impl std::error::Error for NoToken {}
