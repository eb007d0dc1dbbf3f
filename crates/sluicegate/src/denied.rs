//! Errors of guards: denied now, never admissible, or refused.

use sluicegate_core::op::Refusal;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};

/// The error returned in place of a guard.
///
/// ```
/// use sluicegate::limit::Concurrency;
/// use sluicegate::{Denied, Limiter};
///
/// let limiter = Limiter::new(Concurrency::at_most(1))?;
/// let permit = limiter.of("alice").permit()?;
/// match limiter.of("alice").permit() {
///     Err(Denied::NotNow(verdict)) => assert_eq!(verdict.remaining, Some(0)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// A limit denies the request; the verdict names the limit and the wait.
    NotNow(Verdict),
    /// A limit does not support the operation, or the id is in use.
    Refused(Refusal),
}

impl Denied {
    pub(crate) fn unless_allowed(verdict: Verdict) -> Result<(), Self> {
        if verdict.is_allowed() { Ok(()) } else { Err(Self::NotNow(verdict)) }
    }

    /// Time until a retry can succeed; `None` if waiting does not help.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = Limiter::new(FixedWindow::per_hour(5))?;
    /// let denied = limiter.of("alice").cost(6).reserve().unwrap_err();
    /// assert_eq!(denied.retry_after(), None, "more than an hour ever holds");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Span> {
        match self {
            Self::NotNow(Verdict { outcome: Outcome::Deny { retry_after }, .. }) => {
                Some(*retry_after)
            }
            Self::NotNow(_) | Self::Refused(_) => None,
        }
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotNow(verdict) => match verdict.outcome {
                Outcome::Deny { retry_after } => {
                    let wait = crate::clock::duration(retry_after);
                    write!(f, "over the limit: try again in {wait:?}")
                }
                Outcome::Never { max_cost } => {
                    write!(f, "more than the limit can ever hold: at most `{max_cost}` at a time")
                }
                Outcome::Allow { .. } => f.write_str("allowed"),
            },
            Self::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
