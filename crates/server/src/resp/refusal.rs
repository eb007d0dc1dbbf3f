//! Why a command gets no answer, in words that client libraries know where they know any.

use std::fmt;

use crate::telemetry::Fault;

/// Why a command gets no answer.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) fault: Fault,
    text: String,
}

impl Refusal {
    /// What came is no request.
    pub(super) fn invalid(text: impl fmt::Display) -> Self {
        Self { fault: Fault::Invalid, text: format!("ERR {text}") }
    }

    /// It was a request, and there is no answer to it.
    pub(super) fn service(text: impl Into<String>) -> Self {
        Self { fault: Fault::Service, text: text.into() }
    }

    /// The store did not answer, and that is to be told.
    pub(super) fn store(error: impl fmt::Display) -> Self {
        Self { fault: Fault::Store, text: format!("TRYAGAIN {error}") }
    }

    /// There is too much of it now.
    pub(super) fn overload(text: impl Into<String>) -> Self {
        Self { fault: Fault::Overload, text: text.into() }
    }

    pub(super) fn draining() -> Self {
        Self::overload("TRYAGAIN the service ends; ask again when it is back, or another one")
    }

    pub(super) fn arity(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self::invalid(format_args!("wrong number of arguments for '{name}' command"))
    }

    pub(super) fn no_auth() -> Self {
        Self::service("NOAUTH Authentication required.")
    }

    /// Refund without proof of a charge.
    pub(super) fn unproven() -> Self {
        Self::service(
            "NOPERM no charged check matches this refund: send the ID and all arguments of the SG.CHECK, once, within ten minutes and to the same node; or use SG.RESERVE and SG.CANCEL",
        )
    }

    pub(super) fn no_rules() -> Self {
        Self::service(
            "ERR no rules are loaded; see the log of the service for what is wrong with them",
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What somebody sent, as it is told back: no more than a few bytes, and those that nobody can read escaped.
pub(super) fn shown(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 64;

    match bytes.get(..BYTES_MAX) {
        Some(beginning) if bytes.len() > BYTES_MAX => format!("{}…", beginning.escape_ascii()),
        _ => match str::from_utf8(bytes) {
            Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
            _ => bytes.escape_ascii().to_string(),
        },
    }
}

/// A whole number.
pub(super) fn whole<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    str::from_utf8(bytes).ok()?.parse().ok()
}
