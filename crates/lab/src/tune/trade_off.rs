//! The trade-off between rate and burst: for each rate the smallest burst that denies at most a
//! number of clients.
//!
//! All pairs on the curve deny the same share of clients. They differ in what they admit of a
//! client that uses all of its limit: `burst + rate × horizon` in a span of `horizon`. The
//! recommended pair is the one that admits least in the given horizon: the strictest limit with the
//! property. A short horizon prefers small bursts, a long one low rates; geometrically, it is the
//! point where a line with the slope −horizon touches the curve.

use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;

use super::shape::LimitShape;
use super::usage::UsageByClient;

/// Shares of clients that plots and tables show beside that of the goal.
pub const SHOWN_SHARES: [f64; 3] = [0.1, 0.01, 0.001];

/// A rate, or a window, and the sizes that belong to it.
#[derive(Debug, Clone)]
pub struct TradeOffPoint {
    /// The limit without its size.
    pub shape: LimitShape,
    /// The smallest size that denies as many clients as the promise permits.
    pub size: u64,
    /// The smallest size that denies the share of the goal of these clients: the estimate.
    pub estimate: u64,
    /// The lower end of the interval of the estimate.
    pub lower: u64,
    /// The smallest sizes that deny at most [`SHOWN_SHARES`] of these clients.
    pub shown: [u64; SHOWN_SHARES.len()],
    /// The largest sizes that clients need, with the clients, in descending order.
    pub(super) top: Vec<(u64, u32)>,
}

/// Numbers of clients that a curve leaves above it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exceeded {
    /// Clients that the promise permits to be denied.
    pub(super) promised: usize,
    /// The share of the goal of these clients.
    pub(super) estimate: usize,
    /// Those above the lower end of the interval.
    pub(super) lower: usize,
}

/// Clients in the tail of each point that resampling may reach.
const TOP_MIN: usize = 100;
/// With more, resampling would take too much memory; the interval of the size is narrow then.
pub(super) const TOP_MAX: usize = 20_000;

/// The curve over the rates of a token bucket, in ascending order, for the clients for which
/// `counts` holds.
pub(super) fn over_rates(
    usage: &UsageByClient,
    counts: &[bool],
    exceeded: Exceeded,
    horizon: Span,
) -> Vec<TradeOffPoint> {
    let rates = rates(usage);
    let Some(fastest) = rates.last() else { return Vec::new() };
    let floor = point(LimitShape::TokenBucket(*fastest), usage, counts, exceeded);
    let mut curve: Vec<TradeOffPoint> = Vec::new();
    let mut admitted_min = u64::MAX;
    for rate in rates {
        let shape = LimitShape::TokenBucket(rate);
        let next = point(shape, usage, counts, exceeded);
        admitted_min = admitted_min.min(shape.admitted_max(next.size, horizon));
        // Higher rates need no smaller bursts, or admit far more than is needed.
        let ends = next.size == floor.size && next.shown == floor.shown
            || shape.admitted_max(0, horizon) > admitted_min.saturating_mul(20);
        curve.push(next);
        if ends {
            break;
        }
    }
    curve
}

/// The point of one shape.
pub(super) fn point(
    shape: LimitShape,
    usage: &UsageByClient,
    counts: &[bool],
    exceeded: Exceeded,
) -> TradeOffPoint {
    let resolution = usage.resolution();
    let needs = usage.map_clients(|requests| shape.needed_size(requests, resolution));
    let counted = (0_u32..).zip(needs).zip(counts).filter(|(_, counts)| **counts);
    let mut needs: Vec<(u64, u32)> = counted.map(|((client, size), _)| (size, client)).collect();
    needs.sort_unstable_by(|one, next| next.cmp(one));
    // The largest size that all but `above` clients fit into.
    let size = |above: usize| needs.get(above).or(needs.last()).map_or(1, |(size, _)| *size);
    let shown = SHOWN_SHARES.map(|share| size((share * needs.len() as f64) as usize));
    let (promised, estimate) = (size(exceeded.promised), size(exceeded.estimate));
    let lower = size(exceeded.lower);
    let top = (2 * exceeded.promised + TOP_MIN).min(TOP_MAX);
    needs.truncate(top);
    TradeOffPoint { shape, size: promised, estimate, lower, shown, top: needs }
}

/// The point that admits least in the horizon; of equal ones the last, which has the smallest
/// burst.
pub(super) fn strictest(curve: &[TradeOffPoint], horizon: Span) -> Option<&TradeOffPoint> {
    // `min_by_key` takes the first of equal ones.
    curve.iter().rev().min_by_key(|point| point.shape.admitted_max(point.size, horizon))
}

/// The rates of the grid, but for those that add less than a token within the log.
pub(super) fn rates(usage: &UsageByClient) -> Vec<Rate> {
    let length = usage.last().since(usage.first()).as_micros().max(1);
    let adds_a_token = |rate: &Rate| {
        u128::from(rate.count()) * u128::from(length) >= u128::from(rate.period().as_micros())
    };
    grid().into_iter().filter(adds_a_token).collect()
}

/// Round rates in ascending order, each some 25 % above the one before.
fn grid() -> Vec<Rate> {
    const STEPS: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];
    let (second, minute, hour, day) = (1, 60, 3_600, 86_400);
    let mut rates = Vec::new();
    let mut add = |counts: &mut dyn Iterator<Item = u64>, period: u64| {
        let period = Span::from_secs(period);
        rates.extend(counts.filter_map(|count| Rate::new(count, period).ok()));
    };
    let small = [1, 2, 3, 4, 5, 6, 8];
    add(&mut small.into_iter().chain([10, 12, 15, 20]), day);
    for period in [hour, minute] {
        add(&mut small.into_iter().chain([10, 12, 15, 20, 25, 30, 40, 50]), period);
    }
    let decades = (0..7).map(|decade| 10_u64.pow(decade));
    let large = decades.flat_map(|decade| STEPS.map(|step| step * decade));
    add(&mut small.into_iter().chain(large), second);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_the_grid_rise_in_small_steps() {
        let per_second = |rate: &Rate| rate.count() as f64 / rate.period().as_micros() as f64 * 1e6;
        let rates: Vec<f64> = grid().iter().map(per_second).collect();
        for pair in rates.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] <= pair[0] * 2.01, "{pair:?}");
        }
        assert!(rates[0] < 2e-5 && *rates.last().unwrap() >= 1e7);
    }
}
