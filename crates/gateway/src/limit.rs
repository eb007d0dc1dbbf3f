//! Decides whether a request of a route is admitted, by the rules.

use std::cell::Cell;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sluicegate::backend::Call;
use sluicegate::http::HeaderLines;
use sluicegate::rules::mapping::{Attributes, Described};
use sluicegate::rules::plan::List;
use sluicegate::rules::request::{Descriptor, Request};
use sluicegate::{Checked, Operation, Snapshot, Status, Timestamp};
use sluicegate_config::gateway::route::{LimitConfig, OnLimit, OnMissing};
use sluicegate_server::app::App;
use sluicegate_server::reservations::{ReservationError, Reservations};
use sluicegate_server::rls::response::Code;
use sluicegate_server::status::{denying_status, policies, rule_of};

use crate::body::ResponseBody;
use crate::denial::DenialStyle;
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::forward::LoosePath;
use crate::identity::ClientIdentity;
use crate::metrics::RequestVerdict;
use crate::route_state::RouteState;
use crate::slot::HeldSlot;

/// Header of a request that is forwarded although a limit denies it: the rule.
pub(crate) const EXCEEDED: HeaderName = HeaderName::from_static("x-ratelimit-exceeded");
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The verdict of all limits of a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It goes on.
    Admitted(Admission),
    /// It is denied, with this response.
    Denied(Response<ResponseBody>),
}

/// What an admitted request and its response get.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Headers of the response.
    pub(crate) headers: Option<HeaderMap>,
    /// The rule that denies it, for the upstream.
    pub(crate) exceeded: Option<HeaderValue>,
}

/// How requests are limited, for all routes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitOptions<'a> {
    pub(crate) app: &'a App,
    pub(crate) style: &'a DenialStyle,
    /// Whether responses to admitted requests have rate limit headers.
    pub(crate) limit_headers: bool,
}

/// A request to decide.
#[derive(Clone, Copy)]
pub(crate) struct LimitedRequest<'a> {
    pub(crate) route: &'a RouteState,
    pub(crate) limit: &'a LimitConfig,
    pub(crate) head: &'a Parts,
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) identity: &'a ClientIdentity<'a>,
}

/// Decides a request, and charges its limits if it is admitted.
pub(crate) async fn decide(
    options: LimitOptions<'_>,
    request: LimitedRequest<'_>,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    match decide_now(options, request, exchange)? {
        Some(decision) => Ok(decision),
        // Boxed, so that the future of requests that need not wait stays small.
        None => Box::pin(decide_later(options, request, exchange)).await,
    }
}

thread_local! {
    /// Its buffers serve one request after the other. They are as large as the largest needs.
    static REUSED: Cell<Checked> = Cell::default();
}

/// Decides a request without waiting; `None` if the store has to be called, or a slot to be held.
fn decide_now(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    exchange: &mut Exchange,
) -> Result<Option<Decision>, ProxyError> {
    let engine = options.app.engine();
    let (rules, now) = (engine.snapshot(), engine.now());
    let described = limited.describe()?;
    let entries = described.entries();
    let descriptors = described.descriptors(&entries);
    let request = limited.request(&described, &descriptors);
    exchange.set_cost(request.hits, &limited.route.identity);
    if rules.slot_descriptor(&request).is_some() {
        return Ok(None);
    }
    let mut checked = REUSED.take();
    let decided = match engine.check_now(&Call::new(&rules, &request, now), &mut checked) {
        true => conclude(options, limited, (&rules, now), &request, &checked, exchange).map(Some),
        false => Ok(None),
    };
    REUSED.set(checked);
    decided
}

/// Decides a request that waits for the store, or holds a slot.
async fn decide_later(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    let app = options.app;
    let engine = app.engine();
    let (rules, now) = (engine.snapshot(), engine.now());
    let described = limited.describe()?;
    let entries = described.entries();
    let descriptors = described.descriptors(&entries);
    let request = limited.request(&described, &descriptors);
    let call = Call::new(&rules, &request, now);
    let mut checked = Checked::default();
    if rules.slot_descriptor(&request).is_some() {
        let ticket = Reservations::check(engine, call, &mut checked).await;
        let ticket = ticket.map_err(|error| match error {
            ReservationError::Hold(_) => undecided(exchange),
            _ => ProxyError::BadRequest("A part of the request is too long."),
        })?;
        if let Some(ticket) = ticket {
            exchange.hold(HeldSlot::new(app, ticket, rules.lease(&checked.plan, now)));
        }
    } else {
        let decided = engine.apply(Operation::Hit, call, &mut checked).await;
        decided.map_err(|_| undecided(exchange))?;
    }
    conclude(options, limited, (&rules, now), &request, &checked, exchange)
}

