//! Rules as the oracle knows them; generated ones, and their YAML.

use super::Scenario;
use crate::rng::SimRng;

/// A rule.
#[derive(Debug, Clone)]
pub struct RulePlan {
    /// Name in reports; generated rules are keys of this name.
    pub name: String,
    /// Limits; all of them apply.
    pub limits: Vec<LimitPlan>,
    /// The loosest that each limit ever is: while rules change, either revision applies.
    pub loosest: Vec<LimitPlan>,
    /// Consistency level.
    pub level: LevelPlan,
    /// Store failure policy.
    pub policy: Policy,
    /// Names of its identities.
    pub identities: Vec<String>,
    /// Whether the oracle knows what its limits guarantee.
    pub is_judged: bool,
}

/// A limit with the numbers for the oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitPlan {
    /// Token bucket.
    Bucket {
        /// Refill in a period.
        rate: u64,
        /// Length of the period in milliseconds.
        per_ms: u64,
        /// Capacity.
        burst: u64,
    },
    /// Fixed window of the store's clock.
    Window {
        /// Maximum per window.
        count: u64,
        /// Window length in milliseconds.
        per_ms: u64,
    },
    /// Sliding window with a weighted previous window.
    Sliding {
        /// Maximum per window.
        count: u64,
        /// Window length in milliseconds.
        per_ms: u64,
    },
}

/// Consistency level of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelPlan {
    /// Every hit is decided by the store.
    Strict,
    /// As strict, but hot keys may be leased.
    Hot,
    /// Nodes lease quota in advance.
    Leased,
    /// Nodes synchronize counts afterwards.
    Eventual {
        /// Sync interval in milliseconds.
        sync_ms: u64,
    },
}

impl LevelPlan {
    /// As rule files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Hot => "hot_keys",
            Self::Leased => "leased",
            Self::Eventual { .. } => "eventual",
        }
    }
}

/// Store failure policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All hits are denied.
    Deny,
    /// Nodes admit their local share.
    Local,
    /// All hits are admitted.
    Allow,
}

impl RulePlan {
    pub(super) fn new(rng: &mut SimRng, index: usize) -> Self {
        let level = match rng.within(0, 9) {
            0..=2 => LevelPlan::Strict,
            3 => LevelPlan::Hot,
            4..=6 => LevelPlan::Leased,
            _ => LevelPlan::Eventual { sync_ms: rng.choose(&[20, 50, 100, 250]) },
        };
        let window = |rng: &mut SimRng| {
            let per_ms = rng.choose(&[500, 1_000, 1_000, 2_000]);
            (per_second(rng) * per_ms / 1_000, per_ms)
        };
        let mut limits = Vec::new();
        match (rng.within(0, 9), level) {
            (0..=3, LevelPlan::Strict | LevelPlan::Hot | LevelPlan::Leased) => {
                let rate = per_second(rng).max(10);
                // Sometimes hardly more than the cost of one hit.
                let max = if rng.permille(250) { 6 } else { rate.max(30) };
                let burst = rng.within(3, max);
                limits.push(LimitPlan::Bucket { rate, per_ms: 1_000, burst });
                if rng.permille(300) {
                    let (count, per_ms) = (rate, 1_000);
                    limits.push(LimitPlan::Window { count, per_ms });
                }
            }
            (0..=6, _) => {
                let (count, per_ms) = window(rng);
                limits.push(LimitPlan::Window { count, per_ms });
            }
            _ => {
                let (count, per_ms) = window(rng);
                limits.push(LimitPlan::Sliding { count, per_ms });
            }
        }
        let policy = if rng.permille(200) { Policy::Local } else { Policy::Deny };
        let identities = (0..rng.choose(&[1, 1, 2])).map(|id| format!("id{id}")).collect();
        let loosest = limits.clone();
        let name = format!("rule{index}");
        Self { name, limits, loosest, level, policy, identities, is_judged: true }
    }

    /// A rule of one identity that never changes.
    #[must_use]
    pub fn fixed(limits: Vec<LimitPlan>, level: LevelPlan) -> Self {
        Self {
            name: "rule0".to_owned(),
            loosest: limits.clone(),
            limits,
            level,
            policy: Policy::Deny,
            identities: vec!["id0".to_owned()],
            is_judged: true,
        }
    }

