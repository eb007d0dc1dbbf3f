//! Renders a rule as JSON. The fields of a limit have the names used in rule files.

use serde_json::{Map, Value, json};
use sluicegate_config::units::{show_factor, show_rate, show_span};
use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::domain::Counter;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits};
use sluicegate_rules::unit::Unit;

use super::{LocatedRule, text, timing, varies};

/// A rule with all of its properties.
///
/// ```
/// use sluicegate::explain::rule::{contents, json};
///
/// let rules = sluicegate::rules_of(
///     "
/// domain: shop
/// descriptors: [{ key: user_id, limits: { algorithm: token_bucket, rate: 10/s, burst: 50 } }]
/// ",
/// )?;
/// let rule = json::rule(&contents(&rules, "shop").rules[0]);
/// assert_eq!((&rule["id"], &rule["limits"][0]["burst"]), (&"shop/user_id".into(), &50.into()));
/// # Ok::<(), sluicegate::RulesError>(())
/// ```
#[must_use]
pub fn rule(located: &LocatedRule<'_>) -> Value {
    let rule = located.rule();
    let estimate = located.estimate();
    let millions = |bytes: u64| bytes.saturating_mul(1_000_000);
    json!({
        "id": located.id(),
        "way": located.path(),
        "name": rule.name,
        "limits": limits(&rule.limits),
        "schedule": timing::schedule_json(rule),
        "overridden": timing::override_json(rule),
        "mode": mode(rule.mode),
        "cost": rule.cost,
        "consistency": consistency(rule.consistency),
        "on_store_failure": rule.on_store_failure.name(),
        "outage": text::outage(rule),
        "on_limit": text::on_limit(rule.on_limit),
        "overflow": text::overflow(rule.overflow),
        "quota_mode": rule.quota_mode,
        "replaces": rule.replaces(),
        "counters": counters(located),
        "one_counter": located.is_one_counter(),
        "bytes_per_million_keys": {
            "typical": millions(estimate.typical),
            "most": millions(estimate.max),
        },
    })
}

/// The limits of a rule.
pub(super) fn limits(limits: &Limits) -> Value {
    match limits {
        Limits::Unlimited => json!([{ "unlimited": true, "in_words": "unlimited, not counted" }]),
        Limits::Envoy { requests_per_unit, unit } => json!([envoy(*requests_per_unit, *unit)]),
        Limits::Native(limits) => limits.iter().map(limit).collect(),
    }
}

/// A limit of Envoy's form.
pub(crate) fn envoy(requests_per_unit: u32, unit: Unit) -> Value {
    json!({
        "requests_per_unit": requests_per_unit,
        "unit": unit.name(),
        "in_words": text::envoy(requests_per_unit, unit),
    })
}

fn limit(limit: &LimitConfig) -> Value {
    let mut all = Map::new();
    if let Some(name) = limit.name() {
        all.insert("name".to_owned(), json!(name));
    }
    all.insert("algorithm".to_owned(), json!(limit.algorithm()));
    if let Value::Object(fields) = fields(limit) {
        all.extend(fields);
    }
    all.insert("in_words".to_owned(), json!(text::limit_in_words(limit)));
    Value::Object(all)
}

fn fields(limit: &LimitConfig) -> Value {
    match limit.at(Timestamp::EPOCH) {
        Limit::Unlimited => json!({}),
        Limit::Closed => json!({ "closed": true }),
        Limit::TokenBucket(bucket) => json!({
            "rate": text::per(bucket.rate()),
            "burst": bucket.burst(),
            "initial": bucket.initial(),
            "refill": match bucket.refill() {
                Refill::Greedy => "greedy",
                Refill::Interval => "interval",
                Refill::Aligned => "aligned",
            },
        }),
        Limit::LeakyBucket(bucket) => {
            json!({ "rate": text::per(bucket.rate()), "queue": bucket.queue() })
        }
        Limit::FixedWindow(window) => {
            let rate = text::per_window(limit, window.rate());
            match (window.align(), text::zone(limit)) {
                (_, Some(zone)) => json!({ "rate": rate, "align": "calendar", "zone": zone }),
                (Align::FirstHit, _) => json!({ "rate": rate, "align": "first_hit" }),
                _ => json!({ "rate": rate, "align": "clock" }),
            }
        }
        Limit::SlidingLog(log) => json!({
            "rates": log.rates().map(|(count, length)| show_rate(count, length)).collect::<Vec<_>>(),
            "count_denied": log.counts_denied(),
            "min_gap": show_span(log.min_gap()),
        }),
        Limit::SlidingWindow(window) => json!({
            "rate": text::per(window.rate()),
            "rounding": match window.rounding() {
                Rounding::Floor => "floor",
                Rounding::Up => "up",
            },
        }),
        Limit::SlidingSlices(window) => json!({
            "rate": text::per(window.rate()),
            "slices": window.slices(),
        }),
        Limit::SmoothBursty(smooth) => json!({
            "rate": text::per(smooth.rate()),
            "max_burst": show_span(smooth.max_burst()),
        }),
        Limit::WarmUp(warm) => json!({
            "rate": text::per(warm.rate()),
            "warm_up": show_span(warm.warm_up()),
            "cold_factor": show_factor(warm.cold_factor()),
        }),
        Limit::Cycle(cycle) => {
            json!({ "permits": cycle.permits(), "period": show_span(cycle.period()) })
        }
        Limit::Concurrency(slots) => {
            json!({ "max": slots.max(), "lease": show_span(slots.lease()) })
        }
        Limit::Tally(tally) => json!({ "rate": show_rate(tally.limit(), tally.period()) }),
    }
}

fn mode(mode: Mode) -> Value {
    match mode {
        Mode::Hard => json!("hard"),
        Mode::Shadow => json!("shadow"),
        Mode::Soft { percent } => json!({ "soft": format!("{percent}%") }),
        Mode::Elastic { up_to, gate } => {
            // Levels are written in whole percent.
            let percent = |thousandths: u64| format!("{}%", thousandths / 10);
            json!({ "elastic": {
                "up_to": format!("{}x", show_factor(up_to)),
                "below": percent(gate.below()),
                "above": percent(gate.above()),
            } })
        }
    }
}

fn consistency(consistency: Consistency) -> Value {
    match consistency {
        Consistency::Strict => json!("strict"),
        Consistency::StrictUntilHot => json!({ "strict": { "hot_keys": "leased" } }),
        Consistency::Leased => json!("leased"),
        Consistency::Eventual { sync_interval } => {
            json!({ "eventual": { "sync_interval": show_span(sync_interval) } })
        }
    }
}

/// The descriptors that distinguish the counters of a rule.
fn counters(located: &LocatedRule<'_>) -> Value {
    if matches!(located.rule().limits, Limits::Unlimited) {
        return json!([]);
    }
    let each =
        located.nodes().iter().filter(|node| varies(node)).map(|node| match node.counter() {
            Counter::PerNetwork(prefix) => {
                json!({ "key": node.key(), "prefix": { "v4": prefix.v4, "v6": prefix.v6 } })
            }
            Counter::PerValue | Counter::Shared => json!({ "key": node.key() }),
        });
    each.collect()
}
