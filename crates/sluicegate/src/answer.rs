//! Parts of an answer: the limits behind it, its guarantee, and the error in place of a guard.

use std::fmt;

use sluicegate_core::op::Refusal;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};

use crate::engine::backend::StoreFailure;

/// The public description of one limit of a plan; a [`Verdict`](sluicegate_core::verdict::Verdict)
/// refers to it by index.
///
/// ```
/// use sluicegate::Policy;
/// use sluicegate::Span;
///
/// // A bucket of 50 that is refilled at 10/s.
/// let burst = Policy {
///     name: "burst".to_owned(),
///     algorithm: "token_bucket",
///     quota: Some(50),
///     window: Some(Span::from_secs(5)),
///     enforced: true,
/// };
/// assert_eq!(burst.quota, Some(50));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name, which identifies it within the plan.
    pub name: String,
    /// The algorithm, by its name in rules.
    pub algorithm: &'static str,
    /// The maximum remaining quota; `None` if there is none.
    pub quota: Option<u64>,
    /// The time in which the quota refills once, so that quota per window is the rate: the window,
    /// or the time to fill an empty bucket. `None` if the quota does not refill with time, and for
    /// months and years of a calendar, whose lengths vary.
    pub window: Option<Span>,
    /// Whether it is enforced; a shadow limit is not, and is hidden from clients.
    pub enforced: bool,
}

impl Policy {
    /// Whether the quota is a number of slots. The wait of a denial is an estimate then: the
    /// release of a slot is not known in advance.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.algorithm == "concurrency"
    }
}

/// How a rule's counters are shared between nodes.
///
/// ```
/// assert_eq!(sluicegate::Level::Leased.to_string(), "leased");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// The store decided, or there is no other node.
    #[default]
    Strict,
    /// This node held a lease and decided locally. The limit is never exceeded.
    Leased,
    /// This node decided locally; peers' counts arrive later.
    Eventual,
}

/// The guarantee of a decision.
///
/// ```
/// use sluicegate::{Level, Promise};
///
/// assert_eq!(Promise::default(), Promise { level: Level::Strict, over: 0 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// The consistency level of the decision.
    pub level: Level,
    /// Maximum excess over the limit, since peers were not consulted: their admissions between two
    /// syncs, as last pulled.
    pub over: u64,
}

impl Level {
    /// As rule files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Leased => "leased",
            Self::Eventual => "eventual",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// The store does not answer.
    Store(StoreFailure),
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
            Self::NotNow(_) | Self::Refused(_) | Self::Store(_) => None,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNow(verdict) => match verdict.outcome {
                Outcome::Deny { retry_after } => {
                    let wait = retry_after.to_duration();
                    write!(f, "over the limit: try again in {wait:?}")
                }
                Outcome::Never { max_cost } => {
                    write!(f, "more than the limit can ever hold: at most `{max_cost}` at a time")
                }
                Outcome::Allow { .. } => f.write_str("allowed"),
            },
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Store(failure) => write!(f, "{failure}"),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
