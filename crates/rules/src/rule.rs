//! A configured rule: limits, and how they are enforced.

use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;

use crate::limit::LimitConfig;
use crate::overrides::AppliedOverride;
use crate::schedule::Schedule;
use crate::unit::Unit;

/// A configured rule.
///
/// ```
/// use sluicegate_rules::rule::{Limits, OnStoreFailure, RuleConfig};
/// use sluicegate_rules::unit::Unit;
///
/// let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute });
/// assert_eq!((rule.cost, rule.replaces().len(), rule.metadata()), (1, 0, None));
/// assert_eq!(rule.on_store_failure, OnStoreFailure::Error, "as envoyproxy/ratelimit");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RuleConfig {
    /// Its name, if it has one; otherwise its path identifies it.
    pub name: Option<Box<str>>,
    /// The limits.
    pub limits: Limits,
    /// How strictly they are enforced.
    pub mode: Mode,
    /// The cost of one hit.
    pub cost: u64,
    /// The guarantee across nodes.
    pub consistency: Consistency,
    /// The policy while the store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// The action above the limit.
    pub on_limit: OnLimit,
    /// The action for a new identity when the store is full.
    pub overflow: Overflow,
    /// Whether a request is denied only if all its rules in quota mode deny.
    pub quota_mode: bool,
    /// Whether its metrics are split by the values of every entry.
    pub detailed_metric: bool,
    /// Settings that few rules have.
    pub rare: Option<Box<RuleExtras>>,
}

/// Settings that few rules have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleExtras {
    /// The names of the rules that this one replaces in a request.
    pub replaces: Vec<Box<str>>,
    /// Free data returned to the caller.
    pub metadata: Option<Metadata>,
    /// Importance of its requests, if it is not the default.
    pub priority: Option<u8>,
    /// The pools that requests draw from, in this order, when the limits deny them.
    pub pools: Vec<PoolConfig>,
    /// The thresholds of the quota that are reported, in percent, ascending.
    pub notify: Vec<u16>,
    /// The action on a stream that exhausts the limits.
    pub on_exhausted: OnExhausted,
    /// The limits at certain times.
    pub schedule: Option<Schedule>,
    /// The override that the limits are of, once the rule is resolved.
    pub overridden: Option<AppliedOverride>,
}

/// A further pool of a rule: limits with a counter of their own for each identity. The settings
/// are those of the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name, which identifies it within the rule.
    pub name: Box<str>,
    /// Its limits.
    pub limits: Box<[LimitConfig]>,
}

/// Maximum number of further pools of a rule.
pub const POOLS_MAX: usize = 7;
/// Maximum number of thresholds of a rule.
pub const NOTIFY_MAX: usize = 8;
/// The highest threshold, in percent: usage may exceed the quota, as a debt or by the mode.
pub const THRESHOLD_MAX: u16 = 1_000;

/// The limits of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Limits {
    /// Everything, uncounted.
    Unlimited,
    /// Envoy's form: counted first and compared afterwards, so that a denied request counts too.
    Envoy {
        /// Requests per unit.
        requests_per_unit: u32,
        /// The unit of time.
        unit: Unit,
    },
    /// All limits must admit; a denied request is charged to no limit.
    Native(Box<[LimitConfig]>),
}

/// The guarantee of limits that several nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Never above the limit: every decision calls the store.
    #[default]
    Strict,
    /// Never above the limit: every decision calls the store, but hot keys may be leased.
    StrictUntilHot,
    /// Never above the limit: nodes lease quota ahead and decide locally.
    Leased,
    /// Nodes decide locally and exchange counts.
    Eventual {
        /// The interval of the exchange.
        sync_interval: Span,
    },
}

/// What a rule needs that shares limits between nodes.
const WITHOUT_SLICES: &str = "a `sliding_window` without `slices`, whose counts nodes can share";

