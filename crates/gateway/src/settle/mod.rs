//! Settles a request by its response: what was reserved for it is replaced by the actual cost.
//!
//! ```text
//!   reserve ── response: head ── the first case that fits, for each descriptor
//!                        body ── bytes, fields of JSON
//!                        end, or the client goes away ── commit, once
//! ```
//!
//! A descriptor without a case that fits, or whose cost cannot be read, keeps its estimate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use sluicegate::rules::mapping::Few;
use sluicegate::rules::request::Request;
use sluicegate_config::gateway::route::LimitConfig;
use sluicegate_config::gateway::settle::{CostSource, SettleCase, Usage};
use sluicegate_rules::mapping::{DescriptorMapping, UsageUnit};
use sluicegate_server::reservations::DescriptorUsage;

use crate::exchange::CLIENT_CLOSED;
use crate::held_ticket::{CommittedParts, HeldTicket};
use crate::identity::is_json;
use crate::json_scanner::{JsonPath, JsonScanner, json_path};
use crate::metrics::{RouteMetrics, SettleOutcome};
use crate::tokens::{MeteredPiece, TokenMeter, TokenRequest, TokenUsage};

/// The largest cost.
pub(crate) const COST_MAX: u64 = (1 << 53) - 1;

/// The cases of a route, compiled.
#[derive(Debug)]
pub(crate) struct SettlePlan {
    cases: Box<[CompiledCase]>,
    /// Fields of the response.
    paths: Arc<[JsonPath]>,
    /// Names of the descriptors, by their index in the mapping.
    names: Box<[Arc<str>]>,
    /// Units of those that count the usage of a model.
    units: Box<[Option<UsageUnit>]>,
}

#[derive(Debug)]
struct CompiledCase {
    config: SettleCase,
    headers: Box<[(HeaderName, Box<str>)]>,
    cost: CostRule,
}

/// Where a cost comes from, compiled.
#[derive(Debug)]
enum CostRule {
    Reset,
    Fixed(u64),
    Header(HeaderName),
    /// Index of the path.
    Json(usize),
    Bytes,
    Duration,
}

/// What a descriptor is charged, as far as it is known when the response begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// No case fits.
    Estimate,
    /// A case fits whose cost cannot be read.
    Unreadable,
    Known(u64),
    Reset,
    /// Index of the path.
    Json(usize),
    Bytes,
    Duration,
    /// What the tokens cost.
    Usage(UsageUnit),
}

/// A request whose cost depends on its response.
#[derive(Debug)]
pub(crate) struct Settlement {
    plan: Arc<SettlePlan>,
    held: HeldTicket,
    descriptors: Few<HeldDescriptor>,
    /// Whether the response has begun.
    has_response: bool,
    scanner: Option<JsonScanner>,
    /// Counts the tokens of the response of a model.
    tokens: Option<Box<TokenMeter>>,
    committed: CommittedParts,
}

#[derive(Debug)]
struct HeldDescriptor {
    /// Its index in the mapping.
    index: usize,
    estimate: u64,
    charge: Charge,
}

/// The costs of a settled request by descriptor, for the log.
pub(crate) type SettledCosts = Vec<(Arc<str>, u64)>;

/// What a settled request has cost.
#[derive(Debug, Default)]
pub(crate) struct SettledRequest {
    pub(crate) costs: SettledCosts,
    pub(crate) usage: Option<TokenUsage>,
}

/// The end of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseEnd {
    /// Also of a response that never began.
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// Time since the head of the request.
    pub(crate) elapsed: Duration,
}

impl SettlePlan {
    /// Compiles the cases of a limit; `None` without any.
    pub(crate) fn new(limit: &LimitConfig) -> Option<Arc<Self>> {
        if !limit.is_settled() {
            return None;
        }
        let mut fields: Vec<&str> = Vec::new();
        let cases = limit.settle.iter().map(|case| CompiledCase::new(case, &mut fields)).collect();
        let paths = fields.iter().map(|field| json_path(field)).collect();
        let names = limit.mapping.descriptors.iter().map(DescriptorMapping::name);
        let names = names.map(Arc::from).collect();
        let units = limit.mapping.descriptors.iter().map(DescriptorMapping::usage_unit).collect();
        Some(Arc::new(Self { cases, paths, names, units }))
    }

