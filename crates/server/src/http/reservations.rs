//! `/v1/reserve`, `/v1/commit`, `/v1/cancel` and `/v1/wait`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use sluicegate::backend::Call;
use sluicegate::{Checked, HoldError, Refusal, Span, Timestamp};

use super::Api;
use super::body::receive;
use super::check::RESPONSE_BYTES;
use super::error::ApiError;
use super::idempotency::{ApiResponse, IdempotencyHeader, replayed};
use super::openapi::{ErrorResponses, IdempotencyResponses};
use super::request::{DurationField, RequestError, SettleBody, read_settle, read_timed};
use super::response::{number, text, write_statuses};
use super::schema::{
    CancelRequest, CommitRequest, DeniedResponse, ReserveRequest, ReserveResponse, SettleResponse,
    WaitRequest, WaitResponse,
};
use crate::reservations::{
    ReservationError, Reservations, TTL, TTL_MAX, Ticket, WAIT_TIMEOUT, WAIT_TIMEOUT_MAX,
};
use crate::rls::response::Code;
use crate::telemetry::Endpoint;
use crate::traces;

const TTL_MS: DurationField =
    DurationField { name: "ttl_ms", min: 1, max: millis(TTL_MAX), default: millis(TTL) };
const TIMEOUT_MS: DurationField = DurationField {
    name: "timeout_ms",
    min: 0,
    max: millis(WAIT_TIMEOUT_MAX),
    default: millis(WAIT_TIMEOUT),
};

