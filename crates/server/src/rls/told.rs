//! A native limit in the words of Envoy's protocol, which knows a number and a unit.

use sluicegate::rules::limit::Limit;
use sluicegate::rules::unit::Unit;
use sluicegate::{Span, Timestamp};
use sluicegate_core::limit::Limit as CoreLimit;
use sluicegate_core::verdict::Verdict;

use super::answer::CurrentLimit;

/// The limit that decided (its number, its unit if it is exactly one, and its name), and the time until it is full.
pub(super) fn told_limit<'a>(
    limits: &'a [Limit],
    verdict: &Verdict,
) -> Option<(CurrentLimit<'a>, Span)> {
    let limit = limits.get(verdict.decided_by?)?;
    let as_it_is = limit.at(Timestamp::EPOCH);
    let (count, period) = number_of(&as_it_is)?;
    let requests_per_unit = u32::try_from(count).unwrap_or(u32::MAX);
    let unit = Unit::ALL.into_iter().find(|unit| Some(unit.span()) == period);
    let unit = unit.map_or(0, Unit::number);
    let told = CurrentLimit { requests_per_unit, unit, name: limit.name().unwrap_or_default() };
    let alone = limits.len() == 1;
    let whole = period.filter(|_| !alone).and_then(|period| {
        let capacity = u128::from(as_it_is.capacity()?);
        let micros = (u128::from(period.as_micros()) * capacity).div_ceil(u128::from(count).max(1));
        u64::try_from(micros).ok().map(Span::from_micros)
    });
    Some((told, reset_after(verdict, whole)))
}

/// A verdict knows the longest reset of its plan, which may be another limit's: it is cut at the time in which the whole of the one that decided comes
/// back. The same is done for clients of the library, in its `http`.
fn reset_after(verdict: &Verdict, whole: Option<Span>) -> Span {
    let in_debt = verdict.remaining.is_some_and(|left| left < 0);
    match whole {
        Some(whole) if !in_debt => {
            verdict.reset_after.min(whole).max(verdict.retry_after().unwrap_or_default())
        }
        _ => verdict.reset_after,
    }
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
