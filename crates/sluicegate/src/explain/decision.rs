//! The current decision of a rule, described.

use sluicegate_config::units::show_span;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::limit::names;
use sluicegate_rules::rule::Limits;

use super::rule::text::grouped;

/// The decision of a rule about a request that is not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentDecision {
    pub(crate) verdict: Verdict,
    pub(crate) capacity: Capacity,
    /// Whether the wait is an estimate.
    pub(crate) is_estimated: bool,
    /// "allowed", "denied", "always denied".
    pub(crate) word: &'static str,
    /// The reason, or further details.
    pub(crate) reason: String,
}

/// Inputs of the description other than the outcome.
#[derive(Debug, Clone, Copy)]
struct Context<'a> {
    /// The deciding limit; those of Envoy's form have no name.
    limit: Option<&'a str>,
    /// Remaining quota before the request: the minimum over all limits.
    remaining: Option<i64>,
    /// The cost of the request.
    cost: u64,
    capacity: Capacity,
    /// Whether the wait is an estimate.
    is_estimated: bool,
}

/// Whether the store has room for the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    Enough,
    /// The store is full: this is the decision for new identities.
    None,
}

impl CurrentDecision {
    /// Describes the verdict of these limits for a cost.
    pub(crate) fn of(limits: &Limits, mode: Mode, verdict: Verdict, cost: u64) -> Self {
        let name = match limits {
            Limits::Native(limits) => {
                verdict.decided_by.and_then(|index| names(limits).into_iter().nth(index))
            }
            Limits::Unlimited | Limits::Envoy { .. } => None,
        };
        // Where a limit applies, one of them decided.
        let capacity = match (limits, verdict.decided_by) {
            (Limits::Envoy { .. } | Limits::Native(_), None) => Capacity::None,
            _ => Capacity::Enough,
        };
        let is_estimated = has_slots(limits, &verdict);
        let (limit, remaining) = (name.as_deref(), verdict.remaining);
        let context = Context { limit, remaining, cost, capacity, is_estimated };
        let (word, mut reason) = describe(&verdict, context);
        if let Some(why) = above(limits, mode, &verdict, cost) {
            reason.push_str(&format!(", and {why}"));
        }
        let is_estimated = is_estimated && verdict.retry_after().is_some();
        Self { verdict, capacity, is_estimated, word, reason }
    }

    /// "allowed, 5 left of `burst` before it".
    pub(crate) fn to_text(&self) -> String {
        match self.verdict.is_allowed() {
            true => format!("{}, {}", self.word, self.reason),
            false => format!("{}: {}", self.word, self.reason),
        }
    }
}

fn describe(verdict: &Verdict, context: Context<'_>) -> (&'static str, String) {
    if let Some(shadow) = verdict.shadow.filter(|outcome| !outcome.is_allowed()) {
        let (word, why) = outcome(shadow, context);
        return (
            "allowed",
            format!("since it is in the shadow; enforced it would be {word}: {why}"),
        );
    }
    outcome(verdict.outcome, context)
}

/// Why a cost above the remaining quota is admitted. A peek charges nothing, so the verdict lacks
/// this.
fn above(limits: &Limits, mode: Mode, verdict: &Verdict, cost: u64) -> Option<&'static str> {
    let left = verdict.remaining.filter(|_| verdict.is_allowed() && cost > 0)?;
    if left >= i64::try_from(cost).unwrap_or(i64::MAX) {
        return None;
    }
    match mode {
        Mode::Soft { .. } => Some("goes above the limit because it is soft"),
        Mode::Elastic { .. } if !grants_any_cost(limits) => {
            Some("goes above the plain limit because there is spare capacity")
        }
        Mode::Elastic { .. } | Mode::Hard | Mode::Shadow => None,
    }
}

/// Whether a concurrency limit decided.
fn has_slots(limits: &Limits, verdict: &Verdict) -> bool {
    let Limits::Native(limits) = limits else { return false };
    let decider = verdict.decided_by.and_then(|index| limits.get(index));
    decider.is_some_and(|limit| limit.algorithm() == "concurrency")
}

