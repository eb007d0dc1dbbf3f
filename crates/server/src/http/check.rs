//! `/v1/check`, `/v1/peek` and `/v1/refund`, and how every endpoint decides and responds.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use sluicegate::backend::Call;
use sluicegate::http::{Style, VerdictResponse};
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Inspected, Operation, Snapshot, Timestamp};

use super::body::receive;
use super::error::{ApiError, JSON, PROBLEM};
use super::idempotency::{ApiResponse, IdempotencyHeader};
use super::openapi::{ErrorResponses, IdempotencyResponses, OperatorResponses};
use super::operator::check_credits;
use super::request::{ParsedCheck, ParsedChecks, read_checks};
use super::response::{text, write_checked, write_inspected};
use super::schema::{CheckBody, CheckResponse, DeniedResponse};
use super::{Api, ErrorFormat};
use crate::reservations::Reservations;
use crate::rls::response::Code;
use crate::status::{charged_all, denying_status, policies, write_limit_headers};
use crate::telemetry::Endpoint;
use crate::traces::Span;
use crate::unmatched::UnmatchedError;

/// Operation on the counters of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckOperation {
    Check,
    Peek,
    Refund,
    Inspect,
    Reset,
    Credit,
}

/// Capacity of a response body.
pub(super) const RESPONSE_BYTES: usize = 512;
/// Headers of most responses; axum adds the length.
const HEADERS: usize = 7;

/// Decides a request, and charges its limits if it is admitted.
#[utoipa::path(
    post, path = "/v1/check", tag = "limits",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and is not charged again.")),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses(
        (status = 200, description = "Admitted; or the results of several checks, admitted or denied.", body = CheckResponse),
        (status = 429, description = "Denied.", body = DeniedResponse, headers(
            ("X-RateLimit-Limit" = u64, description = "Quota of the limit that decided."),
            ("X-RateLimit-Remaining" = u64, description = "Remaining quota."),
            ("X-RateLimit-Reset" = u64, description = "When the limit is full, in UNIX seconds."),
            ("X-RateLimit-Retry-After" = u64, description = "Seconds to wait."),
            ("Retry-After" = u64, description = "Seconds to wait."),
            ("RateLimit" = String, description = "Remaining quota of the limit that decided."),
            ("RateLimit-Policy" = String, description = "All limits of the rule."),
        )),
        ErrorResponses, IdempotencyResponses,
    ),
)]
pub(super) async fn check(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond(CheckOperation::Check, request).await
}

/// Decides a request without charging it. A denial has status 200 too.
#[utoipa::path(
    post, path = "/v1/peek", tag = "limits",
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "Whether it would be admitted.", body = CheckResponse), ErrorResponses),
)]
pub(super) async fn peek(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.respond(CheckOperation::Peek, request).await
}

/// Refunds a charged check, once. Requires the idempotency key and the body of that check, or the
/// operator token.
#[utoipa::path(
    post, path = "/v1/refund", tag = "limits",
    security((), ("operator_token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The key of the check. A repeated refund gets the first response. Optional for operators.")),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "State of the limits after the refund.", body = CheckResponse), ErrorResponses, IdempotencyResponses, OperatorResponses),
)]
pub(super) async fn refund(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.refund(request).await
}

thread_local! {
    /// Reused by the requests of a thread.
    static CHECKED: RefCell<Checked> = RefCell::default();
}

impl Api {
    /// Receives a request, decides it and responds.
    pub(super) async fn respond(
        &self,
        operation: CheckOperation,
        request: HttpRequest,
    ) -> Response {
        let span = self.app.begin_span(operation.span_name(), request.headers());
        let key = IdempotencyHeader::of(request.headers());
        let received = receive(request.into_body()).await;
        self.respond_to(operation, key, received, span).await
    }

