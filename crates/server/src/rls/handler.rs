//! From what Envoy asks to what it is answered: read, check, write.

use std::future::pending;
use std::sync::Arc;

use crate::counters::SharedEngine;
use http::HeaderMap;
use sluicegate::rules::plan::{DomainStatus, Target};
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Engine, Snapshot, Status, Timestamp};

use super::denial::{self, rule_of};
use super::descriptors::{descriptors_of, limits_of};
pub use super::failure::{Failure, GrpcStatus};
use super::headers::Telling;
use super::metadata;
use super::options::Options;
use super::refund::RefundRight;
use super::request::{Ask, WireError};
use super::response::{Code, put_overall, put_status};
use super::status::{is_unlimited, seconds, told};
use super::utf8_repair;
use crate::auth::AuthGuard;
use crate::counters::{Counters, at_once};
use crate::health::Health;
use crate::logs::events;
use crate::memory::MemoryBudget;
use crate::reservations::Holds;
use crate::telemetry::{Door, Happening, Telemetry};
use crate::traces::{self, Tracer};

/// Whether the store may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Asking,
    /// No: whoever would have to ask waits for ever, and has done nothing.
    Here,
}

/// Answers Envoy by the rules of an engine.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use sluicegate::{Engine, rules_of};
/// use sluicegate_server::rls::response::Code;
/// use sluicegate_server::rls::handler::Service;
/// use sluicegate_server::telemetry::Door;
///
/// let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]";
/// let service = Service::new(Engine::new(rules_of(rules)?)?);
///
/// let asked = b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242";
/// let mut answer = Vec::new();
/// let mut scratch = Default::default();
/// assert_eq!(service.answer(Endpoint::Json, asked, &mut scratch, &mut answer).await?, Code::Ok);
/// assert_eq!(service.answer(Endpoint::Json, asked, &mut scratch, &mut answer).await?, Code::OverLimit);
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same service.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Engine,
    /// The same with counters that others share.
    shared: Option<SharedEngine>,
    pub(crate) options: Options,
    pub(crate) health: Health,
    pub(crate) telemetry: Telemetry,
    tracer: Tracer,
    pub(crate) holds: Holds,
    auth: AuthGuard,
    pub(crate) memory: MemoryBudget,
}

/// What can be used again from one request to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Until when the client waits, if it says so. Of the next request only.
    pub(crate) deadline: Option<tokio::time::Instant>,
    checked: Checked,
    refunded: Checked,
}

// === impl Service ===

