//! `ShouldRateLimit`: decode, decide, encode.
//!
//! [`App::answer_local`] decides without waiting: always with counters in memory, and with shared
//! counters as far as this node can decide alone. [`App::answer`] waits for the store. They differ
//! in the decision only.

use std::fmt;

use sluicegate::backend::{Call, StoreError, ready};
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Operation, Snapshot, Status, Timestamp};
use tokio::time::Instant;

use super::metadata;
use super::request::{Charges, RateLimitRequest, RefundRight, WireError, repaired};
use super::response::{Code, HeaderLimit, descriptor_status, put_overall, put_status, seconds};
use crate::app::App;
use crate::status::retry_after;
use crate::telemetry::{Endpoint, Fault};
use crate::traces::Span;

/// Buffers that are reused from one request to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    checked: Checked,
    refunded_before: Checked,
    refunded_after: Checked,
}

/// The call that a request arrived with.
pub struct CallContext<'a> {
    /// The endpoint that the call counts for.
    pub endpoint: Endpoint,
    /// The span of the call.
    pub span: Option<&'a mut Span>,
    /// Deadline of the client.
    pub deadline: Option<Instant>,
    /// Whether the caller has the operator role, which may send negative hits.
    pub is_operator: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind of failure, from which the gRPC status follows.
    pub status: GrpcStatus,
    /// Message for the client.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcStatus {
    /// No rules, domain or descriptors; as envoyproxy/ratelimit answers.
    Unknown = 2,
    /// Malformed request.
    InvalidArgument = 3,
    /// The store did not answer. Sent as [`GrpcStatus::Unknown`], as envoyproxy/ratelimit does.
    Store,
}

