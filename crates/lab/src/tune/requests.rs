//! Limits for a share of denied requests.
//!
//! The share is a ratio of sums over clients, and a heavy client weighs more than a thousand small
//! ones. Its upper confidence bound comes from resampling clients ([`super::resample`]); no bound
//! without assumptions exists, since a client that was not recorded may send more than all others.

use sluicegate_core::limit::{Limit, State};
use sluicegate_core::time::Span;

use super::TuneError;
use super::resample::{CLIENTS_MIN, RatioBootstrap};
use super::shape::{LimitShape, decide};
use super::usage::UsageByClient;

/// The share of requests that a limit denies, with its confidence bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeniedShare {
    /// In the log.
    pub estimate: f64,
    /// The lower and the upper bound; `None` with too few clients.
    pub interval: Option<[f64; 2]>,
}

/// Searches sizes for a share of requests.
#[derive(Debug)]
pub(super) struct RequestShares<'a> {
    usage: &'a UsageByClient,
    bootstrap: Option<RatioBootstrap>,
    confidence: f64,
}

impl<'a> RequestShares<'a> {
    pub(super) fn new(usage: &'a UsageByClient, confidence: f64) -> Self {
        let requests: Vec<u64> = usage.clients().map(|requests| requests.len() as u64).collect();
        let bootstrap = (requests.len() >= CLIENTS_MIN).then(|| RatioBootstrap::new(&requests));
        Self { usage, bootstrap, confidence }
    }

    /// The smallest size up to `most` whose upper bound is at most `share`, and what it denies;
    /// `None` if there is none, or the core has no limit of this size. More requests are denied of
    /// smaller sizes, up to rare cases with different costs, where the size found is one of
    /// several.
    pub(super) fn smallest_size(
        &self,
        shape: LimitShape,
        share: f64,
        most: u64,
    ) -> Option<(u64, DeniedShare)> {
        let resolution = self.usage.resolution();
        let needs = self.usage.map_clients(|requests| shape.needed_size(requests, resolution));
        let fits = |size: u64| match shape.limit(size) {
            Ok(limit) => self.share_of(&self.denied(&limit, &needs, size)).upper() <= share,
            // Too large for the core: only smaller ones are of use.
            Err(_) => true,
        };
        let (mut low, mut high) = (0, needs.iter().copied().max().unwrap_or(1));
        if most < high {
            if !fits(most) {
                return None;
            }
            high = most;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { high = middle } else { low = middle }
        }
        let limit = shape.limit(high).ok()?;
        Some((high, self.share_of(&self.denied(&limit, &needs, high))))
    }

    /// Denied requests of the clients that need more.
    fn denied(&self, limit: &Limit, needs: &[u64], size: u64) -> Vec<(u32, u64)> {
        let exceeding = (0_u32..).zip(needs).filter(|(_, need)| **need > size);
        let denied = exceeding.map(|(client, _)| {
            let mut state = State::New;
            let requests = self.usage.client(client as usize).iter();
            (client, requests.filter(|request| !decide(limit, &mut state, request)).count() as u64)
        });
        denied.filter(|(_, denied)| *denied > 0).collect()
    }

    fn share_of(&self, denied: &[(u32, u64)]) -> DeniedShare {
        let sum: u64 = denied.iter().map(|(_, denied)| denied).sum();
        let bound = |bootstrap: &RatioBootstrap| {
            [1.0 - self.confidence, self.confidence].map(|q| bootstrap.quantile(denied, q))
        };
        DeniedShare {
            estimate: sum as f64 / self.usage.request_count() as f64,
            interval: self.bootstrap.as_ref().map(bound),
        }
    }
}

impl DeniedShare {
    /// The bound that must be within the goal.
    fn upper(&self) -> f64 {
        self.interval.map_or(self.estimate, |[_, upper]| upper.max(self.estimate))
    }
}

/// The number of clients that would have the same weight if all sent as much (L. Kish).
pub(super) fn effective_clients(usage: &UsageByClient) -> f64 {
    let squares: f64 = usage.clients().map(|requests| (requests.len() as f64).powi(2)).sum();
    (usage.request_count() as f64).powi(2) / squares.max(1.0)
}

/// The shape and size that admit least in the horizon with this share of denied requests.
pub(super) fn strictest(
    shares: &RequestShares<'_>,
    shapes: &[LimitShape],
    share: f64,
    horizon: Span,
) -> Result<(LimitShape, u64, DeniedShare), TuneError> {
    let mut best: Option<(u64, (LimitShape, u64, DeniedShare))> = None;
    for shape in shapes {
        let least = best.as_ref().map_or(u64::MAX, |(admitted, _)| *admitted);
        // Sizes above this admit more in the horizon than what was found.
        let most = match shape {
            LimitShape::TokenBucket(_) => least.saturating_sub(shape.admitted_max(0, horizon)),
            _ => u64::MAX,
        };
        if most == 0 {
            continue;
        }
        let Some((size, denied)) = shares.smallest_size(*shape, share, most) else { continue };
        let admitted = shape.admitted_max(size, horizon);
        if admitted <= least {
            best = Some((admitted, (*shape, size, denied)));
        }
    }
    best.map(|(_, found)| found).ok_or(TuneError::NoLimit)
}
