//! What is answered.

use std::time::Duration;

/// Whether something may go, and how its limits stand. A denial is an answer, not an error.
///
/// ```no_run
/// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
/// use sluicegate_client::Request;
///
/// let decision = client.check(&Request::new("shop").descriptor([("user", "42")])).await?;
/// match (decision.allowed, decision.retry_after) {
///     (true, _) => println!("go; {:?} left", decision.remaining),
///     (false, Some(wait)) => println!("come back in {wait:?}"),
///     (false, None) => println!("waiting does not help"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether it may go.
    pub allowed: bool,
    /// Who says so.
    pub source: Asked,
    /// The name of the limit that decided.
    pub limit: Option<String>,
    /// The most that it can have left.
    pub quota: Option<u64>,
    /// What it has left; negative in debt.
    pub remaining: Option<i64>,
    /// How long to wait before asking again. Of what is denied; `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// Until everything is full again.
    pub reset_after: Option<Duration>,
    /// How long to wait for its turn, of what is allowed under a limit that shapes.
    pub wait: Option<Duration>,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asked {
    /// The service.
    Service,
    /// The service, a while ago: it said how long this is denied, and that time is not over. It was not asked again.
    Remembered,
    /// Nobody could be asked: [`WhenAway`](crate::WhenAway) decided.
    Policy,
}

/// What was said of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// Whether its limits let it pass.
    pub allowed: bool,
    /// The rule that it is under.
    pub rule: Option<String>,
    /// The name of the limit that decided.
    pub limit: Option<String>,
    /// The most that it can have left.
    pub quota: Option<u64>,
    /// What it has left; negative in debt.
    pub remaining: Option<i64>,
    /// Until everything is full.
    pub reset_after: Option<Duration>,
    /// How long to wait before asking again, of what is denied; `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The largest cost that could pass, of what can never pass.
    pub max_cost: Option<u64>,
    /// How long to wait for its turn, of what is shaped.
    pub wait: Option<Duration>,
}

impl Decision {
    /// What the statuses say together: of a denial, whoever has to wait longest speaks; otherwise who has least left.
    pub(crate) fn of(allowed: bool, statuses: Vec<Status>) -> Self {
        let denied = || statuses.iter().filter(|status| !status.allowed);
        let spokesman = match allowed {
            true => statuses
                .iter()
                .filter(|one| one.remaining.is_some())
                .min_by_key(|one| one.remaining),
            // Nothing is longer than never.
            false => denied().max_by_key(|one| one.retry_after.unwrap_or(Duration::MAX)),
        };
        let speaks = spokesman.cloned().unwrap_or_default();
        let retry_after = speaks.retry_after.filter(|_| !allowed);
        let wait = statuses.iter().filter_map(|one| one.wait).max().filter(|_| allowed);
        let Status { limit, quota, remaining, reset_after, .. } = speaks;
        let source = Asked::Service;
        Self { allowed, source, limit, quota, remaining, retry_after, reset_after, wait, statuses }
    }

    /// What nobody was asked about.
    pub(crate) fn by_policy(allowed: bool) -> Self {
        Self { source: Asked::Policy, ..Self::of(allowed, Vec::new()) }
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
