//! Rules without their concurrency limits, for trials that do not know when requests end.

use crate::domain::DescriptorConfig;
use crate::rule::{Limits, RuleConfig};

/// Removes concurrency limits; their number. A rule of such limits alone is unlimited then.
///
/// ```
/// use sluicegate_rules::domain::DescriptorConfig;
/// use sluicegate_rules::slots::omit_slots;
///
/// assert_eq!(omit_slots(&mut [DescriptorConfig::any("user")]), 0);
/// ```
pub fn omit_slots(nodes: &mut [DescriptorConfig]) -> usize {
    let omitted = nodes.iter_mut().map(|node| {
        node.rule.as_mut().map_or(0, omit_slots_of_rule) + omit_slots(&mut node.descriptors)
    });
    omitted.sum()
}

fn omit_slots_of_rule(rule: &mut RuleConfig) -> usize {
    let Limits::Native(limits) = &rule.limits else { return 0 };
    let all = limits.len();
    let counted = limits.iter().filter(|limit| limit.algorithm() != "concurrency");
    let counted: Box<[_]> = counted.cloned().collect();
    let omitted = all - counted.len();
    match counted.is_empty() {
        _ if omitted == 0 => {}
        false => rule.limits = Limits::Native(counted),
        true => {
            rule.limits = Limits::Unlimited;
            if let Some(rare) = &mut rule.rare {
                // Pools follow the limits of their rule, and thresholds are shares of them.
                rare.pools.clear();
                rare.notify.clear();
            }
        }
    }
    omitted
}
