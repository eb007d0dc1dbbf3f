//! `/v1/check`, `/v1/peek` and `/v1/refund`, and what they share with `/v1/keys/…`.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use sluicegate::http::VerdictResponse;
use sluicegate::rules::plan::DomainStatus;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Snapshot, Timestamp};

use super::Answering;
use super::error::{JSON, PROBLEM, Refusal};
use super::openapi::{NotYours, Refusals, Repeated};
use super::options::Body;
use super::receive::receive;
use super::request::{Ask, Check, read};
use super::response::{write_checked, write_inspected};
use super::retried::RetryKey;
use super::schema::{Answered, Asked, Denied};
use crate::reservations::Kept;
use crate::rls::response::Code;
use crate::status::{policies, spokesman, write_numbers};
use crate::telemetry::{Door, Happening};
use crate::traces::Span;

/// What is to be done with a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Check,
    Peek,
    Refund,
    Inspect,
    Reset,
}

/// How large most answers are.
pub(super) const ANSWER_BYTES: usize = 512;
/// How many headers most answers have; axum adds the length.
const HEADERS: usize = 7;

/// May this go? If so, everything that it is under is charged.
#[utoipa::path(
    post, path = "/v1/check", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. Whoever asks again with the same key and body gets the first answer, and is not charged again.")),
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses(
        (status = 200, description = "It may; or answers to several checks, whatever they say.", body = Answered),
        (status = 429, description = "It may not.", body = Denied, headers(
            ("X-RateLimit-Limit" = u64, description = "The quota of the limit that decided."),
            ("X-RateLimit-Remaining" = u64, description = "What is left of it."),
            ("X-RateLimit-Reset" = u64, description = "When it is full, in UNIX seconds."),
            ("X-RateLimit-Retry-After" = u64, description = "Seconds to wait."),
            ("Retry-After" = u64, description = "The same."),
            ("RateLimit" = String, description = "What is left of the limit that decided."),
            ("RateLimit-Policy" = String, description = "All limits of the rule."),
        )),
        Refusals, Repeated,
    ),
)]
pub(super) async fn check(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.answer(Want::Check, request).await
}

/// Would it go? Nothing is charged. Also a `false` comes with 200: nothing was denied.
#[utoipa::path(
    post, path = "/v1/peek", tag = "limits",
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "Whether it would.", body = Answered), Refusals),
)]
pub(super) async fn peek(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.answer(Want::Peek, request).await
}

/// Refunds a charged check, once. Requires the idempotency key and the body of that check, or the
/// operator token.
#[utoipa::path(
    post, path = "/v1/refund", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "The key of the check. A repeated refund gets the first answer. Optional for operators.")),
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "How the limits stand now.", body = Answered), Refusals, Repeated, NotYours),
)]
pub(super) async fn refund(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.refund(request).await
}

thread_local! {
    /// Used again and again: no request asks for memory that the one before it had.
    static CHECKED: RefCell<Checked> = RefCell::default();
}

impl Answering {
    /// Reads what is asked, has it judged, and writes what was said.
    pub(super) async fn answer(&self, want: Want, request: HttpRequest) -> Response {
        let span = self.service.begin_span(want.span_name(), request.headers());
        let key = RetryKey::of(request.headers());
        let received = receive(request.into_body()).await;
        self.conclude(want, key, received, span).await
    }

    /// The same of a body that is here, or will never be.
    pub(super) async fn conclude(
        &self,
        want: Want,
        key: RetryKey,
        received: Result<Bytes, Refusal>,
        mut span: Option<Span>,
    ) -> Response {
        let begun = self.service.engine().now();
        let answered = match received {
            Ok(body) => {
                let answer = self.answered(want, &body, begun, span.as_mut());
                if want.changes() {
                    self.once(want.endpoint(), &key, &body, begun, answer).await
                } else {
                    answer.await
                }
            }
            Err(refusal) => Err(refusal),
        };
        self.leave(want.endpoint(), begun, answered, span)
    }

    /// Counts an answer, and lets it go.
    pub(super) fn leave(
        &self,
        endpoint: Endpoint,
        begun: Timestamp,
        answered: Result<Kept, Refusal>,
        span: Option<Span>,
    ) -> Response {
        let now = self.service.engine().now();
        if let Some(span) = span {
            span.end(now);
        }
        let telemetry = self.service.telemetry();
        match answered {
            Ok(answer) => {
                telemetry.record_response(endpoint, now.since(begun));
                let mut response = Response::new(answer.body.into());
                *response.status_mut() = answer.status;
                *response.headers_mut() = answer.headers;
                response
            }
            Err(refusal) => {
                telemetry.record_failure(endpoint, refusal.fault);
                refusal.response(self.options.body)
            }
        }
    }

