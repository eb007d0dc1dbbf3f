//! What the engine says of a descriptor, in the words of Envoy's protocol, which knows a number and a unit.

use sluicegate::rules::limit::LimitConfig;
use sluicegate::rules::plan::Target;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::unit::Unit;
use sluicegate::{Snapshot, Span, Status, Timestamp};
use sluicegate_core::limit::Limit;
use sluicegate_core::verdict::Verdict;

use super::response::{Code, CurrentLimit, DescriptorStatus};

/// What is said of one descriptor.
pub(super) fn told<'a>(
    status: &Status,
    rules: &'a Snapshot<'_>,
    now: Timestamp,
) -> DescriptorStatus<'a> {
    let code = if status.verdict.is_allowed() { Code::Ok } else { Code::OverLimit };
    let bare = DescriptorStatus { code, limit: None, limit_remaining: 0, reset_after_s: None };
    let left =
        status.verdict.remaining.map_or(0, |left| u32::try_from(left.max(0)).unwrap_or(u32::MAX));
    let counted = |limit, reset_after_s| DescriptorStatus {
        limit: Some(limit),
        limit_remaining: left,
        reset_after_s: Some(reset_after_s),
        ..bare
    };
    let unlimited = DescriptorStatus { limit_remaining: u32::MAX, ..bare };
    let by_unit = |requests_per_unit, unit: Unit, name| {
        let limit = CurrentLimit { requests_per_unit, unit: unit.number(), name };
        counted(limit, to_the_end(unit.span(), now))
    };
    match status.target {
        // On a list, or under nothing at all.
        _ if status.verdict.remaining.is_none() && !is_unlimited(status, rules) => bare,
        Target::None => bare,
        Target::Override(limit) => by_unit(limit.requests_per_unit, limit.unit, ""),
        Target::Rule(no) | Target::Replaced(no) => {
            let rule = rules.rules().rule(no);
            let name = rule.name.as_deref().unwrap_or_default();
            match &rule.limits {
                Limits::Unlimited => unlimited,
                _ if matches!(status.target, Target::Replaced(_)) => bare,
                Limits::Envoy { requests_per_unit, unit } => {
                    by_unit(*requests_per_unit, *unit, name)
                }
                Limits::Native(limits) => match told_limit(limits, &status.verdict) {
                    Some((limit, reset_after)) => counted(limit, seconds(reset_after)),
                    None => bare,
                },
            }
        }
    }
}

pub(super) fn is_unlimited(status: &Status, rules: &Snapshot<'_>) -> bool {
    match status.target {
        Target::Rule(no) | Target::Replaced(no) => {
            rules.rules().rule(no).limits == Limits::Unlimited
        }
        Target::None | Target::Override(_) => false,
    }
}

/// Until the window of a unit is over: from a whole second on, as envoyproxy/ratelimit counts.
fn to_the_end(unit: Span, now: Timestamp) -> u64 {
    const MICROS: u64 = 1_000_000;
    let (unit, now) = (unit.as_micros() / MICROS, now.as_micros() / MICROS);
    unit - now % unit
}

/// Whole seconds, rounded up.
pub(super) fn seconds(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000_000)
}

/// The limit that decided (its number, its unit if it is exactly one, and its name), and the time until it is full.
fn told_limit<'a>(
    limits: &'a [LimitConfig],
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
fn number_of(limit: &Limit) -> Option<(u64, Option<Span>)> {
    let rate = match limit {
        Limit::TokenBucket(bucket) => bucket.rate(),
        Limit::LeakyBucket(bucket) => bucket.rate(),
        Limit::FixedWindow(window) => window.rate(),
        Limit::SlidingWindow(window) => window.rate(),
        Limit::SmoothBursty(smooth) => smooth.rate(),
        Limit::WarmUp(warm_up) => warm_up.rate(),
        Limit::SlidingLog(log) => {
            let (most, length) = log.rates().min_by_key(|(most, _)| *most)?;
            return Some((most, Some(length)));
        }
        Limit::Tally(tally) => return Some((tally.limit(), Some(tally.period()))),
        Limit::Cycle(cycle) => return Some((cycle.permits(), Some(cycle.period()))),
        Limit::Concurrency(slots) => return Some((slots.max(), None)),
        Limit::Closed => return Some((0, None)),
        Limit::Unlimited => return None,
    };
    Some((rate.count(), Some(rate.period())))
}
