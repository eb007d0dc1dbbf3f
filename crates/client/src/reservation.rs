//! Costs that are known afterwards: reserve, then commit what was used.

use std::time::Duration;

use crate::asking::Wanted;
use crate::client::Client;
use crate::decision::{Asked, Decision, Status};
use crate::error::Error;
use crate::request::Request;
use crate::wire;

/// What becomes of a wish to reserve.
#[derive(Debug)]
#[must_use = "what is held is given back when this is dropped"]
pub enum Reserved {
    /// It is held.
    Held(Reservation),
    /// There is not so much left.
    Denied(Decision),
}

/// Something that is charged and not settled yet: [`commit`](Self::commit) what was used, or [`cancel`](Self::cancel).
///
/// Dropped without either, it is cancelled in the background if there is a tokio runtime then; otherwise, and if that fails, the service settles it
/// by itself when [`expires_after`](Self::expires_after) is over.
///
/// ```no_run
/// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
/// use std::time::Duration;
/// use sluicegate_client::{Request, Reserved};
///
/// let prompt = Request::new("llm").descriptor([("user", "42")]).hits(1_000);
/// match client.reserve(&prompt, Duration::from_secs(60)).await? {
///     Reserved::Held(held) => {
///         let used = 730; // as the answer of the model says
///         held.commit(used).await?;
///     }
///     Reserved::Denied(denied) => println!("come back in {:?}", denied.retry_after),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it is given back when this is dropped"]
pub struct Reservation {
    client: Client,
    /// Nothing if nobody could be asked, or it is settled.
    token: Option<String>,
    who: String,
    expires_after: Duration,
    decision: Decision,
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// What was given back.
    pub returned: u64,
    /// How the limits stand, descriptor by descriptor.
    pub statuses: Vec<Status>,
    /// Who settled it: [`Asked::Policy`] if nobody could be asked when it was reserved, so that there was nothing to settle.
    pub source: Asked,
}

impl Client {
    /// Charges what something may cost, for `ttl` at most; what it did cost is told afterwards.
    ///
    /// # Errors
    /// As [`check`](Self::check). Where [`WhenAway`](crate::WhenAway) allows, what is held is nothing, and settling it does nothing.
    pub async fn reserve(&self, request: &Request, ttl: Duration) -> Result<Reserved, Error> {
        let who = request.who();
        if let Some(known) = self.known(&who, request) {
            return Ok(Reserved::Denied(known));
        }
        let further = format!(r#","ttl_ms":{}"#, ttl.as_millis().max(1));
        let wanted = self.wanted("reserve", "/v1/reserve", request.body(&who, &further));
        let (token, expires_after, decision) = match self.ask::<wire::Answer>(wanted).await {
            Ok(mut answer) => {
                let (token, expires_after) = (answer.reservation.take(), answer.expires_after());
                (token, expires_after, self.heard(who.clone(), request, answer.into()))
            }
            Err(error) => (None, ttl, self.by_policy(request, error)?),
        };
        Ok(match decision.allowed {
            true => Reserved::Held(Reservation::new(self, token, who, expires_after, decision)),
            false => Reserved::Denied(decision),
        })
    }
}

// === impl Reserved ===

impl Reserved {
    /// What is held, if it is.
    pub fn held(self) -> Option<Reservation> {
        match self {
            Self::Held(held) => Some(held),
            Self::Denied(_) => None,
        }
    }

    /// What was said.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        match self {
            Self::Held(held) => &held.decision,
            Self::Denied(denied) => denied,
        }
    }
}

// === impl Reservation ===

impl Reservation {
    pub(crate) fn new(
        client: &Client,
        token: Option<String>,
        who: String,
        expires_after: Duration,
        decision: Decision,
    ) -> Self {
        Self { client: client.clone(), token, who, expires_after, decision }
    }

    /// What was said when it was reserved.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How long after it was reserved it can be settled.
    #[must_use]
    pub const fn expires_after(&self) -> Duration {
        self.expires_after
    }

    /// So much was used: the rest is given back, or what is more is charged, also where nothing is left.
    ///
    /// # Errors
    /// When it has run out (`unknown_reservation`), or the service does not answer. It is left to run out then: it may have been settled.
    pub async fn commit(mut self, used: u64) -> Result<Settled, Error> {
        let token = self.token.take();
        self.settle(token, |token| format!(r#"{{"reservation":"{token}","hits":{used}}}"#), COMMIT)
            .await
    }

    /// Nothing was used: everything is given back.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn cancel(mut self) -> Result<Settled, Error> {
        let token = self.token.take();
        self.settle(token, |token| format!(r#"{{"reservation":"{token}"}}"#), CANCEL).await
    }

    /// Its name, for somebody else to settle; this one does not any more. `None` if nobody could be asked when it was reserved.
    #[must_use = "nobody else knows it"]
    pub fn into_token(mut self) -> Option<String> {
        self.token.take()
    }

    async fn settle(
        &self,
        token: Option<String>,
        body: impl Fn(&str) -> String,
        (name, path): (&'static str, &'static str),
    ) -> Result<Settled, Error> {
        let Some(token) = token else {
            return Ok(Settled { returned: 0, statuses: Vec::new(), source: Asked::Policy });
        };
        let Wanted { timeout, tries, .. } = self.client.wanted(name, path, String::new());
        let wanted = Wanted { name, path, body: body(&token), timeout, tries };
        // It may have been given back even if that is not answered.
        self.client.forget(&self.who);
        let settled = self.client.ask::<wire::Settled>(wanted).await?;
        let returned = settled.returned;
        Ok(Settled { returned, statuses: settled.statuses(), source: Asked::Service })
    }
}

const COMMIT: (&str, &str) = ("commit", "/v1/commit");
const CANCEL: (&str, &str) = ("cancel", "/v1/cancel");

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(token) = self.token.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let left = Self::new(
            &self.client,
            Some(token),
            std::mem::take(&mut self.who),
            self.expires_after,
            self.decision.clone(),
        );
        // That it fails matters to nobody: it runs out.
        drop(runtime.spawn(left.cancel()));
    }
}
