//! What is said of a denial: by which rule, and for how long.
//!
//! A limit denies by itself; quotas deny only when all of them are used up. Who is on a list of those who may not pass was denied by no rule, and waiting does
//! not help.

use sluicegate::rules::plan::Target;
use sluicegate::rules::set::RuleNo;
use sluicegate::{Checked, Outcome, Span, Status};

/// How long a client has to wait: until no limit denies it, and one of the quotas has something left. Nothing if that does not help.
pub(super) fn retry_after(checked: &Checked, is_quota: impl Fn(&Status) -> bool) -> Option<Span> {
    let wait = |status: &Status| match status.verdict.outcome {
        Outcome::Allow { .. } => Span::ZERO,
        Outcome::Deny { retry_after } => retry_after,
        Outcome::Never { .. } => Span::MAX,
    };
    let (quotas, limits): (Vec<&Status>, Vec<&Status>) =
        checked.statuses.iter().partition(|status| is_quota(status));
    let limits = limits.into_iter().map(wait).max().unwrap_or(Span::ZERO);
    let quotas = quotas.into_iter().map(wait).min().unwrap_or(Span::ZERO);
    let longest = limits.max(quotas);
    (longest < Span::MAX && checked.listed().is_none()).then_some(longest)
}

/// The rule that denied: the first that did so by itself, or else the first quota.
pub(super) fn denied_by(checked: &Checked, is_quota: impl Fn(&Status) -> bool) -> Option<RuleNo> {
    if checked.listed().is_some() {
        return None;
    }
    let mut denials = checked.statuses.iter().filter(|status| !status.verdict.is_allowed());
    let by_itself = denials.clone().find(|status| !is_quota(status));
    by_itself.or_else(|| denials.next()).and_then(rule_of)
}

/// The rule that a descriptor is under.
pub(super) const fn rule_of(status: &Status) -> Option<RuleNo> {
    match status.target {
        Target::Rule(no) => Some(no),
        Target::None | Target::Replaced(_) | Target::Override(_) => None,
    }
}
