//! The admission rule as one would write it on a blackboard: counters that are plain numbers, no
//! store, no batches.

use std::collections::HashMap;

/// How a rule is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `limits`: charged only if the whole request passes.
    Native,
    /// `rate_limit`: charged in any case, as envoyproxy/ratelimit does.
    Envoy,
}

/// `on_store_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Local,
    Allow,
    Deny,
    Error,
}

/// Whether the store answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreState {
    Up,
    /// Calls fail at once, and are not executed.
    Down,
    /// Calls are executed, and their replies arrive after the deadline.
    Late,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSpec {
    pub(crate) form: Form,
    pub(crate) policy: Policy,
    pub(crate) shadow: bool,
    pub(crate) quota: bool,
    pub(crate) limit: u64,
}

/// What a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Decided { allowed: bool, statuses: Vec<bool> },
    StoreError,
}

/// A rule and the value that names the counter.
type Step = (usize, usize);

pub(crate) struct Model<'a> {
    rules: &'a [RuleSpec],
    used: HashMap<Step, u64>,
}

struct Decision {
    allowed: bool,
    statuses: Vec<bool>,
    /// The counters that are charged, each as often as it is.
    charges: Vec<Step>,
}

impl RuleSpec {
    pub(crate) fn yaml(&self, number: usize) -> String {
        let policy = match self.policy {
            Policy::Local => "local",
            Policy::Allow => "allow",
            Policy::Deny => "deny",
            Policy::Error => "error",
        };
        let limit = self.limit;
        let mut text = format!("  - key: rule{number}\n    on_store_failure: {policy}\n");
        if self.quota {
            text.push_str("    quota_mode: true\n");
        }
        text.push_str(&match self.form {
            Form::Native => {
                format!("    limits: {{ algorithm: fixed_window, rate: {limit}/year }}\n")
            }
            Form::Envoy => {
                format!("    rate_limit: {{ unit: year, requests_per_unit: {limit} }}\n")
            }
        });
        match (self.shadow, self.form) {
            (true, Form::Native) => text.push_str("    mode: shadow\n"),
            (true, Form::Envoy) => text.push_str("    shadow_mode: true\n"),
            (false, _) => {}
        }
        text
    }
}

/// The values that the lists name, under the first rule's key.
const BANNED: Step = (0, 2);
const VIP: Step = (0, 3);

impl From<Decision> for Reply {
    fn from(decision: Decision) -> Self {
        Self::Decided { allowed: decision.allowed, statuses: decision.statuses }
    }
}

impl<'a> Model<'a> {
    pub(crate) fn new(rules: &'a [RuleSpec]) -> Self {
        Self { rules, used: HashMap::new() }
    }

    /// What a request is answered, and charges what it is charged.
    pub(crate) fn check(&mut self, steps: &[Step], hits: u64, store: StoreState) -> Reply {
        if steps.contains(&BANNED) {
            let first = steps.iter().position(|step| *step == BANNED);
            let statuses = (0..steps.len()).map(|place| Some(place) != first).collect();
            return Reply::Decided { allowed: false, statuses };
        }
        if steps.contains(&VIP) {
            return Reply::Decided { allowed: true, statuses: vec![true; steps.len()] };
        }
        let by_store = self.decide(steps, hits, true);
        if store == StoreState::Up {
            return self.charge(by_store.charges.clone(), hits, by_store.into());
        }
        // What a late call has executed stays so, whatever is decided meanwhile.
        let mut charges = match store {
            StoreState::Late => by_store.charges,
            StoreState::Up | StoreState::Down => Vec::new(),
        };
        let decided = self.decide(steps, hits, false);
        // A shadow rule never decides anything, not even that there is an error.
        let fails = |rule: &RuleSpec| rule.policy == Policy::Error && !rule.shadow;
        let is_unknown = steps.iter().any(|(rule, _)| fails(&self.rules[*rule]));
        // A known denial does not depend on the steps that failed.
        if is_unknown && decided.allowed {
            return self.charge(charges, hits, Reply::StoreError);
        }
        for step in &decided.charges {
            let count = |all: &[Step]| all.iter().filter(|other| *other == step).count();
            if count(&charges) < count(&decided.charges) {
                charges.push(*step);
            }
        }
        self.charge(charges, hits, decided.into())
    }

    fn charge(&mut self, charges: Vec<Step>, hits: u64, reply: Reply) -> Reply {
        for step in charges {
            *self.used.entry(step).or_default() += hits;
        }
        reply
    }

    /// What is decided, with the store or without it.
    fn decide(&self, steps: &[Step], hits: u64, is_up: bool) -> Decision {
        let counts = |rule: &RuleSpec| is_up || rule.policy == Policy::Local;
        let passes = |rule: &RuleSpec| rule.policy != Policy::Deny || rule.shadow;
        let mut charges: Vec<Step> = Vec::new();
        let mut statuses = vec![true; steps.len()];
        // Limits of Envoy's form, and quotas, are decided one by one.
        for (place, step) in steps.iter().enumerate() {
            let rule = &self.rules[step.0];
            statuses[place] = match rule.form {
                _ if !counts(rule) => passes(rule),
                Form::Envoy => {
                    charges.push(*step);
                    let came = charges.iter().filter(|other| *other == step).count() as u64;
                    self.used(step) + came * hits <= rule.limit || rule.shadow
                }
                Form::Native if rule.quota => {
                    let fits = self.fits(step, hits);
                    if fits && !charges.contains(step) {
                        charges.push(*step);
                    }
                    fits || rule.shadow
                }
                Form::Native => continue,
            };
        }
        let may_go = self.is_allowed(steps, &statuses);
        // The others are charged all together or not at all; all counters of a shadow rule, or none
        // of them.
        for (place, step) in steps.iter().enumerate() {
            let rule = &self.rules[step.0];
            if rule.form == Form::Native && !rule.quota && counts(rule) {
                statuses[place] = self.fits(step, hits) || rule.shadow;
            }
        }
        let allowed = may_go && self.is_allowed(steps, &statuses);
        for step in steps.iter().filter(|_| allowed) {
            let rule = &self.rules[step.0];
            let mut its = steps.iter().filter(|(number, _)| *number == step.0);
            if rule.form == Form::Native
                && !rule.quota
                && counts(rule)
                && !charges.contains(step)
                && its.all(|step| self.fits(step, hits))
            {
                charges.push(*step);
            }
        }
        Decision { allowed, statuses, charges }
    }

    /// Remaining quota of every rule, for the first values of each.
    pub(crate) fn remaining(&self, values: usize) -> Vec<Option<i64>> {
        let all =
            (0..self.rules.len()).flat_map(|rule| (0..values).map(move |value| (rule, value)));
        let left =
            |step: Step| Some(self.rules[step.0].limit.saturating_sub(self.used(&step)) as i64);
        all.map(left).collect()
    }

    fn used(&self, step: &Step) -> u64 {
        self.used.get(step).copied().unwrap_or(0)
    }

    fn fits(&self, step: &Step, hits: u64) -> bool {
        hits == 0 || self.used(step) + hits <= self.rules[step.0].limit
    }

    /// Any rule denies; quotas only if all of them do.
    fn is_allowed(&self, steps: &[Step], statuses: &[bool]) -> bool {
        let all = || {
            steps.iter().zip(statuses).map(|((rule, _), passes)| (self.rules[*rule].quota, *passes))
        };
        let quotas = all().filter(|(quota, _)| *quota).count();
        let exhausted = all().filter(|(quota, passes)| *quota && !passes).count();
        all().all(|(quota, passes)| quota || passes) && (quotas == 0 || exhausted < quotas)
    }
}
