//! Limits that came with requests, as scripts take them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate::backend::{Rule, envoy_limit};
use sluicegate::throttle::ThrottleParams;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::request::Override;

use crate::script::ScriptRule;

/// Limits of one kind. A client can send any number of them: those of this node are bounded, and
/// those of throttles expire in the store.
#[derive(Debug)]
pub(super) struct RequestRules<K> {
    known: Mutex<HashMap<K, Arc<ScriptRule>>>,
}

/// Limit, count and period of a throttle.
pub(super) type ThrottleKey = [u64; 3];

/// Maximum number of cached rules; all are dropped when it is reached.
const RULES_MAX: usize = 1_024;

impl<K> Default for RequestRules<K> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl RequestRules<Override> {
    pub(super) fn of_override(&self, limit: Override, now: Timestamp) -> Arc<ScriptRule> {
        let counted = || envoy_limit(u64::from(limit.requests_per_unit), limit.unit);
        self.get(limit, counted, None, now)
    }
}

impl RequestRules<ThrottleKey> {
    pub(super) fn of_throttle(&self, params: &ThrottleParams, now: Timestamp) -> Arc<ScriptRule> {
        let key = [params.limit(), params.count(), params.period_s()];
        self.get(key, || params.bucket(), Some(params.fill_time()), now)
    }
}

impl<K: Eq + Hash> RequestRules<K> {
    /// The rule of a limit, whose records last at most a lifetime after their last use.
    fn get(
        &self,
        key: K,
        limit: impl FnOnce() -> Limit,
        lifetime: Option<Span>,
        now: Timestamp,
    ) -> Arc<ScriptRule> {
        let mut known = self.known.lock();
        if let Some(rule) = known.get(&key).filter(|rule| rule.is_usable(now)) {
            return rule.clone();
        }
        let rule = Rule::new(vec![LimitConfig::fixed(None, limit())], Mode::Hard);
        // Its algorithm fits every mode.
        let rule = rule.unwrap_or_else(|_| Rule::closed());
        let rule = Arc::new(ScriptRule::of_request(Arc::new(rule).plan_at(now), lifetime, now));
        if known.len() >= RULES_MAX {
            known.clear();
        }
        known.insert(key, rule.clone());
        rule
    }
}
