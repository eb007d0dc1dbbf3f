//! The parts that every protocol shares, and how a service's modes turn verdicts into an answer.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::HeaderMap;
use serde_json::{Value, json};
use sluicegate::backend::{Backend, Combine, admits};
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::Request;
use sluicegate::rules::set::write_readable;
use sluicegate::{Checked, Engine, Snapshot, Status, Timestamp};
use sluicegate_redis::RedisBackend;
use sluicegate_rulestore::RuleStore;

use crate::admin::AdminExtension;
use crate::auth::{AuthEndpoint, AuthError, AuthGuard};
use crate::candidate::Candidate;
use crate::health::Health;
use crate::idempotency::{IdempotencyTable, StoredResponse};
use crate::logs::events;
use crate::memory::MemoryBudget;
use crate::metrics::{MetricsSource, Page};
use crate::reservations::Reservations;
use crate::rls::Options;
use crate::rls::response::Code;
use crate::status::is_unlimited;
use crate::telemetry::{Endpoint, Event, Fault, Telemetry};
use crate::traces::{Span, Tracer};
use crate::traffic::Traffic;
use crate::unmatched::UnknownDomains;
use crate::usage::UsageRecorder;

/// Engine, options, health, telemetry, tracer and reservations of a service. Clones share them.
///
/// ```
/// use sluicegate::{Engine, rules_of};
/// use sluicegate_server::app::App;
/// use sluicegate_server::health::Health;
/// use sluicegate_server::rls::Options;
///
/// let rules = "domain: shop\ndescriptors:
///   - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }";
/// let engine = Engine::new(rules_of(rules)?)?;
/// assert!(App::new(engine.clone()).health().state().is_ready());
///
/// let app = App::builder(engine)
///     .options(Options { shadow_mode: true, ..Options::default() })
///     .health(Health::default())
///     .build();
/// assert!(!app.health().state().is_ready(), "no rules were reported as loaded");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct App {
    inner: Arc<AppInner>,
}

#[derive(Debug)]
struct AppInner {
    engine: Engine<dyn Backend>,
    /// The same engine, if its backend is Redis.
    redis: Option<Engine<RedisBackend>>,
    options: Options,
    health: Health,
    telemetry: Telemetry,
    tracer: Tracer,
    reservations: Reservations,
    idempotency: IdempotencyTable<StoredResponse>,
    auth: AuthGuard,
    memory: MemoryBudget,
    unknown_domains: UnknownDomains,
    usage: Option<Arc<UsageRecorder>>,
    metrics: Mutex<Vec<Arc<dyn MetricsSource>>>,
    admin: Mutex<Vec<Arc<dyn AdminExtension>>>,
    rule_store: OnceLock<RuleStore>,
    traffic: Option<Traffic>,
    candidate: Arc<Candidate>,
}

/// Builds an [`App`].
#[derive(Debug)]
#[must_use]
pub struct AppBuilder {
    inner: AppInner,
}

impl AppBuilder {
    /// Options of the rate limit service.
    pub fn options(mut self, options: Options) -> Self {
        self.inner.options = options;
        self
    }

    /// Health; by default it is ready, with the rules of the engine.
    pub fn health(mut self, health: Health) -> Self {
        self.inner.health = health;
        self
    }

    /// Recorder of usage, which is the meter of the engine; none by default.
    pub fn usage(mut self, usage: Option<Arc<UsageRecorder>>) -> Self {
        self.inner.usage = usage;
        self
    }

    /// Tracer; off by default.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.inner.tracer = tracer;
        self
    }

    /// Limits of reservations.
    pub fn reservations(mut self, reservations: Reservations) -> Self {
        self.inner.reservations = reservations;
        self
    }

    /// Memory budget of all endpoints.
    pub fn memory_budget(mut self, memory: MemoryBudget) -> Self {
        self.inner.memory = memory;
        self
    }

    /// Traffic statistics; off by default.
    pub fn traffic(mut self, traffic: Traffic) -> Self {
        self.inner.traffic = Some(traffic);
        self
    }

    /// The app.
    #[must_use]
    pub fn build(self) -> App {
        App { inner: Arc::new(self.inner) }
    }
}

impl App {
    /// An app with default options that is ready to serve the rules of an engine.
    #[must_use]
    pub fn new(engine: impl Into<Engine<dyn Backend>>) -> Self {
        Self::builder(engine).build()
    }

    /// Builds an app on an engine that has its counters in Redis.
    pub fn redis_builder(engine: Engine<RedisBackend>) -> AppBuilder {
        let mut builder = Self::builder(engine.clone());
        builder.inner.redis = Some(engine);
        builder
    }

