//! Decides whether a request of a route is admitted, by the rules.

mod request;

use std::cell::Cell;
use std::sync::Arc;

use http::header::EXPECT;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sluicegate::backend::Call;
use sluicegate::rules::plan::{List, Plan, Step, Target};
use sluicegate::rules::rule::PRIORITY_DEFAULT;
use sluicegate::{Checked, Operation, Outcome, Snapshot, Span, Status};
use sluicegate_config::gateway::route::OnLimit;
use sluicegate_server::app::App;
use sluicegate_server::reservations::{ReservationError, TTL, Ticket};
use sluicegate_server::rls::response::Code;
use sluicegate_server::status::{denying_status, policies};

pub(crate) use self::request::{LimitedRequest, attributes};
use crate::body::{RequestBody, ResponseBody};
use crate::deferred::{Deferral, Deferrals, decide_behind, denied};
use crate::denial::DenialStyle;
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::held_ticket::{HeldTicket, Renewal, charge_slots};
use crate::metrics::{RequestVerdict, SettleOutcome};
use crate::route_state::RouteState;
use crate::settle::Settlement;
use crate::shape::{Queues, Waited};
use crate::tokens::TokenHeaders;

/// Header of a request that is forwarded although a limit denies it: the rule.
pub(crate) const EXCEEDED: HeaderName = HeaderName::from_static("x-ratelimit-exceeded");
/// Header of a response whose request has waited for its turn: milliseconds.
pub(crate) const DELAY: HeaderName = HeaderName::from_static("x-ratelimit-delay-ms");
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
pub(crate) const TOO_LONG: ProxyError =
    ProxyError::BadRequest("A part of the request is too long.");

/// The verdict of all limits of a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It goes on.
    Admitted(Admission),
    /// It is denied, with this response.
    Denied(Box<Response<ResponseBody>>),
    /// It is denied, unless it can be processed later.
    Deferred(Box<Deferral>),
}

/// What an admitted request and its response get.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Headers of the response.
    pub(crate) headers: Option<HeaderMap>,
    /// The rule that denies it, for the upstream.
    pub(crate) exceeded: Option<HeaderValue>,
    /// Time until its turn, which is booked.
    wait: Span,
    /// Importance of the request.
    pub(crate) priority: u8,
}

impl Default for Admission {
    fn default() -> Self {
        let (headers, exceeded, wait) = (None, None, Span::ZERO);
        Self { headers, exceeded, wait, priority: PRIORITY_DEFAULT }
    }
}

/// How requests are limited, for all routes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitOptions<'a> {
    pub(crate) app: &'a App,
    pub(crate) style: &'a DenialStyle,
    /// Requests that wait for their turn.
    pub(crate) queues: &'a Arc<Queues>,
    /// Whether responses to admitted requests have rate limit headers.
    pub(crate) limit_headers: bool,
    /// Requests that are processed later.
    pub(crate) deferrals: Option<&'a Deferrals>,
}

/// Decides a request, and charges its limits if it is admitted. A request over a limit that shapes
/// waits for its turn.
pub(crate) async fn decide(
    options: LimitOptions<'_>,
    request: LimitedRequest<'_>,
    body: &mut RequestBody,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    if options.deferrals.is_some()
        && let Some(decision) = Box::pin(decide_behind(options, request, exchange)).await?
    {
        return Ok(decision);
    }
    let mut decision = match decide_now(options, request, exchange)? {
        Some(decision) => decision,
        // Boxed, so that the future of requests that need not wait stays small.
        None => Box::pin(decide_later(options, request, body, exchange)).await?,
    };
    if let Decision::Admitted(admission) = &mut decision
        && !admission.wait.is_zero()
    {
        let (engine, wait) = (options.app.engine(), std::mem::take(&mut admission.wait));
        Box::pin(engine.clock().sleep_until(engine.now().after(wait))).await;
        delayed(admission, wait, exchange);
    }
    Ok(decision)
}

thread_local! {
    /// Its buffers serve one request after the other. They are as large as the largest needs.
    static REUSED: Cell<Checked> = Cell::default();
}

/// Decides a request without waiting; `None` if the store has to be called, a slot to be held, or a
/// turn to be waited for.
fn decide_now(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    exchange: &mut Exchange,
) -> Result<Option<Decision>, ProxyError> {
    let engine = options.app.engine();
    let (rules, now) = (engine.snapshot(), engine.now());
    let described = limited.describe()?;
    let entries = described.entries();
    let descriptors = limited.descriptors(&described, &entries);
    let request = limited.request(&described, &descriptors);
    exchange.set_cost(request.hits, &limited.route.identity);
    let may_wait = limited.may_wait();
    if limited.route.settle.is_some()
        || rules.slot_descriptor(&request).is_some()
        || (may_wait && !options.queues.is_empty())
    {
        return Ok(None);
    }
    let mut checked = REUSED.take();
    let call = Call { retries: may_wait, ..Call::new(&rules, &request, now) };
    let mut decided = Ok(None);
    if engine.check_now(&call, &mut checked) {
        let is_blocked =
            || limited.shaping(options.queues).blocked(&rules, &checked, now).is_some();
        if checked.allowed || !may_wait || !is_blocked() {
            decided = conclude(options, limited, &call, &checked, exchange).map(Some);
        }
    }
    REUSED.set(checked);
    decided
}

