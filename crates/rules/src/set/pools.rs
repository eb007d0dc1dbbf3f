//! Pools: a rule is followed by its further pools, each with a number of its own.

use super::identity::write_pool;
use super::{RuleNo, RuleSet};
use crate::plan::Target;
use crate::request::{Descriptor, Request};

impl RuleSet {
    /// Whether any rule has further pools.
    #[inline]
    #[must_use]
    pub const fn has_pools(&self) -> bool {
        self.has_pools
    }

    /// The name of a further pool; `None` for a rule itself.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate_rules::limit::LimitConfig;
    /// use sluicegate_rules::rule::{Limits, PoolConfig, RuleConfig, RuleExtras};
    /// use sluicegate_rules::set::RuleSet;
    ///
    /// let limits = || Box::from([LimitConfig::fixed(None, Limit::Unlimited)]);
    /// let pools = vec![PoolConfig { name: "credits".into(), limits: limits() }];
    /// let mut rule = RuleConfig::new(Limits::Native(limits()));
    /// rule.rare = Some(Box::new(RuleExtras { pools, ..RuleExtras::default() }));
    /// let team = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("team") };
    /// let rules = RuleSet::new(vec![Domain { descriptors: vec![team], ..Domain::new("llm") }])?;
    ///
    /// let first = rules.rules().next().expect("the rule itself");
    /// let next = rules.next_pool(first).expect("its pool");
    /// assert_eq!((rules.pool_of(first), rules.pool_of(next)), (None, Some("credits")));
    /// assert_eq!((rules.id(first), rules.id(next)), ("llm/team".into(), "llm/team:credits".into()));
    /// assert_eq!((rules.next_pool(next), rules.first_pool(next)), (None, first));
    /// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
    /// ```
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn pool_of(&self, no: RuleNo) -> Option<&str> {
        let place = (self.rules[no.index()].pool as usize).checked_sub(1)?;
        let pools = self.rule(self.first_pool(no)).pools();
        pools.get(place).map(|pool| &*pool.name)
    }

    /// The rule that a pool belongs to.
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn first_pool(&self, no: RuleNo) -> RuleNo {
        RuleNo(no.0 - self.rules[no.index()].pool)
    }

    /// The pool after a pool of the same rule.
    #[must_use]
    pub fn next_pool(&self, no: RuleNo) -> Option<RuleNo> {
        let next = RuleNo(no.0.checked_add(1)?);
        self.rules.get(next.index()).filter(|entry| entry.pool > 0).map(|_| next)
    }

    /// A rule and its further pools, in the order that requests draw from them.
    pub fn pools(&self, first: RuleNo) -> impl Iterator<Item = RuleNo> {
        std::iter::successors(Some(first), |no| self.next_pool(*no))
    }

    /// The pool of this name of a rule.
    #[must_use]
    pub fn pool_named(&self, first: RuleNo, name: &str) -> Option<RuleNo> {
        self.pools(first).find(|no| self.pool_of(*no) == Some(name))
    }

    /// An identity of a rule or of one of its pools without the name of the pool.
    #[must_use]
    pub fn without_pool<'a>(&self, no: RuleNo, identity: &'a [u8]) -> &'a [u8] {
        let mut suffix = Vec::new();
        if let Some(pool) = self.pool_of(no) {
            write_pool(pool, &mut suffix);
        }
        identity.strip_suffix(&*suffix).unwrap_or(identity)
    }

    /// The further pools of the descriptors of a request, as descriptors that name them, each with
    /// the index of its descriptor. Nothing for a descriptor that names its pool.
    #[must_use]
    pub fn further_pools<'a>(&'a self, request: &Request<'a>) -> Vec<(usize, Descriptor<'a>)> {
        let (mut plan, mut all) = (crate::plan::Plan::default(), Vec::new());
        self.plan(request, &mut plan);
        for (index, (step, descriptor)) in plan.steps().iter().zip(request.descriptors).enumerate()
        {
            let Target::Rule(first) = step.target else { continue };
            if self.pool_of(first).is_none() {
                let names = self.pools(first).filter_map(|no| self.pool_of(no));
                all.extend(
                    names.map(|name| (index, Descriptor { pool: Some(name), ..*descriptor })),
                );
            }
        }
        all
    }
}
