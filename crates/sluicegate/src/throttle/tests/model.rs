//! A naive throttle: a core account for every key, and the parameters of its last request.

use std::collections::HashMap;

use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::ThrottleParams;

#[derive(Default)]
pub(super) struct Model {
    keys: HashMap<u64, (Account, Vec<EnforcedLimit>)>,
}

impl Model {
    pub(super) fn hit(
        &mut self,
        key: u64,
        params: &ThrottleParams,
        cost: u64,
        now: Timestamp,
    ) -> Verdict {
        let plan = plan(params);
        let (mut account, old) = self.keys.get(&key).cloned().unwrap_or_default();
        if !old.is_empty() && old != plan {
            account.change(&old, &plan, &[Some(0)], CarryOver::Used, now);
        }
        let hit = Op::Hit { cost, holder: None };
        let answer = account.apply(&plan, hit, Moment::at(now)).unwrap();
        if cost > 0 {
            self.keys.insert(key, (account, plan));
        }
        answer.verdict
    }
}

fn plan(params: &ThrottleParams) -> Vec<EnforcedLimit> {
    let rate = Rate::new(params.count(), Span::from_secs(params.period_s())).unwrap();
    let bucket = TokenBucket::new(rate, params.limit()).unwrap();
    vec![EnforcedLimit::new(Limit::TokenBucket(bucket), Mode::Hard).unwrap()]
}
