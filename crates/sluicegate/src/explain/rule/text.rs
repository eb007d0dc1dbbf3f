//! Renders a rule as text.

use sluicegate_config::units::{show_factor, show_rate, show_span};
use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::calendar::Calendar;
use sluicegate_rules::domain::{Counter, ForwardAuth};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits, OnLimit, OnStoreFailure, Overflow, RuleConfig};
use sluicegate_rules::unit::Unit;

use super::{LocatedRule, varies};
use crate::estimate::Estimate;

/// The limits of a rule, one per line.
///
/// ```
/// use sluicegate::explain::rule::{contents, text};
///
/// let rules = sluicegate::rules_of(
///     "
/// domain: shop
/// descriptors: [{ key: user_id, limits: { algorithm: token_bucket, rate: 10/s, burst: 50 } }]
/// ",
/// )?;
/// let rule = &contents(&rules, "shop").rules[0];
/// assert_eq!(text::limits(&rule.rule().limits), ["token bucket 10/s burst 50"]);
/// assert_eq!(text::settings(rule.rule()), ["hard", "strict"]);
/// assert_eq!(text::counters(rule), "a counter for each user_id");
/// # Ok::<(), sluicegate::RulesError>(())
/// ```
#[must_use]
pub fn limits(limits: &Limits) -> Vec<String> {
    match limits {
        Limits::Unlimited => vec!["unlimited, not counted".to_owned()],
        Limits::Envoy { requests_per_unit, unit } => vec![envoy(*requests_per_unit, *unit)],
        Limits::Native(limits) => limits.iter().map(named).collect(),
    }
}

/// A limit of Envoy's form.
pub(crate) fn envoy(requests_per_unit: u32, unit: Unit) -> String {
    let unit = unit.name();
    match requests_per_unit {
        0 => format!("0 per {unit}: nothing passes (Envoy)"),
        number => {
            format!("{} per {unit}, counted even when denied (Envoy)", grouped(number.into()))
        }
    }
}

fn named(limit: &LimitConfig) -> String {
    let words = limit_in_words(limit);
    limit.name().map_or_else(|| words.clone(), |name| format!("{name}: {words}"))
}

/// A limit without its name.
pub(crate) fn limit_in_words(limit: &LimitConfig) -> String {
    let name = limit.algorithm().replace('_', " ");
    let words = match limit.at(Timestamp::EPOCH) {
        Limit::Unlimited => return "unlimited, not counted".to_owned(),
        Limit::Closed => "closed: nothing passes".to_owned(),
        Limit::TokenBucket(bucket) => token_bucket(&bucket),
        Limit::LeakyBucket(bucket) => {
            format!("{} queue {}", per(bucket.rate()), bucket.queue())
        }
        Limit::FixedWindow(window) => {
            let rate = per_window(limit, window.rate());
            match (window.align(), zone(limit)) {
                (_, Some(zone)) => format!("{rate} {zone}"),
                (Align::FirstHit, _) => format!("{rate} from the first hit"),
                _ => rate,
            }
        }
        Limit::SlidingLog(log) => {
            let rates: Vec<String> =
                log.rates().map(|(count, period)| show_rate(count, period)).collect();
            let denied = if log.counts_denied() { ", denied ones counted" } else { "" };
            let gap = match log.min_gap() {
                gap if gap.is_zero() => String::new(),
                gap => format!(", at least {} apart", show_span(gap)),
            };
            format!("{}{denied}{gap}", rates.join(" and "))
        }
        Limit::SlidingWindow(window) => match window.rounding() {
            Rounding::Floor => per(window.rate()),
            Rounding::Up => format!("{} rounded up", per(window.rate())),
        },
        Limit::SlidingSlices(window) => {
            format!("{} in {} slices", per(window.rate()), window.slices())
        }
        Limit::SmoothBursty(smooth) => {
            format!("{}, {} stored", per(smooth.rate()), show_span(smooth.max_burst()))
        }
        Limit::WarmUp(warm) => {
            let (over, cold) = (show_span(warm.warm_up()), show_factor(warm.cold_factor()));
            format!("{} within {over}, {cold}x slower when cold", per(warm.rate()))
        }
        Limit::Cycle(cycle) => {
            format!("{} every {}", cycle.permits(), show_span(cycle.period()))
        }
        Limit::Concurrency(slots) => {
            format!("{} at a time, each for at most {}", slots.max(), show_span(slots.lease()))
        }
        Limit::Tally(tally) => show_rate(tally.limit(), tally.period()),
    };
    format!("{name} {words}")
}

