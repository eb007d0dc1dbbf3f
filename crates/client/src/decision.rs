//! Decisions, and the policy for an unavailable service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::request::Request;

/// Whether a request is allowed, and the state of its limits. A denial is not an error.
///
/// ```no_run
/// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
/// use sluicegate_client::Request;
///
/// let decision = client.check(&Request::new("shop").descriptor([("user", "42")])).await?;
/// match (decision.allowed, decision.retry_after) {
///     (true, _) => println!("allowed; {:?} remaining", decision.remaining),
///     (false, Some(wait)) => println!("retry after {wait:?}"),
///     (false, None) => println!("never"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Origin of the decision.
    pub source: DecisionSource,
    /// The name of the limit that decided.
    pub limit: Option<String>,
    /// Its quota.
    pub quota: Option<u64>,
    /// Remaining quota; negative in debt.
    pub remaining: Option<i64>,
    /// Time until a denied request can be allowed; `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// Time until the quota is fully restored.
    pub reset_after: Option<Duration>,
    /// Delay of an allowed request under a shaping limit.
    pub wait: Option<Duration>,
    /// Status of each descriptor, in their order.
    pub statuses: Vec<Status>,
}

/// Origin of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The service.
    Service,
    /// A cached denial that has not expired.
    Remembered,
    /// The [`UnavailablePolicy`](crate::UnavailablePolicy), without the service.
    Policy,
}

/// Status of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// Whether its limits allow it.
    pub allowed: bool,
    /// Its rule.
    pub rule: Option<String>,
    /// The name of the limit that decided.
    pub limit: Option<String>,
    /// Its quota.
    pub quota: Option<u64>,
    /// Remaining quota; negative in debt.
    pub remaining: Option<i64>,
    /// Time until the quota is fully restored.
    pub reset_after: Option<Duration>,
    /// Time until a denied request can be allowed; `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The largest cost that can be allowed, if this one never can.
    pub max_cost: Option<u64>,
    /// Delay under a shaping limit.
    pub wait: Option<Duration>,
}

impl Decision {
    /// Combines statuses: the denial with the longest wait decides, otherwise the least remaining
    /// quota.
    pub(crate) fn of(allowed: bool, statuses: Vec<Status>) -> Self {
        let denied = || statuses.iter().filter(|status| !status.allowed);
        let deciding = match allowed {
            true => statuses
                .iter()
                .filter(|one| one.remaining.is_some())
                .min_by_key(|one| one.remaining),
            // `None` is never.
            false => denied().max_by_key(|one| one.retry_after.unwrap_or(Duration::MAX)),
        };
        let deciding = deciding.cloned().unwrap_or_default();
        let retry_after = deciding.retry_after.filter(|_| !allowed);
        let wait = statuses.iter().filter_map(|one| one.wait).max().filter(|_| allowed);
        let Status { limit, quota, remaining, reset_after, .. } = deciding;
        let source = DecisionSource::Service;
        Self { allowed, source, limit, quota, remaining, retry_after, reset_after, wait, statuses }
    }

    /// A decision without the service.
    pub(crate) fn by_policy(allowed: bool) -> Self {
        Self { source: DecisionSource::Policy, ..Self::of(allowed, Vec::new()) }
    }
}

/// The decision when the service is unavailable.
///
/// ```
/// use sluicegate_client::{Client, UnavailablePolicy};
///
/// // Allow readers, deny writers.
/// let policy = UnavailablePolicy::local(|request| request == &sluicegate_client::Request::new("readers"));
/// let client = Client::builder("http://127.0.0.1:8080").on_unavailable(policy).build()?;
/// # Ok::<(), sluicegate_client::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum UnavailablePolicy {
    /// Allow, as Envoy does by default.
    #[default]
    Allow,
    /// Deny.
    Deny,
    /// Return an [`Error`](crate::Error).
    Error,
    /// A function decides, such as a local limiter.
    Local(Arc<dyn Fn(&Request) -> bool + Send + Sync>),
}

impl UnavailablePolicy {
    /// A decision by a function.
    pub fn local(decide: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self::Local(Arc::new(decide))
    }

    /// The decision; `None` for an error.
    pub(crate) fn allows(&self, request: &Request) -> Option<bool> {
        match self {
            Self::Allow => Some(true),
            Self::Deny => Some(false),
            Self::Error => None,
            Self::Local(decide) => Some(decide(request)),
        }
    }
}

impl fmt::Debug for UnavailablePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
            Self::Error => "Error",
            Self::Local(_) => "Local(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn denied(retry_after: Option<Duration>) -> Status {
        Status { retry_after, ..Status::default() }
    }

    #[test]
    fn whoever_waits_longest_speaks() {
        let allowed = Status { allowed: true, remaining: Some(3), ..Status::default() };
        let statuses = vec![denied(Some(SECOND)), allowed.clone(), denied(Some(2 * SECOND))];
        assert_eq!(Decision::of(false, statuses).retry_after, Some(2 * SECOND));
        let never = vec![denied(Some(SECOND)), denied(None)];
        assert_eq!(Decision::of(false, never).retry_after, None);
        let less = Status { remaining: Some(2), ..allowed.clone() };
        assert_eq!(Decision::of(true, vec![allowed, less, denied(None)]).remaining, Some(2));
    }
}
