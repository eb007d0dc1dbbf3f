//! Limits by plan, without a tree for each: `by` names an entry on the path whose value is the
//! plan.
//!
//! ```yaml
//! plans: [free, pro]
//! descriptors:
//!   - key: plan
//!     descriptors:
//!       - key: user_id
//!         limits:
//!           by: plan
//!           plans: { free: { algorithm: token_bucket, rate: 1/s }, pro: { … } }
//!           others: deny
//! ```
//!
//! When all files are read, the node of that entry is copied for each plan (`plan=free`,
//! `plan=pro`), and each copy gets the limits of its plan; the node for any value keeps those of
//! others. Matching, counters and metrics know no plans.

mod expand;

use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::reader::Reader;
use super::schedule::PlannedPart;
use crate::fields::{Value, unknown};
use crate::limit;
use crate::problem::{Position, Reported, quoted};
use crate::yaml::{Content, Style};

pub(super) use expand::expand;

/// Maximum number of plans of a domain.
pub(crate) const PLANS_MAX: usize = 64;
/// Maximum length of the name of a plan, in characters.
pub(crate) const PLAN_CHARS_MAX: usize = 64;

pub(crate) const BY: &str = "by";
pub(crate) const PLANS: &str = "plans";
pub(crate) const OTHERS: &str = "others";
/// The words that stand for limits.
pub(crate) const WORDS: [&str; 2] = ["unlimited", "deny"];

const EXAMPLE: &str =
    "{ by: plan, plans: { free: { algorithm: token_bucket, rate: 1/s } }, others: deny }";

/// A plan of a domain, and where it is named.
pub(super) struct PlanName {
    pub(super) name: String,
    pub(super) source: usize,
    pub(super) at: Position,
    pub(super) path: String,
}

/// Limits, or limits by plan.
pub(super) struct PlannedLimits {
    by: Option<ByPlan>,
    /// The limits, or those of other plans.
    others: Limits,
}

struct ByPlan {
    key: String,
    at: Position,
    path: String,
    plans: Vec<(String, Position, String, Limits)>,
}

/// The rule of a descriptor for each plan.
#[derive(Debug, Clone)]
pub(super) struct PlanRules {
    /// The key of the entry whose value is the plan.
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) path: String,
    pub(super) rules: Vec<PlanRule>,
}

/// The rule of a plan, and where its limits are written.
#[derive(Debug, Clone)]
pub(super) struct PlanRule {
    pub(super) name: String,
    pub(super) at: Position,
    pub(super) path: String,
    pub(super) rule: RuleConfig,
}

/// The key of the plan, where it is written, and the plans with limits.
pub(super) type PlansOfRule = (String, Position, String, Vec<(String, Position, String)>);

/// The limits that deny every request.
pub(super) fn denied() -> Limits {
    Limits::Native(Box::new([LimitConfig::closed(None, "token_bucket")]))
}

impl PlannedLimits {
    pub(super) const fn same(limits: Limits) -> Self {
        Self { by: None, others: limits }
    }

    /// The limits of a plan.
    pub(super) fn of(&self, plan: Option<&str>) -> &Limits {
        let plans = self.by.as_ref().map_or(&[][..], |by| &by.plans);
        let found = plans.iter().find(|(name, ..)| Some(name.as_str()) == plan);
        found.map_or(&self.others, |(.., limits)| limits)
    }
}

