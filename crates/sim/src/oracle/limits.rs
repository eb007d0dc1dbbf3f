//! Judges of the algorithms: never more than the limit and its allowance.

use std::collections::BTreeMap;

use super::allowance::Allowance;
use crate::world::Hit;

/// Refill of a token bucket: an amount in a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refill {
    pub(super) rate: u64,
    pub(super) per_us: u64,
}

impl Refill {
    /// Tokens of a span in microseconds.
    pub(super) fn within(self, span_us: u64) -> u64 {
        let tokens = u128::from(self.rate) * u128::from(span_us) / u128::from(self.per_us.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

/// Token bucket: no interval admits more than the burst and the refill of its length.
/// `admitted` is in the order of the answers.
pub(super) fn bucket(
    admitted: &[Hit],
    refill: Refill,
    burst: u64,
    allowance: &Allowance,
) -> Option<String> {
    let mut worst: Option<(u64, String)> = None;
    for first in admitted {
        let from = first.requested_us;
        let mut sum = 0;
        for hit in admitted.iter().filter(|hit| hit.requested_us >= from) {
            sum += hit.cost;
            let span = hit.answered_us - from;
            let max = burst + refill.within(span) + allowance.between(from, hit.answered_us);
            if sum > max && worst.as_ref().is_none_or(|(by, _)| sum - max > *by) {
                let description = format!(
                    "{sum} passed within {} ms up to {}, where a bucket of {burst} and {} per {} ms has {max}",
                    span / 1_000,
                    hit.answered_us,
                    refill.rate,
                    refill.per_us / 1_000
                );
                worst = Some((sum - max, description));
            }
        }
    }
    worst.map(|(_, description)| description)
}

/// Fixed window: some assignment of hits to the windows that they may have been decided in fits all
/// of them.
pub(super) fn fixed(
    admitted: &[Hit],
    count: u64,
    per_us: u64,
    allowance: &Allowance,
) -> Option<String> {
    let (first, last) = (
        admitted.iter().map(|hit| hit.requested_us / per_us).min()?,
        admitted.iter().map(|hit| hit.answered_us / per_us).max()?,
    );
    // Hits not yet assigned, by their last possible window.
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for window in first..=last {
        for hit in admitted.iter().filter(|hit| hit.requested_us / per_us == window) {
            *open.entry(hit.answered_us / per_us).or_default() += hit.cost;
        }
        let (from, to) = (window * per_us, (window + 1) * per_us - 1);
        let mut room = count + allowance.between(from, to);
        for (_, cost) in open.range_mut(window..) {
            let fitting = room.min(*cost);
            (room, *cost) = (room - fitting, *cost - fitting);
        }
        let left = open.remove(&window).unwrap_or(0);
        if left > 0 {
            let had = count + allowance.between(from, to);
            return Some(format!(
                "{} passed in the window that began at {from}, which has {had}",
                had + left
            ));
        }
    }
    None
}

/// Sliding window: the current window and the weighted previous one never exceed the count.
/// `admitted` is in the order of the answers.
pub(super) fn sliding(
    admitted: &[Hit],
    count: u64,
    per_us: u64,
    allowance: &Allowance,
) -> Option<String> {
    for hit in admitted {
        let window = hit.answered_us / per_us;
        let (from, at) = (window * per_us, hit.answered_us);
        let sum = |from: u64, to: u64| -> u64 {
            let first = admitted.partition_point(|hit| hit.answered_us < from);
            let within = admitted[first..].iter().take_while(|hit| hit.answered_us <= to);
            within.filter(|hit| hit.requested_us >= from).map(|hit| hit.cost).sum()
        };
        let current = sum(from, at);
        let before = sum(from.saturating_sub(per_us), from.saturating_sub(1));
        // Weighted by the latest moment of the decision.
        let weighed = before * (from + per_us - at) / per_us;
        let max = count + allowance.between(from.saturating_sub(per_us), at);
        if current > 0 && hit.requested_us >= from && current + weighed > max {
            return Some(format!(
                "{current} passed in the window that began at {from} until {at}, and {before} in the one before, which weigh {weighed}: more than {max}"
            ));
        }
    }
    None
}
