//! A native limit in the words of Envoy's protocol, which knows a number and a unit.

use sluicegate::rules::limit::Limit;
use sluicegate::rules::unit::Unit;
use sluicegate::{Span, Timestamp};
use sluicegate_core::limit::Limit as CoreLimit;

use super::answer::CurrentLimit;

/// The limit that decided: its number, its unit if it is exactly one, and its name.
pub(super) fn told_limit(limits: &[Limit], decided_by: Option<usize>) -> Option<CurrentLimit<'_>> {
    let limit = limits.get(decided_by?)?;
    let (count, period) = number_of(&limit.at(Timestamp::EPOCH))?;
    let requests_per_unit = u32::try_from(count).unwrap_or(u32::MAX);
    let unit = Unit::ALL.into_iter().find(|unit| Some(unit.span()) == period);
    let unit = unit.map_or(0, Unit::number);
    Some(CurrentLimit { requests_per_unit, unit, name: limit.name().unwrap_or_default() })
}

/// How many, and in which time, if there is one.
fn number_of(limit: &CoreLimit) -> Option<(u64, Option<Span>)> {
    let rate = match limit {
        CoreLimit::TokenBucket(bucket) => bucket.rate(),
        CoreLimit::LeakyBucket(bucket) => bucket.rate(),
        CoreLimit::FixedWindow(window) => window.rate(),
        CoreLimit::SlidingWindow(window) => window.rate(),
        CoreLimit::SmoothBursty(smooth) => smooth.rate(),
        CoreLimit::WarmUp(warm_up) => warm_up.rate(),
        CoreLimit::SlidingLog(log) => {
            let (most, length) = log.rates().min_by_key(|(most, _)| *most)?;
            return Some((most, Some(length)));
        }
        CoreLimit::Tally(tally) => return Some((tally.limit(), Some(tally.period()))),
        CoreLimit::Cycle(cycle) => return Some((cycle.permits(), Some(cycle.period()))),
        CoreLimit::Concurrency(slots) => return Some((slots.max(), None)),
        CoreLimit::Closed => return Some((0, None)),
        CoreLimit::Unlimited => return None,
    };
    Some((rate.count(), Some(rate.period())))
}
