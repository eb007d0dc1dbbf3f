//! What a request got in a replay, and from which rule.

use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::RuleNo;
use sluicegate::{Checked, Snapshot, Status};

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplayVerdict {
    /// It passes.
    Allowed,
    /// It passes after a wait: a limit shapes.
    Delayed,
    /// It passes, but a rule in shadow mode would deny it.
    ShadowDenied,
    /// It is denied.
    Denied,
}

/// A request that is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The outcome.
    pub verdict: ReplayVerdict,
    /// The rule that denies, or would.
    pub rule: Option<RuleNo>,
    /// The descriptor that it applies to, by its index.
    pub step: Option<usize>,
}

impl ReplayVerdict {
    /// Its name in files.
    ///
    /// ```
    /// assert_eq!(sluicegate_lab::replay::verdict::ReplayVerdict::Denied.name(), "denied");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Delayed => "delayed",
            Self::ShadowDenied => "shadow_denied",
            Self::Denied => "denied",
        }
    }

    /// Whether the request passes.
    #[must_use]
    pub const fn passes(self) -> bool {
        !matches!(self, Self::Denied)
    }
}

impl Decided {
    /// The outcome of a request.
    #[must_use]
    pub fn of(rules: &Snapshot<'_>, checked: &Checked) -> Self {
        let statuses = &checked.statuses;
        if checked.allowed {
            if let Some(step) = statuses.iter().position(Status::is_shadow_denied) {
                let verdict = ReplayVerdict::ShadowDenied;
                return Self { verdict, rule: statuses[step].rule(), step: Some(step) };
            }
            let is_delayed = !checked.wait().is_zero();
            let verdict = if is_delayed { ReplayVerdict::Delayed } else { ReplayVerdict::Allowed };
            return Self { verdict, rule: None, step: None };
        }
        let is_quota =
            |status: &Status| status.rule().is_some_and(|no| rules.rules().rule(no).is_quota());
        let rule = checked.denying_rule(is_quota);
        let step = statuses
            .iter()
            .position(|status| !status.verdict.is_allowed() && status.rule() == rule);
        Self { verdict: ReplayVerdict::Denied, rule, step }
    }
}

/// Whether a rule counts anything.
pub(super) fn is_limited(rules: &Snapshot<'_>, no: RuleNo) -> bool {
    !matches!(rules.rules().rule(no).limits, Limits::Unlimited)
}
