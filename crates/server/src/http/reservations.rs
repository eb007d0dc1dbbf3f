//! `/v1/reserve`, `/v1/commit`, `/v1/renew`, `/v1/cancel` and `/v1/wait`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use serde_json::json;
use sluicegate::backend::Call;
use sluicegate::{Checked, HoldError, Refusal, Snapshot, Span, Timestamp};

use super::Api;
use super::body::receive;
use super::check::{RESPONSE_BYTES, check_pool};
use super::code::ErrorCode;
use super::error::ApiError;
use super::idempotency::{ApiResponse, IdempotencyHeader, replayed};
use super::openapi::{ErrorResponses, IdempotencyResponses, ReservationResponses};
use super::request::{
    DurationField, ParsedCheck, RequestError, SettleBody, SettleOperation, read_settle, read_timed,
};
use super::response::{number, text, write_statuses};
use super::schema::{
    CancelRequest, CommitRequest, DeniedResponse, RenewRequest, RenewResponse, ReserveRequest,
    ReserveResponse, SettleResponse, WaitRequest, WaitResponse,
};
use crate::reservations::{
    ReservationError, Reservations, TTL, TTL_MAX, Ticket, TicketError, WAIT_TIMEOUT,
    WAIT_TIMEOUT_MAX,
};
use crate::rls::response::Code;
use crate::telemetry::Endpoint;
use crate::traces;

const TTL_MS: DurationField = DurationField { name: "ttl_ms", min: 1, max: millis(TTL_MAX) };
const TIMEOUT_MS: DurationField =
    DurationField { name: "timeout_ms", min: 0, max: millis(WAIT_TIMEOUT_MAX) };

/// Decides a request whose cost is known only later: charges the estimate, to be settled by
/// `/v1/commit` or `/v1/cancel`. It expires after `ttl_ms`. With `timeout_ms` it waits until it is
/// admitted, as `/v1/wait`.
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
/// if need be. With `partial` the rest stays reserved, and a later commit counts what was used
/// since.
#[utoipa::path(
    post, path = "/v1/commit", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = CommitRequest, example = json!({ "reservation": "AQ…", "hits": 250 })),
    responses(
        (status = 200, description = "Settled.", body = SettleResponse),
        ReservationResponses,
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn commit(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond_reservation(Endpoint::Commit, "POST /v1/commit", request).await
}

/// Restarts the lifetime of a reservation, and the leases of its slots.
#[utoipa::path(
    post, path = "/v1/renew", tag = "limits",
    request_body(content = RenewRequest, example = json!({ "reservation": "AQ…", "ttl_ms": 60000 })),
    responses(
        (status = 200, description = "Renewed.", body = RenewResponse),
        ReservationResponses,
        ErrorResponses,
    ),
)]
pub(super) async fn renew(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond_reservation(Endpoint::Renew, "POST /v1/renew", request).await
}