    /// Responds to a request whose body was received, or failed to arrive.
    pub(super) async fn respond_to(
        &self,
        operation: CheckOperation,
        key: IdempotencyHeader,
        received: Result<Bytes, ApiError>,
        mut span: Option<Span>,
    ) -> Response {
        let begun = self.app.engine().now();
        let result = match received {
            Ok(body) => {
                let decided = self.decide_body(operation, &body, begun, span.as_mut());
                if operation.is_charge() {
                    self.idempotent(operation.endpoint(), &key, &body, begun, decided).await
                } else {
                    decided.await
                }
            }
            Err(error) => Err(error),
        };
        self.finish(operation.endpoint(), begun, result, span)
    }

    /// Counts a response and ends its span.
    pub(super) fn finish(
        &self,
        endpoint: Endpoint,
        begun: Timestamp,
        result: Result<ApiResponse, ApiError>,
        span: Option<Span>,
    ) -> Response {
        let now = self.app.engine().now();
        if let Some(span) = span {
            span.end(now);
        }
        let telemetry = self.app.telemetry();
        match result {
            Ok(ApiResponse { status, headers, body, .. }) => {
                telemetry.record_response(endpoint, now.since(begun));
                let mut response = Response::new(body.into());
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response
            }
            Err(error) => {
                telemetry.record_failure(endpoint, error.fault);
                error.response(self.options.error_format)
            }
        }
    }

