//! Rather waiting than being refused: the service holds the answer back until the turn has come.

use std::time::Duration;

use crate::asking::Wanted;
use crate::client::Client;
use crate::decision::Decision;
use crate::error::Error;
use crate::request::Request;
use crate::reservation::Reservation;
use crate::wire;

/// What became of waiting.
#[derive(Debug)]
#[must_use = "a slot that is held is given back when this is dropped"]
pub struct Waited {
    /// Whether it may go.
    pub decision: Decision,
    /// How long the service made it wait.
    pub waited: Duration,
    /// The slot that it holds, under a limit on how many go at a time: give it back by [`Reservation::cancel`], or by dropping it.
    pub slot: Option<Reservation>,
}

impl Client {
    /// Waits at the service until it is this one's turn, for `patience` at most (which may be ten minutes). If the turn would not come by then, it is denied at once, and nothing is
    /// charged. Whoever drops the future gives its turn back, as far as those who came later leave it free.
    ///
    /// It is sent once: to ask again would be to queue up again.
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
    /// } // A slot, if there is one, is given back here.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn wait(&self, request: &Request, patience: Duration) -> Result<Waited, Error> {
        let who = request.who();
        let further = format!(r#","timeout_ms":{}"#, patience.as_millis());
        let wanted = self.wanted("wait", "/v1/wait", request.body(&who, &further));
        // The service needs as long as it is given, and as long as any answer takes.
        let timeout = patience.saturating_add(wanted.timeout);
        match self.ask::<wire::Answer>(Wanted { timeout, tries: 1, ..wanted }).await {
            Ok(mut answer) => {
                let (waited, expires) = (answer.waited(), answer.expires_after());
                let token = answer.reservation.take();
                let decision = Decision::from(answer);
                let slot = token.map(|token| {
                    Reservation::new(self, Some(token), who, expires, decision.clone())
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
