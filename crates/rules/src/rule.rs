//! A rule: what is enforced on the identities that it matches, and how.

use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;

use crate::limit::LimitConfig;
use crate::metadata::Metadata;
use crate::unit::Unit;

/// A rule.
///
/// ```
/// use sluicegate_rules::rule::{Limits, OnStoreFailure, RuleConfig};
/// use sluicegate_rules::unit::Unit;
///
/// let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute });
/// assert_eq!(rule.cost, 1);
/// assert_eq!(rule.on_store_failure, OnStoreFailure::Error, "as envoyproxy/ratelimit");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RuleConfig {
    /// What it is called, if it was given a name; otherwise it is known by the way to it.
    pub name: Option<Box<str>>,
    /// What may pass.
    pub limits: Limits,
    /// How strictly.
    pub mode: Mode,
    /// What one hit weighs.
    pub cost: u64,
    /// What the limits promise when several nodes share them.
    pub consistency: Consistency,
    /// What happens while the store cannot be asked.
    pub on_store_failure: OnStoreFailure,
    /// What happens to a request above the limit.
    pub on_limit: OnLimit,
    /// What happens to an identity for which there is no room.
    pub overflow: Overflow,
    /// Whether the request as a whole is denied only when all such rules of it deny.
    pub quota_mode: bool,
    /// Whether its metrics are told apart by the values of every entry.
    pub detailed_metric: bool,
    /// What else it says, where that is rare.
    pub rare: Option<Box<RuleExtras>>,
}

/// What few rules have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleExtras {
    /// The names of the rules that do not count in a request that this one matches.
    pub replaces: Vec<Box<str>>,
    /// What is handed on to whoever asked.
    pub metadata: Option<Metadata>,
}

/// What may pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Limits {
    /// Everything, uncounted.
    Unlimited,
    /// Envoy's form: counted first and compared afterwards, so that a denied request counts too.
    Envoy {
        /// How many.
        requests_per_unit: u32,
        /// In which time.
        unit: Unit,
    },
    /// What passes all of these; a denied request is charged to none of them.
    Native(Box<[LimitConfig]>),
}

/// What limits promise when several nodes share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Never above the limit: every decision asks the store.
    #[default]
    Strict,
    /// Never above the limit: every decision asks the store, except that keys that are asked for very often may be leased.
    StrictUntilHot,
    /// Never above the limit: nodes buy ahead, and decide by themselves.
    Leased,
    /// Nodes decide by themselves and tell each other.
    Eventual {
        /// How often.
        sync_interval: Span,
    },
}

/// What happens while the store cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// This node's share of the limit holds.
    Local,
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
    /// Whoever asked is told.
    Error,
}

/// What happens to a request above the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// It is refused.
    #[default]
    Deny,
    /// It waits for its turn.
    Shape,
    /// It is kept, and carried out later.
    Queue,
}

/// What happens to an identity for which there is no room.
///
/// A live entry is never dropped for a newcomer: whoever is over a limit stays over it, however many others
/// come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// All newcomers share one more identity, with the same limits.
    #[default]
    Shared,
    /// Newcomers are denied.
    Deny,
    /// Newcomers pass uncounted.
    Allow,
}

/// How often nodes tell each other unless told.
///
/// ```
/// assert_eq!(sluicegate_rules::rule::SYNC_INTERVAL.as_micros(), 100_000);
/// ```
pub const SYNC_INTERVAL: Span = Span::from_millis(100);

impl RuleConfig {
    /// A rule with these limits, and nothing else said.
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

    /// What its limits really promise: nodes decide by themselves only about native limits that are enforced as they are.
    /// A rule that may exceed its limits, or that denies only together with others, counts as strict.
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
    #[must_use]
    pub fn effective_consistency(&self) -> Consistency {
        let native = matches!(self.limits, Limits::Native(_));
        match native && self.mode == Mode::Hard && !self.quota_mode {
            true => self.consistency,
            false => Consistency::Strict,
        }
    }

    /// The names of the rules that do not count in a request that this one matches.
    ///
    /// ```
    /// use sluicegate_rules::rule::{Limits, RuleConfig};
    ///
    /// assert!(RuleConfig::new(Limits::Unlimited).replaces().is_empty());
    /// ```
    #[must_use]
    pub fn replaces(&self) -> &[Box<str>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.replaces)
    }

    /// What is handed on to whoever asked.
    ///
    /// ```
    /// use sluicegate_rules::rule::{Limits, RuleConfig};
    ///
    /// assert_eq!(RuleConfig::new(Limits::Unlimited).metadata(), None);
    /// ```
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.rare.as_ref()?.metadata.as_ref()
    }
}