fn token_bucket(bucket: &TokenBucket) -> String {
    let mut words = format!("{} burst {}", per(bucket.rate()), bucket.burst());
    let period = show_span(bucket.rate().period());
    match bucket.refill() {
        Refill::Greedy => {}
        Refill::Interval => words.push_str(&format!(", refilled every {period}")),
        Refill::Aligned => words.push_str(&format!(", refilled every {period} by the clock")),
    }
    if bucket.initial() != bucket.burst() {
        words.push_str(&format!(", {} at first", bucket.initial()));
    }
    words
}

pub(crate) fn per(rate: Rate) -> String {
    show_rate(rate.count(), rate.period())
}

/// The rate of a fixed window. That of a calendar has the unit, whose length varies.
pub(crate) fn per_window(limit: &LimitConfig, rate: Rate) -> String {
    match limit.followed_calendar() {
        Some(calendar) => format!("{}/{}", rate.count(), calendar.unit().name()),
        None => per(rate),
    }
}

/// The time zone of a limit with calendar windows.
pub(crate) fn zone(limit: &LimitConfig) -> Option<&str> {
    limit.followed_calendar().map(Calendar::zone_name)
}

/// How a rule is enforced. Defaults are omitted, except for the mode and the consistency.
#[must_use]
pub fn settings(rule: &RuleConfig) -> Vec<String> {
    let mut all = vec![mode(rule.mode), consistency(rule)];
    if rule.cost != 1 {
        all.push(format!("a hit costs {}", grouped(rule.cost)));
    }
    if rule.on_store_failure != RuleConfig::new(rule.limits.clone()).on_store_failure {
        all.push(format!("without the store: {}", rule.on_store_failure.name()));
    }
    if rule.on_limit != OnLimit::Deny {
        all.push(format!("above the limit: {}", on_limit(rule.on_limit)));
    }
    if rule.overflow != Overflow::Shared {
        all.push(format!("without room: {}", overflow(rule.overflow)));
    }
    if rule.quota_mode {
        all.push("quota mode".to_owned());
    }
    if !rule.notify().is_empty() {
        let percents: Vec<String> = rule.notify().iter().map(|one| format!("{one}%")).collect();
        all.push(format!("notify at {}", percents.join(", ")));
    }
    if !rule.replaces().is_empty() {
        let names: Vec<String> = rule.replaces().iter().map(|name| format!("`{name}`")).collect();
        all.push(format!("replaces {}", names.join(", ")));
    }
    all
}

pub(crate) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Hard => "hard".to_owned(),
        Mode::Shadow => "shadow: never denies".to_owned(),
        Mode::Soft { percent } => format!("soft {percent}%"),
        Mode::Elastic { up_to, gate } => {
            let (below, above) = (show_percent(gate.below()), show_percent(gate.above()));
            format!("elastic {}x below {below} load, closed above {above}", show_factor(up_to))
        }
    }
}

/// Thousandths as a percentage.
fn show_percent(thousandths: u64) -> String {
    format!("{}%", show_factor(thousandths.saturating_mul(100)))
}

/// The consistency as configured, and the effective one if it differs.
fn consistency(rule: &RuleConfig) -> String {
    let written = match rule.consistency {
        Consistency::Strict => "strict".to_owned(),
        Consistency::StrictUntilHot => "strict, hot keys leased".to_owned(),
        Consistency::Leased => "leased".to_owned(),
        Consistency::Eventual { sync_interval } => {
            format!("eventual, synced every {}", show_span(sync_interval))
        }
    };
    match rule.effective_consistency() == rule.consistency {
        true => written,
        false => format!("{written} (counts as strict in this mode)"),
    }
}

