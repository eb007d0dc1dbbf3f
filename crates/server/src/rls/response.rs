//! `RateLimitResponse`: its encoder, and the engine's statuses as Envoy expresses them, by a number
//! and a unit.
//!
//! ```text
//!   RateLimitResponse  overall_code = 1, statuses = 2, response_headers_to_add = 3,
//!                      request_headers_to_add = 4, dynamic_metadata = 6
//!   DescriptorStatus   code = 1, current_limit = 2 { requests_per_unit = 1, unit = 2, name = 3 },
//!                      limit_remaining = 3, duration_until_reset = 4 { seconds = 1 }
//!   HeaderValue        key = 1, value = 2
//! ```

use sluicegate::rules::limit::LimitConfig;
use sluicegate::rules::plan::Target;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::unit::Unit;
use sluicegate::{Snapshot, Span, Status, Timestamp};
use sluicegate_core::limit::Limit;
use sluicegate_core::verdict::Verdict;

use super::wire::{put_bytes, put_message, put_number};
use super::{HeaderNames, Options};
use crate::status::is_unlimited;

/// Code of a request or a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Admitted.
    Ok = 1,
    /// Denied.
    OverLimit = 2,
}

/// Status of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DescriptorStatus<'a> {
    pub(super) code: Code,
    /// The limit that applies, if any.
    pub(super) limit: Option<CurrentLimit<'a>>,
    pub(super) limit_remaining: u32,
    /// Whole seconds until the limit is full.
    pub(super) reset_after_s: Option<u64>,
}

/// A limit, as Envoy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CurrentLimit<'a> {
    pub(super) requests_per_unit: u32,
    /// Number of the unit; 0 if no unit of Envoy matches.
    pub(super) unit: i32,
    pub(super) name: &'a str,
}

/// Appends the code of the whole request.
pub(super) fn put_overall(code: Code, out: &mut Vec<u8>) {
    put_number(1, code as u64, out);
}

/// Appends the status of one descriptor.
pub(super) fn put_status(status: &DescriptorStatus<'_>, out: &mut Vec<u8>) {
    put_message(2, out, |out| {
        put_number(1, status.code as u64, out);
        if let Some(limit) = &status.limit {
            put_message(2, out, |out| {
                put_number(1, u64::from(limit.requests_per_unit), out);
                put_number(2, u64::try_from(limit.unit).unwrap_or(0), out);
                if !limit.name.is_empty() {
                    put_bytes(3, limit.name.as_bytes(), out);
                }
            });
        }
        put_number(3, u64::from(status.limit_remaining), out);
        if let Some(seconds) = status.reset_after_s {
            put_message(4, out, |out| put_number(1, seconds, out));
        }
    });
}

/// Field numbers of the headers that Envoy adds to the response to the client, and to the request
/// to the upstream.
const RESPONSE_HEADERS: u32 = 3;
const REQUEST_HEADERS: u32 = 4;

fn put_header(field: u32, key: &str, value: &str, out: &mut Vec<u8>) {
    put_message(field, out, |out| {
        put_bytes(1, key.as_bytes(), out);
        put_bytes(2, value.as_bytes(), out);
    });
}

// === statuses ===

/// The status of one descriptor.
pub(super) fn descriptor_status<'a>(
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
        counted(limit, seconds_to_window_end(unit.span(), now))
    };
    match status.target {
        // On a list, or without a rule.
        _ if status.verdict.remaining.is_none() && !is_unlimited(status, rules) => bare,
        Target::None(_) => bare,
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
                Limits::Native(limits) => match current_limit(limits, &status.verdict) {
                    Some((limit, reset_after)) => counted(limit, seconds(reset_after)),
                    None => bare,
                },
            }
        }
    }
}

/// Seconds until the window of a unit ends, from a whole second on as in envoyproxy/ratelimit.
fn seconds_to_window_end(unit: Span, now: Timestamp) -> u64 {
    const MICROS: u64 = 1_000_000;
    let (unit, now) = (unit.as_micros() / MICROS, now.as_micros() / MICROS);
    unit - now % unit
}

/// Whole seconds, rounded up.
pub(super) fn seconds(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000_000)
}