    /// Whether fields of the response are read, so that it must not be compressed.
    pub(crate) fn reads_body(&self) -> bool {
        !self.paths.is_empty() || self.units.iter().any(Option::is_some)
    }

    /// The charge of a descriptor, by the head of the response; without headers if the gateway
    /// itself answers, and without a response if the client went away before.
    fn charge(&self, index: usize, status: u16, headers: Option<&HeaderMap>) -> Charge {
        let fits = |case: &&CompiledCase| case.fits(index, status, headers);
        let Some(case) = self.cases.iter().find(fits) else {
            return self.unit(index).map_or(Charge::Estimate, Charge::Usage);
        };
        match &case.cost {
            CostRule::Reset => Charge::Reset,
            CostRule::Fixed(cost) => Charge::Known(*cost),
            CostRule::Header(name) => {
                let cost = headers.and_then(|headers| header_cost(headers, name));
                cost.map_or(Charge::Unreadable, Charge::Known)
            }
            CostRule::Json(path) => Charge::Json(*path),
            CostRule::Bytes => Charge::Bytes,
            CostRule::Duration => Charge::Duration,
        }
    }
}

impl SettlePlan {
    fn unit(&self, index: usize) -> Option<UsageUnit> {
        self.units.get(index).copied().flatten()
    }
}

impl CompiledCase {
    fn new<'a>(config: &'a SettleCase, fields: &mut Vec<&'a str>) -> Self {
        // Names of headers are valid in a configuration that was read.
        let header = |name: &str| HeaderName::from_bytes(name.as_bytes()).ok();
        let headers = config.headers.iter();
        let headers =
            headers.filter_map(|(name, value)| Some((header(name)?, value.as_str().into())));
        let cost = match &config.usage {
            Usage::Reset => CostRule::Reset,
            Usage::Cost(CostSource::Fixed(cost)) => CostRule::Fixed(*cost),
            Usage::Cost(CostSource::Header(name)) => {
                CostRule::Header(header(name).unwrap_or(http::header::CONTENT_LENGTH))
            }
            Usage::Cost(CostSource::Json(field)) => {
                let known = fields.iter().position(|known| **known == **field);
                CostRule::Json(known.unwrap_or_else(|| {
                    fields.push(field);
                    fields.len() - 1
                }))
            }
            Usage::Cost(CostSource::Bytes) => CostRule::Bytes,
            Usage::Cost(CostSource::Duration) => CostRule::Duration,
        };
        Self { config: config.clone(), headers: headers.collect(), cost }
    }

    /// Whether it applies to a descriptor. A response that never began has a status, and fits
    /// only cases that name it.
    fn fits(&self, index: usize, status: u16, headers: Option<&HeaderMap>) -> bool {
        let has_value = |(name, value): &(HeaderName, Box<str>)| {
            let mut lines = headers.into_iter().flat_map(|headers| headers.get_all(name));
            lines.any(|line| line.as_bytes().trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
        };
        let is_status = match self.config.status.is_empty() {
            true => status != CLIENT_CLOSED,
            false => self.config.has_status(status),
        };
        self.config.descriptors.contains(&index) && is_status && self.headers.iter().all(has_value)
    }
}

/// The cost in a header, if it has one value.
fn header_cost(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut lines = headers.get_all(name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    number(line.as_bytes().trim_ascii())
}

/// A whole number of hits.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = is_number.then(|| str::from_utf8(text).ok()?.parse().ok()).flatten();
    number.filter(|number| *number <= COST_MAX)
}

impl Settlement {
    /// A request that has reserved its estimates. `indices` are those of its descriptors in the
    /// mapping.
    pub(crate) fn new(
        plan: &Arc<SettlePlan>,
        held: HeldTicket,
        request: &Request<'_>,
        indices: impl Iterator<Item = usize>,
        tokens: Option<&Arc<TokenRequest>>,
    ) -> Self {
        let descriptors = request.descriptors.iter().zip(indices).map(|(one, index)| {
            let estimate = one.hits.unwrap_or(request.hits);
            HeldDescriptor { index, estimate, charge: Charge::Estimate }
        });
        let descriptors = descriptors.collect();
        let tokens = tokens.map(|tokens| Box::new(TokenMeter::new(tokens.clone())));
        Self {
            plan: plan.clone(),
            held,
            descriptors,
            has_response: false,
            scanner: None,
            tokens,
            committed: CommittedParts::default(),
        }
    }