/// Cancels a reservation, or releases a concurrency slot.
#[utoipa::path(
    post, path = "/v1/cancel", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = CancelRequest, example = json!({ "reservation": "AQ…" })),
    responses(
        (status = 200, description = "Refunded.", body = SettleResponse),
        ReservationResponses,
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
            Ok(body) => self.decide_reservation(endpoint, &key, &body, begun, span.as_mut()).await,
            Err(error) => Err(error),
        };
        self.finish(endpoint, begun, result, span)
    }

    async fn decide_reservation(
        &self,
        endpoint: Endpoint,
        key: &IdempotencyHeader,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        let operation = match endpoint {
            Endpoint::Commit => SettleOperation::Commit { hits: 0, partial: false },
            Endpoint::Renew => SettleOperation::Renew { ttl: TTL_MS, ttl_ms: 0 },
            Endpoint::Cancel => SettleOperation::Cancel,
            _ => return self.reserve(key, body, now, span).await,
        };
        let SettleBody { reservation, operation } =
            read_settle(body, &self.options.limits, operation)?;
        let settled = self.settle(&reservation, operation, now);
        match operation {
            // A renewal may be repeated.
            SettleOperation::Renew { .. } => settled.await,
            _ => self.idempotent(endpoint, key, body, now, settled).await,
        }
    }

    async fn reserve(
        &self,
        key: &IdempotencyHeader,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<ApiResponse, ApiError> {
        let (check, [ttl_ms, timeout_ms]) =
            read_timed(body, &self.options.limits, &[TTL_MS, TIMEOUT_MS])?;
        let ttl = ttl_ms.map_or(TTL, Span::from_millis);
        match timeout_ms {
            None => {
                let reserved = self.reserve_now(&check, ttl, now, span);
                self.idempotent(Endpoint::Reserve, key, body, now, reserved).await
            }
            Some(timeout_ms) => {
                let keyed = key.keyed(Endpoint::Reserve, body)?;
                let reserved = self.wait_for_turn(&check, Some(ttl), timeout_ms);
                self.app.idempotent_later(keyed, now, reserved).await.map(replayed)
            }
        }
    }

    async fn reserve_now(
        &self,
        check: &ParsedCheck<'_>,
        ttl: Span,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<ApiResponse, ApiError> {
        let rules = self.app.engine().snapshot();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = &parts.request(&descriptors);
        check_pool(check, &rules)?;
        let checked = &mut Checked::default();
        let (engine, call) = (self.app.engine(), Call::new(&rules, request, now));
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
        let limits = self.limit_states(check, call, checked).await?;
        self.write_result(!is_denied, is_denied, call, checked, &limits, &mut out);
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
            write_expiry(&rules, checked, ttl, now, &mut out);
        }
        out.push(b'}');
        Ok(self.response(true, is_denied, &rules, now, checked, out))
    }

    /// Commits, renews or cancels.
    async fn settle(
        &self,
        reservation: &str,
        operation: SettleOperation,
        now: Timestamp,
    ) -> Result<ApiResponse, ApiError> {
        let ticket = &Ticket::decode(reservation).map_err(ReservationError::from)?;
        let rules = &self.app.engine().snapshot();
        let checked = &mut Checked::default();
        let (reservations, engine) = (self.app.reservations(), self.app.engine());
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        let used = match operation {
            SettleOperation::Renew { ttl_ms, .. } => {
                let ttl = Span::from_millis(ttl_ms);
                let left = reservations.renew(engine, rules, ticket, ttl, now, checked).await?;
                number(&mut out, r#"{"expires_after_ms":"#, millis(left));
                out.push(b'}');
                return Ok(self.response(false, false, rules, now, checked, out));
            }
            SettleOperation::Commit { hits, partial: true } => {
                let held =
                    reservations.commit_part(engine, rules, ticket, hits, now, checked).await?;
                number(&mut out, r#"{"held":"#, held);
                number(&mut out, r#","returned":"#, 0);
                None
            }
            SettleOperation::Commit { hits, partial: false } => Some(Some(hits)),
            SettleOperation::Cancel => Some(None),
        };
        if let Some(used) = used {
            let returned = reservations.settle(engine, rules, ticket, used, now, checked).await?;
            number(&mut out, r#"{"returned":"#, returned);
        }
        out.push(b',');
        write_statuses(checked, &[], rules, &mut out);
        out.push(b'}');
        Ok(self.response(true, false, rules, now, checked, out))
    }

    async fn wait(
        &self,
        key: &IdempotencyHeader,
        body: &Bytes,
        now: Timestamp,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        let keyed = key.keyed(Endpoint::Wait, body)?;
        let (check, [timeout_ms]) = read_timed(body, &self.options.limits, &[TIMEOUT_MS])?;
        let timeout_ms = timeout_ms.unwrap_or(millis(WAIT_TIMEOUT));
        let admitted = self.wait_for_turn(&check, None, timeout_ms);
        self.app.idempotent_later(keyed, now, admitted).await.map(replayed)
    }

    /// Waits until a check is admitted, and reserves it for `ttl`, if there is one.
    async fn wait_for_turn(
        &self,
        check: &ParsedCheck<'_>,
        ttl: Option<Span>,
        timeout_ms: u64,
    ) -> Result<ApiResponse, ApiError> {
        let engine = self.app.engine();
        let mut health = self.app.health().changes();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = parts.request(&descriptors);
        check_pool(check, &engine.snapshot())?;
        let timeout = Span::from_millis(timeout_ms);
        let reservations = self.app.reservations();
        let turn = async {
            match ttl {
                None => reservations.wait(engine, &request, timeout).await,
                Some(ttl) => reservations.reserve_waiting(engine, &request, ttl, timeout).await,
            }
        };
        let (waited, ticket) = tokio::select! {
            waited = turn => waited?,
            // Another node may have the time.
            _ = health.wait_for(|state| state.draining) => return Err(ApiError::draining()),
        };
        let (rules, now) = (waited.rules, waited.decided_at);
        let checked = &waited.checked;
        self.app.record_unmatched(&rules, &request, checked)?;
        let is_denied = self.app.code_of(&rules, &request, checked) == Code::OverLimit;
        let ticket = match ticket {
            // Shadow mode: admitted, with nothing to settle.
            None if !is_denied && ttl.is_some() => Some(Reservations::reserve_nothing(&request)?),
            ticket => ticket,
        };
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        out.push(b'{');
        let call = Call::new(&rules, &request, now);
        let limits = self.limit_states(check, call, checked).await?;
        self.write_result(!is_denied, is_denied, call, checked, &limits, &mut out);
        if !is_denied {
            number(&mut out, r#","waited_ms":"#, waited.waited.as_micros() / 1_000);
        }
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
            if let Some(ttl) = ttl {
                write_expiry(&rules, checked, ttl, now, &mut out);
            }
        }
        out.push(b'}');
        Ok(self.response(true, is_denied, &rules, now, checked, out))
    }
}

/// Appends the time after which the first part of a reservation expires.
fn write_expiry(
    rules: &Snapshot<'_>,
    checked: &Checked,
    ttl: Span,
    now: Timestamp,
    out: &mut Vec<u8>,
) {
    let lease = rules.lease(&checked.plan, now).filter(|_| checked.allowed);
    number(out, r#","expires_after_ms":"#, millis(lease.map_or(ttl, |lease| lease.min(ttl))));
}

const fn millis(span: Span) -> u64 {
    span.as_micros() / 1_000
}

impl From<ReservationError> for ApiError {
    fn from(error: ReservationError) -> Self {
        let message = error.to_string();
        if let Some(reason) = error.gone_reason() {
            let context = json!({ "reason": reason });
            return Self::new(ErrorCode::SettledReservation, message).with_context(context);
        }
        match &error {
            ReservationError::Ticket(TicketError::Malformed) => {
                Self::new(ErrorCode::UnknownReservation, message)
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