/// Decides a request that waits for the store, a slot or its turn, or holds a reservation.
async fn decide_later(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    body: &mut RequestBody,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    let engine = options.app.engine();
    let described = limited.describe()?;
    let entries = described.entries();
    let descriptors = limited.descriptors(&described, &entries);
    let request = limited.request(&described, &descriptors);
    if let Some(plan) = &limited.route.settle {
        let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
        let call = Call::new(&rules, &request, now);
        let tokens = limited.identity.tokens();
        let new = |held| Settlement::new(plan, held, &request, described.indices(), tokens);
        if !reserve(options, limited.route, call, &mut checked, new, exchange).await? {
            charge(options, call, &mut checked, exchange).await?;
        }
        let mut decision = conclude(options, limited, &call, &checked, exchange)?;
        let denial = &limited.route.config.denial;
        if let Some(headers) = TokenHeaders::new(limited.limit, denial, described.indices()) {
            headers.apply(&rules, now, &checked, &mut decision);
        }
        return Ok(decision);
    }
    let shaping = limited.shaping(options.queues);
    let mut blocked = None;
    {
        let (rules, now) = (engine.snapshot(), engine.now());
        let may_wait = limited.may_wait();
        if may_wait {
            blocked = shaping.occupied(&rules, &request);
        }
        if blocked.is_none() {
            let call = Call { retries: may_wait, ..Call::new(&rules, &request, now) };
            let mut checked = Checked::default();
            charge(options, call, &mut checked, exchange).await?;
            if may_wait {
                blocked = shaping.blocked(&rules, &checked, now);
            }
            if blocked.is_none() {
                return conclude(options, limited, &call, &checked, exchange);
            }
        }
    }
    let Some(blocked) = blocked else { return Err(ProxyError::StoreAway) };
    let started = engine.now();
    let reads_ahead = !limited.head.headers.contains_key(EXPECT);
    let waited = shaping.wait(engine, &request, body, reads_ahead, blocked).await;
    let waited = waited.map_err(|error| match error {
        ProxyError::StoreAway => undecided(exchange),
        error => error,
    })?;
    let delay = engine.now().since(started);
    let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
    let call = Call::new(&rules, &request, now);
    // The present figures.
    let peeked = engine.apply(Operation::Peek, call, &mut checked).await;
    let Waited::Turn { slot } = waited else {
        if peeked.is_err() || checked.allowed {
            deny(&mut checked);
        }
        if !delay.is_zero() {
            exchange.set_delay(delay.to_duration());
        }
        return conclude(options, limited, &Call { retries: true, ..call }, &checked, exchange);
    };
    if let Some(holder) = slot {
        let ticket = Ticket::slot(&request, holder, now).map_err(|_| TOO_LONG)?;
        let renewal = rules.lease(&checked.plan, now).map(Renewal::of_lease);
        exchange.hold(HeldTicket::new(options.app, ticket, renewal, options.queues));
    }
    let priority = priority_of(&rules, &checked.plan);
    let mut admission = Admission { priority, ..Admission::default() };
    if options.limit_headers && peeked.is_ok() {
        let mut headers = HeaderMap::new();
        let hide = &limited.route.config.denial.hide;
        options.style.write_headers(hide, &rules, now, &checked, &mut headers);
        admission.headers = Some(headers);
    }
    delayed(&mut admission, delay, exchange);
    Ok(Decision::Admitted(admission))
}

/// A request that was denied after its wait, although it would be admitted at this moment.
pub(crate) fn deny(checked: &mut Checked) {
    checked.allowed = false;
    if let Some(status) = checked.statuses.iter_mut().find(|one| one.verdict.decided_by.is_some()) {
        status.verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(1) };
    }
}

/// An admitted request has waited for its turn.
fn delayed(admission: &mut Admission, delay: Span, exchange: &mut Exchange) {
    exchange.set_verdict(RequestVerdict::Delayed);
    exchange.set_delay(delay.to_duration());
    let millis = HeaderValue::from(delay.as_micros().div_ceil(1_000));
    admission.headers.get_or_insert_default().insert(DELAY, millis);
}

/// Charges a request.
async fn charge(
    options: LimitOptions<'_>,
    call: Call<'_>,
    checked: &mut Checked,
    exchange: &mut Exchange,
) -> Result<(), ProxyError> {
    let charged = charge_slots(options.app, options.queues, call, checked).await;
    let slot = charged.map_err(|error| match error {
        ProxyError::StoreAway => undecided(exchange),
        error => error,
    })?;
    if let Some(slot) = slot {
        exchange.hold(slot);
    }
    Ok(())
}

