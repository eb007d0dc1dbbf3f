//! A naive throttle: an account of the core for every key, and the terms that it was last asked under.

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

use super::Terms;

#[derive(Default)]
pub(super) struct Model {
    keys: HashMap<u64, (Account, Vec<EnforcedLimit>)>,
}

impl Model {
    pub(super) fn hit(&mut self, key: u64, terms: &Terms, cost: u64, now: Timestamp) -> Verdict {
        let plan = plan(terms);
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

fn plan(terms: &Terms) -> Vec<EnforcedLimit> {
    let rate = Rate::new(terms.count(), Span::from_secs(terms.period_s())).unwrap();
    let bucket = TokenBucket::new(rate, terms.limit()).unwrap();
    vec![EnforcedLimit::new(Limit::TokenBucket(bucket), Mode::Hard).unwrap()]
}
