//! Changed copies of a set, for trials.

use super::{RuleNo, RuleSet};
use crate::rule::Limits;

impl RuleSet {
    /// The same rules with other limits of one, for a trial: the digest stays as it is.
    ///
    /// ```
    /// use sluicegate_rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate_rules::rule::{Limits, RuleConfig};
    /// use sluicegate_rules::set::RuleSet;
    ///
    /// let user = DescriptorConfig { rule: Some(RuleConfig::new(Limits::Unlimited)), ..DescriptorConfig::any("user") };
    /// let rules = RuleSet::new(vec![Domain { descriptors: vec![user], ..Domain::new("shop") }])?;
    /// let no = rules.rules().next().unwrap();
    /// let changed = rules.with_limits(no, Limits::Native(Box::default()));
    /// assert_eq!(changed.rule(no).limits, Limits::Native(Box::default()));
    /// assert_eq!(rules.rule(no).limits, Limits::Unlimited);
    /// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
    /// ```
    ///
    /// # Panics
    /// When the number is of another set.
    #[must_use]
    pub fn with_limits(&self, no: RuleNo, limits: Limits) -> Self {
        let mut changed = self.clone();
        changed.rules[no.0 as usize].rule.limits = limits;
        changed
    }
}
