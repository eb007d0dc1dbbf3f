//! Errors.

use std::fmt;

/// Errors of a client. A denial is not an error but a [`Decision`](crate::Decision).
///
/// ```
/// use sluicegate_client::Client;
///
/// let error = Client::new("127.0.0.1:8080").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`127.0.0.1:8080` is not the address of a service: there is no scheme; write `http://127.0.0.1:8080`"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The address is invalid or not supported.
    Address {
        /// The given address.
        given: String,
        /// The problem and its remedy.
        why: String,
    },
    /// The service did not answer.
    Unavailable {
        /// The operation, such as `check`.
        operation: &'static str,
        /// The address.
        of: String,
        /// The reason.
        why: String,
    },
    /// The service rejected the request.
    Refused {
        /// The operation.
        operation: &'static str,
        /// The address.
        of: String,
        /// The HTTP status.
        status: u16,
        /// Error code, such as `invalid_request` or `unknown_reservation`; may be empty.
        code: String,
        /// Error message.
        message: String,
    },
}

impl Error {
    /// Whether the service was unavailable, so that a later call may succeed.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The error code, if the service rejected the request.
    ///
    /// ```no_run
    /// # async fn example(held: sluicegate_client::Reservation) {
    /// let error = held.commit(730).await.unwrap_err();
    /// if error.code() == Some("settled_reservation") {
    ///     println!("it was settled before");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            Self::Address { .. } | Self::Unavailable { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { given, why } => {
                write!(f, "`{given}` is not the address of a service: {why}")
            }
            Self::Unavailable { operation, of, why } => write!(
                f,
                "cannot {operation}: {of} {why}; check that a Sluicegate service runs there, or set `on_unavailable`"
            ),
            Self::Refused { operation, of, status, message, .. } => {
                write!(f, "cannot {operation}: {of} answered {status}: {message}")
            }
        }
    }
}

impl std::error::Error for Error {}