impl Consistency {
    /// As rule files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::StrictUntilHot => "hot_keys",
            Self::Leased => "leased",
            Self::Eventual { .. } => "eventual",
        }
    }

    /// The limits that nodes can share like that, if this one is not among them. `algorithm` is
    /// that of a limit that admits nothing.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_rules::rule::Consistency;
    ///
    /// assert_eq!(Consistency::Strict.unsupported(&Limit::Closed, "cycle"), None);
    /// assert!(Consistency::Leased.unsupported(&Limit::Closed, "cycle").is_some());
    /// ```
    #[must_use]
    pub fn unsupported(self, limit: &Limit, algorithm: &str) -> Option<&'static str> {
        let (fits, needs) = match self {
            Self::Strict => return None,
            Self::Leased | Self::StrictUntilHot => {
                let fits = match limit {
                    Limit::TokenBucket(bucket) => bucket.refill() == Refill::Greedy,
                    Limit::FixedWindow(_) | Limit::SlidingWindow(_) => true,
                    Limit::Closed => {
                        matches!(algorithm, "token_bucket" | "fixed_window" | "sliding_window")
                    }
                    Limit::SlidingSlices(_) => return Some(WITHOUT_SLICES),
                    _ => false,
                };
                (fits, "a greedy `token_bucket`, a `fixed_window` or a `sliding_window`")
            }
            Self::Eventual { .. } => {
                let fits = match limit {
                    Limit::FixedWindow(window) => window.align() != Align::FirstHit,
                    Limit::SlidingWindow(_) => true,
                    Limit::Closed => matches!(algorithm, "fixed_window" | "sliding_window"),
                    Limit::SlidingSlices(_) => return Some(WITHOUT_SLICES),
                    _ => false,
                };
                let needs = "a `fixed_window` aligned to the clock or the calendar, or a \
                             `sliding_window`";
                (fits, needs)
            }
        };
        (!fits).then_some(needs)
    }
}

/// The policy while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Enforce this node's share of the limit.
    Local,
    /// Allow every request.
    Allow,
    /// Deny every request.
    Deny,
    /// Return an error to the caller.
    Error,
}

impl OnStoreFailure {
    /// As it is written in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// The action on a request above the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// Deny it.
    #[default]
    Deny,
    /// Delay it until its turn.
    Shape,
    /// Queue it for later.
    Queue,
}

/// The action on a response that costs more than was reserved for it, when its limits have nothing
/// left while it streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExhausted {
    /// Let it finish; the limits go into debt.
    #[default]
    Debt,
    /// End it.
    End,
}

/// The action for a new identity when the store is full.
///
/// A live entry is never evicted for a new one: an identity over its limit stays over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// New identities share one more, with the same limits.
    #[default]
    Shared,
    /// Deny new identities.
    Deny,
    /// Allow new identities uncounted.
    Allow,
}

/// Importance of requests whose rule names none. From 0 to [`PRIORITY_MAX`], the most important.
pub const PRIORITY_DEFAULT: u8 = 5;
/// Importance of the most important requests.
pub const PRIORITY_MAX: u8 = 9;

/// Default interval at which nodes exchange counts.
pub const SYNC_INTERVAL: Span = Span::from_millis(100);

