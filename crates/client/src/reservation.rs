//! Reservations for costs known afterwards: reserve, then commit the actual cost.

use std::time::Duration;

use serde_json::Value;

use crate::client::Client;
use crate::decision::{Decision, DecisionSource, Status};
use crate::error::Error;
use crate::request::Request;
use crate::wire;

/// Result of a reservation request.
#[derive(Debug)]
#[must_use = "what is held is given back when this is dropped"]
pub enum Reserved {
    /// The quota is reserved.
    Held(Reservation),
    /// The remaining quota does not suffice.
    Denied(Decision),
}

/// A charged but unsettled cost: [`commit`](Self::commit) the actual cost, or
/// [`cancel`](Self::cancel).
///
/// Dropping it cancels it in the background within a Tokio runtime. Otherwise, or if that fails,
/// the service releases it after [`expires_after`](Self::expires_after).
///
/// ```no_run
/// # async fn example(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
/// use std::time::Duration;
/// use sluicegate_client::{Request, Reserved};
///
/// let prompt = Request::new("llm").descriptor([("user", "42")]).hits(1_000);
/// match client.reserve(&prompt, Duration::from_secs(60)).await? {
///     Reserved::Held(held) => {
///         let used = 730; // as reported by the model
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
    /// `None` if the policy decided, or after settlement.
    token: Option<String>,
    identity: String,
    expires_after: Option<Duration>,
    decision: Decision,
}

/// Result of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Refunded quota.
    pub returned: u64,
    /// Status of each descriptor.
    pub statuses: Vec<Status>,
    /// Origin: [`DecisionSource::Policy`] if the policy decided the reservation, so that there was
    /// nothing to settle.
    pub source: DecisionSource,
}

impl Client {
    /// Reserves the estimated cost for at most `ttl`; the actual cost is committed afterwards.
    ///
    /// # Errors
    /// As [`check`](Self::check). A reservation allowed by the
    /// [`UnavailablePolicy`](crate::UnavailablePolicy) is empty, and settling it has no effect.
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

    /// Commits a reservation by its token, such as one from [another
    /// client](Reservation::into_token), with the actual cost.
    ///
    /// # Errors
    /// When the reservation is unknown (`unknown_reservation`) or settled (`settled_reservation`),
    /// or the service does not answer.
    pub async fn commit(&self, token: &str, used: u64) -> Result<Settled, Error> {
        let body = format!(r#"{{"reservation":{},"hits":{used}}}"#, Value::from(token));
        self.settle("commit", "/v1/commit", body).await
    }

    /// Cancels a reservation by its token.
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

impl Reserved {
    /// The reservation, unless denied.
    pub fn held(self) -> Option<Reservation> {
        match self {
            Self::Held(held) => Some(held),
            Self::Denied(_) => None,
        }
    }

    /// The decision.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        match self {
            Self::Held(held) => &held.decision,
            Self::Denied(denied) => denied,
        }
    }
}

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

    /// The decision of the reservation.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Time after which the service releases the reservation. A later commit is charged in full.
    #[must_use]
    pub const fn expires_after(&self) -> Option<Duration> {
        self.expires_after
    }

    /// Commits the actual cost: refunds the difference, or charges the excess even beyond the
    /// limit.
    ///
    /// # Errors
    /// When the reservation is settled (`settled_reservation`), or the service does not answer. It
    /// then expires, since it may have been settled.
    pub async fn commit(mut self, used: u64) -> Result<Settled, Error> {
        let Some(token) = self.token.take() else { return Ok(NOTHING) };
        self.client.commit(&token, used).await
    }

    /// Cancels the reservation with a full refund.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn cancel(mut self) -> Result<Settled, Error> {
        let Some(token) = self.token.take() else { return Ok(NOTHING) };
        self.client.cancel(&token).await
    }

    /// The token, for settlement by [`Client::commit`] or [`Client::cancel`]; this value no longer
    /// settles it. `None` if the policy decided.
    #[must_use = "without the token the reservation can only expire"]
    pub fn into_token(mut self) -> Option<String> {
        self.token.take()
    }
}

/// Settlement of a reservation that the policy decided.
const NOTHING: Settled =
    Settled { returned: 0, statuses: Vec::new(), source: DecisionSource::Policy };

impl Drop for Reservation {
    fn drop(&mut self) {
        let (client, identity) = (self.client.clone(), std::mem::take(&mut self.identity));
        // In every case: denied requests may be allowed now.
        client.forget(&identity);
        let Some(token) = self.token.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // A failure is harmless: the reservation expires.
        drop(runtime.spawn(async move {
            let _ = client.cancel(&token).await;
            client.forget(&identity);
        }));
    }
}
