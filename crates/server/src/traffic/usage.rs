//! Usage of a rule's identities in the sample: evidence for a threshold.

use std::collections::HashMap;

use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::request::Request;
use sluicegate::rules::set::RuleNo;
use sluicegate::{Snapshot, Span};

use super::sample::{SampleView, is_in_sample};
use super::sample_codec::decode;

/// Fewer identities are no basis for a threshold: of these, one has the largest hundredth of usage.
pub const IDENTITIES_MIN: usize = 100;

/// The largest usage of each identity in a window, over all identities: hits that were asked for,
/// denied ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageQuantiles {
    /// The window. Windows are aligned to the clock.
    pub window: Span,
    /// Identities whose whole history is in the sample.
    pub identities: usize,
    /// Half of the identities never used more.
    pub p50: u64,
    /// 90 % of the identities never used more.
    pub p90: u64,
    /// 99 % of the identities never used more.
    pub p99: u64,
    /// No identity used more.
    pub max: u64,
}

/// The usage under a rule in windows of a length; none without a request.
#[must_use]
pub fn usage(
    sample: &SampleView,
    rules: &Snapshot<'_>,
    no: RuleNo,
    window: Span,
) -> Option<UsageQuantiles> {
    let mut used = HashMap::<(u64, u64), u64>::new();
    let mut plan = Plan::default();
    for sampled in &sample.requests {
        let Some(decoded) = decode(&sampled.encoded) else { continue };
        let descriptors = decoded.descriptors();
        let request =
            Request { domain: decoded.domain(), descriptors: &descriptors, hits: decoded.hits() };
        rules.rules().plan(&request, &mut plan);
        let of_rule = plan.steps().iter().filter(|step| step.target == Target::Rule(no));
        for step in of_rule.take(1) {
            let hash = rules.traffic_hash(plan.identity(step))?;
            if is_in_sample(hash, sample.level) {
                let at = sampled.at.as_micros() / window.as_micros().max(1);
                let sum = used.entry((hash, at)).or_default();
                *sum = sum.saturating_add(step.cost);
            }
        }
    }
    let mut peaks = HashMap::<u64, u64>::new();
    for ((hash, _), used) in used {
        let peak = peaks.entry(hash).or_default();
        *peak = used.max(*peak);
    }
    let mut peaks: Vec<u64> = peaks.into_values().collect();
    peaks.sort_unstable();
    let quantile = |percent: usize| {
        let rank = (peaks.len() * percent).div_ceil(100);
        peaks.get(rank.saturating_sub(1)).copied()
    };
    Some(UsageQuantiles {
        window,
        identities: peaks.len(),
        p50: quantile(50)?,
        p90: quantile(90)?,
        p99: quantile(99)?,
        max: quantile(100)?,
    })
}
