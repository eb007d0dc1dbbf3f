//! The rules that requests of a route may match, by the keys of their descriptors.

use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::domain::DescriptorConfig;
use sluicegate_rules::mapping::DescriptorMapping;
use sluicegate_rules::mapping::UsageUnit;
use sluicegate_rules::rule::{Consistency, Limits, OnLimit, RuleConfig};

use super::tokens::TokensConfig;
use crate::problem::quoted;
use crate::units::show_span;

/// From this period on, a rate of tokens is meant as a budget.
const BUDGET_PERIOD: Span = Span::from_secs(86_400);

/// Rules that a descriptor may match; which one depends on its values. None when there are more
/// nodes than `work_left`.
pub(super) fn rules_of<'r>(
    descriptor: &DescriptorMapping,
    nodes: &'r [DescriptorConfig],
    work_left: &mut usize,
) -> Vec<&'r RuleConfig> {
    let mut level: Vec<&DescriptorConfig> = nodes.iter().collect();
    for (depth, (key, _)) in descriptor.entries.iter().enumerate() {
        let Some(left) = work_left.checked_sub(level.len()) else { return Vec::new() };
        *work_left = left;
        level.retain(|node| *node.key == **key);
        if depth + 1 < descriptor.entries.len() {
            level = level.into_iter().flat_map(|node| &node.descriptors).collect();
        }
    }
    level.into_iter().filter_map(|node| node.rule.as_ref()).collect()
}

/// Why a request under this rule cannot be settled, with the remedy.
pub(super) fn unsettled(
    descriptor: &DescriptorMapping,
    rule: &RuleConfig,
    key: &str,
) -> Option<String> {
    let reason = match (&rule.limits, rule.consistency) {
        (Limits::Envoy { .. }, _) => {
            "`rate_limit`, which counts each request when it comes; write the rule with `limits`, such \
             as `{ algorithm: fixed_window, rate: 100/m }`"
        }
        (_, Consistency::Eventual { .. }) => {
            "`consistency: eventual`, whose counters cannot hold anything; write `leased` or `strict`"
        }
        _ => return None,
    };
    let name = quoted(&descriptor.name());
    Some(format!(
        "cannot settle the descriptor {name}: a rule for it has {reason}, or remove `{key}`"
    ))
}

/// Why a rule is no budget of tokens or money, with the remedy: its limit refills all the time, so
/// that it is never used up, or admits more than its rate says.
pub(super) fn unfit_budget(
    descriptor: &DescriptorMapping,
    rule: &RuleConfig,
    tokens: &TokensConfig,
) -> Option<String> {
    let unit = descriptor.usage_unit()?;
    let Limits::Native(limits) = &rule.limits else { return None };
    limits.iter().find_map(|limit| {
        let limit = limit.at(Timestamp::EPOCH);
        let rate = match &limit {
            Limit::TokenBucket(bucket) if bucket.refill() == Refill::Greedy => Some(bucket.rate()),
            Limit::LeakyBucket(bucket) => Some(bucket.rate()),
            Limit::SmoothBursty(smooth) => Some(smooth.rate()),
            Limit::WarmUp(warm_up) => Some(warm_up.rate()),
            Limit::Concurrency(_) => return None,
            _ => None,
        };
        let (name, algorithm) = (quoted(&descriptor.name()), limit.algorithm());
        if let Some(rate) = rate.filter(|rate| rate.period() >= BUDGET_PERIOD) {
            let (count, period) = (rate.count(), show_span(rate.period()));
            return Some(format!(
                "{name} has no budget but a rate, got `{algorithm}` of `{count}` per `{period}`, which \
                 refills all the time; write `{{ algorithm: fixed_window, rate: …/day, align: calendar }}`"
            ));
        }
        let largest = match unit {
            UsageUnit::Tokens | UsageUnit::OutputTokens => tokens.max_output,
            UsageUnit::InputTokens | UsageUnit::Money => return None,
        };
        let capacity = limit.capacity().filter(|capacity| *capacity < largest)?;
        Some(format!(
            "{name} denies every request without a maximum of tokens: it reserves `{largest}`, and \
             `{algorithm}` holds `{capacity}`; write a larger limit, or a smaller `max_output`"
        ))
    })
}

/// Why requests under this rule are denied in place of being processed later, without a place for
/// them.
pub(super) fn undeferred(descriptor: &DescriptorMapping, rule: &RuleConfig) -> Option<String> {
    (rule.on_limit == OnLimit::Queue).then(|| {
        let name = quoted(&descriptor.name());
        format!(
            "requests over the limit are denied: a rule for {name} has `on_limit: queue`, and there is \
             no place for them; add `deferred: deferred.redb`, or write `deny` in the rule"
        )
    })
}