    /// Builds an app on an engine.
    pub fn builder(engine: impl Into<Engine<dyn Backend>>) -> AppBuilder {
        let engine = engine.into();
        let health = Health::default();
        health.rules_loaded(engine.snapshot().rules().domains().count());
        let inner = AppInner {
            engine,
            redis: None,
            usage: None,
            options: Options::default(),
            health,
            telemetry: Telemetry::default(),
            tracer: Tracer::off(),
            reservations: Reservations::default(),
            idempotency: IdempotencyTable::default(),
            auth: AuthGuard::default(),
            memory: MemoryBudget::default(),
            unknown_domains: UnknownDomains::default(),
            metrics: Mutex::default(),
            admin: Mutex::default(),
            rule_store: OnceLock::new(),
            traffic: None,
            candidate: Arc::default(),
        };
        AppBuilder { inner }
    }

    /// The engine, with its rules and its clock.
    #[inline]
    #[must_use]
    pub fn engine(&self) -> &Engine<dyn Backend> {
        &self.inner.engine
    }

    /// The engine, if its backend is Redis.
    #[must_use]
    pub fn redis(&self) -> Option<&Engine<RedisBackend>> {
        self.inner.redis.as_ref()
    }

    /// Whether all counters are in this node's memory, so that every decision is synchronous.
    #[inline]
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.inner.redis.is_none()
    }

    /// Options of the rate limit service.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Health.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    /// Reservations and waiting requests.
    #[must_use]
    pub fn reservations(&self) -> &Reservations {
        &self.inner.reservations
    }

    /// Stored responses of requests with an idempotency key.
    pub(crate) fn idempotency(&self) -> &IdempotencyTable<StoredResponse> {
        &self.inner.idempotency
    }

    /// Counters about the service itself.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// Traffic statistics, if they are on.
    #[inline]
    #[must_use]
    pub fn traffic(&self) -> Option<&Traffic> {
        self.inner.traffic.as_ref()
    }

    /// Rules that run beside the enforced ones, if there are any.
    #[inline]
    #[must_use]
    pub fn candidate(&self) -> &Arc<Candidate> {
        &self.inner.candidate
    }

    /// Unknown domains that were logged.
    pub(crate) fn unknown_domains(&self) -> &UnknownDomains {
        &self.inner.unknown_domains
    }

    /// Adds families to the metrics page.
    pub fn add_metrics(&self, source: Arc<dyn MetricsSource>) {
        self.inner.metrics.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    /// Adds paths to the admin endpoint.
    pub fn add_admin(&self, extension: Arc<dyn AdminExtension>) {
        self.inner.admin.lock().unwrap_or_else(PoisonError::into_inner).push(extension);
    }

    /// Where the rules come from, with their revisions; none of an app without a server.
    #[must_use]
    pub fn rule_store(&self) -> Option<&RuleStore> {
        self.inner.rule_store.get()
    }

    pub(crate) fn set_rule_store(&self, store: RuleStore) {
        // A process has one.
        let _ = self.inner.rule_store.set(store);
    }

    pub(crate) fn admin_extensions(&self) -> Vec<Arc<dyn AdminExtension>> {
        self.inner.admin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn put_added_metrics(&self, page: &mut Page) {
        let sources = self.inner.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        sources.iter().for_each(|source| source.put(page));
    }

    /// Recorder of usage, if it is recorded.
    #[must_use]
    pub fn usage(&self) -> Option<&Arc<UsageRecorder>> {
        self.inner.usage.as_ref()
    }

    /// Memory budget of all endpoints.
    #[must_use]
    pub fn memory(&self) -> &MemoryBudget {
        &self.inner.memory
    }

    /// Verifies a secret, rate limited by source address.
    ///
    /// # Errors
    /// When it is wrong, or too many were wrong before.
    pub fn authenticate(
        &self,
        endpoint: AuthEndpoint,
        peer: Option<IpAddr>,
        is_right: impl FnOnce() -> bool,
    ) -> Result<(), AuthError> {
        let AppInner { auth, engine, telemetry, .. } = &*self.inner;
        auth.check(endpoint, peer, engine.now(), telemetry, is_right)
    }

    /// Begins the span of a call if tracing is on.
    #[inline]
    #[must_use]
    pub fn begin_span(&self, name: &'static str, headers: &HeaderMap) -> Option<Span> {
        let AppInner { tracer, engine, .. } = &*self.inner;
        if tracer.is_off() { None } else { tracer.begin(name, headers, engine.now()) }
    }

    /// Records the outcome of a request in its span.
    pub fn record_in_span(
        &self,
        span: &mut Span,
        rules: &Snapshot<'_>,
        checked: &Checked,
        code: Code,
    ) {
        span.set("ratelimit.code", if code == Code::Ok { "OK" } else { "OVER_LIMIT" });
        if let Some(rule) = self.denied_by(rules, checked).filter(|_| code == Code::OverLimit) {
            span.set("ratelimit.denied_by", &rule);
        }
    }

    /// Counts a call that began at `begun`: answered, or failed with a fault.
    pub(crate) fn record_call(&self, endpoint: Endpoint, begun: Timestamp, fault: Option<Fault>) {
        match fault {
            None => self.telemetry().record_response(endpoint, self.engine().now().since(begun)),
            Some(fault) => self.telemetry().record_failure(endpoint, fault),
        }
    }

    /// The code of the whole request, with the service's quota and shadow modes applied. It is part
    /// of the traffic statistics, a candidate checks it too, and denials are logged.
    #[must_use]
    pub fn code_of(&self, rules: &Snapshot<'_>, request: &Request<'_>, checked: &Checked) -> Code {
        let code = self.code_of_attempt(rules, request, checked);
        if let Some(traffic) = &self.inner.traffic {
            traffic.record(code, rules, request, checked, || self.engine().now());
            if code == Code::OverLimit {
                traffic.publish_denial(|| self.denial_json(rules, request, checked));
            }
        }
        self.inner.candidate.observe(self, rules, request, checked);
        code
    }

    /// The same for an attempt that is repeated while it is denied: not part of the statistics.
    #[must_use]
    pub fn code_of_attempt(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
    ) -> Code {
        if self.would_allow(rules, checked) {
            return Code::Ok;
        }
        let AppInner { options, telemetry, .. } = &*self.inner;
        if options.shadow_mode {
            telemetry.record(Event::GlobalShadow);
            return Code::Ok;
        }
        self.log_denial(rules, request, checked);
        Code::OverLimit
    }

    /// A denied request as an event.
    fn denial_json(&self, rules: &Snapshot<'_>, request: &Request<'_>, checked: &Checked) -> Value {
        let denies = |status: &Status| !status.verdict.is_allowed();
        let index = checked.statuses.iter().position(denies);
        let step = index.and_then(|index| checked.plan.steps().get(index));
        let mut identity = Vec::new();
        if let Some(step) = step {
            write_readable(checked.plan.identity(step), &mut identity);
        }
        let identity = String::from_utf8_lossy(&identity);
        let descriptor = identity.split_once('|').map(|(_, entries)| shortened(entries));
        let wait = index.and_then(|index| checked.statuses[index].verdict.retry_after());
        json!({
            "domain": shortened(request.domain),
            "rule": self.denied_by(rules, checked),
            "descriptor": descriptor,
            "listed": checked.listed().is_some(),
            "unmatched": checked.denied_unmatched().is_some(),
            "retry_after_ms": wait.map(|wait| wait.as_micros() / 1_000),
        })
    }

    fn log_denial(&self, rules: &Snapshot<'_>, request: &Request<'_>, checked: &Checked) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        events::request_denied(request.domain, self.denied_by(rules, checked).as_deref());
        for (descriptor, status) in request.descriptors.iter().zip(&checked.statuses) {
            if !status.verdict.is_allowed() {
                events::descriptor_denied(request.domain, descriptor.entries);
            }
        }
    }

    /// Whether the request passes, with the service's quota mode applied but not its shadow mode.
    #[must_use]
    pub fn would_allow(&self, rules: &Snapshot<'_>, checked: &Checked) -> bool {
        match self.inner.options.quota_mode {
            false => checked.allowed,
            // Every rule is a quota, and a descriptor without one is a quota that never denies. A
            // list is not a quota, nor is the denial of an unmatched request.
            true if checked.denied_unmatched().is_some() => false,
            true => {
                let quotas = checked.statuses.iter().filter(|status| self.is_quota(rules, status));
                let verdicts = quotas.map(|status| (Combine::Quota, status.verdict.is_allowed()));
                (checked.allowed || checked.listed().is_none()) && admits(verdicts)
            }
        }
    }

    /// The id of the rule that denies.
    #[must_use]
    pub fn denied_by(&self, rules: &Snapshot<'_>, checked: &Checked) -> Option<String> {
        let no = checked.denying_rule(|status| self.is_quota(rules, status))?;
        Some(rules.rules().id(no))
    }

    /// Whether a descriptor is under a quota, which denies only together with all other quotas.
    pub(crate) fn is_quota(&self, rules: &Snapshot<'_>, status: &Status) -> bool {
        match status.target {
            _ if self.inner.options.quota_mode => !is_unlimited(status, rules),
            Target::Rule(no) => rules.rules().rule(no).is_quota(),
            Target::None(_) | Target::Replaced(_) | Target::Override(_) => false,
        }
    }
}

/// The beginning of a text that a client sent.
fn shortened(text: &str) -> &str {
    const CHARS_MAX: usize = 256;
    let end = text.char_indices().nth(CHARS_MAX).map_or(text.len(), |(end, _)| end);
    &text[..end]
}
