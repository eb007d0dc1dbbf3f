//! Selects the status that decides a response, where a request has several descriptors.
//!
//! A limit denies by itself; quotas deny only when all of them are used up. A descriptor on a deny
//! list was denied by no rule, and waiting does not help.

use std::borrow::Cow;

use http::HeaderMap;
use sluicegate::http::{Style, VerdictResponse};
use sluicegate::rules::plan::Target;
use sluicegate::rules::rule::Limits;
use sluicegate::{Checked, Outcome, Policy, Snapshot, Span, Status, Timestamp, Verdict};

/// The policies of the limits that a descriptor is under, in their order.
#[must_use]
pub fn policies<'a>(target: Target, rules: &'a Snapshot<'_>) -> Cow<'a, [Policy]> {
    match target {
        Target::Rule(no) => Cow::Borrowed(rules.policies(no)),
        Target::Override(limit) => Cow::Owned(vec![Snapshot::override_policy(limit)]),
        Target::None(_) | Target::Replaced(_) => Cow::Borrowed(&[]),
    }
}

/// The status whose numbers a response carries: the denying one if the request is denied, or would
/// be if anything were enforced; else the one with the least remaining.
#[must_use]
pub fn deciding_status(is_denied: bool, checked: &Checked) -> Option<&Status> {
    let denying = denying_status(&checked.statuses).filter(|_| is_denied || !checked.allowed);
    denying.or_else(|| {
        let limited = checked.statuses.iter().filter(|one| one.verdict.remaining.is_some());
        limited.min_by_key(|status| status.verdict.remaining)
    })
}

/// Writes the rate limit headers of a response, admitted or denied.
pub fn write_limit_headers(
    style: &Style,
    is_denied: bool,
    rules: &Snapshot<'_>,
    now: Timestamp,
    checked: &Checked,
    headers: &mut HeaderMap,
) {
    let status = match is_denied {
        true => denying_status(&checked.statuses),
        false => deciding_status(false, checked),
    };
    let Some(status) = status else { return };
    let mut verdict = status.verdict;
    // In shadow mode a denied descriptor is reported as one that passes.
    if !is_denied && !verdict.is_allowed() {
        verdict = Verdict { outcome: Outcome::Allow { wait: Span::ZERO }, ..verdict };
    }
    let policies = policies(status.target, rules);
    VerdictResponse { verdict: &verdict, policies: &policies, now }.write_headers(style, headers);
}

/// The denied status with the longest wait; one that can never pass comes first.
#[must_use]
pub fn denying_status(statuses: &[Status]) -> Option<&Status> {
    use std::cmp::Reverse;

    let rank = |status: &Status| match status.verdict.outcome {
        Outcome::Never { max_cost } => Some((0, Reverse(Span::ZERO), max_cost)),
        Outcome::Deny { retry_after } => Some((1, Reverse(retry_after), 0)),
        Outcome::Allow { .. } => None,
    };
    let ranked = statuses.iter().filter_map(|status| Some((rank(status)?, status)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, status)| status)
}

/// Time until no limit denies the request and one of its quotas has something left; `None` if
/// waiting does not help.
pub(crate) fn retry_after(checked: &Checked, is_quota: impl Fn(&Status) -> bool) -> Option<Span> {
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

/// Whether the rule of a descriptor is `unlimited`.
pub(crate) fn is_unlimited(status: &Status, rules: &Snapshot<'_>) -> bool {
    match status.target {
        Target::Rule(no) | Target::Replaced(no) => {
            rules.rules().rule(no).limits == Limits::Unlimited
        }
        Target::None(_) | Target::Override(_) => false,
    }
}

/// Whether every descriptor was charged. A shadow rule or a quota that denies is not charged
/// although the request passes.
pub(crate) fn charged_all(checked: &Checked) -> bool {
    let mut verdicts = checked.statuses.iter().map(|status| &status.verdict);
    verdicts.all(|verdict| {
        verdict.is_allowed() && verdict.shadow.is_none_or(|outcome| outcome.is_allowed())
    })
}
