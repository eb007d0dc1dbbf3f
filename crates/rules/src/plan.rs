//! The plan of a request: for each descriptor the rule that applies and the identity it counts.

use std::ops::Range;

use crate::request::{Override, Request};
use crate::rule::RuleConfig;
use crate::set::{DomainNo, MatchPath, RuleNo, RuleSet, write_plain, write_pool};

/// The plan of a request. Reusing one needs no further allocation.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::plan::{NoRule, Plan, Target};
/// use sluicegate_rules::request::{Descriptor, Entry, Request};
/// use sluicegate_rules::rule::{Limits, RuleConfig};
/// use sluicegate_rules::set::RuleSet;
/// use sluicegate_rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute }));
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
///
/// let (known, unknown) = ([Entry::new("user_id", "42")], [Entry::new("path", "/")]);
/// let descriptors = [Descriptor::of(&known), Descriptor::of(&unknown)];
/// let mut plan = Plan::default();
/// rules.plan(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }, &mut plan);
/// assert!(matches!(plan.steps()[0].target, Target::Rule(_)));
/// assert_eq!(plan.steps()[1].target, Target::None(NoRule::Unmatched));
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Plan {
    domain: Option<DomainNo>,
    listed: Option<ListMatch>,
    steps: Vec<Step>,
    identities: Vec<u8>,
    path: MatchPath,
}

/// Whether the requested domain has rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainStatus {
    /// It has rules.
    Known,
    /// No domain has this name: nothing is limited.
    Unknown,
}

/// An entry on one of the domain's lists, which decides before any limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListMatch {
    /// The list.
    pub list: List,
    /// Indexes of the descriptor and of its entry.
    pub at: (usize, usize),
}

/// The lists of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Requests with an entry on it pass uncounted.
    Allow,
    /// Requests with an entry on it are denied; wins over `Allow`.
    Deny,
}

/// The step of one descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What applies to it.
    pub target: Target,
    /// The cost to charge.
    pub cost: u64,
    identity: Range<usize>,
}

/// What applies to a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// No rule, for this reason.
    None(NoRule),
    /// A rule.
    Rule(RuleNo),
    /// A rule that another rule of the request replaces.
    Replaced(RuleNo),
    /// The limit that came with it.
    Override(Override),
}

/// Why no rule applies to a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRule {
    /// The domain has no rules.
    UnknownDomain,
    /// No rule matches.
    Unmatched,
    /// The rules name it without a limit, and nothing below it: an exemption from the rules beside
    /// it.
    Exempt,
}

impl NoRule {
    /// Its name in responses and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownDomain => "no_domain",
            Self::Unmatched => "no_rule",
            Self::Exempt => "exempt",
        }
    }
}

impl RuleSet {
    /// Computes the plan of a request.
    pub fn plan(&self, request: &Request<'_>, plan: &mut Plan) {
        plan.steps.clear();
        plan.identities.clear();
        let domain = self.domain(request.domain);
        plan.domain = domain;
        plan.listed =
            domain.and_then(|domain| self.listed(domain, request.descriptors, &mut plan.path));
        for descriptor in request.descriptors {
            let hits = descriptor.hits.unwrap_or(request.hits);
            let start = plan.identities.len();
            let (target, weight) = match (domain, descriptor.limit) {
                (None, _) => (Target::None(NoRule::UnknownDomain), 1),
                (Some(_), Some(limit)) => {
                    write_plain(request.domain, descriptor.entries, &mut plan.identities);
                    (Target::Override(limit), 1)
                }
                (Some(domain), None) => {
                    match self.find_in(domain, descriptor.entries, &mut plan.path) {
                        None => {
                            let is_exempt = self.is_leaf(descriptor.entries, &plan.path);
                            let why = if is_exempt { NoRule::Exempt } else { NoRule::Unmatched };
                            (Target::None(why), 1)
                        }
                        Some(mut no) => {
                            let out = &mut plan.identities;
                            self.write_identity(domain, descriptor.entries, &plan.path, out);
                            if let Some(pool) = descriptor.pool
                                && let Some(pooled) = self.pool_named(no, pool)
                            {
                                no = pooled;
                                write_pool(pool, out);
                            }
                            (Target::Rule(no), self.rule(no).cost)
                        }
                    }
                }
            };
            let identity = start..plan.identities.len();
            plan.steps.push(Step { target, cost: hits.saturating_mul(weight), identity });
        }
        if self.has_replacements() {
            self.replace(&mut plan.steps);
        }
    }

    /// Marks the rules that another rule of the request replaces, even a replaced one.
    fn replace(&self, steps: &mut [Step]) {
        let rule = |step: &Step| match step.target {
            Target::Rule(no) | Target::Replaced(no) => Some((no, self.rule(no))),
            Target::None(_) | Target::Override(_) => None,
        };
        for index in 0..steps.len() {
            let Some((no, RuleConfig { name: Some(name), .. })) = rule(&steps[index]) else {
                continue;
            };
            let others = steps.iter().enumerate().filter(|(other, _)| *other != index);
            let mut others = others.filter_map(|(_, step)| rule(step));
            if others.any(|(_, other)| other.replaces().contains(name)) {
                steps[index].target = Target::Replaced(no);
            }
        }
    }
}

impl Plan {
    /// Whether the domain has rules.
    #[must_use]
    pub const fn domain(&self) -> DomainStatus {
        match self.domain {
            Some(_) => DomainStatus::Known,
            None => DomainStatus::Unknown,
        }
    }

    /// The number of the domain, if it has rules.
    #[must_use]
    pub const fn domain_no(&self) -> Option<DomainNo> {
        self.domain
    }

    /// The first descriptor that no rule matches, and the reason; none if all match or are exempt.
    #[must_use]
    pub fn unmatched(&self) -> Option<(usize, NoRule)> {
        self.steps.iter().enumerate().find_map(|(index, step)| match step.target {
            Target::None(NoRule::Exempt) => None,
            Target::None(reason) => Some((index, reason)),
            _ => None,
        })
    }

    /// The entry that is on a list, if any.
    #[must_use]
    pub const fn listed(&self) -> Option<ListMatch> {
        self.listed
    }

    /// The steps, in the order of the descriptors.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Removes the steps from this index on.
    pub fn truncate(&mut self, steps: usize) {
        self.steps.truncate(steps);
    }

    /// The identity that a step counts.
    ///
    /// # Panics
    /// When the step is of another plan.
    #[must_use]
    pub fn identity(&self, step: &Step) -> &[u8] {
        &self.identities[step.identity.clone()]
    }
}