impl RuleConfig {
    /// A rule with these limits and the defaults of their form.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let on_store_failure = match limits {
            Limits::Native(_) => OnStoreFailure::Local,
            Limits::Unlimited | Limits::Envoy { .. } => OnStoreFailure::Error,
        };
        Self {
            name: None,
            limits,
            mode: Mode::Hard,
            cost: 1,
            consistency: Consistency::Strict,
            on_store_failure,
            on_limit: OnLimit::Deny,
            overflow: Overflow::Shared,
            quota_mode: false,
            detailed_metric: false,
            rare: None,
        }
    }

    /// Whether it denies only together with all other quotas of a request. A rule without a limit
    /// does not count as one, as in envoyproxy/ratelimit: it would never be exhausted.
    #[inline]
    #[must_use]
    pub const fn is_quota(&self) -> bool {
        self.quota_mode && !matches!(self.limits, Limits::Unlimited)
    }

    /// The guarantee in effect: nodes decide locally only about native limits in hard mode. A rule
    /// that may exceed its limits, or that denies only together with others, counts as strict.
    ///
    /// ```
    /// use sluicegate_core::mode::Mode;
    /// use sluicegate_rules::rule::{Consistency, Limits, RuleConfig};
    ///
    /// let mut rule = RuleConfig::new(Limits::Native(Box::new([])));
    /// rule.consistency = Consistency::Leased;
    /// assert_eq!(rule.effective_consistency(), Consistency::Leased);
    /// rule.mode = Mode::Shadow;
    /// assert_eq!(rule.effective_consistency(), Consistency::Strict);
    /// ```
    #[inline]
    #[must_use]
    pub fn effective_consistency(&self) -> Consistency {
        let native = matches!(self.limits, Limits::Native(_));
        match native && self.mode == Mode::Hard && !self.quota_mode {
            true => self.consistency,
            false => Consistency::Strict,
        }
    }

    /// Whether nodes that share a store may decide by this rule without calling it.
    #[inline]
    #[must_use]
    pub fn is_decided_locally(&self) -> bool {
        self.effective_consistency() != Consistency::Strict
    }

    /// The names of the rules that this one replaces in a request.
    #[must_use]
    pub fn replaces(&self) -> &[Box<str>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.replaces)
    }

    /// Importance of its requests: where they wait, those of a higher priority go first.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.rare.as_ref().and_then(|rare| rare.priority).unwrap_or(PRIORITY_DEFAULT)
    }

    /// The action on a stream that exhausts the limits.
    #[must_use]
    pub fn on_exhausted(&self) -> OnExhausted {
        self.rare.as_ref().map(|rare| rare.on_exhausted).unwrap_or_default()
    }

    /// The pools that requests draw from when the limits deny them, in this order.
    #[must_use]
    pub fn pools(&self) -> &[PoolConfig] {
        self.rare.as_ref().map_or(&[], |rare| &rare.pools)
    }

    /// The thresholds of the quota that are reported, in percent, ascending.
    #[inline]
    #[must_use]
    pub fn notify(&self) -> &[u16] {
        self.rare.as_ref().map_or(&[], |rare| &rare.notify)
    }

    /// Why the thresholds of the rule cannot be reported, if it has any.
    ///
    /// ```
    /// use sluicegate_rules::rule::{Limits, RuleConfig, RuleExtras};
    ///
    /// let mut rule = RuleConfig::new(Limits::Unlimited);
    /// assert_eq!(rule.refused_notify(), None);
    /// rule.rare = Some(Box::new(RuleExtras { notify: vec![80], ..RuleExtras::default() }));
    /// assert!(rule.refused_notify().is_some_and(|reason| reason.contains("a quota")));
    /// ```
    #[must_use]
    pub fn refused_notify(&self) -> Option<&'static str> {
        const NO_QUOTA: &str = "`notify` needs a limit with a quota, and this one has none";
        const SEVERAL: &str = "`notify` needs a single limit, whose usage every answer tells";
        let thresholds = self.notify();
        let refused = |limits: &[LimitConfig]| match limits {
            [one] => {
                let has_quota = !matches!(
                    one.algorithm(),
                    "concurrency" | "unlimited" | "smooth_bursty" | "warm_up"
                );
                (!has_quota).then_some(NO_QUOTA)
            }
            _ => Some(SEVERAL),
        };
        let is_ascending = thresholds.is_sorted_by(|one, next| one < next);
        let in_range = thresholds.iter().all(|one| (1..=THRESHOLD_MAX).contains(one));
        match &self.limits {
            _ if thresholds.is_empty() => None,
            _ if !is_ascending || !in_range || thresholds.len() > NOTIFY_MAX => {
                Some("`notify` needs up to 8 ascending thresholds from 1% to 1000%")
            }
            Limits::Unlimited => Some(NO_QUOTA),
            Limits::Envoy { .. } => None,
            Limits::Native(limits) => {
                let pools = self.pools().iter().find_map(|pool| refused(&pool.limits));
                refused(limits).or(pools)
            }
        }
    }

    /// Why the rule cannot have its pools, if it has any.
    ///
    /// ```
    /// use sluicegate_rules::rule::{Limits, PoolConfig, RuleConfig, RuleExtras};
    ///
    /// let mut rule = RuleConfig::new(Limits::Unlimited);
    /// assert_eq!(rule.refused_pools(), None);
    /// let pools = vec![PoolConfig { name: "credits".into(), limits: Box::new([]) }];
    /// rule.rare = Some(Box::new(RuleExtras { pools, ..RuleExtras::default() }));
    /// assert!(rule.refused_pools().is_some_and(|reason| reason.contains("`limits`")));
    /// ```
    #[must_use]
    pub fn refused_pools(&self) -> Option<&'static str> {
        let Limits::Native(limits) = &self.limits else {
            return (!self.pools().is_empty()).then_some(
                "pools need `limits`: a limit in Envoy's form counts denied requests too, and no \
                 limit never denies",
            );
        };
        let (first, pools) = (self.pools().first()?, self.pools());
        let has_slots =
            |limits: &[LimitConfig]| limits.iter().any(|limit| limit.algorithm() == "concurrency");
        let is_repeated = |(index, pool): (usize, &PoolConfig)| {
            pool.name.is_empty() || pools[..index].iter().any(|other| other.name == pool.name)
        };
        if self.quota_mode {
            Some("pools stand beside `quota_mode`, under which the rule denies only with others")
        } else if pools.len() > POOLS_MAX {
            Some("a rule has at most 7 further pools")
        } else if first.name.is_empty() || pools.iter().enumerate().any(is_repeated) {
            Some("the pools of a rule need different names")
        } else if has_slots(limits) || pools.iter().any(|pool| has_slots(&pool.limits)) {
            Some("a pool cannot be of `concurrency`: slots are released, not drawn")
        } else {
            None
        }
    }

    /// The rule of a pool: its limits with the settings of this rule.
    pub(crate) fn of_pool(&self, pool: &PoolConfig) -> Self {
        let rare = self.rare.as_ref().map(|rare| {
            let (pools, replaces, schedule) = (Vec::new(), Vec::new(), None);
            Box::new(RuleExtras { pools, replaces, schedule, ..RuleExtras::clone(rare) })
        });
        let name = self.name.as_ref().map(|name| pool_id(name, &pool.name).into());
        Self { name, limits: Limits::Native(pool.limits.clone()), rare, ..self.clone() }
    }

    /// The limits at certain times.
    #[must_use]
    pub fn schedule(&self) -> Option<&Schedule> {
        self.rare.as_ref()?.schedule.as_ref()
    }

    /// The override that the limits are of.
    #[must_use]
    pub fn overridden(&self) -> Option<&AppliedOverride> {
        self.rare.as_ref()?.overridden.as_ref()
    }

    /// Free data returned to the caller.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.rare.as_ref()?.metadata.as_ref()
    }
}

/// The id of a pool: that of its rule, and its name.
pub(crate) fn pool_id(rule: &str, pool: &str) -> String {
    format!("{rule}:{pool}")
}

/// A value of a rule's metadata.
///
/// ```
/// use sluicegate_rules::rule::Metadata;
///
/// let tier = Metadata::Text("gold".to_owned());
/// let map = Metadata::Map(vec![("tier".to_owned(), tier.clone())]);
/// assert_eq!(map.field("tier"), Some(&tier));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Metadata {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number; Envoy's protocol has no other kind.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// Values by their names, in the order of the file.
    Map(Vec<(String, Self)>),
}

impl Metadata {
    /// The value of a name in a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
