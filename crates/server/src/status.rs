//! Whose numbers the headers carry, where a request has several descriptors.

use std::borrow::Cow;
use std::cmp::Reverse;

use http::HeaderMap;
use sluicegate::http::{Style, VerdictResponse};
use sluicegate::rules::plan::Target;
use sluicegate::{Outcome, Policy, Snapshot, Span, Status, Timestamp, Verdict};

/// What is told of the limits that a descriptor is under, each at its place.
pub(crate) fn policies<'a>(target: Target, rules: &'a Snapshot<'_>) -> Cow<'a, [Policy]> {
    match target {
        Target::Rule(no) => Cow::Borrowed(rules.policies(no)),
        Target::Override(limit) => Cow::Owned(vec![Snapshot::override_policy(limit)]),
        Target::None | Target::Replaced(_) => Cow::Borrowed(&[]),
    }
}

/// The status that speaks for all: of a denied request the denied one with the longest wait, of an admitted one that with the least left.
pub(crate) fn spokesman(allowed: bool, statuses: &[Status]) -> Option<&Status> {
    let ranked = statuses.iter().filter_map(|status| Some((rank(allowed, status)?, status)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, status)| status)
}

/// The least speaks.
fn rank(allowed: bool, status: &Status) -> Option<(u8, Reverse<Span>, i64)> {
    let none = Reverse(Span::ZERO);
    match status.verdict.outcome {
        _ if allowed => Some((0, none, status.verdict.remaining?)),
        // Whoever can never pass waits longest.
        Outcome::Never { max_cost } => Some((0, none, i64::try_from(max_cost).unwrap_or(i64::MAX))),
        Outcome::Deny { retry_after } => Some((1, Reverse(retry_after), 0)),
        Outcome::Allow { .. } => None,
    }
}

/// Writes what limits there are and what is left of them, as of a request that goes.
pub(super) fn write_numbers(
    status: &Status,
    rules: &Snapshot<'_>,
    now: Timestamp,
    style: &Style,
    headers: &mut HeaderMap,
) {
    let verdict = match status.verdict.is_allowed() {
        true => status.verdict,
        false => Verdict { outcome: Outcome::Allow { wait: Span::ZERO }, ..status.verdict },
    };
    let policies = policies(status.target, rules);
    VerdictResponse { verdict: &verdict, policies: &policies, now }.write_headers(style, headers);
}
