//! A request and its response, from the head of the one to the end of the other: what is counted,
//! logged and traced of it, and the slot or reservation that it holds.
//!
//! Dropping it completes it, so that a client that goes away is counted too.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use sluicegate::Timestamp;
use sluicegate_server::app::App;
use sluicegate_server::traces::Span;
use tokio::time::Instant;

use crate::access_log::{AccessLog, LogEntry, bounded};
use crate::error::ProxyError;
use crate::held_ticket::HeldTicket;
use crate::metrics::{RequestSample, RequestVerdict, RouteMetrics};
use crate::settle::{ResponseEnd, Settlement};
use crate::tokens::MeteredPiece;

/// Status of a request whose client went away before the response, as in nginx.
pub(crate) const CLIENT_CLOSED: u16 = 499;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const SPAN_NAME: &str = "gateway";

/// A request and its response.
#[derive(Debug)]
pub(crate) struct Exchange {
    metrics: Option<Arc<RouteMetrics>>,
    begun: Instant,
    status: u16,
    verdict: RequestVerdict,
    delay: Duration,
    bytes: u64,
    slot: Option<HeldTicket>,
    settlement: Option<Box<Settlement>>,
    /// Where requests are logged or traced.
    details: Option<Box<Details>>,
}

#[derive(Debug)]
struct Details {
    log: Option<AccessLog>,
    span: Option<Span>,
    begun: Timestamp,
    entry: LogEntry,
}

impl Exchange {
    /// A request whose head has arrived.
    pub(crate) fn begin(app: &App, log: Option<&AccessLog>, request: &Request<impl Sized>) -> Self {
        let span = app.begin_span(SPAN_NAME, request.headers());
        let details = (log.is_some() || span.is_some()).then(|| {
            let text = |name: HeaderName| {
                let value = request.headers().get(name);
                value.map(|value| bounded(&String::from_utf8_lossy(value.as_bytes())))
            };
            let trace_id = match &span {
                Some(span) => Some(span.trace_id()),
                None => trace_id(request.headers()),
            };
            let entry = LogEntry {
                method: request.method().clone(),
                version: request.version(),
                path: bounded(request.uri().path()),
                referer: text(REFERER),
                user_agent: text(USER_AGENT),
                trace_id,
                ..LogEntry::default()
            };
            Box::new(Details { log: log.cloned(), span, begun: app.engine().now(), entry })
        });
        Self {
            metrics: None,
            begun: Instant::now(),
            status: CLIENT_CLOSED,
            verdict: RequestVerdict::default(),
            delay: Duration::ZERO,
            bytes: 0,
            slot: None,
            settlement: None,
            details,
        }
    }

    /// The route is known.
    pub(crate) fn set_route(&mut self, metrics: &Arc<RouteMetrics>) {
        metrics.begin();
        self.metrics = Some(metrics.clone());
    }

    /// Whether the route is known.
    pub(crate) const fn has_route(&self) -> bool {
        self.metrics.is_some()
    }

    /// Whether requests are logged or traced.
    pub(crate) const fn has_details(&self) -> bool {
        self.details.is_some()
    }

    /// The client is known.
    pub(crate) fn set_client(&mut self, client: Option<IpAddr>, host: &str) {
        if let Some(details) = &mut self.details {
            details.entry.client = client;
            details.entry.host = bounded(host);
        }
    }

    /// The request has an id.
    pub(crate) fn set_request_id(&mut self, id: &HeaderValue) {
        if let Some(details) = &mut self.details {
            details.entry.request_id = id.to_str().ok().map(str::to_owned);
        }
    }

    /// What the limits decided.
    pub(crate) fn set_verdict(&mut self, verdict: RequestVerdict) {
        self.verdict = verdict;
    }

