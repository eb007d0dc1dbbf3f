//! Waiting for a permit: by the client, and at the service.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::decision::Decision;
use crate::dispatch::Call;
use crate::error::Error;
use crate::request::Request;
use crate::reservation::Reservation;
use crate::retry::jitter;
use crate::wire;

/// Minimum of the jitter, for waits of no time.
const SPREAD_MIN: Duration = Duration::from_millis(5);

impl Client {
    /// Checks until the request is allowed or `timeout` would be exceeded.
    ///
    /// The client waits for `retry_after` and up to a [share](crate::Builder::spread) longer. It
    /// returns a denial at once when waiting does not help, or not in time, or when the
    /// [`UnavailablePolicy`](crate::UnavailablePolicy) denies. Under a shaping limit it returns
    /// after the delay; if that exceeds `timeout`, at once, with the delay in `wait`.
    ///
    /// [`wait`](Self::wait) waits at the service instead: fair among the waiting clients, and one
    /// request instead of several.
    ///
    /// ```no_run
    /// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
    /// use std::time::Duration;
    /// use sluicegate_client::Request;
    ///
    /// let mail = Request::new("mail").descriptor([("to", "example.org")]);
    /// if client.until_allowed(&mail, Duration::from_secs(60)).await?.allowed {
    ///     println!("send it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn until_allowed(
        &self,
        request: &Request,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let begun = Instant::now();
        loop {
            let mut decision = self.check(request).await?;
            let left = timeout.saturating_sub(begun.elapsed());
            let wait = if decision.allowed { decision.wait } else { decision.retry_after };
            let Some(wait) = wait.filter(|wait| *wait <= left) else { return Ok(decision) };
            if decision.allowed {
                sleep(wait).await;
                decision.wait = None;
                return Ok(decision);
            }
            // Near the deadline the jitter is cut, but the wait is never shorter than
            // `retry_after`.
            sleep(self.spread(wait, fastrand::u64(..)).min(left)).await;
        }
    }

    fn spread(&self, hints: Duration, random: u64) -> Duration {
        let share = hints.saturating_mul(self.config().spread_percent) / 100;
        hints.saturating_add(jitter(share.max(SPREAD_MIN), random))
    }
}

// === at the service ===

/// Result of a wait.
#[derive(Debug)]
#[must_use = "a held slot is released when this is dropped"]
pub struct Waited {
    /// The decision.
    pub decision: Decision,
    /// Time waited at the service.
    pub waited: Duration,
    /// The held slot of a concurrency limit: release it by [`Reservation::cancel`], or by dropping
    /// it.
    pub slot: Option<Reservation>,
}

impl Client {
    /// Waits at the service until the request is allowed, for `timeout` (at most ten minutes). A
    /// request that cannot be allowed in time is denied at once without a charge. Dropping the
    /// future releases the queue position as far as later requests permit.
    ///
    /// Not retried: a retry would queue again.
    ///
    /// ```no_run
    /// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
    /// use std::time::Duration;
    /// use sluicegate_client::Request;
    ///
    /// let export = Request::new("shop").descriptor([("export", "42")]);
    /// let waited = client.wait(&export, Duration::from_secs(30)).await?;
    /// if waited.decision.allowed {
    ///     println!("after {:?} it is our turn", waited.waited);
    /// } // A slot, if there is one, is released here.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn wait(&self, request: &Request, timeout: Duration) -> Result<Waited, Error> {
        let identity = request.identity();
        let further = format!(r#","timeout_ms":{}"#, timeout.as_millis());
        let call = self.call("wait", "/v1/wait", request.body(&identity, &further));
        // The wait and the usual response time.
        let timeout = timeout.saturating_add(call.timeout);
        match self.send::<wire::CheckResponse>(Call { timeout, tries: 1, ..call }).await {
            Ok(mut answer) => {
                let (waited, expires) = (answer.waited(), answer.expires_after());
                let token = answer.reservation.take();
                let decision = Decision::from(answer);
                let slot = token.map(|token| {
                    Reservation::new(self, Some(token), identity, expires, decision.clone())
                });
                Ok(Waited { decision, waited, slot })
            }
            Err(error) => {
                let decision = self.by_policy(request, error)?;
                Ok(Waited { decision, waited: Duration::ZERO, slot: None })
            }
        }
    }
}