    /// The head of the response has come. Whether its length may change.
    pub(crate) fn respond(&mut self, status: StatusCode, headers: &HeaderMap) -> bool {
        self.decide(status.as_u16(), Some(headers));
        let is_read = |one: &HeldDescriptor| matches!(one.charge, Charge::Json(_));
        if self.descriptors.iter().any(is_read) && is_json(headers) {
            self.scanner = Some(JsonScanner::new(&self.plan.paths));
        }
        self.tokens.as_mut().is_some_and(|tokens| tokens.respond(headers))
    }

    fn decide(&mut self, status: u16, headers: Option<&HeaderMap>) {
        self.has_response = true;
        for one in &mut self.descriptors {
            one.charge = self.plan.charge(one.index, status, headers);
        }
    }

    /// A piece of the body has come; what is sent of it.
    pub(crate) fn read(&mut self, piece: Bytes) -> MeteredPiece {
        let Self { plan, held, descriptors, scanner, tokens, committed, .. } = self;
        if let Some(scanner) = scanner {
            scanner.read(&piece);
        }
        let Some(tokens) = tokens else { return MeteredPiece { bytes: piece, is_last: false } };
        tokens.read(piece, |request, used| {
            if let Some(used) = used {
                let total = descriptors.iter().map(|one| match plan.unit(one.index) {
                    Some(unit) if matches!(one.charge, Charge::Usage(_)) => {
                        request.cost(unit, &used)
                    }
                    _ => 0,
                });
                committed.raise(held, &total.collect::<Vec<_>>());
            }
            committed.is_exhausted()
        })
    }

    /// The whole response has come; returns the rest to be sent.
    pub(crate) fn complete(&mut self) -> Bytes {
        self.tokens.as_mut().map(|tokens| tokens.complete()).unwrap_or_default()
    }

    /// The response has ended, or will never come: charges what it costs. A response of the gateway
    /// itself has a status alone.
    pub(crate) fn finish(
        mut self,
        end: ResponseEnd,
        metrics: Option<&Arc<RouteMetrics>>,
    ) -> SettledRequest {
        let has_response = self.has_response;
        if !has_response {
            self.decide(end.status, None);
        }
        let request = self.tokens.as_ref().map(|tokens| tokens.request().clone());
        let usage = self.tokens.take().map(|tokens| tokens.finish(end.status, has_response));
        let used = usage.as_ref().map(|usage| usage.tokens).unwrap_or_default();
        let mut outcome = SettleOutcome::Estimate;
        let mut costs = SettledCosts::new();
        let mut usages = Vec::with_capacity(self.descriptors.len());
        for one in &self.descriptors {
            let field = |path| number(self.scanner.as_ref()?.value(path)?);
            let cost = match one.charge {
                Charge::Estimate => None,
                Charge::Unreadable => Some(None),
                Charge::Known(cost) => Some(Some(cost)),
                Charge::Reset => Some(Some(0)),
                Charge::Json(path) => Some(field(path)),
                Charge::Bytes => Some(Some(end.bytes.min(COST_MAX))),
                Charge::Duration => Some(Some(millis(end.elapsed))),
                // Without a request to a model nothing was used.
                Charge::Usage(unit) => {
                    Some(Some(request.as_ref().map_or(0, |request| request.cost(unit, &used))))
                }
            };
            match cost {
                Some(None) => outcome = SettleOutcome::Unreadable,
                Some(Some(cost)) => {
                    if outcome == SettleOutcome::Estimate {
                        outcome = SettleOutcome::Settled;
                    }
                    costs.extend(self.plan.names.get(one.index).map(|name| (name.clone(), cost)));
                }
                None => {}
            }
            usages.push(match one.charge {
                Charge::Reset => DescriptorUsage::Reset,
                _ => DescriptorUsage::Hits(cost.flatten().unwrap_or(one.estimate)),
            });
        }
        if let Some(metrics) = metrics {
            metrics.settle(outcome);
            if let Some(usage) = &usage {
                metrics.use_tokens(usage);
            }
        }
        self.held.settle(usages, self.committed, metrics.cloned());
        SettledRequest { costs, usage }
    }
}

/// A time in milliseconds, rounded up.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(COST_MAX).min(COST_MAX)
}
