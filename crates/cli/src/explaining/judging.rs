//! What the first request of all would get: the answer of the production core on accounts that nobody has used.

use sluicegate_config::units::show_span;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::limit::Limit as CoreLimit;
use sluicegate_core::mode::{Mode, Step};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::limit::names;
use sluicegate_rules::rule::Limits;

use crate::rule::place::limits;
use crate::rule::words::grouped;

/// What a rule says to its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) allowed: bool,
    pub(crate) remaining: Option<i64>,
    /// "allowed", "denied at first", "always denied".
    pub(crate) word: &'static str,
    /// Why, or what else there is to say.
    pub(crate) more: String,
}

/// Asks limits that nobody has used. What they say of somebody new does not depend on the time.
pub(crate) fn first(rule: &Limits, mode: Mode, cost: u64) -> First {
    let all = limits(rule);
    if all.is_empty() {
        let more = "not counted".to_owned();
        return First { allowed: true, remaining: None, word: "allowed", more };
    }
    let now = Timestamp::EPOCH;
    let steps: Vec<Step> =
        all.iter().filter_map(|limit| Step::new(limit.at(now), mode).ok()).collect();
    let slots = steps.iter().any(|step| matches!(step.limit(), CoreLimit::Concurrency(_)));
    let holder = slots.then_some(Holder(0));
    match Account::default().apply(&steps, Op::Hit { cost, holder }, Moment::at(now)) {
        Ok(answer) => {
            let verdict = answer.verdict;
            let name = verdict.decided_by.and_then(|place| names(&all).into_iter().nth(place));
            let name = name.filter(|_| matches!(rule, Limits::Native(_)));
            let (word, more) = told(&verdict, name.as_deref(), cost);
            First { allowed: verdict.is_allowed(), remaining: verdict.remaining, word, more }
        }
        Err(refusal) => {
            let more = refusal.to_string();
            First { allowed: false, remaining: None, word: "refused", more }
        }
    }
}

fn told(verdict: &Verdict, limit: Option<&str>, cost: u64) -> (&'static str, String) {
    if let Some(shadow) = verdict.shadow.filter(|outcome| !outcome.is_allowed()) {
        let (word, why) = outcome(shadow, limit, cost, None);
        return (
            "allowed",
            format!("since it is in the shadow; enforced it would be {word}: {why}"),
        );
    }
    let (word, mut more) = outcome(verdict.outcome, limit, cost, verdict.remaining);
    if verdict.soft {
        more.push_str(", above the limit because it is soft");
    }
    (word, more)
}

fn outcome(
    outcome: Outcome,
    limit: Option<&str>,
    cost: u64,
    remaining: Option<i64>,
) -> (&'static str, String) {
    let it = limit.map_or_else(|| "the limit".to_owned(), |name| format!("`{name}`"));
    match outcome {
        Outcome::Allow { wait } if !wait.is_zero() => {
            ("allowed", format!("after waiting {} for its turn", show_span(wait)))
        }
        Outcome::Allow { .. } => {
            let left = remaining.map(|left| grouped(u64::try_from(left).unwrap_or(0)));
            let of = limit.map(|name| format!(" of `{name}`")).unwrap_or_default();
            ("allowed", left.map(|left| format!("{left} left{of}")).unwrap_or_default())
        }
        Outcome::Deny { retry_after } => {
            let after = show_span(retry_after);
            ("denied at first", format!("{it} starts with less, and lets it pass after {after}"))
        }
        Outcome::Never { max_cost: 0 } => match limit {
            None => ("always denied", "`requests_per_unit` is 0".to_owned()),
            Some(name) => ("always denied", format!("the rate of `{name}` is 0")),
        },
        Outcome::Never { max_cost } => {
            let (cost, most) = (grouped(cost), grouped(max_cost));
            ("always denied", format!("it costs {cost}, and {it} can hold at most {most}"))
        }
    }
}

// === impl First ===

impl First {
    /// "allowed, 4 left of `burst`".
    pub(crate) fn in_words(&self) -> String {
        match (self.allowed, self.more.as_str()) {
            (_, "") => self.word.to_owned(),
            (true, more) => format!("{}, {more}", self.word),
            (false, why) => format!("{}: {why}", self.word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_rules::unit::Unit;

    fn told(text: &str, cost: u64) -> (bool, String) {
        let limits = sluicegate_config::limit::limits("test", text).unwrap();
        let first = first(&Limits::Native(limits.into()), Mode::Hard, cost);
        (first.allowed, first.in_words())
    }

    #[test]
    fn a_first_request_is_told_what_it_would_get() {
        let bucket = "{ name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }";
        assert_eq!(told(bucket, 1), (true, "allowed, 49 left of `burst`".to_owned()));
        let never = "always denied: it costs 60, and `burst` can hold at most 50";
        assert_eq!(told(bucket, 60), (false, never.to_owned()));
        let closed = "{ algorithm: fixed_window, rate: 0/s }";
        assert!(told(closed, 1).1.starts_with("always denied"), "{}", told(closed, 1).1);
        let empty = "{ algorithm: token_bucket, rate: 10/s, initial: 0 }";
        assert!(told(empty, 1).1.contains("after 100ms"), "{}", told(empty, 1).1);
        let slots = "{ algorithm: concurrency, max: 2, lease: 30s }";
        assert_eq!(told(slots, 1), (true, "allowed, 1 left of `concurrency`".to_owned()));
    }

    #[test]
    fn envoys_form_and_the_shadow() {
        let none = Limits::Envoy { requests_per_unit: 0, unit: Unit::Minute };
        assert!(!first(&none, Mode::Hard, 1).allowed);
        let shadow = first(&none, Mode::Shadow, 1);
        assert!(shadow.allowed);
        assert!(
            shadow.more.contains("enforced it would be always denied: `requests_per_unit` is 0"),
            "{shadow:?}"
        );
        assert!(first(&Limits::Unlimited, Mode::Hard, 1).allowed);
    }
}
