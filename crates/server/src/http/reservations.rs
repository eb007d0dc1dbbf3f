//! `/v1/reserve`, `/v1/commit`, `/v1/cancel` and `/v1/wait`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, HoldError, Refusal as CoreRefusal, Span, Timestamp};

use super::Answering;
use super::check::ANSWER_BYTES;
use super::error::Refusal;
use super::openapi::{Refusals, Repeated};
use super::receive::receive;
use super::request::{Timed, read_cancel, read_commit, read_timed};
use super::response::{number, text, write_statuses};
use super::retried::RetryKey;
use super::schema::{Cancels, Commits, Denied, Reserved, Reserves, Settled, Waited, Waits};
use crate::reservations::{Holds, Kept, NotHeld, PATIENCE, PATIENCE_MAX, TTL, TTL_MAX, Ticket};
use crate::rls::response::Code;
use crate::telemetry::Door;
use crate::traces;

const TTL_MS: Timed =
    Timed { field: "ttl_ms", least: 1, most: millis(TTL_MAX), default: millis(TTL) };
const TIMEOUT_MS: Timed =
    Timed { field: "timeout_ms", least: 0, most: millis(PATIENCE_MAX), default: millis(PATIENCE) };

/// May this go, though what it really uses is known only later? If so, the estimate is charged, and settled by `/v1/commit` or `/v1/cancel`. After `ttl_ms` it
/// is given back by itself.
#[utoipa::path(
    post, path = "/v1/reserve", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. Whoever asks again with the same key and body gets the first answer, and is not charged again.")),
    request_body(content = Reserves, example = json!({ "domain": "example", "descriptors": [{ "tokens": "me" }], "hits": 400, "ttl_ms": 60000 })),
    responses(
        (status = 200, description = "It may, and is reserved.", body = Reserved),
        (status = 429, description = "It may not. As from `/v1/check`.", body = Denied),
        Refusals, Repeated,
    ),
)]
pub(super) async fn reserve(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.held(Endpoint::Reserve, "POST /v1/reserve", request).await
}

/// Settles a reservation with what was really used: less gives the rest back, more is charged, into debt if need be.
#[utoipa::path(
    post, path = "/v1/commit", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. Whoever asks again with the same key and body gets the first answer, and is not charged again.")),
    request_body(content = Commits, example = json!({ "reservation": "AQ…", "hits": 250 })),
    responses(
        (status = 200, description = "It is settled.", body = Settled),
        (status = 404, description = "There is no such reservation, or it is settled.", body = super::schema::Refused),
        Refusals, Repeated,
    ),
)]
pub(super) async fn commit(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.held(Endpoint::Commit, "POST /v1/commit", request).await
}

/// Gives a reservation back, or a slot that came with a turn.
#[utoipa::path(
    post, path = "/v1/cancel", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. Whoever asks again with the same key and body gets the first answer, and is not charged again.")),
    request_body(content = Cancels, example = json!({ "reservation": "AQ…" })),
    responses(
        (status = 200, description = "It is given back.", body = Settled),
        (status = 404, description = "There is no such reservation, or it is settled.", body = super::schema::Refused),
        Refusals, Repeated,
    ),
)]
pub(super) async fn cancel(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.held(Endpoint::Cancel, "POST /v1/cancel", request).await
}

/// May this go, if it waits for its turn? The answer comes with the turn, or at once if that would take longer than `timeout_ms`. Whoever closes the
/// connection before gives the turn back.
#[utoipa::path(
    post, path = "/v1/wait", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. Whoever asks again with the same key and body gets the first answer, and is not charged again.")),
    request_body(content = Waits, example = json!({ "domain": "example", "descriptors": [{ "remote_address": "192.0.2.7" }], "timeout_ms": 30000 })),
    responses(
        (status = 200, description = "It may go now.", body = Waited),
        (status = 409, description = "A request with this `Idempotency-Key` is still waiting.", body = super::schema::Refused),
        (status = 429, description = "It may not, for too long a time. As from `/v1/check`.", body = Denied),
        Refusals, Repeated,
    ),
)]
pub(super) async fn wait(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    let span = app.service.begin_span("POST /v1/wait", request.headers());
    let key = RetryKey::of(request.headers());
    let received = receive(request.into_body()).await;
    let begun = app.service.engine().now();
    let answered = match received {
        Ok(body) => app.waited(&key, &body, begun).await,
        Err(refusal) => Err(refusal),
    };
    app.leave(Endpoint::Wait, begun, answered, span)
}

