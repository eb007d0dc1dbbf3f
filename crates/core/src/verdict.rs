//! From what each limit says to what the whole plan says.

use crate::time::Span;

/// Whether a request may go, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It may, after waiting so long for its turn.
    Allow {
        /// Nothing, unless the call waits or the limit shapes.
        wait: Span,
    },
    /// Not now. Whoever waits exactly this long and finds no competitor is admitted.
    Deny {
        /// How long to wait.
        retry_after: Span,
    },
    /// Not at any time: the cost is above what the limit can ever hold.
    Never {
        /// The largest cost that could pass.
        max_cost: u64,
    },
}

/// What one limit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether, and when.
    pub outcome: Outcome,
    /// Whether it is obeyed; a shadow limit is not.
    pub enforced: bool,
    /// Whole units left, rounded down; negative in debt; `None` without a limit.
    pub remaining: Option<i64>,
    /// How long until the limit is full.
    pub reset_after: Span,
    /// How far a limit that counts first ([`Limit::counts_first`](crate::limit::Limit::counts_first)) has counted beyond
    /// itself; of the others 0.
    pub beyond: u64,
    /// Admitted above the limit because it is soft.
    pub soft: bool,
    /// Admitted above the limit because there is spare capacity.
    pub elastic: bool,
}

/// What the whole plan says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether, and when: the strictest of the enforced limits.
    pub outcome: Outcome,
    /// Which limit decided, by its place in the plan; `None` for an empty plan.
    pub decided_by: Option<usize>,
    /// The least that any limit has left; `None` if nothing is limited.
    pub remaining: Option<i64>,
    /// The longest that any limit takes to be full.
    pub reset_after: Span,
    /// How far a limit that counts first has counted beyond itself: the most of any.
    pub beyond: u64,
    /// Admitted above a soft limit.
    pub soft: bool,
    /// Admitted above the plain limit of an elastic one.
    pub elastic: bool,
    /// What the shadow limits would have said, if there are any.
    pub shadow: Option<Outcome>,
}

/// Judges a plan by its decisions: all must allow.
///
/// The outcome is the strictest; among denials the longest wait names the limit that decided, among
/// permissions the least remainder. Shadow limits have no say, but when a plan has no others, its numbers
/// are theirs.
///
/// ```
/// use sluicegate_core::time::Span;
/// use sluicegate_core::verdict::{Decision, Outcome, judge};
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
/// ```
#[must_use]
pub fn judge(decisions: &[Decision]) -> Verdict {
    let enforced = || decisions.iter().enumerate().filter(|(_, d)| d.enforced);
    let shadows = || decisions.iter().enumerate().filter(|(_, d)| !d.enforced);
    let shadow = strictest(shadows()).map(|(_, outcome)| outcome);
    let counts = |d: &Decision| d.enforced || enforced().next().is_none();
    let counted = || decisions.iter().enumerate().filter(|(_, d)| counts(d));

    let (decided_by, outcome) = match strictest(enforced()) {
        Some((index, outcome)) => (Some(index), outcome),
        // Nothing enforces: it passes, and the shadows name the limit.
        None => (strictest(shadows()).map(|(index, _)| index), Outcome::Allow { wait: Span::ZERO }),
    };
    Verdict {
        outcome,
        decided_by,
        remaining: counted().filter_map(|(_, d)| d.remaining).min(),
        reset_after: counted().map(|(_, d)| d.reset_after).max().unwrap_or_default(),
        beyond: decisions.iter().map(|d| d.beyond).max().unwrap_or(0),
        // A limit that counts first may say so of what others deny.
        soft: outcome.is_allowed() && enforced().any(|(_, d)| d.soft),
        elastic: outcome.is_allowed() && enforced().any(|(_, d)| d.elastic),
        shadow,
    }
}

/// The place and outcome of the decision that decides; the first among equals.
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
        // Everyone waits for the last turn, whoever has the least left.
        Outcome::Allow { .. } => (index, Outcome::Allow { wait: longest_wait }),
        outcome => (index, outcome),
    })
}

fn is_stricter(one: &Decision, other: &Decision) -> bool {
    // Without a number there is no limit: more than any number.
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

// === impl Verdict ===

impl Verdict {
    /// Whether the request may go.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// The same, said so much later: times have become shorter.
    ///
    /// ```
    /// use sluicegate_core::time::Span;
    /// use sluicegate_core::verdict::{Outcome, judge};
    ///
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(3) };
    /// assert_eq!(verdict.later(Span::from_secs(1)).retry_after(), Some(Span::from_secs(2)));
    /// ```
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

    /// How long a denied caller has to wait; `None` if it was admitted, or waiting does not help.
    ///
    /// ```
    /// use sluicegate_core::time::Span;
    /// use sluicegate_core::verdict::{Decision, Outcome, judge};
    ///
    /// let retry_after = Span::from_secs(1);
    /// let decision = Decision {
    ///     outcome: Outcome::Deny { retry_after },
    ///     enforced: true,
    ///     remaining: Some(0),
    ///     reset_after: Span::from_secs(9),
    ///     beyond: 0,
    ///     soft: false,
    ///     elastic: false,
    /// };
    /// assert_eq!(judge(&[decision]).retry_after(), Some(retry_after));
    /// assert_eq!(judge(&[decision]).wait(), Span::ZERO);
    /// ```
    #[must_use]
    pub const fn retry_after(&self) -> Option<Span> {
        match self.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            Outcome::Allow { .. } | Outcome::Never { .. } => None,
        }
    }

    /// How long an admitted caller has to wait for its turn: nothing, unless the call waits or the limit shapes.
    #[must_use]
    pub const fn wait(&self) -> Span {
        match self.outcome {
            Outcome::Allow { wait } => wait,
            Outcome::Deny { .. } | Outcome::Never { .. } => Span::ZERO,
        }
    }

    /// What a plan of one enforced limit says: [`judge`], cut short.
    ///
    /// ```
    /// use sluicegate_core::time::Span;
    /// use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};
    ///
    /// let decision = Decision {
    ///     outcome: Outcome::Deny { retry_after: Span::from_secs(1) },
    ///     enforced: true,
    ///     remaining: Some(0),
    ///     reset_after: Span::from_secs(9),
    ///     beyond: 0,
    ///     soft: false,
    ///     elastic: false,
    /// };
    /// assert_eq!(Verdict::from_single(&decision), judge(&[decision]));
    /// ```
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

// === impl Outcome ===

impl Outcome {
    /// Whether the request may go.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }
}
