//! The rules that requests of a route may match, by the keys of their descriptors.

use sluicegate_rules::domain::DescriptorConfig;
use sluicegate_rules::mapping::DescriptorMapping;
use sluicegate_rules::rule::{Consistency, Limits, RuleConfig};

use crate::problem::quoted;

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
pub(super) fn unsettled(descriptor: &DescriptorMapping, rule: &RuleConfig) -> Option<String> {
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
        "cannot settle the descriptor {name}: a rule for it has {reason}, or remove `settle`"
    ))
}