/// Decides a request whose cost is known only later: charges the estimate, to be settled by
/// `/v1/commit` or `/v1/cancel`. It expires after `ttl_ms`.
#[utoipa::path(
    post, path = "/v1/reserve", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = ReserveRequest, example = json!({ "domain": "example", "descriptors": [{ "tokens": "me" }], "hits": 400, "ttl_ms": 60000 })),
    responses(
        (status = 200, description = "Admitted and reserved.", body = ReserveResponse),
        (status = 429, description = "Denied, as from `/v1/check`.", body = DeniedResponse),
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn reserve(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond_reservation(Endpoint::Reserve, "POST /v1/reserve", request).await
}

/// Settles a reservation with what was used: the rest is refunded, an excess is charged, into debt
/// if need be.
#[utoipa::path(
    post, path = "/v1/commit", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = CommitRequest, example = json!({ "reservation": "AQ…", "hits": 250 })),
    responses(
        (status = 200, description = "Settled.", body = SettleResponse),
        (status = 404, description = "Unknown or settled reservation.", body = super::schema::ErrorResponse),
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn commit(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond_reservation(Endpoint::Commit, "POST /v1/commit", request).await
}

/// Cancels a reservation, or releases a concurrency slot.
#[utoipa::path(
    post, path = "/v1/cancel", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = CancelRequest, example = json!({ "reservation": "AQ…" })),
    responses(
        (status = 200, description = "Refunded.", body = SettleResponse),
        (status = 404, description = "Unknown or settled reservation.", body = super::schema::ErrorResponse),
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn cancel(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond_reservation(Endpoint::Cancel, "POST /v1/cancel", request).await
}

/// Waits until a request is admitted; denies it at once if that would take longer than
/// `timeout_ms`. Closing the connection gives the turn up.
#[utoipa::path(
    post, path = "/v1/wait", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = WaitRequest, example = json!({ "domain": "example", "descriptors": [{ "remote_address": "192.0.2.7" }], "timeout_ms": 30000 })),
    responses(
        (status = 200, description = "Admitted.", body = WaitResponse),
        (status = 409, description = "A request with this `Idempotency-Key` is in progress.", body = super::schema::ErrorResponse),
        (status = 429, description = "Denied: the wait is too long. As from `/v1/check`.", body = DeniedResponse),
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn wait(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    let span = api.app.begin_span("POST /v1/wait", request.headers());
    let key = IdempotencyHeader::of(request.headers());
    let received = receive(request.into_body()).await;
    let begun = api.app.engine().now();
    let result = match received {
        Ok(body) => api.wait(&key, &body, begun).await,
        Err(error) => Err(error),
    };
    api.finish(Endpoint::Wait, begun, result, span)
}

impl Api {
    /// Receives a request about a reservation and responds.
    async fn respond_reservation(
        &self,
        endpoint: Endpoint,
        span_name: &'static str,
        request: HttpRequest,
    ) -> Response {
        let mut span = self.app.begin_span(span_name, request.headers());
        let key = IdempotencyHeader::of(request.headers());
        let received = receive(request.into_body()).await;
        let begun = self.app.engine().now();
        let result = match received {
            Ok(body) => {
                let decided = self.decide_reservation(endpoint, &body, begun, span.as_mut());
                self.idempotent(endpoint, &key, &body, begun, decided).await
            }
            Err(error) => Err(error),
        };
        self.finish(endpoint, begun, result, span)
    }

    async fn decide_reservation(
        &self,
        endpoint: Endpoint,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        if endpoint == Endpoint::Reserve {
            return self.reserve(body, now, span).await;
        }
        let is_commit = endpoint == Endpoint::Commit;
        let SettleBody { reservation, hits } = read_settle(body, &self.options.limits, is_commit)?;
        self.settle(&reservation, hits, now).await
    }

    async fn reserve(
        &self,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<ApiResponse, ApiError> {
        let (check, ttl_ms) = read_timed(body, &self.options.limits, TTL_MS)?;
        let rules = self.app.engine().snapshot();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = &parts.request(&descriptors);
        let checked = &mut Checked::default();
        let (engine, call) = (self.app.engine(), Call::new(&rules, request, now));
        let ttl = Span::from_millis(ttl_ms);
        let ticket = self.app.reservations().reserve(engine, call, ttl, checked).await?;
        self.app.record_unmatched(&rules, request, checked)?;
        let is_denied = self.app.code_of(&rules, request, checked) == Code::OverLimit;
        if let Some(span) = span {
            self.record_in_span(span, request, &rules, checked, is_denied);
        }
        let ticket = match ticket {
            // Shadow mode: admitted, with nothing to settle.
            None if !is_denied => Some(Reservations::reserve_nothing(request)?),
            ticket => ticket,
        };
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        out.push(b'{');
        self.write_result(!is_denied, is_denied, call, checked, &mut out);
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
            number(&mut out, r#","expires_after_ms":"#, ttl_ms);
        }
        out.push(b'}');
        Ok(self.response(true, is_denied, &rules, now, checked, out))
    }

    /// Settles with what was used, or cancels.
    async fn settle(
        &self,
        reservation: &str,
        used: Option<u64>,
        now: Timestamp,
    ) -> Result<ApiResponse, ApiError> {
        let ticket = Ticket::decode(reservation).map_err(ReservationError::from)?;
        let rules = self.app.engine().snapshot();
        let checked = &mut Checked::default();
        let (reservations, engine) = (self.app.reservations(), self.app.engine());
        let returned = reservations.settle(engine, &rules, &ticket, used, now, checked).await?;
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        number(&mut out, r#"{"returned":"#, returned);
        out.push(b',');
        write_statuses(checked, &rules, &mut out);
        out.push(b'}');
        Ok(self.response(true, false, &rules, now, checked, out))
    }

    async fn wait(
        &self,
        key: &IdempotencyHeader,
        body: &Bytes,
        now: Timestamp,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        let keyed = key.keyed(Endpoint::Wait, body)?;
        self.app.idempotent_later(keyed, now, self.wait_for_turn(body)).await.map(replayed)
    }

    async fn wait_for_turn(&self, body: &Bytes) -> Result<ApiResponse, ApiError> {
        let (check, timeout_ms) = read_timed(body, &self.options.limits, TIMEOUT_MS)?;
        let engine = self.app.engine();
        let mut health = self.app.health().changes();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = parts.request(&descriptors);
        let timeout = Span::from_millis(timeout_ms);
        let turn = self.app.reservations().wait(engine, &request, timeout);
        let (waited, ticket) = tokio::select! {
            waited = turn => waited?,
            // Another node may have the time.
            _ = health.wait_for(|state| state.draining) => return Err(ApiError::draining()),
        };
        let (rules, now) = (engine.snapshot(), engine.now());
        let checked = &waited.checked;
        self.app.record_unmatched(&rules, &request, checked)?;
        let is_denied = self.app.code_of(&rules, &request, checked) == Code::OverLimit;
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        out.push(b'{');
        let call = Call::new(&rules, &request, now);
        self.write_result(!is_denied, is_denied, call, checked, &mut out);
        if !is_denied {
            number(&mut out, r#","waited_ms":"#, waited.waited.as_micros() / 1_000);
        }
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
        }
        out.push(b'}');
        Ok(self.response(true, is_denied, &rules, now, checked, out))
    }
}

const fn millis(span: Span) -> u64 {
    span.as_micros() / 1_000
}

impl From<ReservationError> for ApiError {
    fn from(error: ReservationError) -> Self {
        let message = error.to_string();
        match &error {
            ReservationError::Hold(HoldError::Unknown) => {
                Self::new(StatusCode::NOT_FOUND, "unknown_reservation", message)
            }
            ReservationError::Hold(
                HoldError::CountsAtOnce { descriptor } | HoldError::Eventual { descriptor },
            ) => {
                let field = format!("descriptors[{descriptor}]");
                Self::invalid(message).with_context(json!({ "field": field }))
            }
            ReservationError::Hold(HoldError::Store(_)) => Self::store(error),
            ReservationError::TooManyReservations { .. }
            | ReservationError::TooManyWaiting { .. }
            | ReservationError::Hold(HoldError::Refused(Refusal::TooManyHolds { .. })) => {
                Self::too_many(message)
            }
            _ => Self::invalid(message),
        }
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::malformed(&error)
    }
}