impl Answering {
    /// Reads what is asked, and answers it, or as before.
    async fn held(
        &self,
        endpoint: Endpoint,
        span_name: &'static str,
        request: HttpRequest,
    ) -> Response {
        let mut span = self.service.begin_span(span_name, request.headers());
        let key = RetryKey::of(request.headers());
        let received = receive(request.into_body()).await;
        let begun = self.service.engine().now();
        let answered = match received {
            Ok(body) => {
                let answer = self.answered_at(endpoint, &body, begun, span.as_mut());
                self.once(endpoint, &key, &body, begun, answer).await
            }
            Err(refusal) => Err(refusal),
        };
        self.leave(endpoint, begun, answered, span)
    }

    async fn answered_at(
        &self,
        endpoint: Endpoint,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<Kept, Refusal> {
        self.refuse_without_rules()?;
        match endpoint {
            Endpoint::Reserve => self.reserved(body, now, span).await,
            Endpoint::Commit => self.committed(body, now).await,
            _ => self.cancelled(body, now).await,
        }
    }

    async fn reserved(
        &self,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut traces::Span>,
    ) -> Result<Kept, Refusal> {
        let (check, ttl_ms) =
            read_timed(body, &self.options.most, TTL_MS).map_err(|not| Refusal::not_asked(&not))?;
        let rules = self.service.engine().snapshot();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = &parts.request(&descriptors);
        let checked = &mut Checked::default();
        let (holds, counters) = (self.service.holds(), self.service.counters());
        let ttl = Span::from_millis(ttl_ms);
        let held = holds.reserve(counters, &rules, request, ttl, now, checked).await;
        let ticket = held.map_err(|not| Refusal::not_held(&not))?;
        self.count_unknown(checked);
        let denied = self.service.code_of(&rules, checked) == Code::OverLimit;
        if let Some(span) = span {
            self.tell_span(span, request, &rules, checked, denied);
        }
        let ticket = match ticket {
            None if !denied => Some(nothing_held(request)?),
            ticket => ticket,
        };
        let mut out = Vec::with_capacity(ANSWER_BYTES);
        out.push(b'{');
        self.write(!denied, denied, &rules, now, checked, &mut out);
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
            number(&mut out, r#","expires_after_ms":"#, ttl_ms);
        }
        out.push(b'}');
        Ok(self.finish(true, denied, &rules, now, checked, out))
    }

    async fn committed(&self, body: &Bytes, now: Timestamp) -> Result<Kept, Refusal> {
        let asked = read_commit(body, &self.options.most);
        let settled = asked.map_err(|not| Refusal::not_asked(&not))?;
        self.settled(&settled.reservation, Some(settled.hits), now).await
    }

    async fn cancelled(&self, body: &Bytes, now: Timestamp) -> Result<Kept, Refusal> {
        let asked = read_cancel(body, &self.options.most);
        let settled = asked.map_err(|not| Refusal::not_asked(&not))?;
        self.settled(&settled.reservation, None, now).await
    }

    /// Settles with what was used, or with nothing.
    async fn settled(
        &self,
        reservation: &str,
        used: Option<u64>,
        now: Timestamp,
    ) -> Result<Kept, Refusal> {
        let not_held = |not: NotHeld| Refusal::not_held(&not);
        let ticket = Ticket::read(reservation).map_err(|no| not_held(no.into()))?;
        let rules = self.service.engine().snapshot();
        let checked = &mut Checked::default();
        let (holds, counters) = (self.service.holds(), self.service.counters());
        let returned = match used {
            Some(used) => holds.commit(counters, &rules, &ticket, used, now, checked).await,
            None => holds.cancel(counters, &rules, &ticket, now, checked).await,
        };
        let returned = returned.map_err(not_held)?;
        let mut out = Vec::with_capacity(ANSWER_BYTES);
        number(&mut out, r#"{"returned":"#, returned);
        out.push(b',');
        write_statuses(checked, &rules, &mut out);
        out.push(b'}');
        Ok(self.finish(true, false, &rules, now, checked, out))
    }

    async fn waited(&self, key: &RetryKey, body: &Bytes, now: Timestamp) -> Result<Kept, Refusal> {
        self.refuse_without_rules()?;
        let _under_way = self.begin(Endpoint::Wait, key)?;
        if let Some(kept) = self.before(Endpoint::Wait, key, body, now)? {
            return Ok(kept);
        }
        let (check, timeout_ms) = read_timed(body, &self.options.most, TIMEOUT_MS)
            .map_err(|not| Refusal::not_asked(&not))?;
        let engine = self.service.engine();
        let mut health = self.service.health().changes();
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = parts.request(&descriptors);
        let waiting = self.service.holds().wait(
            self.service.counters(),
            &request,
            Span::from_millis(timeout_ms),
        );
        let (waited, ticket) = tokio::select! {
            waited = waiting => waited.map_err(|not| Refusal::not_held(&not))?,
            // Another may have the time that we have not.
            _ = health.wait_for(|state| state.draining) => return Err(Refusal::draining()),
        };
        let (rules, now) = (engine.snapshot(), engine.now());
        let checked = &waited.checked;
        self.count_unknown(checked);
        let denied = self.service.code_of(&rules, checked) == Code::OverLimit;
        let mut out = Vec::with_capacity(ANSWER_BYTES);
        out.push(b'{');
        self.write(!denied, denied, &rules, now, checked, &mut out);
        if !denied {
            number(&mut out, r#","waited_ms":"#, waited.waited.as_micros() / 1_000);
        }
        if let Some(ticket) = ticket {
            text(&mut out, r#","reservation":"#, &ticket.to_string());
        }
        out.push(b'}');
        let kept = self.finish(true, denied, &rules, now, checked, out);
        self.keep(Endpoint::Wait, key, body, &kept, now);
        Ok(kept)
    }

    fn refuse_without_rules(&self) -> Result<(), Refusal> {
        if self.service.health().has_rules() { Ok(()) } else { Err(Refusal::no_rules()) }
    }
}

/// Nothing is enforced, so that it goes; and nothing is held of it.
fn nothing_held(request: &Request<'_>) -> Result<Ticket, Refusal> {
    Holds::reserve_nothing(request).map_err(|not| Refusal::not_held(&not))
}

const fn millis(span: Span) -> u64 {
    span.as_micros() / 1_000
}

impl Refusal {
    /// Nothing is held, or nothing was settled.
    fn not_held(not: &NotHeld) -> Self {
        match not {
            NotHeld::Hold(HoldError::Unknown) => {
                Self::new(StatusCode::NOT_FOUND, "unknown_reservation", not.to_string())
            }
            NotHeld::Hold(
                HoldError::CountsAtOnce { descriptor } | HoldError::Eventual { descriptor },
            ) => {
                let field = format!("descriptors[{descriptor}]");
                Self::invalid(not.to_string()).with_context(json!({ "field": field }))
            }
            NotHeld::Hold(HoldError::Store(_)) => Self::store(not),
            NotHeld::TooManyReservations { .. }
            | NotHeld::TooManyWait { .. }
            | NotHeld::Hold(HoldError::Refused(CoreRefusal::TooManyHolds { .. })) => {
                Self::too_many(not.to_string())
            }
            _ => Self::invalid(not.to_string()),
        }
    }
}