impl<'a> LimitedRequest<'a> {
    /// Its descriptors.
    fn describe(self) -> Result<Described<'a>, ProxyError> {
        let described = self.limit.mapping.describe(self.attributes);
        let described = described
            .map_err(|_| ProxyError::BadRequest("A part of the request is not valid text."))?;
        match described.missing() {
            Some(part) if self.limit.on_missing == OnMissing::Reject => {
                Err(self.identity.missing(part))
            }
            _ => Ok(described),
        }
    }

    fn request<'d>(
        self,
        described: &Described<'_>,
        descriptors: &'d [Descriptor<'d>],
    ) -> Request<'d>
    where
        'a: 'd,
    {
        let mut request = described.request(&self.limit.domain, descriptors);
        // A client that names its cost must not name none.
        request.hits = request.hits.max(1);
        request
    }
}

/// What follows from the verdicts: the response of a denial, or headers.
fn conclude(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    (rules, now): (&Snapshot<'_>, Timestamp),
    request: &Request<'_>,
    checked: &Checked,
    exchange: &mut Exchange,
) -> Result<Decision, ProxyError> {
    let LimitOptions { app, style, limit_headers } = options;
    let LimitedRequest { route, limit, head, .. } = limited;
    app.record_unmatched(rules, request, checked).map_err(|_| ProxyError::Unmatched)?;
    let config = &route.config;
    let mut admission = Admission::default();
    let is_denied = app.code_of(rules, request, checked) == Code::OverLimit;
    if is_denied || !checked.allowed || checked.statuses.iter().any(is_shadow_denied) {
        let verdict = match config.on_limit {
            _ if !is_denied => RequestVerdict::DryRunDenied,
            OnLimit::Deny => RequestVerdict::Denied,
            OnLimit::Mark => RequestVerdict::Marked,
        };
        exchange.set_verdict(verdict);
        if exchange.has_details() {
            let status = denying_status(&checked.statuses);
            let wait = status.and_then(|status| status.verdict.retry_after());
            let rule = denying_rule(app, rules, checked);
            exchange.set_denial(rule, wait.map(sluicegate::Span::to_duration));
        }
        if verdict == RequestVerdict::Denied {
            let response = style.response(&config.denial, head, rules, now, checked);
            return Ok(Decision::Denied(response));
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

/// Whether a limit in shadow mode would deny.
fn is_shadow_denied(status: &Status) -> bool {
    status.verdict.shadow.is_some_and(|outcome| !outcome.is_allowed())
}

/// The rule that denies, or would.
fn denying_rule(app: &App, rules: &Snapshot<'_>, checked: &Checked) -> Option<String> {
    app.denied_by(rules, checked).or_else(|| {
        let status = checked.statuses.iter().find(|status| is_shadow_denied(status))?;
        rule_of(status).map(|no| rules.rules().id(no))
    })
}

/// The attributes of a request that descriptors are made of.
pub(crate) fn attributes<'a>(
    head: &'a Parts,
    lines: &'a HeaderLines<'a>,
    host: &'a str,
    client: Option<std::net::IpAddr>,
    identity: &'a ClientIdentity<'a>,
) -> Attributes<'a> {
    let uri = match head.extensions.get::<LoosePath>() {
        Some(LoosePath(uri)) => uri,
        None => head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
    };
    Attributes {
        client_ip: client,
        method: Some(head.method.as_str().as_bytes()),
        scheme: Some(if identity.is_tls() { b"https" } else { b"http" }),
        host: Some(host.as_bytes()),
        uri: Some(uri.as_bytes()),
        headers: lines,
        identity: Some(identity),
    }
}
