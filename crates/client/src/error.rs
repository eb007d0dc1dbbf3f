//! What goes wrong.

use std::fmt;

/// Why there is no answer. A denial is none of these: it is a [`Decision`](crate::Decision).
///
/// ```
/// use sluicegate_client::Client;
///
/// let error = Client::new("127.0.0.1:8080").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`127.0.0.1:8080` is no address of a service: there is no scheme; write `http://127.0.0.1:8080`"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The address is none, or cannot be spoken to.
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it, and what to write.
        why: String,
    },
    /// The service did not answer.
    Away {
        /// What was wanted, such as `check`.
        wanted: &'static str,
        /// Of whom: the address.
        of: String,
        /// What happened instead.
        why: String,
    },
    /// The service answered that it will not do this.
    Refused {
        /// What was wanted.
        wanted: &'static str,
        /// Of whom.
        of: String,
        /// The HTTP status.
        status: u16,
        /// For programs, such as `invalid_request` or `unknown_reservation`; empty if it said none.
        code: String,
        /// For people.
        message: String,
    },
}

impl Error {
    /// Whether the service could not be asked, so that asking later may help.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }

    /// What the service calls it, if it refused.
    ///
    /// ```no_run
    /// # async fn example(held: sluicegate_client::Reservation) {
    /// let error = held.commit(730).await.unwrap_err();
    /// if error.code() == Some("unknown_reservation") {
    ///     println!("it had run out");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            Self::Address { .. } | Self::Away { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { given, why } => {
                write!(f, "`{given}` is no address of a service: {why}")
            }
            Self::Away { wanted, of, why } => write!(
                f,
                "cannot {wanted}: {of} {why}; see that a Sluicegate service answers there, or let `when_away` decide"
            ),
            Self::Refused { wanted, of, status, message, .. } => {
                write!(f, "cannot {wanted}: {of} answered {status}: {message}")
            }
        }
    }
}

impl std::error::Error for Error {}
