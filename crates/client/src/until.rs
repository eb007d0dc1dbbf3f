//! Asking until the answer is yes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::chance::{chance, part_of};
use crate::client::Client;
use crate::decision::Decision;
use crate::error::Error;
use crate::request::Request;

/// A wait of no time at all is still spread over so much: many are told "now" together.
const SPREAD_MIN: Duration = Duration::from_millis(5);

impl Client {
    /// Asks, waits as long as it is told, and asks again, until it may go or `patience` would be over.
    ///
    /// It never asks earlier than told, and up to a [share](crate::Builder::spread) later. A denial comes at once when waiting does not help, or not soon enough, or when
    /// it is [`WhenAway`](crate::WhenAway) that denies. Where
    /// limits shape (`wait`), it returns when the turn has come; if that would be after `patience`, at once, and `wait` says how long it is still.
    ///
    /// [`wait`](Self::wait) lets the service do the waiting: it is fair among those who wait, and costs one request instead of several.
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
        patience: Duration,
    ) -> Result<Decision, Error> {
        let begun = Instant::now();
        loop {
            let mut decision = self.check(request).await?;
            let left = patience.saturating_sub(begun.elapsed());
            let wait = if decision.allowed { decision.wait } else { decision.retry_after };
            let Some(wait) = wait.filter(|wait| *wait <= left) else { return Ok(decision) };
            if decision.allowed {
                sleep(wait).await;
                decision.wait = None;
                return Ok(decision);
            }
            // Whoever has hardly time left comes as late as it can, and that is never before the time told.
            sleep(self.spread(wait, chance()).min(left)).await;
        }
    }

    fn spread(&self, told: Duration, chance: u64) -> Duration {
        let share = told.saturating_mul(self.config().spread_percent) / 100;
        told.saturating_add(part_of(share.max(SPREAD_MIN), chance))
    }
}
