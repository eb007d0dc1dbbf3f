//! Costs that are known afterwards: reserve, then commit what was used.

use std::time::Duration;

use serde_json::Value;

use crate::client::Client;
use crate::decision::{Decision, DecisionSource, Status};
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

/// Something that is charged and not settled yet: [`commit`](Self::commit) what was used, or
/// [`cancel`](Self::cancel).
///
/// Dropped without either, it is cancelled in the background if there is a tokio runtime then;
/// otherwise, and if that fails, the service gives it back by itself after
/// [`expires_after`](Self::expires_after).
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
    identity: String,
    expires_after: Option<Duration>,
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
    /// Who settled it: [`DecisionSource::Policy`] if nobody could be asked when it was reserved, so
    /// that there was nothing to settle.
    pub source: DecisionSource,
}

impl Client {
    /// Charges what something may cost, for `ttl` at most; what it did cost is told afterwards.
    ///
    /// # Errors
    /// As [`check`](Self::check). Where [`UnavailablePolicy`](crate::UnavailablePolicy) allows,
    /// what is held is nothing, and settling it does nothing.
    pub async fn reserve(&self, request: &Request, ttl: Duration) -> Result<Reserved, Error> {
        let identity = request.identity();
        if let Some(known) = self.known(&identity, request) {
            return Ok(Reserved::Denied(known));
        }
        let further = format!(r#","ttl_ms":{}"#, ttl.as_millis().max(1));
        let call = self.call("reserve", "/v1/reserve", request.body(&identity, &further));
        let (token, expires_after, decision) = match self.send::<wire::CheckResponse>(call).await {
            Ok(mut answer) => {
                let (token, expires_after) = (answer.reservation.take(), answer.expires_after());
                (token, expires_after, self.remember(identity.clone(), request, answer.into()))
            }
            Err(error) => (None, None, self.by_policy(request, error)?),
        };
        Ok(match decision.allowed {
            true => {
                Reserved::Held(Reservation::new(self, token, identity, expires_after, decision))
            }
            false => Reserved::Denied(decision),
        })
    }

    /// Settles a reservation by its name, such as one that [another](Reservation::into_token) made:
    /// so much was used.
    ///
    /// # Errors
    /// When there is none of this name or it is settled (`unknown_reservation`), or the service
    /// does not answer.
    pub async fn commit(&self, token: &str, used: u64) -> Result<Settled, Error> {
        let body = format!(r#"{{"reservation":{},"hits":{used}}}"#, Value::from(token));
        self.settle("commit", "/v1/commit", body).await
    }

    /// Gives a reservation back by its name.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn cancel(&self, token: &str) -> Result<Settled, Error> {
        let body = format!(r#"{{"reservation":{}}}"#, Value::from(token));
        self.settle("cancel", "/v1/cancel", body).await
    }

    async fn settle(
        &self,
        name: &'static str,
        path: &'static str,
        body: String,
    ) -> Result<Settled, Error> {
        let settled = self.send::<wire::SettleResponse>(self.call(name, path, body)).await?;
        let returned = settled.returned;
        Ok(Settled { returned, statuses: settled.statuses(), source: DecisionSource::Service })
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
        identity: String,
        expires_after: Option<Duration>,
        decision: Decision,
    ) -> Self {
        Self { client: client.clone(), token, identity, expires_after, decision }
    }

    /// What was said when it was reserved.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How long after it was reserved the service gives it back by itself. Who commits later than
    /// that is charged in full.
    #[must_use]
    pub const fn expires_after(&self) -> Option<Duration> {
        self.expires_after
    }

    /// So much was used: the rest is given back, or what is more is charged, also where nothing is
    /// left.
    ///
    /// # Errors
    /// When there is none any more (`unknown_reservation`), or the service does not answer: then it
    /// is left to run out, since it may have been settled.
    pub async fn commit(mut self, used: u64) -> Result<Settled, Error> {
        let Some(token) = self.token.take() else { return Ok(NOTHING) };
        self.client.commit(&token, used).await
    }

    /// Nothing was used: everything is given back.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn cancel(mut self) -> Result<Settled, Error> {
        let Some(token) = self.token.take() else { return Ok(NOTHING) };
        self.client.cancel(&token).await
    }

    /// Its name, for somebody else to settle by [`Client::commit`] or [`Client::cancel`]; this one
    /// does not any more. `None` if nobody could be asked when it was reserved.
    #[must_use = "nobody else knows it"]
    pub fn into_token(mut self) -> Option<String> {
        self.token.take()
    }
}

/// What becomes of what nobody could be asked about.
const NOTHING: Settled =
    Settled { returned: 0, statuses: Vec::new(), source: DecisionSource::Policy };

impl Drop for Reservation {
    fn drop(&mut self) {
        let (client, identity) = (self.client.clone(), std::mem::take(&mut self.identity));
        // However it ended: who was denied meanwhile may pass now.
        client.forget(&identity);
        let Some(token) = self.token.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // That it fails matters to nobody: it runs out.
        drop(runtime.spawn(async move {
            let _ = client.cancel(&token).await;
            client.forget(&identity);
        }));
    }
}
