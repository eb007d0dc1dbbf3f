//! What a request must pass: for each of its descriptors the rule that it is under, and whose counter it is.

use std::ops::Range;

use crate::request::{Override, Request};
use crate::rule::RuleConfig;
use crate::set::{MatchPath, RuleNo, RuleSet, write_plain};

/// What a request must pass. It can be used again, and then needs no more memory.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::plan::{Plan, Target};
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
/// assert_eq!(plan.steps()[1].target, Target::None);
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Plan {
    domain: DomainStatus,
    listed: Option<ListMatch>,
    steps: Vec<Step>,
    identities: Vec<u8>,
    way: MatchPath,
}

/// Whether anything is known of the domain that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DomainStatus {
    /// It has rules.
    Known,
    /// There is none of that name: nothing is limited.
    #[default]
    Unknown,
}

/// An entry on one of the domain's lists: it decides before any limit is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListMatch {
    /// Which list.
    pub list: List,
    /// The descriptor, and the entry of it.
    pub at: (usize, usize),
}

/// The lists of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Whoever is on it passes, uncounted.
    Allow,
    /// Whoever is on it does not pass. It wins over the other.
    Deny,
}

/// What one descriptor must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is under.
    pub target: Target,
    /// What is to be charged.
    pub cost: u64,
    identity: Range<usize>,
}

/// What a descriptor is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nothing: no rule matches.
    None,
    /// A rule.
    Rule(RuleNo),
    /// A rule that does not count here, because another of the request replaces it.
    Replaced(RuleNo),
    /// The limit that came with it.
    Override(Override),
}

// === impl RuleSet ===

impl RuleSet {
    /// Works out what a request must pass.
    pub fn plan(&self, request: &Request<'_>, plan: &mut Plan) {
        plan.steps.clear();
        plan.identities.clear();
        let domain = self.domain(request.domain);
        plan.domain = domain.map_or(DomainStatus::Unknown, |_| DomainStatus::Known);
        plan.listed =
            domain.and_then(|domain| self.listed(domain, request.descriptors, &mut plan.way));
        for descriptor in request.descriptors {
            let hits = descriptor.hits.unwrap_or(request.hits);
            let start = plan.identities.len();
            let (target, weight) = match (domain, descriptor.limit) {
                (None, _) => (Target::None, 1),
                (Some(_), Some(limit)) => {
                    write_plain(request.domain, descriptor.entries, &mut plan.identities);
                    (Target::Override(limit), 1)
                }
                (Some(domain), None) => {
                    match self.find_in(domain, descriptor.entries, &mut plan.way) {
                        None => (Target::None, 1),
                        Some(no) => {
                            let out = &mut plan.identities;
                            self.write_identity(domain, descriptor.entries, &plan.way, out);
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

    /// Puts the rules aside that another rule of the request replaces, also one that is replaced itself.
    fn replace(&self, steps: &mut [Step]) {
        let rule = |step: &Step| match step.target {
            Target::Rule(no) | Target::Replaced(no) => Some((no, self.rule(no))),
            Target::None | Target::Override(_) => None,
        };
        for place in 0..steps.len() {
            let Some((no, RuleConfig { name: Some(name), .. })) = rule(&steps[place]) else {
                continue;
            };
            let others = steps.iter().enumerate().filter(|(other, _)| *other != place);
            let mut others = others.filter_map(|(_, step)| rule(step));
            if others.any(|(_, other)| other.replaces().contains(name)) {
                steps[place].target = Target::Replaced(no);
            }
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Whether anything is known of the domain.
    #[must_use]
    pub const fn domain(&self) -> DomainStatus {
        self.domain
    }

    /// The entry that is on a list, if there is one.
    #[must_use]
    pub const fn listed(&self) -> Option<ListMatch> {
        self.listed
    }

    /// What each descriptor must pass, in their order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whose counter a step is about.
    ///
    /// # Panics
    /// When the step is of another plan.
    #[must_use]
    pub fn identity(&self, step: &Step) -> &[u8] {
        &self.identities[step.identity.clone()]
    }
}
