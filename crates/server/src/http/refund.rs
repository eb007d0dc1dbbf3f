//! `/v1/refund`: authorization of refunds.
//!
//! A refund refills limits as a reset does, so it requires the operator role or proof of a charge:
//! the idempotency key and the body of a check that this node has admitted. The stored answer of
//! that check is removed, which makes the refund single-use; the same check, repeated, is charged
//! again.

use axum::body::Bytes;
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use http::header::AUTHORIZATION;
use sluicegate::Timestamp;

use super::Answering;
use super::check::Want;
use super::error::Refusal;
use super::receive::receive;
use super::retried::RetryKey;
use crate::reservations::Kept;
use crate::rls::options::RefundPolicy;
use crate::telemetry::Endpoint;
use crate::traces::Span;

impl Answering {
    pub(super) async fn refund(&self, request: HttpRequest) -> Response {
        let policy = self.service.options().refunds;
        if policy == RefundPolicy::Open {
            return self.answer(Want::Refund, request).await;
        }
        let (head, body) = request.into_parts();
        let refusal = match self.may_see_keys(&head) {
            Ok(()) => {
                return self.answer(Want::Refund, HttpRequest::from_parts(head, body)).await;
            }
            Err(refusal) => refusal,
        };
        let begun = self.service.engine().now();
        let mut span = self.service.begin_span(Want::Refund.span_name(), &head.headers);
        let refunded = match policy {
            // A wrong token is reported as such.
            RefundPolicy::Proven if !head.headers.contains_key(AUTHORIZATION) => {
                let key = RetryKey::of(&head.headers);
                match receive(body).await {
                    Ok(body) => self.refund_proven(&key, &body, begun, span.as_mut()).await,
                    Err(refusal) => Err(refusal),
                }
            }
            _ => Err(refusal),
        };
        self.leave(Endpoint::Refund, begun, refunded, span)
    }

    async fn refund_proven(
        &self,
        key: &RetryKey,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<Kept, Refusal> {
        let _under_way = self.begin(Endpoint::Refund, key)?;
        if let Some(kept) = self.before(Endpoint::Refund, key, body, now)? {
            return Ok(kept);
        }
        if !self.take_charge(key, body, now)? {
            return Err(Refusal::unproven());
        }
        let kept = self.answered(Want::Refund, body, now, span).await?;
        self.keep(Endpoint::Refund, key, body, &kept, now);
        Ok(kept)
    }
}