    pub(super) async fn answered(
        &self,
        want: Want,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<Kept, Refusal> {
        if !self.service.health().has_rules() {
            return Err(Refusal::no_rules());
        }
        let ask = read(body, &self.options.most).map_err(|not| Refusal::not_asked(&not))?;
        let rules = self.service.engine().snapshot();
        let mut out = Vec::with_capacity(ANSWER_BYTES);
        let mut checked = CHECKED.take();
        let kept = match &*ask.checks {
            [one] if !ask.many => {
                let denied = self.one(want, one, &rules, now, &mut checked, &mut out).await?;
                if let Some(span) = span {
                    one.ask(|request| self.tell_span(span, request, &rules, &checked, denied));
                }
                let told = want != Want::Inspect;
                self.finish(told, denied, &rules, now, &checked, out)
            }
            _ => {
                self.many(want, &ask, &rules, now, &mut checked, &mut out).await?;
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
                Kept { status: StatusCode::OK, headers, body: out.into(), is_refundable: false }
            }
        };
        CHECKED.set(checked);
        Ok(kept)
    }

    pub(super) fn tell_span(
        &self,
        span: &mut Span,
        request: &Request<'_>,
        rules: &Snapshot<'_>,
        checked: &Checked,
        denied: bool,
    ) {
        let code = if denied { Code::OverLimit } else { Code::Ok };
        span.set("ratelimit.domain", request.domain);
        self.service.tell_span(span, rules, checked, code);
    }

    /// An answer to one check: what was written, with its status and headers. The latter tell of limits, if they are to.
    pub(super) fn finish(
        &self,
        told: bool,
        denied: bool,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        out: Vec<u8>,
    ) -> Kept {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        if told {
            self.tell(denied, rules, now, checked, &mut headers);
        }
        let mut content_type = JSON;
        if denied {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            if self.options.body == Body::Problem {
                content_type = PROBLEM;
            }
        }
        headers.insert(CONTENT_TYPE, content_type);
        let status = if denied { self.options.style.denied } else { StatusCode::OK };
        let is_refundable = charged_all(checked);
        Kept { status, headers, body: out.into(), is_refundable }
    }

    async fn many(
        &self,
        want: Want,
        ask: &Ask<'_>,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &mut Checked,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        out.extend_from_slice(br#"{"answers":["#);
        for (place, check) in ask.checks.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            self.one(want, check, rules, now, checked, out).await?;
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }

    /// Does what is wanted, and appends the answer; whether it is a denial.
    async fn one(
        &self,
        want: Want,
        check: &Check<'_>,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &mut Checked,
        out: &mut Vec<u8>,
    ) -> Result<bool, Refusal> {
        out.push(b'{');
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = &parts.request(&descriptors);
        let counters = self.service.counters();
        let asked = match want {
            Want::Check => counters.check(rules, request, now, checked).await,
            Want::Peek => counters.peek(rules, request, now, checked).await,
            Want::Refund => counters.refund(rules, request, now, checked).await,
            Want::Reset => counters.reset(rules, request, now, checked).await,
            Want::Inspect => {
                let inspected = counters.inspect(rules, request, now).await;
                write_inspected(&inspected.map_err(Refusal::store)?, rules, out);
                out.push(b'}');
                return Ok(false);
            }
        };
        asked.map_err(Refusal::store)?;
        self.count_unknown(checked);
        let allowed = match want {
            Want::Check => self.service.code_of(rules, checked) == Code::Ok,
            _ => self.service.would_allow(rules, checked),
        };
        let denied = want == Want::Check && !allowed;
        self.write(allowed, denied, rules, now, checked, out);
        out.push(b'}');
        Ok(denied)
    }

    pub(super) fn count_unknown(&self, checked: &Checked) {
        if checked.domain() == DomainStatus::Unknown {
            self.service.telemetry().record(Event::UnknownDomain);
        }
    }

    /// Appends the fields of an answer; a denial is an error too.
    pub(super) fn write(
        &self,
        allowed: bool,
        denied: bool,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        out: &mut Vec<u8>,
    ) {
        if denied && let Some(status) = spokesman(false, &checked.statuses) {
            let policies = policies(status.target, rules);
            let told = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
            let written = match self.options.body {
                Body::Envelope => told.write_error(out),
                Body::Problem => told.write_problem(&self.options.style, out),
            };
            if written {
                out.push(b',');
            }
        }
        write_checked(allowed, checked, rules, out);
    }

    /// Writes the headers of an answer to one check.
    pub(super) fn tell(
        &self,
        denied: bool,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        headers: &mut HeaderMap,
    ) {
        let style = &self.options.style;
        if denied {
            if let Some(status) = spokesman(false, &checked.statuses) {
                let policies = policies(status.target, rules);
                let told = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
                told.write_headers(style, headers);
            }
        } else {
            // Where nothing is enforced, whoever would have been denied speaks for the others.
            let would_deny = spokesman(false, &checked.statuses).filter(|_| !checked.allowed);
            let status = would_deny.or_else(|| spokesman(true, &checked.statuses));
            if let Some(status) = status {
                write_numbers(status, rules, now, style, headers);
            }
        }
    }
}

/// Whether every descriptor was charged. A shadow rule or a quota that denies is not charged
/// although the request passes.
pub(crate) fn charged_all(checked: &Checked) -> bool {
    let mut verdicts = checked.statuses.iter().map(|status| &status.verdict);
    verdicts.all(|verdict| {
        verdict.is_allowed() && verdict.shadow.is_none_or(|outcome| outcome.is_allowed())
    })
}

impl Want {
    /// Whether it changes a count, so that it matters whether it is asked twice.
    const fn changes(self) -> bool {
        matches!(self, Self::Check | Self::Refund)
    }

    pub(super) const fn span_name(self) -> &'static str {
        match self {
            Self::Check => "POST /v1/check",
            Self::Peek => "POST /v1/peek",
            Self::Refund => "POST /v1/refund",
            Self::Inspect => "POST /v1/keys/inspect",
            Self::Reset => "POST /v1/keys/reset",
        }
    }

    pub(super) const fn endpoint(self) -> Endpoint {
        match self {
            Self::Check => Endpoint::Check,
            Self::Peek => Endpoint::Peek,
            Self::Refund => Endpoint::Refund,
            Self::Inspect | Self::Reset => Endpoint::Keys,
        }
    }
}