/// Reserves the estimates of a request, to be settled at the end of its exchange. Whether it is
/// decided: what cannot be reserved is charged, and not settled.
async fn reserve(
    options: LimitOptions<'_>,
    route: &RouteState,
    call: Call<'_>,
    checked: &mut Checked,
    settlement: impl FnOnce(HeldTicket) -> Settlement,
    exchange: &mut Exchange,
) -> Result<bool, ProxyError> {
    let app = options.app;
    match app.reservations().reserve(app.engine(), call, TTL, checked).await {
        Ok(None) => Ok(true),
        Ok(Some(ticket)) => {
            let lease = call.rules.lease(&checked.plan, call.now);
            let renewal = Renewal { ttl: TTL, lease: lease.map_or(TTL, |lease| lease.min(TTL)) };
            let held = HeldTicket::new(app, ticket, Some(renewal), options.queues);
            exchange.settle_at_end(settlement(held));
            Ok(true)
        }
        // Changed rules cannot be reserved, which is a warning; too much is held; or the store is
        // away, and the rules say what follows.
        Err(ReservationError::Hold(_)) => {
            route.metrics.settle(SettleOutcome::Unreserved);
            *checked = Checked::default();
            Ok(false)
        }
        Err(ReservationError::TooManyReservations { .. }) => Err(ProxyError::Overload),
        Err(_) => Err(TOO_LONG),
    }
}

/// What follows from the verdicts: the response of a denial, or headers.
pub(crate) fn conclude(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    call: &Call<'_>,
    checked: &Checked,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    let Call { rules, request, now, retries, .. } = *call;
    if retries && !checked.allowed {
        // It does not try again.
        rules.count_decided(checked);
    }
    let LimitOptions { app, style, limit_headers, .. } = options;
    let LimitedRequest { route, limit, head, .. } = limited;
    app.record_unmatched(rules, request, checked).map_err(|_| ProxyError::Unmatched)?;
    let config = &route.config;
    let mut admission = Admission {
        wait: checked.wait(),
        priority: priority_of(rules, &checked.plan),
        ..Admission::default()
    };
    let is_denied = app.code_of(rules, request, checked) == Code::OverLimit;
    if is_denied || !checked.allowed || checked.statuses.iter().any(Status::is_shadow_denied) {
        let verdict = match config.on_limit {
            _ if !is_denied => RequestVerdict::DryRunDenied,
            OnLimit::Rules | OnLimit::Deny | OnLimit::Shape | OnLimit::Queue => {
                RequestVerdict::Denied
            }
            OnLimit::Mark => RequestVerdict::Marked,
        };
        exchange.set_verdict(verdict);
        if exchange.has_details() {
            let status = denying_status(&checked.statuses);
            let wait = status.and_then(|status| status.verdict.retry_after());
            let rule = denying_rule(app, rules, checked);
            exchange.set_denial(rule, wait.map(Span::to_duration));
        }
        if verdict == RequestVerdict::Denied {
            let response = style.response(&config.denial, head, rules, now, checked);
            return Ok(denied(options, limited, call, checked, response));
        }
        if verdict == RequestVerdict::Marked {
            let rule = denying_rule(app, rules, checked).unwrap_or_else(|| limit.domain.clone());
            let rule = utf8_percent_encode(&rule, ESCAPED).to_string();
            admission.exceeded = HeaderValue::try_from(rule).ok();
        }
    } else {
        exchange.set_verdict(admitted_verdict(rules, checked));
    }
    if limit_headers || admission.exceeded.is_some() {
        let mut headers = HeaderMap::new();
        style.write_headers(&config.denial.hide, rules, now, checked, &mut headers);
        admission.headers = Some(headers);
    }
    Ok(Decision::Admitted(admission))
}

/// Importance of a request: the highest of its rules.
pub(crate) fn priority_of(rules: &Snapshot<'_>, plan: &Plan) -> u8 {
    let priority = |step: &Step| match step.target {
        Target::Rule(no) => Some(rules.rules().rule(no).priority()),
        Target::None(_) | Target::Replaced(_) | Target::Override(_) => None,
    };
    plan.steps().iter().filter_map(priority).max().unwrap_or(PRIORITY_DEFAULT)
}

/// The error of a request that a rule does not admit without the store.
fn undecided(exchange: &mut Exchange) -> ProxyError {
    exchange.set_verdict(RequestVerdict::Undecided);
    ProxyError::StoreAway
}

/// The verdict on a request that no limit denies, or would.
fn admitted_verdict(rules: &Snapshot<'_>, checked: &Checked) -> RequestVerdict {
    if checked.listed().is_some_and(|listed| listed.list == List::Allow) {
        return RequestVerdict::Exempt;
    }
    let limited = checked.statuses.iter().filter(|one| !policies(one.target, rules).is_empty());
    limited.fold(RequestVerdict::None, |verdict, status| match status.verdict.decided_by {
        Some(_) if verdict != RequestVerdict::Undecided => RequestVerdict::Passed,
        // `on_store_failure: allow` admits without a decision.
        _ => RequestVerdict::Undecided,
    })
}

/// The rule that denies, or would.
fn denying_rule(app: &App, rules: &Snapshot<'_>, checked: &Checked) -> Option<String> {
    app.denied_by(rules, checked).or_else(|| {
        let status = checked.statuses.iter().find(|status| status.is_shadow_denied())?;
        status.rule().map(|no| rules.rules().id(no))
    })
}