    /// The request has waited for its turn.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
        if let Some(details) = &mut self.details {
            details.entry.delay = Some(delay);
        }
    }

    /// The cost of the request, and the keys of its descriptors.
    pub(crate) fn set_cost(&mut self, cost: u64, identity: &Arc<str>) {
        if let Some(details) = &mut self.details {
            details.entry.cost = Some(cost);
            details.entry.identity = Some(identity.clone());
        }
    }

    /// The rule that denies, or would, and the wait.
    pub(crate) fn set_denial(&mut self, rule: Option<String>, wait: Option<Duration>) {
        if let Some(details) = &mut self.details {
            details.entry.rule = rule;
            details.entry.wait = wait;
        }
    }

    /// Holds a slot until the exchange ends.
    pub(crate) fn hold(&mut self, slot: HeldTicket) {
        self.slot = Some(slot);
    }

    /// Settles a reservation when the exchange ends.
    pub(crate) fn settle_at_end(&mut self, settlement: Settlement) {
        self.settlement = Some(Box::new(settlement));
    }

    /// Whether the response is settled.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settlement.is_some()
    }

    /// The head of the response that its cost depends on; whether its length may change.
    pub(crate) fn read_response(&mut self, response: &mut Response<impl Sized>) -> bool {
        let Some(settlement) = &mut self.settlement else { return false };
        let is_rewritten = settlement.respond(response.status(), response.headers());
        if is_rewritten {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        is_rewritten
    }

    /// Makes the upstream's spans children of this one.
    pub(crate) fn write_trace(&self, headers: &mut HeaderMap) {
        let span = self.details.as_ref().and_then(|details| details.span.as_ref());
        if let Some(value) = span.and_then(|span| span.traceparent().parse().ok()) {
            headers.insert(TRACEPARENT, value);
        }
    }

    /// The upstream has answered, or failed, after this time.
    pub(crate) fn set_upstream(&mut self, name: &str, server: Option<&str>, elapsed: Duration) {
        if let Some(details) = &mut self.details {
            details.entry.upstream = Some(name.to_owned());
            details.entry.server = server.map(str::to_owned);
            details.entry.upstream_time = Some(elapsed);
        }
    }

    /// The request fails.
    pub(crate) fn fail(&mut self, error: ProxyError) {
        if let Some(metrics) = &self.metrics {
            metrics.fail(error);
        }
        if let Some(details) = &mut self.details {
            details.entry.error = Some(error.code());
        }
    }

    /// The response begins.
    pub(crate) fn respond(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// A piece of the body has come; what is sent of it.
    pub(crate) fn read_body(&mut self, piece: Bytes) -> MeteredPiece {
        let piece = match &mut self.settlement {
            Some(settlement) => settlement.read(piece),
            None => MeteredPiece { bytes: piece, is_last: false },
        };
        self.bytes += piece.bytes.len() as u64;
        piece
    }

    /// The whole body has come; returns the rest to be sent.
    pub(crate) fn complete_body(&mut self) -> Bytes {
        let rest = self.settlement.as_mut().map(|settlement| settlement.complete());
        let rest = rest.unwrap_or_default();
        self.bytes += rest.len() as u64;
        rest
    }
}

/// The id of the caller's trace.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(TRACEPARENT)?.to_str().ok()?.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let elapsed = self.begun.elapsed();
        let Self { status, verdict, delay, bytes, .. } = *self;
        if let Some(metrics) = &self.metrics {
            metrics.complete(RequestSample { status, verdict, elapsed, delay, bytes });
        }
        let settled = self.settlement.take().map(|settlement| {
            settlement.finish(ResponseEnd { status, bytes, elapsed }, self.metrics.as_ref())
        });
        let Some(details) = self.details.take() else { return };
        let Details { log, span, begun, mut entry } = *details;
        let route = self.metrics.as_ref().map(|metrics| metrics.name()).unwrap_or_default();
        if let Some(mut span) = span {
            span.set("http.route", route);
            span.set("http.request.method", entry.method.as_str());
            span.set_int("http.response.status_code", status.into());
            span.set("ratelimit.verdict", verdict.name());
            if let Some(rule) = &entry.rule {
                span.set("ratelimit.denied_by", rule);
            }
            if let Some(error) = entry.error {
                span.fail(error);
            }
            let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
            span.end(begun.after(sluicegate::Span::from_micros(micros)));
        }
        if let Some(log) = log {
            route.clone_into(&mut entry.route);
            (entry.status, entry.verdict, entry.bytes) = (status, verdict, bytes);
            entry.duration = elapsed;
            let settled = settled.unwrap_or_default();
            (entry.settled, entry.usage) = (settled.costs, settled.usage);
            log.write(&entry, SystemTime::UNIX_EPOCH + Duration::from_micros(begun.as_micros()));
        }
    }
}