impl App {
    /// Decodes a request, decides it, waiting for the store if need be, and appends the response to
    /// `out`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate::{Engine, rules_of};
    /// use sluicegate_server::app::App;
    /// use sluicegate_server::rls::response::Code;
    /// use sluicegate_server::telemetry::Endpoint;
    ///
    /// let rules = "domain: shop\ndescriptors:
    ///   - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }";
    /// let app = App::new(Engine::new(rules_of(rules)?)?);
    ///
    /// let request = b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242";
    /// let (mut out, mut scratch) = (Vec::new(), Default::default());
    /// assert_eq!(app.answer(Endpoint::Json, request, &mut scratch, &mut out).await?, Code::Ok);
    /// let code = app.answer(Endpoint::Json, request, &mut scratch, &mut out).await?;
    /// assert_eq!(code, Code::OverLimit);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the request is malformed, no rules are loaded, or the store does not answer and a rule
    /// reports that. Nothing was written then.
    pub async fn answer<'a>(
        &self,
        call: impl Into<CallContext<'a>>,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        let (call, now) = (call.into(), self.engine().now());
        let endpoint = call.endpoint;
        let answered = self.answer_at(call, bytes, scratch, out, now).await;
        self.record_call(endpoint, now, answered.as_ref().err().map(Failure::fault));
        answered
    }

    async fn answer_at(
        &self,
        call: CallContext<'_>,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
        now: Timestamp,
    ) -> Result<Code, Failure> {
        let mut copy = Vec::new();
        let request = self.decode(bytes, &mut copy)?;
        let rules = self.engine().snapshot();
        let charges = Charges::new(&request, &rules, self.refund_right(&call))?;
        let (engine, charged) = (self.engine(), charges.charged());
        scratch.clear_refunds();
        if let Some(refunded) = charges.refunded_before() {
            let refund = Call::new(&rules, &refunded, now);
            let before = &mut scratch.refunded_before;
            engine.apply(Operation::Refund, refund, before).await.map_err(Failure::store)?;
        }
        let check = Call {
            deadline: call.deadline.map(Instant::into_std),
            ..Call::new(&rules, &charged, now)
        };
        let checked = engine.apply(Operation::Hit, check, &mut scratch.checked).await;
        checked.map_err(Failure::store)?;
        self.record_unmatched(&rules, &charged, &scratch.checked).map_err(Failure::invalid)?;
        if let Some(refunded) = charges.refunded_after() {
            let refund = Call::new(&rules, &refunded, now);
            let after = &mut scratch.refunded_after;
            engine.apply(Operation::Refund, refund, after).await.map_err(Failure::store)?;
        }
        Ok(self.encode((&request, &charged), &rules, scratch, now, call.span, out))
    }

    /// The same without waiting; `None`, without any effect, if only the store can decide.
    pub fn answer_local<'a>(
        &self,
        call: impl Into<CallContext<'a>>,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Option<Result<Code, Failure>> {
        let rules = self.engine().snapshot();
        if !self.is_local() && !rules.has_local() {
            return None;
        }
        let (call, now) = (call.into(), self.engine().now());
        let endpoint = call.endpoint;
        let answered = self.answer_local_at(&rules, call, bytes, scratch, out, now).transpose()?;
        self.record_call(endpoint, now, answered.as_ref().err().map(Failure::fault));
        Some(answered)
    }

    fn answer_local_at(
        &self,
        rules: &Snapshot<'_>,
        call: CallContext<'_>,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
        now: Timestamp,
    ) -> Result<Option<Code>, Failure> {
        let mut copy = Vec::new();
        let request = self.decode(bytes, &mut copy)?;
        let charges = Charges::new(&request, rules, self.refund_right(&call))?;
        let (engine, charged) = (self.engine(), charges.charged());
        if !self.is_local() && charges.has_refunds() {
            return Ok(None);
        }
        scratch.clear_refunds();
        // Counters in memory: it is ready.
        let refund = |refunded: &Request<'_>, checked: &mut Checked| {
            let refund = Call::new(rules, refunded, now);
            ready(engine.apply(Operation::Refund, refund, checked)).transpose()
        };
        if let Some(refunded) = charges.refunded_before() {
            refund(&refunded, &mut scratch.refunded_before).map_err(Failure::store)?;
        }
        let check = Call::new(rules, &charged, now);
        if !engine.check_now(&check, &mut scratch.checked) {
            return Ok(None);
        }
        self.record_unmatched(rules, &charged, &scratch.checked).map_err(Failure::invalid)?;
        if let Some(refunded) = charges.refunded_after() {
            refund(&refunded, &mut scratch.refunded_after).map_err(Failure::store)?;
        }
        Ok(Some(self.encode((&request, &charged), rules, scratch, now, call.span, out)))
    }

    fn refund_right<'a>(&self, call: &CallContext<'a>) -> RefundRight<'a> {
        RefundRight::new(self.options().refunds, call.endpoint, call.is_operator)
    }

    /// Decodes and validates a request; `copy` holds its bytes if they were not valid UTF-8.
    #[inline]
    fn decode<'a>(
        &self,
        bytes: &'a [u8],
        copy: &'a mut Vec<u8>,
    ) -> Result<RateLimitRequest<'a>, Failure> {
        let limits = self.options().limits;
        let decoded = match RateLimitRequest::decode(bytes, limits) {
            Err(WireError::NotText) => {
                *copy = repaired(bytes).map_err(Failure::invalid)?;
                RateLimitRequest::decode(copy, limits)
            }
            decoded => decoded,
        };
        let request = decoded.map_err(Failure::invalid)?;
        if request.domain.is_empty() {
            return Err(Failure::unknown("rate limit domain must not be empty"));
        }
        if request.descriptors.is_empty() {
            return Err(Failure::unknown("rate limit descriptor list must not be empty"));
        }
        if !self.health().has_rules() {
            return Err(Failure::unknown("no rate limit configuration loaded"));
        }
        Ok(request)
    }

    /// Appends the response of a request that was decided, and reports it to its span.
    #[inline]
    fn encode(
        &self,
        (request, charged): (&RateLimitRequest<'_>, &Request<'_>),
        rules: &Snapshot<'_>,
        scratch: &Scratch,
        now: Timestamp,
        span: Option<&mut Span>,
        out: &mut Vec<u8>,
    ) -> Code {
        let checked = &scratch.checked;
        let options = self.options();
        let code = self.code_of(rules, charged, checked);
        put_overall(code, out);
        let mut header_limit = HeaderLimit::default();
        for status in scratch.statuses(request) {
            let encoded = descriptor_status(status, rules, now);
            put_status(&encoded, out);
            header_limit.consider(&encoded, self.is_quota(rules, status));
        }
        if options.response_headers.is_some() || options.request_headers.is_some() {
            let is_quota = |status: &Status| self.is_quota(rules, status);
            let is_denied = code == Code::OverLimit;
            let wait = is_denied.then(|| retry_after(checked, is_quota)).flatten();
            // A denied request cannot pass within the same second.
            header_limit.put(options, wait.map(|wait| seconds(wait).max(1)), out);
        }
        if options.dynamic_metadata {
            self.put_metadata(request, rules, scratch, code, out);
        }
        if let Some(span) = span {
            span.set("ratelimit.domain", request.domain);
            span.set_int("ratelimit.descriptors", request.descriptors.len() as i64);
            self.record_in_span(span, rules, checked, code);
        }
        code
    }

    fn put_metadata(
        &self,
        request: &RateLimitRequest<'_>,
        rules: &Snapshot<'_>,
        scratch: &Scratch,
        code: Code,
        out: &mut Vec<u8>,
    ) {
        let statuses: Vec<&Status> = scratch.statuses(request).collect();
        let passed = statuses.iter().filter(|status| status.verdict.is_allowed());
        let passed = passed.filter_map(|status| rules.rules().rule(status.rule()?).metadata());
        let denied_by = match code {
            Code::Ok => None,
            Code::OverLimit => self.denied_by(rules, &scratch.checked),
        };
        metadata::put(request, &statuses, passed, denied_by.as_deref(), out);
    }
}