/// The limit that decided (number, unit if exactly one matches, and name), and its reset time.
fn current_limit<'a>(
    limits: &'a [LimitConfig],
    verdict: &Verdict,
) -> Option<(CurrentLimit<'a>, Span)> {
    let limit = limits.get(verdict.decided_by?)?;
    let resolved = limit.at(Timestamp::EPOCH);
    let (count, period) = quota_of(&resolved)?;
    let requests_per_unit = u32::try_from(count).unwrap_or(u32::MAX);
    let unit = Unit::ALL.into_iter().find(|unit| Some(unit.span()) == period);
    let unit = unit.map_or(0, Unit::number);
    let current = CurrentLimit { requests_per_unit, unit, name: limit.name().unwrap_or_default() };
    // There is no window: the field has the estimate of when a slot is released.
    let slot_free = verdict.retry_after().filter(|_| matches!(resolved, Limit::Concurrency(_)));
    Some((current, slot_free.unwrap_or(verdict.reset_after)))
}

/// Quota of a limit, and the period in which it refills, if any.
fn quota_of(limit: &Limit) -> Option<(u64, Option<Span>)> {
    let rate = match limit {
        Limit::TokenBucket(bucket) => bucket.rate(),
        Limit::LeakyBucket(bucket) => bucket.rate(),
        Limit::FixedWindow(window) => window.rate(),
        Limit::SlidingWindow(window) => window.rate(),
        Limit::SlidingSlices(window) => window.rate(),
        Limit::SmoothBursty(smooth) => smooth.rate(),
        Limit::WarmUp(warm_up) => warm_up.rate(),
        Limit::SlidingLog(log) => {
            let (count, period) = log.rates().min_by_key(|(count, _)| *count)?;
            return Some((count, Some(period)));
        }
        Limit::Tally(tally) => return Some((tally.limit(), Some(tally.period()))),
        Limit::Cycle(cycle) => return Some((cycle.permits(), Some(cycle.period()))),
        Limit::Concurrency(slots) => return Some((slots.max(), None)),
        Limit::Closed => return Some((0, None)),
        Limit::Unlimited => return None,
    };
    Some((rate.count(), Some(rate.period())))
}

// === headers ===

/// The limit whose numbers the headers carry, as in envoyproxy/ratelimit: the last one that denied,
/// else the first with the least remaining.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeaderLimit {
    chosen: Option<HeaderNumbers>,
    denied: bool,
}

#[derive(Debug, Clone, Copy)]
struct HeaderNumbers {
    limit: u32,
    remaining: u32,
    reset_after_s: u64,
}

impl HeaderLimit {
    /// Considers one more status. A quota denies nothing by itself.
    pub(super) fn consider(&mut self, status: &DescriptorStatus<'_>, is_quota: bool) {
        let Some(limit) = &status.limit else { return };
        let denies = status.code == Code::OverLimit && !is_quota;
        let least = self.chosen.map_or(u32::MAX, |chosen| chosen.remaining);
        if denies || (!self.denied && status.limit_remaining < least) {
            self.denied |= denies;
            self.chosen = Some(HeaderNumbers {
                limit: limit.requests_per_unit,
                remaining: status.limit_remaining,
                reset_after_s: status.reset_after_s.unwrap_or(0),
            });
        }
    }

    /// Appends the configured headers; `retry_after_s` is set if the request is denied.
    pub(super) fn put(&self, options: &Options, retry_after_s: Option<u64>, out: &mut Vec<u8>) {
        let Some(chosen) = &self.chosen else { return };
        if let Some(names) = &options.response_headers {
            chosen.put(names, RESPONSE_HEADERS, out);
            if let Some(seconds) = retry_after_s {
                put_header(RESPONSE_HEADERS, "Retry-After", &seconds.to_string(), out);
            }
        }
        if let Some(names) = &options.request_headers {
            chosen.put(names, REQUEST_HEADERS, out);
        }
    }
}

impl HeaderNumbers {
    fn put(&self, names: &HeaderNames, field: u32, out: &mut Vec<u8>) {
        put_header(field, &names.limit, &self.limit.to_string(), out);
        put_header(field, &names.remaining, &self.remaining.to_string(), out);
        put_header(field, &names.reset, &self.reset_after_s.to_string(), out);
    }
}
