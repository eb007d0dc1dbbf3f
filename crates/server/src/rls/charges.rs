//! Descriptors of a request as the engine takes them: charged, or refunded by negative hits.

use sluicegate::Snapshot;
use sluicegate::rules::request::{Descriptor, Override, Request};
use sluicegate::rules::unit::Unit;
use smallvec::SmallVec;

use super::RefundPolicy;
use super::handler::Failure;
use super::request::{RateLimitDescriptor, RateLimitRequest};
use crate::telemetry::Endpoint;

/// The descriptors of a request, split by what happens to their counters.
#[derive(Debug)]
pub(super) struct Charges<'a> {
    domain: &'a str,
    hits: u64,
    charged: DescriptorList<'a>,
    refunded: DescriptorList<'a>,
}

type DescriptorList<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// Limit on negative hits, which carry no proof of a charge.
#[derive(Clone, Copy)]
pub(super) enum RefundRight<'a> {
    None,
    /// Unlimited for operators. Evaluated only for requests with negative hits.
    Operator(&'a (dyn Fn() -> bool + Sync)),
    /// The maximum of an Envoy configuration.
    Proxy,
    Any,
}

/// The largest `hits_addend` that Envoy accepts in its configuration.
const PROXY_REFUND_MAX: u64 = 1_000_000_000;

// === impl Charges ===

impl<'a> Charges<'a> {
    /// Splits the descriptors.
    ///
    /// # Errors
    /// When a limit has no unit, or the caller may not refund.
    #[inline]
    pub(super) fn new(
        message: &'a RateLimitRequest<'_>,
        rules: &Snapshot<'_>,
        refunds: RefundRight<'_>,
    ) -> Result<Self, Failure> {
        // Without rules for the domain, limits of descriptors have no effect.
        let is_known = rules.rules().domain(message.domain).is_some();
        let mut charges = Self {
            domain: message.domain,
            hits: u64::from(message.hits_addend.max(1)),
            charged: DescriptorList::new(),
            refunded: DescriptorList::new(),
        };
        for descriptor in &message.descriptors {
            let limit = if is_known { limit_of(descriptor)? } else { None };
            let entries = message.entries(descriptor);
            let is_refund = descriptor.is_negative_hits;
            let descriptor = Descriptor { entries, hits: descriptor.hits_addend, limit };
            let list = if is_refund { &mut charges.refunded } else { &mut charges.charged };
            list.push(descriptor);
        }
        refunds.check(&charges.refunded, charges.hits)?;
        Ok(charges)
    }

    /// The request to charge.
    pub(super) fn charged(&self) -> Request<'_> {
        Request { domain: self.domain, descriptors: &self.charged, hits: self.hits }
    }

    /// The request to refund, if any.
    pub(super) fn refunded(&self) -> Option<Request<'_>> {
        let descriptors = &*self.refunded;
        let request = Request { domain: self.domain, descriptors, hits: self.hits };
        (!descriptors.is_empty()).then_some(request)
    }
}

fn limit_of(descriptor: &RateLimitDescriptor) -> Result<Option<Override>, Failure> {
    let Some(limit) = descriptor.limit else { return Ok(None) };
    match Unit::of_number(limit.unit) {
        Some(unit) => Ok(Some(Override { requests_per_unit: limit.requests_per_unit, unit })),
        None => Err(Failure::invalid(format!(
            "the limit of a descriptor has no unit, got `{}`; send 1 (second) to 7 (week)",
            limit.unit
        ))),
    }
}

// === impl RefundRight ===

impl<'a> RefundRight<'a> {
    /// gRPC peers are trusted proxies; `/json` shares the HTTP address with all clients.
    pub(super) fn new(
        policy: RefundPolicy,
        endpoint: Endpoint,
        is_operator: Option<&'a (dyn Fn() -> bool + Sync)>,
    ) -> Self {
        match (policy, endpoint) {
            (RefundPolicy::Open, _) => Self::Any,
            (RefundPolicy::Proven, Endpoint::ShouldRateLimit) => Self::Proxy,
            (RefundPolicy::Proven | RefundPolicy::Operators, _) => {
                is_operator.map_or(Self::None, Self::Operator)
            }
        }
    }

    /// Checks the descriptors with negative hits, before anything is charged.
    fn check(self, refunded: &[Descriptor<'_>], hits: u64) -> Result<(), Failure> {
        let max = match self {
            _ if refunded.is_empty() => return Ok(()),
            Self::Any => return Ok(()),
            Self::Operator(is_operator) if is_operator() => return Ok(()),
            Self::Proxy => PROXY_REFUND_MAX,
            Self::None | Self::Operator(_) => {
                return Err(Failure::invalid(
                    "negative hits are not permitted here; see SLUICEGATE_REFUNDS",
                ));
            }
        };
        let largest = refunded.iter().map(|one| one.hits.unwrap_or(hits)).max().unwrap_or(0);
        if largest <= max {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "`{largest}` negative hits: the maximum of one descriptor is {max}, as in Envoy"
        )))
    }
}