impl From<Endpoint> for CallContext<'_> {
    fn from(endpoint: Endpoint) -> Self {
        Self { endpoint, span: None, deadline: None, is_operator: None }
    }
}

impl Scratch {
    /// The charged descriptors of the last request.
    #[must_use]
    pub const fn checked(&self) -> &Checked {
        &self.checked
    }

    #[inline]
    fn clear_refunds(&mut self) {
        self.refunded_before.statuses.clear();
        self.refunded_after.statuses.clear();
    }

    /// The statuses of all descriptors, in their order.
    #[inline]
    fn statuses<'a>(
        &'a self,
        request: &'a RateLimitRequest<'_>,
    ) -> impl Iterator<Item = &'a Status> {
        let mut charged = self.checked.statuses.iter();
        let [before, after] = [&self.refunded_before, &self.refunded_after];
        let mut refunded = before.statuses.iter().chain(&after.statuses);
        request.descriptors.iter().filter_map(move |descriptor| {
            if descriptor.is_negative_hits { refunded.next() } else { charged.next() }
        })
    }
}

impl Failure {
    fn unknown(message: &str) -> Self {
        Self { status: GrpcStatus::Unknown, message: message.to_owned() }
    }

    /// Reports the store's own error, as envoyproxy/ratelimit does.
    fn store(error: StoreError) -> Self {
        Self { status: GrpcStatus::Store, message: error.to_string() }
    }

    pub(super) fn invalid(message: impl ToString) -> Self {
        Self { status: GrpcStatus::InvalidArgument, message: message.to_string() }
    }

    const fn fault(&self) -> Fault {
        match self.status {
            GrpcStatus::Unknown => Fault::Service,
            GrpcStatus::InvalidArgument => Fault::Invalid,
            GrpcStatus::Store => Fault::Store,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
