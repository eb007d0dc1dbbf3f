//! Decisions of limits, and the verdict of a plan.

use crate::time::Span;

/// Whether a request passes, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passes after this wait.
    Allow {
        /// Zero, unless the call waits or the limit shapes.
        wait: Span,
    },
    /// Denied now. A caller that waits exactly this long passes if no other comes first.
    Deny {
        /// How long to wait.
        retry_after: Span,
    },
    /// Never: the cost exceeds the capacity of the limit.
    Never {
        /// The largest cost that could pass.
        max_cost: u64,
    },
}

/// The decision of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether it is enforced; a shadow limit is not.
    pub enforced: bool,
    /// Whole units left, rounded down; negative in debt; `None` if unlimited.
    pub remaining: Option<i64>,
    /// How long until the limit is full.
    pub reset_after: Span,
    /// How far a limit that counts first
    /// ([`Limit::counts_first`](crate::limit::Limit::counts_first)) is beyond its limit; 0 for
    /// others.
    pub beyond: u64,
    /// Admitted above the limit because it is soft.
    pub soft: bool,
    /// Admitted above the limit because there is spare capacity.
    pub elastic: bool,
}

/// The verdict of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome: the strictest of the enforced limits.
    pub outcome: Outcome,
    /// Index of the limit that decided; `None` for an empty plan.
    pub decided_by: Option<usize>,
    /// Remaining quota of the limit that decided; `None` if it has no quota.
    pub remaining: Option<i64>,
    /// Time until the limit that decided is full.
    pub reset_after: Span,
    /// The largest count beyond a limit that counts first.
    pub beyond: u64,
    /// Admitted above a soft limit.
    pub soft: bool,
    /// Admitted above the plain limit of an elastic one.
    pub elastic: bool,
    /// The outcome of the shadow limits, if any.
    pub shadow: Option<Outcome>,
}

/// The verdict of a plan from its decisions: all must allow.
///
/// The strictest outcome decides: the longest wait among denials, the least remaining quota among
/// admissions. Shadow limits do not decide, but a plan with no others reports their numbers.
///
/// ```
/// use sluicegate_core::time::Span;
/// use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};
///
/// let says = |outcome, remaining| Decision {
///     outcome,
///     enforced: true,
///     remaining: Some(remaining),
///     reset_after: Span::ZERO,
///     beyond: 0,
///     soft: false,
///     elastic: false,
/// };
/// let allow = Outcome::Allow { wait: Span::ZERO };
/// let deny = Outcome::Deny { retry_after: Span::from_secs(1) };
/// let verdict = judge(&[says(allow, 3), says(deny, 0)]);
/// assert_eq!((verdict.outcome, verdict.decided_by), (deny, Some(1)));
/// assert_eq!((verdict.retry_after(), verdict.wait()), (Some(Span::from_secs(1)), Span::ZERO));
/// let later = verdict.later(Span::from_millis(400));
/// assert_eq!(later.retry_after(), Some(Span::from_millis(600)));
/// assert_eq!(Verdict::from_single(&says(deny, 0)), judge(&[says(deny, 0)]));
/// ```
#[must_use]
pub fn judge(decisions: &[Decision]) -> Verdict {
    let enforced = || decisions.iter().enumerate().filter(|(_, d)| d.enforced);
    let shadows = || decisions.iter().enumerate().filter(|(_, d)| !d.enforced);
    let shadow = strictest(shadows()).map(|(_, outcome)| outcome);

    let (decided_by, outcome) = match strictest(enforced()) {
        Some((index, outcome)) => (Some(index), outcome),
        // Nothing is enforced: the request passes, and the shadows name the limit.
        None => (strictest(shadows()).map(|(index, _)| index), Outcome::Allow { wait: Span::ZERO }),
    };
    let decisive = decided_by.and_then(|index| decisions.get(index));
    Verdict {
        outcome,
        decided_by,
        remaining: decisive.and_then(|decision| decision.remaining),
        reset_after: decisive.map(|decision| decision.reset_after).unwrap_or_default(),
        beyond: decisions.iter().map(|d| d.beyond).max().unwrap_or(0),
        // A limit that counts first may be soft on a request that others deny.
        soft: outcome.is_allowed() && enforced().any(|(_, d)| d.soft),
        elastic: outcome.is_allowed() && enforced().any(|(_, d)| d.elastic),
        shadow,
    }
}

/// Index and outcome of the strictest decision; the first among equals.
fn strictest<'a>(
    decisions: impl Iterator<Item = (usize, &'a Decision)>,
) -> Option<(usize, Outcome)> {
    let mut longest_wait = Span::ZERO;
    let mut strictest: Option<(usize, &Decision)> = None;
    for (index, decision) in decisions {
        if let Outcome::Allow { wait } = decision.outcome {
            longest_wait = longest_wait.max(wait);
        }
        match strictest {
            Some((_, so_far)) if !is_stricter(decision, so_far) => {}
            _ => strictest = Some((index, decision)),
        }
    }
    strictest.map(|(index, decision)| match decision.outcome {
        // The caller waits for the last turn.
        Outcome::Allow { .. } => (index, Outcome::Allow { wait: longest_wait }),
        outcome => (index, outcome),
    })
}

fn is_stricter(one: &Decision, other: &Decision) -> bool {
    // Unlimited counts as more than any number.
    let left = |decision: &Decision| decision.remaining.unwrap_or(i64::MAX);
    match (one.outcome, other.outcome) {
        (Outcome::Never { max_cost: a }, Outcome::Never { max_cost: b }) => a < b,
        (Outcome::Deny { retry_after: a }, Outcome::Deny { retry_after: b }) => a > b,
        (Outcome::Allow { .. }, Outcome::Allow { .. }) => left(one) < left(other),
        (Outcome::Never { .. }, _) => true,
        (Outcome::Deny { .. }, Outcome::Allow { .. }) => true,
        _ => false,
    }
}

impl Verdict {
    /// Whether the request passes.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// The same verdict at a later time: waits are shorter.
    #[must_use]
    pub fn later(&self, by: Span) -> Self {
        let outcome = |outcome: Outcome| match outcome {
            Outcome::Deny { retry_after } => Outcome::Deny { retry_after: retry_after.less(by) },
            other => other,
        };
        Self {
            outcome: outcome(self.outcome),
            shadow: self.shadow.map(outcome),
            reset_after: self.reset_after.less(by),
            ..*self
        }
    }

    /// The wait of a denied caller; `None` if admitted, or if waiting does not help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Span> {
        match self.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            Outcome::Allow { .. } | Outcome::Never { .. } => None,
        }
    }

    /// The wait of an admitted caller: zero, unless the call waits or the limit shapes.
    #[must_use]
    pub const fn wait(&self) -> Span {
        match self.outcome {
            Outcome::Allow { wait } => wait,
            Outcome::Deny { .. } | Outcome::Never { .. } => Span::ZERO,
        }
    }

    /// The verdict of a plan of one enforced limit, as by [`judge`].
    #[inline]
    #[must_use]
    pub const fn from_single(decision: &Decision) -> Self {
        Self {
            outcome: decision.outcome,
            decided_by: Some(0),
            remaining: decision.remaining,
            reset_after: decision.reset_after,
            beyond: decision.beyond,
            soft: decision.soft,
            elastic: decision.elastic,
            shadow: None,
        }
    }
}

impl Outcome {
    /// Whether the request passes.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }
}