/// Whether one of the limits charges the next caller: there is nothing to exceed.
fn grants_any_cost(limits: &Limits) -> bool {
    let Limits::Native(limits) = limits else { return false };
    limits.iter().any(|limit| matches!(limit.algorithm(), "smooth_bursty" | "warm_up"))
}

fn outcome(outcome: Outcome, context: Context<'_>) -> (&'static str, String) {
    let it = context.limit.map_or_else(|| "the limit".to_owned(), |name| format!("`{name}`"));
    match outcome {
        Outcome::Allow { wait } if !wait.is_zero() => {
            ("allowed", format!("after waiting {} for its turn", shown(wait)))
        }
        Outcome::Allow { .. } => {
            let of = context.limit.map(|name| format!(" of `{name}`")).unwrap_or_default();
            let detail = match (context.remaining, context.capacity) {
                (Some(left), _) => format!("{}{of} before it", amount(left)),
                (None, Capacity::Enough) => "not counted".to_owned(),
                (None, Capacity::None) => {
                    "not counted: there is no room, and newcomers pass".to_owned()
                }
            };
            ("allowed", detail)
        }
        Outcome::Deny { retry_after } => {
            let after = match context.is_estimated {
                true => format!("about {}", shown(retry_after)),
                false => shown(retry_after),
            };
            let detail = match (context.remaining, context.capacity) {
                (_, Capacity::None) => {
                    format!("there is no room for newcomers; ask again after {after}")
                }
                (Some(left), _) => format!("{}, and {it} lets it pass after {after}", amount(left)),
                (None, _) => format!("{it} lets it pass after {after}"),
            };
            ("denied", detail)
        }
        Outcome::Never { max_cost: 0 } => match context.limit {
            None => ("always denied", "`requests_per_unit` is 0".to_owned()),
            Some(name) => ("always denied", format!("the rate of `{name}` is 0")),
        },
        Outcome::Never { max_cost } => {
            let (cost, max) = (grouped(context.cost), grouped(max_cost));
            ("always denied", format!("it costs {cost}, and {it} can hold at most {max}"))
        }
    }
}

/// "5 left".
fn amount(left: i64) -> String {
    let number = grouped(left.unsigned_abs());
    if left < 0 { format!("{number} owed") } else { format!("{number} left") }
}