    /// Decides the checks of a body.
    pub(super) async fn decide_body(
        &self,
        operation: CheckOperation,
        body: &Bytes,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<ApiResponse, ApiError> {
        let batch = read_checks(body, &self.options.limits)?;
        self.decide_batch(operation, batch, now, span).await
    }

    /// Refunds a check to the pools that it has charged.
    pub(super) async fn refund_charged(
        &self,
        body: &Bytes,
        pools: Vec<Option<Box<str>>>,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<ApiResponse, ApiError> {
        let mut batch = read_checks(body, &self.options.limits)?;
        if let [check] = &mut *batch.checks {
            check.charged_pools = pools;
        }
        self.decide_batch(CheckOperation::Refund, batch, now, span).await
    }

    async fn decide_batch(
        &self,
        operation: CheckOperation,
        batch: ParsedChecks<'_>,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        let rules = self.app.engine().snapshot();
        batch.checks.iter().try_for_each(|check| check_pool(check, &rules))?;
        if matches!(operation, CheckOperation::Refund | CheckOperation::Credit) {
            refuse_slots(&batch, &rules)?;
        }
        if operation == CheckOperation::Credit {
            check_credits(&batch, &rules)?;
        }
        let mut out = Vec::with_capacity(RESPONSE_BYTES);
        let mut checked = CHECKED.take();
        let response = match &*batch.checks {
            [check] if !batch.is_list => {
                let is_denied =
                    self.decide(operation, check, &rules, now, &mut checked, &mut out).await?;
                if let Some(span) = span {
                    check.with_request(|request| {
                        self.record_in_span(span, request, &rules, &checked, is_denied);
                    });
                }
                let has_limits = operation != CheckOperation::Inspect;
                self.response(has_limits, is_denied, &rules, now, &checked, out)
            }
            _ => {
                self.decide_list(operation, &batch, &rules, now, &mut checked, &mut out).await?;
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
                ApiResponse { headers, body: out.into(), ..ApiResponse::default() }
            }
        };
        CHECKED.set(checked);
        Ok(response)
    }

    pub(super) fn require_rules(&self) -> Result<(), ApiError> {
        if self.app.health().has_rules() { Ok(()) } else { Err(ApiError::no_rules()) }
    }

    pub(super) fn record_in_span(
        &self,
        span: &mut Span,
        request: &Request<'_>,
        rules: &Snapshot<'_>,
        checked: &Checked,
        is_denied: bool,
    ) {
        let code = if is_denied { Code::OverLimit } else { Code::Ok };
        span.set("ratelimit.domain", request.domain);
        self.app.record_in_span(span, rules, checked, code);
    }

    /// The response to one check: its body, with status and headers.
    pub(super) fn response(
        &self,
        has_limits: bool,
        is_denied: bool,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        body: Vec<u8>,
    ) -> ApiResponse {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        if has_limits {
            self.write_limit_headers(is_denied, rules, now, checked, &mut headers);
        }
        if is_denied {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        headers.insert(CONTENT_TYPE, if is_denied { self.denial_type() } else { JSON });
        let status = if is_denied { self.options.style.denied } else { StatusCode::OK };
        let (is_refundable, mut pools) = (charged_all(checked), Vec::new());
        if is_refundable && checked.statuses.iter().any(|status| rules.pool(status).is_some()) {
            let all = checked.statuses.iter();
            pools = all.map(|status| rules.pool(status).map(Box::from)).collect();
        }
        ApiResponse { status, headers, body: body.into(), is_refundable, pools }
    }

    async fn decide_list(
        &self,
        operation: CheckOperation,
        batch: &ParsedChecks<'_>,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &mut Checked,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        out.extend_from_slice(br#"{"answers":["#);
        for (index, check) in batch.checks.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            self.decide(operation, check, rules, now, checked, out).await?;
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }

    /// Decides one check and appends its result; whether it is denied.
    async fn decide(
        &self,
        operation: CheckOperation,
        check: &ParsedCheck<'_>,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &mut Checked,
        out: &mut Vec<u8>,
    ) -> Result<bool, ApiError> {
        out.push(b'{');
        let parts = check.parts();
        let descriptors = parts.descriptors();
        let request = &parts.request(&descriptors);
        let (engine, call) = (self.app.engine(), Call::new(rules, request, now));
        let applied = match operation {
            CheckOperation::Check => Operation::Hit,
            CheckOperation::Peek => Operation::Peek,
            CheckOperation::Refund | CheckOperation::Credit => Operation::Refund,
            CheckOperation::Reset => Operation::Reset,
            CheckOperation::Inspect => {
                let inspected = engine.inspect(call).await.map_err(ApiError::store)?;
                self.app.reject_unmatched(rules, request, &inspected)?;
                write_inspected(&inspected, rules, out);
                out.push(b'}');
                return Ok(false);
            }
        };
        let mut ticket = None;
        if applied == Operation::Hit && rules.has_slots() {
            ticket = Reservations::check(engine, call, checked).await?;
        } else {
            engine.apply(applied, call, checked).await.map_err(ApiError::store)?;
        }
        self.app.record_unmatched(rules, request, checked)?;
        if applied == Operation::Refund {
            // Rare, and a large future.
            Box::pin(self.peek_one_hit(call, checked)).await;
        }
        let allowed = match operation {
            CheckOperation::Check => self.app.code_of(rules, request, checked) == Code::Ok,
            _ => self.app.would_allow(rules, checked),
        };
        let is_denied = operation == CheckOperation::Check && !allowed;
        let limits = self.limit_states(check, call, checked).await?;
        self.write_result(allowed, is_denied, call, checked, &limits, out);
        if let Some(ticket) = ticket {
            text(out, r#","reservation":"#, &ticket.to_string());
        }
        out.push(b'}');
        Ok(is_denied)
    }

    /// Replaces the statuses of a refund by those of a check of one hit: it may be in debt still.
    async fn peek_one_hit(&self, call: Call<'_>, checked: &mut Checked) {
        let mut descriptors = call.request.descriptors.to_vec();
        descriptors.iter_mut().for_each(|descriptor| descriptor.hits = None);
        let request = Request { descriptors: &descriptors, hits: 1, ..*call.request };
        let mut peeked = Checked::default();
        let call = Call { request: &request, ..call };
        // The refund is done: without the store its own statuses remain.
        if self.app.engine().apply(Operation::Peek, call, &mut peeked).await.is_ok() {
            peeked.returned = std::mem::take(&mut checked.returned);
            *checked = peeked;
        }
    }

    /// Appends the fields of a result; a denial has an error too.
    pub(super) fn write_result(
        &self,
        allowed: bool,
        is_denied: bool,
        call: Call<'_>,
        checked: &Checked,
        limits: &[Inspected],
        out: &mut Vec<u8>,
    ) {
        let (style, format) = (&self.options.style, self.options.error_format);
        if is_denied && write_denial(format, style, call, checked, out) {
            out.push(b',');
        }
        write_checked(allowed, checked, limits, call.rules, out);
    }

    /// The state of every limit after the decision, if the check requests it; else nothing.
    pub(super) async fn limit_states(
        &self,
        check: &ParsedCheck<'_>,
        call: Call<'_>,
        checked: &Checked,
    ) -> Result<Vec<Inspected>, ApiError> {
        if !check.lists_limits {
            return Ok(Vec::new());
        }
        let descriptors = call.rules.with_pools(call.request, &checked.statuses);
        let request = Request { descriptors: &descriptors, ..*call.request };
        let call = Call { request: &request, ..call };
        // Rare, and a large future.
        Box::pin(self.app.engine().inspect(call)).await.map_err(ApiError::store)
    }

    /// Content type of a denial.
    pub(super) const fn denial_type(&self) -> HeaderValue {
        match self.options.error_format {
            ErrorFormat::Envelope => JSON,
            ErrorFormat::Problem => PROBLEM,
        }
    }

    /// Writes the rate limit headers of the response to one check.
    pub(super) fn write_limit_headers(
        &self,
        is_denied: bool,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        headers: &mut HeaderMap,
    ) {
        write_limit_headers(&self.options.style, is_denied, rules, now, checked, headers);
    }
}

/// Requires that a rule of the check has the pool that it names.
pub(super) fn check_pool(check: &ParsedCheck<'_>, rules: &Snapshot<'_>) -> Result<(), ApiError> {
    let Some(pool) = &check.pool else { return Ok(()) };
    match check.with_request(|request| rules.descriptor_with_pool(request, pool)) {
        Some(_) => Ok(()),
        None => Err(ApiError::invalid(format!(
            "`pool`: no rule of the request has a pool `{pool}`; leave it out, or name one of \
             `pools` of its rule"
        ))
        .with_context(json!({ "field": "pool" }))),
    }
}

/// Appends the members of the error of a denial; whether there are any.
pub(super) fn write_denial(
    format: ErrorFormat,
    style: &Style,
    call: Call<'_>,
    checked: &Checked,
    out: &mut Vec<u8>,
) -> bool {
    let Call { rules, request, now, .. } = call;
    if let Some((descriptor, reason)) = checked.denied_unmatched() {
        let error = ApiError::from(UnmatchedError::new(rules, request, descriptor, reason));
        error.with_status(style.denied).write_members(format, out);
        return true;
    }
    let Some(status) = denying_status(&checked.statuses) else { return false };
    let policies = policies(status.target, rules);
    let denial = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
    match format {
        ErrorFormat::Envelope => denial.write_error(out),
        ErrorFormat::Problem => denial.write_problem(style, out),
    }
}

/// Refuses to refund slots: they are released.
pub(super) fn refuse_slots(batch: &ParsedChecks<'_>, rules: &Snapshot<'_>) -> Result<(), ApiError> {
    for check in batch.checks.iter().filter(|_| rules.has_slots()) {
        if let Some(index) = check.with_request(|request| rules.slot_descriptor(request)) {
            return Err(ApiError::slot_refund(index));
        }
    }
    Ok(())
}

impl CheckOperation {
    /// Whether it changes counters, so that a repeated request matters.
    const fn is_charge(self) -> bool {
        matches!(self, Self::Check | Self::Refund | Self::Credit)
    }

    pub(super) const fn span_name(self) -> &'static str {
        match self {
            Self::Check => "POST /v1/check",
            Self::Peek => "POST /v1/peek",
            Self::Refund => "POST /v1/refund",
            Self::Inspect => "POST /v1/keys/inspect",
            Self::Reset => "POST /v1/keys/reset",
            Self::Credit => "POST /v1/keys/credit",
        }
    }

    pub(super) const fn endpoint(self) -> Endpoint {
        match self {
            Self::Check => Endpoint::Check,
            Self::Peek => Endpoint::Peek,
            Self::Refund => Endpoint::Refund,
            Self::Inspect | Self::Reset | Self::Credit => Endpoint::Keys,
        }
    }
}