    /// Whether it admits everything while the store is unavailable, and the store may be.
    #[must_use]
    pub fn is_open(&self, scenario: &Scenario) -> bool {
        self.policy == Policy::Allow && !scenario.is_fault_free()
    }

    /// Approximate throughput per second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        self.limits.iter().map(LimitPlan::per_second).min().unwrap_or(1)
    }

    /// Time in milliseconds after which a fault has no effect: two windows, in which a debt is
    /// paid.
    #[must_use]
    pub fn recovery_ms(&self) -> u64 {
        let each = self.limits.iter().map(|limit| match *limit {
            LimitPlan::Bucket { rate, per_ms, burst } => burst * per_ms / rate,
            LimitPlan::Window { per_ms, .. } | LimitPlan::Sliding { per_ms, .. } => per_ms * 2,
        });
        each.max().unwrap_or(0)
    }

    pub(super) fn yaml(&self, thousandths: u64) -> String {
        let name = &self.name;
        let each = self.limits.iter().enumerate();
        let limits: String = each.map(|(no, limit)| limit.times(thousandths).yaml(no)).collect();
        let level = match self.level {
            LevelPlan::Strict => "strict".to_owned(),
            LevelPlan::Hot => "{ strict: { hot_keys: leased } }".to_owned(),
            LevelPlan::Leased => "leased".to_owned(),
            LevelPlan::Eventual { sync_ms } => {
                format!("{{ eventual: {{ sync_interval: {sync_ms}ms }} }}")
            }
        };
        let policy = match self.policy {
            Policy::Deny => "deny",
            Policy::Local => "local",
            Policy::Allow => "allow",
        };
        format!(
            "  - key: {name}\n    consistency: {level}\n    on_store_failure: {policy}\n    limits:\n{limits}"
        )
    }
}

/// Mostly small, so that each hit matters; sometimes large enough for leases.
fn per_second(rng: &mut SimRng) -> u64 {
    if rng.permille(700) { rng.within(5, 80) } else { rng.within(80, 250) }
}

impl LimitPlan {
    /// The limit scaled by thousandths, at least 1.
    #[must_use]
    pub fn times(self, thousandths: u64) -> Self {
        let times = |number: u64| (number * thousandths / 1_000).max(1);
        match self {
            Self::Bucket { rate, per_ms, burst } => {
                Self::Bucket { rate: times(rate), per_ms, burst: times(burst) }
            }
            Self::Window { count, per_ms } => Self::Window { count: times(count), per_ms },
            Self::Sliding { count, per_ms } => Self::Sliding { count: times(count), per_ms },
        }
    }

    /// Length of its window in milliseconds, if it has one.
    #[must_use]
    pub const fn per_ms(&self) -> Option<u64> {
        match *self {
            Self::Bucket { .. } => None,
            Self::Window { per_ms, .. } | Self::Sliding { per_ms, .. } => Some(per_ms),
        }
    }

    /// Maximum burst.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { burst, .. } => burst,
            Self::Window { count, .. } | Self::Sliding { count, .. } => count,
        }
    }

    fn per_second(&self) -> u64 {
        match *self {
            Self::Bucket { rate: count, per_ms, .. }
            | Self::Window { count, per_ms }
            | Self::Sliding { count, per_ms } => (count * 1_000 / per_ms).max(1),
        }
    }

    fn yaml(self, no: usize) -> String {
        let settings = match self {
            Self::Bucket { rate, per_ms, burst } => {
                format!("algorithm: token_bucket, rate: {rate} per {per_ms}ms, burst: {burst}")
            }
            Self::Window { count, per_ms } => {
                format!("algorithm: fixed_window, rate: {count} per {per_ms}ms")
            }
            Self::Sliding { count, per_ms } => {
                format!("algorithm: sliding_window, rate: {count} per {per_ms}ms")
            }
        };
        format!("      - {{ name: limit{no}, {settings} }}\n")
    }
}
