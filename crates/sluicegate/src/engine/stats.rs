//! Hit counters per rule, striped by thread.
//!
//! Values that follow from others are not counted, so that nearly every hit is one addition.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::striped::Striped;

/// What became of the hits under one rule, since the engine was made.
///
/// What a rule said counts, whatever became of the request: a rule that agreed counts a hit as within the limit, also where another rule
/// denied it. A hit of a cost counts as often as it costs. Lists, peeks and refunds count nothing.
///
/// Of a rule in Envoy's form these are the numbers of envoyproxy/ratelimit: it counts what it denies, so of a hit that crosses a limit
/// only the part above is over it.
///
/// ```
/// use sluicegate::Stats;
///
/// // Of 10 a minute, 8 came, and then 5 at once.
/// let stats = Stats { total_hits: 13, over_limit: 3, near_limit: 2, within_limit: 8, shadow_mode: 0 };
/// assert!(stats.over_limit + stats.within_limit <= stats.total_hits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// All of them.
    pub total_hits: u64,
    /// Those above the limit; where a rule charges all or nothing, those it denied.
    pub over_limit: u64,
    /// Those that came when little was left ([`EngineBuilder::near_limit_ratio`](crate::EngineBuilder::near_limit_ratio)).
    pub near_limit: u64,
    /// Those that were admitted, near the limit too.
    pub within_limit: u64,
    /// Those above the limit of a rule in the shadow, which let them pass.
    pub shadow_mode: u64,
}

/// What one hit adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Added {
    pub(super) within: u64,
    pub(super) over: u64,
    /// The part below the limit of a hit that was denied.
    pub(super) below: u64,
    pub(super) near: u64,
    pub(super) shadow: u64,
}

/// The counters of one rule.
#[derive(Debug)]
pub(super) struct Counters(Striped<RuleCounters>);

#[derive(Debug, Default)]
struct RuleCounters {
    within: AtomicU64,
    over: AtomicU64,
    below: AtomicU64,
    near: AtomicU64,
    shadow: AtomicU64,
}

// === impl Counters ===

impl Counters {
    #[inline]
    pub(super) fn add(&self, added: Added) {
        let counters = self.0.mine();
        let Added { within, over, below, near, shadow } = added;
        add(&counters.within, within);
        if over | below | near | shadow > 0 {
            counters.add_rest(added);
        }
    }

    pub(super) fn read(&self) -> Stats {
        let sum = |counter: fn(&RuleCounters) -> &AtomicU64| self.0.sum(counter);
        let (within_limit, over_limit) = (sum(|one| &one.within), sum(|one| &one.over));
        Stats {
            total_hits: within_limit.wrapping_add(over_limit).wrapping_add(sum(|one| &one.below)),
            over_limit,
            near_limit: sum(|one| &one.near),
            within_limit,
            shadow_mode: sum(|one| &one.shadow),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self(Striped::new(RuleCounters::default))
    }
}

impl RuleCounters {
    fn add_rest(&self, Added { within: _, over, below, near, shadow }: Added) {
        add(&self.over, over);
        add(&self.below, below);
        add(&self.near, near);
        add(&self.shadow, shadow);
    }
}

#[inline]
fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