/// A wait, rounded up to two units.
fn shown(span: Span) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    let us = span.as_micros();
    let seconds = us.div_ceil(1_000_000);
    let (large, small, names) = match seconds {
        0..=1 if us <= 1_000_000 => return show_span(span),
        ..MINUTE => return show_span(Span::from_millis(us.div_ceil(1_000))),
        MINUTE..HOUR => (MINUTE, 1, ["m", "s"]),
        HOUR..DAY => (HOUR, MINUTE, ["h", "m"]),
        DAY.. => (DAY, HOUR, ["d", "h"]),
    };
    let smalls = seconds.div_ceil(small);
    let (whole, rest) = (smalls / (large / small), smalls % (large / small));
    match rest {
        0 => format!("{whole}{}", names[0]),
        rest => format!("{whole}{}{rest}{}", names[0], names[1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait_are_rounded_up_and_short() {
        let table = [
            (100_000, "100ms"),
            (1_000_000, "1s"),
            (1_000_001, "1001ms"),
            (59_000_000, "59s"),
            (60_000_000, "1m"),
            (61_000_001, "1m2s"),
            (3_599_000_001, "1h"),
            (35_390_678_000, "9h50m"),
            (86_400_000_000, "1d"),
            (90_000_000_001, "1d2h"),
            (31_536_000_000_000, "365d"),
        ];
        for (us, told) in table {
            assert_eq!(shown(Span::from_micros(us)), told, "{us}");
        }
    }
    use crate::{Engine, Memory, Overflow, rules_of};
    use sluicegate_rules::request::{Descriptor, Entry, Request};
    use sluicegate_rules::set::RuleSet;

    fn decision_by(engine: &Engine, user: &str, hits: u64) -> (bool, String) {
        let entries = [Entry::new("user", user)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits };
        let told = super::super::explain(&engine.snapshot(), &request, engine.now());
        let words = &told.to_json()["descriptors"][0]["under"]["now"]["in_words"];
        (told.allowed(), words.as_str().unwrap().to_owned())
    }

    fn rules(detail: &str) -> RuleSet {
        rules_of(&format!("domain: shop\ndescriptors: [{{ key: user, {detail} }}]\n")).unwrap()
    }

    fn decision(detail: &str, hits: u64) -> (bool, String) {
        decision_by(&Engine::new(rules(detail)).unwrap(), "42", hits)
    }

    #[test]
    fn each_outcome_has_its_words() {
        let bucket = "limits: { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }";
        let slots = "limits: { algorithm: concurrency, max: 2, lease: 30s }";
        let soft = "limits: { algorithm: fixed_window, rate: 10/year }, mode: { soft: 50% }";
        let shadow = "shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 }";
        let table = [
            (bucket, 1, true, "allowed, 50 left of `burst` before it"),
            (bucket, 60, false, "always denied: it costs 60, and `burst` can hold at most 50"),
            (slots, 1, true, "allowed, 2 left of `concurrency` before it"),
            (
                "limits: { algorithm: fixed_window, rate: 0/s }",
                1,
                false,
                "always denied: the rate of `fixed_window` is 0",
            ),
            (
                "limits: { algorithm: token_bucket, rate: 10/s, initial: 0 }",
                1,
                false,
                "denied: 0 left, and `token_bucket` lets it pass after 100ms",
            ),
            (
                soft,
                12,
                true,
                "allowed, 10 left of `fixed_window` before it, and goes above the limit because it is soft",
            ),
            (
                "rate_limit: { unit: minute, requests_per_unit: 0 }",
                1,
                false,
                "always denied: `requests_per_unit` is 0",
            ),
            (
                shadow,
                1,
                true,
                "allowed, since it is in the shadow; enforced it would be always denied: \
                 `requests_per_unit` is 0",
            ),
            ("rate_limit: { unlimited: true }", 9, true, "allowed, not counted"),
        ];
        for (rule, hits, allowed, words) in table {
            assert_eq!(decision(rule, hits), (allowed, words.to_owned()), "{rule}");
        }
    }

    #[test]
    fn a_store_without_room_is_told() {
        for (overflow, allowed, words) in [
            ("deny", false, "denied: there is no room for newcomers; ask again after "),
            ("allow", true, "allowed, not counted: there is no room, and newcomers pass"),
        ] {
            let detail = format!(
                "overflow: {overflow}, limits: {{ algorithm: fixed_window, rate: 9/year }}"
            );
            let memory = Memory::with_entries(1);
            let engine = Engine::builder(rules(&detail)).memory(&memory).build().unwrap();
            let entries = [Entry::new("user", "first")];
            let descriptors = [Descriptor::of(&entries)];
            let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
            assert!(engine.check(&request).allowed);
            let (is_allowed, text) = decision_by(&engine, "second", 1);
            assert_eq!(is_allowed, allowed, "{text}");
            assert!(text.starts_with(words), "{text}");
            assert!(decision_by(&engine, "first", 1).1.starts_with("allowed, 8 left"));
        }
        assert_eq!(Overflow::default(), Overflow::Shared, "what is said of no room is not usual");
    }

    #[test]
    fn a_debt_and_a_long_wait_are_shown_shortly() {
        assert_eq!((amount(-1_000), amount(1_000)), ("1,000 owed".into(), "1,000 left".into()));
        assert_eq!(shown(Span::from_micros(1_234_567)), "1235ms");
        assert_eq!(shown(Span::from_micros(1_500)), "1500us");
    }
}