/// The combined guarantee of the nodes that share a rule, as a sentence; `None` for a plain strict
/// rule.
pub(crate) fn promise(rule: &RuleConfig) -> Option<String> {
    let strict = "never above the limit: every decision asks the store";
    match (rule.consistency, rule.effective_consistency()) {
        (Consistency::Strict, _) => None,
        (_, Consistency::Strict) => {
            Some(format!("{strict}, since it counts as strict in this mode"))
        }
        (_, Consistency::StrictUntilHot) => Some(format!(
            "{strict}, except for keys that are asked for very often: these are leased"
        )),
        (_, Consistency::Leased) => {
            let buys = "nodes buy ahead and decide by themselves";
            Some(format!("never above the limit: {buys}; what a node that dies still held is lost"))
        }
        (_, Consistency::Eventual { sync_interval }) => {
            let every = show_span(sync_interval);
            Some(format!(
                "nodes decide by themselves and tell each other every {every}: above the limit passes \
                 at most what the others admit in that time and until they are heard"
            ))
        }
    }
}

/// Behavior while the store is unavailable, as a sentence; `None` for a rule without limits.
pub(crate) fn outage(rule: &RuleConfig) -> Option<String> {
    if matches!(rule.limits, Limits::Unlimited) {
        return None;
    }
    let words = match (rule.on_store_failure, rule.mode) {
        (OnStoreFailure::Local, _) => {
            "each node admits its share of what it last saw remaining; above the limit passes at most \
             what others admitted since, and never more than the limit once more"
        }
        (_, Mode::Shadow) | (OnStoreFailure::Allow, _) => {
            "everything passes, and nothing is counted"
        }
        (OnStoreFailure::Deny, _) if rule.is_quota() => {
            "denied, unless another quota admits the request"
        }
        (OnStoreFailure::Deny, _) => "nothing passes",
        (OnStoreFailure::Error, _) => "the client gets an error, unless another rule denies",
    };
    Some(words.to_owned())
}

/// As it is written in a file.
pub(crate) const fn on_limit(on: OnLimit) -> &'static str {
    match on {
        OnLimit::Deny => "deny",
        OnLimit::Shape => "shape",
        OnLimit::Queue => "queue",
    }
}

/// As it is written in a file.
pub(crate) const fn overflow(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Shared => "shared",
        Overflow::Deny => "deny",
        Overflow::Allow => "allow",
    }
}

/// Which requests share a counter under a rule.
#[must_use]
pub fn counters(located: &LocatedRule<'_>) -> String {
    if matches!(located.rule().limits, Limits::Unlimited) {
        return "no counter".to_owned();
    }
    let varying = located.nodes().iter().filter(|node| varies(node));
    let each = varying.map(|node| match node.counter() {
        Counter::PerNetwork(prefix) => {
            format!("network of {} (/{}, IPv6 /{})", node.key(), prefix.v4, prefix.v6)
        }
        Counter::PerValue | Counter::Shared => node.key().to_owned(),
    });
    let each: Vec<String> = each.collect();
    let shared = located.nodes().iter().filter(|node| node.counter() == Counter::Shared);
    let together: Vec<String> = shared.map(|node| format!("`{}`", node)).collect();
    let words = match each.is_empty() {
        true => "one counter".to_owned(),
        false => format!("a counter for each {}", each.join(" and ")),
    };
    match together.is_empty() {
        true if each.is_empty() => "one counter for all".to_owned(),
        true => words,
        false => format!("{words}, shared by all of {}", together.join(" and ")),
    }
}

/// How forward auth maps requests: its descriptors, and what else it says.
#[must_use]
pub fn forward_auth(auth: &ForwardAuth) -> (Vec<String>, Vec<String>) {
    let descriptors = auth.mapping.descriptors.iter().map(ToString::to_string).collect();
    let networks = auth.trusted_proxies.networks().iter().map(ToString::to_string);
    let mut remarks = vec![format!("for proxies in {}", networks.collect::<Vec<_>>().join(", "))];
    remarks.extend(auth.mapping.hits.as_ref().map(|hits| format!("hits: {hits}")));
    remarks.extend(auth.deny_status.map(|status| format!("denied with {status}")));
    (descriptors, remarks)
}

/// Memory of a million keys: bytes per key are megabytes per million.
///
/// ```
/// use sluicegate::estimate::Estimate;
/// use sluicegate::explain::rule::text::memory;
///
/// assert_eq!(memory(Estimate { typical: 25, max: 30 }), "25 to 30 MB");
/// ```
#[must_use]
pub fn memory(estimate: Estimate) -> String {
    let Estimate { typical, max } = estimate;
    match max {
        0..1_000 => format!("{typical} to {max} MB"),
        1_000..1_000_000 => format!("{} to {} GB", tenths(typical), tenths(max)),
        _ => format!("{} to {} TB", tenths(typical / 1_000), tenths(max / 1_000)),
    }
}

