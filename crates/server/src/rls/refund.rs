//! Authorization of negative hits.

use sluicegate::rules::request::Descriptor;

use super::failure::Failure;
use super::options::RefundPolicy;
use crate::telemetry::Endpoint;

/// Bound on negative hits, which carry no proof of a charge.
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

// === impl RefundRight ===

impl<'a> RefundRight<'a> {
    /// gRPC peers are trusted proxies; `/json` shares the HTTP address with all clients.
    pub(super) const fn of(policy: RefundPolicy, endpoint: Endpoint) -> Self {
        match (policy, endpoint) {
            (RefundPolicy::Open, _) => Self::Any,
            (RefundPolicy::Proven, Endpoint::ShouldRateLimit) => Self::Proxy,
            (RefundPolicy::Proven | RefundPolicy::Operators, _) => Self::None,
        }
    }

    /// The same, or unlimited for operators.
    pub(super) const fn or_operator(self, is_operator: &'a (dyn Fn() -> bool + Sync)) -> Self {
        match self {
            Self::None => Self::Operator(is_operator),
            right => right,
        }
    }

    /// Checks the descriptors with negative hits, before anything is charged.
    pub(super) fn check(self, refunded: &[Descriptor<'_>], hits: u64) -> Result<(), Failure> {
        let most = match self {
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
        if largest <= most {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "`{largest}` negative hits: the maximum of one descriptor is {most}, as in Envoy"
        )))
    }
}