impl Service {
    /// A service that enforces an engine's rules, in good health.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let health = Health::default();
        health.rules_loaded(engine.snapshot().rules().domains().count());
        Self::with(engine, Options::default(), health)
    }

    /// The same with more to say about it; it refuses to answer until it has heard that rules were loaded.
    #[must_use]
    pub fn with(engine: Engine, options: Options, health: Health) -> Self {
        Self::traced(engine, options, health, Tracer::off())
    }

    /// The same with its calls traced.
    #[must_use]
    pub fn traced(engine: Engine, options: Options, health: Health, tracer: Tracer) -> Self {
        Self::complete(engine, options, health, tracer, Holds::default())
    }

    /// The same with its own bounds on what is held for later.
    #[must_use]
    pub fn complete(
        engine: Engine,
        options: Options,
        health: Health,
        tracer: Tracer,
        holds: Holds,
    ) -> Self {
        Self::of(engine, None, options, health, tracer, holds)
    }

    /// The same with counters that other nodes share.
    #[must_use]
    pub fn shared(
        engine: Engine,
        shared: SharedEngine,
        options: Options,
        health: Health,
        tracer: Tracer,
        holds: Holds,
    ) -> Self {
        Self::of(engine, Some(shared), options, health, tracer, holds)
    }

    fn of(
        engine: Engine,
        shared: Option<SharedEngine>,
        options: Options,
        health: Health,
        tracer: Tracer,
        holds: Holds,
    ) -> Self {
        let telemetry = Telemetry::default();
        let (auth, memory) = (AuthGuard::default(), MemoryBudget::default());
        let inner =
            Inner { engine, shared, options, health, telemetry, tracer, holds, auth, memory };
        Self { inner: Arc::new(inner) }
    }

    /// Reads a request that came in by an endpoint, checks it, and appends the answer to `out`.
    ///
    /// # Errors
    /// When the request is none, there are no rules, or the store does not answer and a rule wants that to be told; then nothing was written.
    pub async fn answer(
        &self,
        endpoint: Endpoint,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        self.answer_in(None, endpoint, bytes, scratch, out).await
    }

    /// The same at `/json`, where negative hits need the operator role.
    pub(crate) async fn answer_json(
        &self,
        is_operator: &(dyn Fn() -> bool + Sync),
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        let begun = self.inner.engine.now();
        let refunds = RefundRight::of(self.inner.options.refunds, Endpoint::Json);
        let refunds = refunds.or_operator(is_operator);
        let answered = self.answered(How::Asking, refunds, None, begun, bytes, scratch, out).await;
        self.note(Endpoint::Json, &answered, begun);
        answered
    }

    /// The same at once, of a service whose counters are its own.
    ///
    /// # Errors
    /// As [`Service::answer`]; also when the store would have to be waited for.
    pub fn answer_now(
        &self,
        endpoint: Endpoint,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        at_once(self.answer(endpoint, bytes, scratch, out))
            .unwrap_or_else(|| Err(Failure::would_wait()))
    }

    /// The same, as part of a span that is told what was asked and answered. A service whose counters are its own waits for nothing.
    ///
    /// # Errors
    /// As [`Service::answer`].
    pub async fn answer_in(
        &self,
        span: Option<&mut traces::Span>,
        endpoint: Endpoint,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        let begun = self.inner.engine.now();
        let refunds = RefundRight::of(self.inner.options.refunds, endpoint);
        let answered = self.answered(How::Asking, refunds, span, begun, bytes, scratch, out).await;
        self.note(endpoint, &answered, begun);
        answered
    }

    /// The same, if this node can answer by itself. If it cannot, nothing has happened.
    pub(crate) fn answer_here(
        &self,
        span: Option<&mut traces::Span>,
        endpoint: Endpoint,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Option<Result<Code, Failure>> {
        if !self.inner.engine.snapshot().has_local() {
            return None;
        }
        let begun = self.inner.engine.now();
        let refunds = RefundRight::of(self.inner.options.refunds, endpoint);
        let answered =
            at_once(self.answered(How::Here, refunds, span, begun, bytes, scratch, out))?;
        self.note(endpoint, &answered, begun);
        Some(answered)
    }

    fn note(&self, endpoint: Endpoint, answered: &Result<Code, Failure>, begun: Timestamp) {
        match answered {
            Ok(_) => {
                let took = self.inner.engine.now().since(begun);
                self.inner.telemetry.record_response(endpoint, took);
            }
            Err(failure) => self.inner.telemetry.record_failure(endpoint, failure.fault()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is of another kind")]
    async fn answered(
        &self,
        how: How,
        refunds: RefundRight<'_>,
        span: Option<&mut traces::Span>,
        now: Timestamp,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Code, Failure> {
        let Inner { engine, options, health, telemetry, .. } = &*self.inner;
        let mended;
        let ask = match Ask::read(bytes, options.most) {
            Err(WireError::NotText) => {
                mended = utf8_repair::mended(bytes).map_err(Failure::invalid)?;
                Ask::read(&mended, options.most)
            }
            read => read,
        };
        let ask = ask.map_err(Failure::invalid)?;
        if ask.domain.is_empty() {
            return Err(Failure::unknown("rate limit domain must not be empty"));
        }
        if ask.descriptors.is_empty() {
            return Err(Failure::unknown("rate limit descriptor list must not be empty"));
        }
        if !health.has_rules() {
            return Err(Failure::unknown("no rate limit configuration loaded"));
        }
        let rules = engine.snapshot();
        let limits = limits_of(&ask, &rules)?;
        // Hits that are given back are nobody's business but their own.
        let (charged, refunded) = descriptors_of(&ask, &limits);
        let hits = u64::from(ask.hits_addend.max(1));
        refunds.check(&refunded, hits)?;
        let request = |descriptors| Request { domain: ask.domain, descriptors, hits };
        let counters = self.counters();
        let (checked, given_back) = (&mut scratch.checked, &mut scratch.refunded);
        match (how, counters) {
            (How::Here, Counters::Shared(shared)) => {
                let decides = refunded.is_empty();
                if !decides || !shared.check_now(&shared.call(&rules, &request(&charged)), checked)
                {
                    return pending().await;
                }
            }
            _ => {
                let request = request(&charged);
                let deadline = scratch.deadline.take();
                let checking = counters.check_within(&rules, &request, now, checked, deadline);
                checking.await.map_err(Failure::store)?;
            }
        }
        if !refunded.is_empty() {
            let request = request(&refunded);
            // Rare, and large.
            let refund = Box::pin(counters.refund(&rules, &request, now, given_back));
            refund.await.map_err(Failure::store)?;
        }
        if scratch.checked.domain() == DomainStatus::Unknown {
            telemetry.record(Event::UnknownDomain);
        }
        let code = self.code_of(&rules, &scratch.checked);
        put_overall(code, out);
        let mut telling = Telling::default();
        let mut charged = scratch.checked.statuses.iter();
        let mut refunded = scratch.refunded.statuses.iter();
        for asked in &ask.descriptors {
            let status = if asked.is_negative_hits { refunded.next() } else { charged.next() };
            if let Some(status) = status {
                let told = told(status, &rules, now);
                put_status(&told, out);
                telling.look_at(&told, self.is_quota(&rules, status));
            }
        }
        if options.response_headers.is_some() || options.request_headers.is_some() {
            let denied = code == Code::OverLimit;
            let is_quota = |status: &Status| self.is_quota(&rules, status);
            let wait = denied.then(|| denial::retry_after(&scratch.checked, is_quota)).flatten();
            // It was not now, so it is not in no time.
            let retry_after_s = wait.map(|wait| seconds(wait).max(1));
            telling.put(options, retry_after_s, out);
        }
        if options.dynamic_metadata {
            self.put_metadata(&ask, &rules, &scratch.checked, code, out);
        }
        if let Some(span) = span {
            span.set("ratelimit.domain", ask.domain);
            span.set_int("ratelimit.descriptors", ask.descriptors.len() as i64);
            self.tell_span(span, &rules, &scratch.checked, code);
        }
        if code == Code::OverLimit {
            self.tell_log(&ask, &rules, &scratch.checked);
        }
        Ok(code)
    }

    /// A span is told what was answered.
    pub fn tell_span(
        &self,
        span: &mut traces::Span,
        rules: &Snapshot<'_>,
        checked: &Checked,
        code: Code,
    ) {
        span.set("ratelimit.code", if code == Code::Ok { "OK" } else { "OVER_LIMIT" });
        if let Some(rule) = self.denied_by(rules, checked).filter(|_| code == Code::OverLimit) {
            span.set("ratelimit.denied_by", &rule);
        }
    }

    /// What is said to the whole request, as this service is set.
    #[must_use]
    pub fn code_of(&self, rules: &Snapshot<'_>, checked: &Checked) -> Code {
        let Inner { options, telemetry, .. } = &*self.inner;
        let allowed = self.would_allow(rules, checked);
        if !allowed && options.shadow_mode {
            telemetry.record(Event::GlobalShadow);
        }
        if allowed || options.shadow_mode { Code::Ok } else { Code::OverLimit }
    }

    /// Whether a request may go, as this service is set, if it enforces anything.
    #[must_use]
    pub fn would_allow(&self, rules: &Snapshot<'_>, checked: &Checked) -> bool {
        match self.inner.options.quota_mode {
            false => checked.allowed,
            true => !self.all_quotas_deny(rules, checked),
        }
    }

    fn put_metadata(
        &self,
        ask: &Ask<'_>,
        rules: &Snapshot<'_>,
        checked: &Checked,
        code: Code,
        out: &mut Vec<u8>,
    ) {
        let passed = checked.statuses.iter().filter(|status| status.verdict.is_allowed());
        let passed = passed.filter_map(|status| rules.rules().rule(rule_of(status)?).metadata());
        let denied_by = match code {
            Code::Ok => None,
            Code::OverLimit => self.denied_by(rules, checked),
        };
        metadata::put(ask, &checked.statuses, passed, denied_by.as_deref(), out);
    }

    /// The rule that denies, by its id.
    fn denied_by(&self, rules: &Snapshot<'_>, checked: &Checked) -> Option<String> {
        let no = denial::denied_by(checked, |status| self.is_quota(rules, status))?;
        Some(rules.rules().id(no))
    }

    /// A denial is worth a line to whoever wants to hear of single requests.
    fn tell_log(&self, ask: &Ask<'_>, rules: &Snapshot<'_>, checked: &Checked) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        events::request_denied(ask.domain, self.denied_by(rules, checked).as_deref());
        let charged = ask.descriptors.iter().filter(|asked| !asked.is_negative_hits);
        for (asked, status) in charged.zip(&checked.statuses) {
            if !status.verdict.is_allowed() {
                events::descriptor_denied(ask.domain, ask.entries(asked));
            }
        }
    }

    /// With every rule in quota mode, also what is under none counts as a quota, and one that never denies.
    fn all_quotas_deny(&self, rules: &Snapshot<'_>, checked: &Checked) -> bool {
        let mut quotas = checked.statuses.iter().filter(|status| self.is_quota(rules, status));
        let denied = |status: &&Status| !status.verdict.is_allowed();
        // A list is no quota.
        checked.listed().is_some() && !checked.allowed
            || quotas.clone().next().is_some() && quotas.all(|status| denied(&status))
    }

    fn is_quota(&self, rules: &Snapshot<'_>, status: &Status) -> bool {
        match status.target {
            _ if self.inner.options.quota_mode => !is_unlimited(status, rules),
            Target::Rule(no) => rules.rules().rule(no).quota_mode,
            Target::None | Target::Replaced(_) | Target::Override(_) => false,
        }
    }

    /// Whose counters it asks.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> Counters<'_> {
        match &self.inner.shared {
            None => Counters::Own(&self.inner.engine),
            Some(shared) => Counters::Shared(shared),
        }
    }

    /// Whether its counters are its own, so that it answers at once.
    #[inline]
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.inner.shared.is_none()
    }

    /// Limits failed authentication.
    pub(crate) fn auth(&self) -> &AuthGuard {
        &self.inner.auth
    }

    /// Begins the span of a call, if somebody wants to see it.
    #[inline]
    #[must_use]
    pub fn begin_span(&self, name: &'static str, headers: &HeaderMap) -> Option<traces::Span> {
        let Inner { tracer, engine, .. } = &*self.inner;
        if tracer.is_off() { None } else { tracer.begin(name, headers, engine.now()) }
    }
}

// === impl Scratch ===

impl Scratch {
    /// What was said of what was charged, by the last request that was answered with this.
    #[must_use]
    pub const fn checked(&self) -> &Checked {
        &self.checked
    }
}