/// Thousandths as a number with one decimal, rounded up.
fn tenths(thousandths: u64) -> String {
    let tenths = thousandths.div_ceil(100);
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// Text on one line, without terminal control characters.
///
/// ```
/// assert_eq!(sluicegate::explain::rule::text::plainly("a\nb"), "a\\nb");
/// ```
#[must_use]
pub fn plainly(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// A number with thousands separators: `10,000`.
///
/// ```
/// assert_eq!(sluicegate::explain::rule::text::grouped(10_000), "10,000");
/// ```
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// "1 rule", "10,000 rules".
///
/// ```
/// assert_eq!(sluicegate::explain::rule::text::counted(1, "rule"), "1 rule");
/// ```
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_config::limit::limits;

    #[test]
    fn every_algorithm_has_its_words() {
        let table = [
            ("token_bucket, rate: 10/s, burst: 50", "token bucket 10/s burst 50"),
            (
                "token_bucket, rate: 5/m, burst: 9, initial: 2, refill: interval",
                "token bucket 5/m burst 9, refilled every 1m, 2 at first",
            ),
            ("leaky_bucket, rate: 10/s, queue: 20", "leaky bucket 10/s queue 20"),
            ("fixed_window, rate: 10/h", "fixed window 10/h"),
            ("fixed_window, rate: 10/h, align: first_hit", "fixed window 10/h from the first hit"),
            (
                "fixed_window, rate: 10000/day, align: calendar, zone: Europe/Berlin",
                "fixed window 10000/day Europe/Berlin",
            ),
            (
                "fixed_window, rate: 9/month, align: calendar, zone: Europe/Berlin",
                "fixed window 9/month Europe/Berlin",
            ),
            ("sliding_log, rate: 5/m", "sliding log 5/m"),
            (
                "sliding_log, rates: [10/m, 2 per 3s], count_denied: true, min_gap: 200ms",
                "sliding log 10/m and 2/3s, denied ones counted, at least 200ms apart",
            ),
            ("sliding_window, rate: 100/m, rounding: up", "sliding window 100/m rounded up"),
            ("smooth_bursty, rate: 5/s", "smooth bursty 5/s, 1s stored"),
            ("warm_up, rate: 5/s, warm_up: 10s", "warm up 5/s within 10s, 3x slower when cold"),
            ("cycle, permits: 50, period: 1s", "cycle 50 every 1s"),
            ("concurrency, max: 10, lease: 30s", "concurrency 10 at a time, each for at most 30s"),
            ("unlimited", "unlimited, not counted"),
            ("fixed_window, rate: 0/s", "fixed window closed: nothing passes"),
        ];
        for (text, words) in table {
            let limit = limits("test", &format!("{{ algorithm: {text} }}")).unwrap();
            assert_eq!(limit_in_words(&limit[0]), words);
        }
    }

    #[test]
    fn what_nodes_promise_has_its_words() {
        let said = |settings: &str| {
            let limits = "limits: { algorithm: sliding_window, rate: 10/s }";
            let text = format!("domain: d\ndescriptors: [{{ key: k, {settings}, {limits} }}]\n");
            let rules = crate::rules_of(&text).unwrap();
            super::settings(super::super::contents(&rules, "d").rules[0].rule()).join(" · ")
        };
        let hot = "consistency: { strict: { hot_keys: leased } }";
        assert_eq!(said(hot), "hard · strict, hot keys leased");
        assert_eq!(said("consistency: eventual"), "hard · eventual, synced every 100ms");
        assert_eq!(
            said("consistency: leased, mode: shadow"),
            "shadow: never denies · leased (counts as strict in this mode)"
        );
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn a_zone_is_found_whatever_the_limit_is_called() {
        for zone in ["UTC", "America/Argentina/ComodRivadavia", "Etc/GMT+3"] {
            let text = format!(
                "{{ name: UTC, algorithm: fixed_window, rate: 1/day, align: calendar, zone: {zone} }}"
            );
            let limit = limits("test", &text).unwrap();
            assert_eq!(super::zone(&limit[0]), Some(zone));
        }
    }
}