impl Reader<'_> {
    /// Reads the names of the plans of a domain.
    pub(super) fn plans(&mut self, list: &Value<'_, '_>) -> Vec<PlanName> {
        const EXAMPLE: &str = "plans: [free, pro]";
        let mut names: Vec<PlanName> = Vec::new();
        let count = list.items().len();
        if !list.is_list() || count == 0 || count > PLANS_MAX {
            let got = if list.is_list() { count.to_string() } else { list.node.described() };
            let message = format!(
                "must be a list of 1 to {PLANS_MAX} names of plans, got {got}; write it like \
                 `{EXAMPLE}`"
            );
            self.refuse(list, message);
        }
        for item in list.items() {
            let Ok(name) = self.filled(&item, "free") else { continue };
            if name.contains('*') || name.chars().count() > PLAN_CHARS_MAX {
                let got = quoted(name);
                let message = format!(
                    "must be one value of the entry, without `*` and of at most {PLAN_CHARS_MAX} \
                     characters, got {got}; write it like `{EXAMPLE}`"
                );
                self.refuse(&item, message);
            } else if let Some(first) = names.iter().find(|known| known.name == name) {
                let (got, line) = (quoted(name), first.at.line);
                let message =
                    format!("is named twice, first on line {line}, got {got}; remove one");
                self.refuse(&item, message);
            } else {
                let (name, source) = (name.to_owned(), self.source);
                let (at, path) = (item.at(), item.path.to_string());
                names.push(PlanName { name, source, at, path });
            }
        }
        names
    }

    /// Reads `limits`: those of all requests, or by plan.
    pub(super) fn planned(&mut self, input: &Value<'_, '_>) -> Result<PlannedLimits, Reported> {
        let is_by_plan = matches!(&input.node.content, Content::Mapping(pairs) if pairs.iter().any(
            |pair| matches!(&pair.key.content, Content::Scalar { text, .. } if &**text == BY)
        ));
        match is_by_plan {
            true => self.by_plan(input),
            false => self.native_limits(input).map(PlannedLimits::same),
        }
    }

    /// The same, or a word.
    pub(super) fn planned_or_word(
        &mut self,
        input: &Value<'_, '_>,
    ) -> Result<PlannedLimits, Reported> {
        match word(input) {
            Some(limits) => Ok(PlannedLimits::same(limits)),
            None => self.planned(input),
        }
    }

    fn native_limits(&mut self, input: &Value<'_, '_>) -> Result<Limits, Reported> {
        let limits = limit::limits_of(input, self.report);
        limits.map(|limits| Limits::Native(limits.into()))
    }

    /// Limits, `unlimited` or `deny`.
    pub(super) fn limits_or_word(&mut self, input: &Value<'_, '_>) -> Result<Limits, Reported> {
        match (word(input), &input.node.content) {
            (Some(limits), _) => Ok(limits),
            (None, Content::Scalar { .. }) => {
                let got = input.node.described();
                let message = format!(
                    "must be limits, `unlimited` or `deny`, got {got}; write it like `{{ algorithm: \
                     token_bucket, rate: 10/s }}`"
                );
                Err(self.refuse(input, message))
            }
            _ => self.native_limits(input),
        }
    }

    fn by_plan(&mut self, input: &Value<'_, '_>) -> Result<PlannedLimits, Reported> {
        let mut fields = input.fields("limits by plan", EXAMPLE, self.report)?;
        let (by, plans, others) = (fields.value(BY), fields.value(PLANS), fields.value(OTHERS));
        let finished = fields.finish(self.report, |key| unknown(key, &[BY, PLANS, OTHERS]));
        let key = match &by {
            Some(by) => self.filled(by, "by: plan").map(|key| (key.to_owned(), by)),
            None => Err(Reported),
        };
        let plans = match &plans {
            Some(plans) => self.limits_of_plans(plans),
            None => {
                let message = "is missing; add the limits of each plan, like `plans: { free: { \
                               algorithm: token_bucket, rate: 1/s } }`";
                Err(self.report.add(
                    input.at(),
                    format!("{}.{PLANS}", input.path),
                    message.to_owned(),
                ))
            }
        };
        let others = match &others {
            Some(others) => self.limits_or_word(others),
            None => {
                let message = "is missing: what applies to a request of another plan; add limits, or \
                               `others: deny`, or `others: unlimited`";
                Err(self.report.add(
                    input.at(),
                    format!("{}.{OTHERS}", input.path),
                    message.to_owned(),
                ))
            }
        };
        finished?;
        let ((key, by), plans, others) = (key?, plans?, others?);
        let by = ByPlan { key, at: by.at(), path: by.path.to_string(), plans };
        Ok(PlannedLimits { by: Some(by), others })
    }

    fn limits_of_plans(
        &mut self,
        input: &Value<'_, '_>,
    ) -> Result<Vec<(String, Position, String, Limits)>, Reported> {
        let example = "plans: { free: { algorithm: token_bucket, rate: 1/s } }";
        let mut fields = input.fields("the limits of plans", example, self.report)?;
        let all = fields.all();
        if all.is_empty() {
            let message =
                format!("must have at least one plan, got none; write it like `{example}`");
            return Err(self.refuse(input, message));
        }
        let mut plans = Vec::with_capacity(all.len());
        let mut read = Ok(());
        for (name, value) in all {
            match self.limits_or_word(&value) {
                Ok(limits) => {
                    plans.push((name.to_owned(), value.at(), value.path.to_string(), limits));
                }
                Err(reported) => read = Err(reported),
            }
        }
        read.map(|()| plans)
    }

    /// The plans of a rule: of its limits, and of those of its schedule.
    pub(super) fn plans_of(
        &mut self,
        limits: &PlannedLimits,
        schedule: &[PlannedPart],
    ) -> Result<Option<PlansOfRule>, Reported> {
        let all = [limits].into_iter().chain(schedule.iter().map(|part| &part.limits));
        let mut found: Option<PlansOfRule> = None;
        for by in all.filter_map(|planned| planned.by.as_ref()) {
            let (key, _, _, names) =
                found.get_or_insert_with(|| (by.key.clone(), by.at, by.path.clone(), Vec::new()));
            if *key != by.key {
                let message = format!(
                    "must be the same entry for all limits of a rule, got `{}` and {}; write one",
                    key,
                    quoted(&by.key)
                );
                return Err(self.report.add(by.at, &by.path, message));
            }
            for (name, at, path, _) in &by.plans {
                if !names.iter().any(|(known, ..)| known == name) {
                    names.push((name.clone(), *at, path.clone()));
                }
            }
        }
        Ok(found)
    }
}

/// The limits that a word stands for.
fn word(input: &Value<'_, '_>) -> Option<Limits> {
    match &input.node.content {
        Content::Scalar { text, style: Style::Plain } => match &**text {
            "unlimited" => Some(Limits::Unlimited),
            "deny" => Some(denied()),
            _ => None,
        },
        _ => None,
    }
}
