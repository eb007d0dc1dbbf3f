//! One step of a plan for one identity: its states, and whether they let a cost in.

use super::Moment;
use super::holds::Receipt;
use crate::algorithm::Slot;
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::{clamp_signed, signed};
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome};

/// The state of one step: of its limit, and of the boosted one beside it if it is elastic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StepState {
    pub(super) plain: State,
    pub(super) boost: State,
}

/// What a caller wants.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) cost: u64,
    /// How long it would wait; `None` leaves that to each limit.
    pub(super) max_wait: Option<Span>,
    pub(super) holder: Option<Holder>,
    /// When it is given back by itself: a slot is not held for longer.
    pub(super) ttl: Span,
}

/// Whether a step lets a cost in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Within the limit, with its turn at this moment.
    Plain(Timestamp),
    /// Above the plain limit, within the boosted one.
    Boosted(Timestamp),
    /// Not now, but from this moment on.
    Later(Timestamp),
    /// Not at any time.
    Never(u64),
}

// === impl StepState ===

impl StepState {
    pub(super) fn open(&mut self, step: &EnforcedLimit, now: Timestamp) {
        self.each(step, |limit, state| limit.open(state, now));
    }

    pub(super) fn close(&mut self, step: &EnforcedLimit, now: Timestamp) {
        self.each(step, |limit, state| limit.close(state, now));
    }

    pub(super) fn each(&mut self, step: &EnforcedLimit, mut act: impl FnMut(&Limit, &mut State)) {
        act(&step.limit, &mut self.plain);
        if let Some(boost) = &step.boost {
            act(boost, &mut self.boost);
        }
    }

    pub(super) fn pass(&self, step: &EnforcedLimit, claim: Claim, moment: Moment) -> Admission {
        let now = moment.now;
        // Nothing is always granted, except by a limit that compares after counting.
        if claim.cost == 0 && !step.limit.counts_first() || self.renews(claim) {
            return Admission::Plain(now);
        }
        let plain = ask(&step.limit, &self.plain, claim, now);
        let Some(boost) = step.boost.as_ref().filter(|_| moment.spare_capacity) else {
            return plain;
        };
        // While the gate is open the boosted limit decides, and the plain one says what to mark.
        match (plain, ask(boost, &self.boost, claim, now)) {
            (Admission::Plain(plain), Admission::Plain(slot)) if plain <= slot => {
                Admission::Plain(slot)
            }
            (_, Admission::Plain(slot)) => Admission::Boosted(slot),
            (_, denied) => denied,
        }
    }

    /// Whether the caller holds its slot already.
    fn renews(&self, claim: Claim) -> bool {
        match (&self.plain, claim.holder) {
            (State::Slots(slots), Some(holder)) => slots.holds(holder),
            _ => false,
        }
    }

    pub(super) fn charge(
        &mut self,
        step: &EnforcedLimit,
        claim: Claim,
        pass: Admission,
        now: Timestamp,
    ) -> Receipt {
        if let (Limit::Concurrency(_), Some(holder)) = (&step.limit, claim.holder) {
            step.limit.hold(&mut self.plain, holder, claim.cost, claim.ttl, now);
            if let Some(boost) = &step.boost {
                boost.hold(&mut self.boost, holder, claim.cost, claim.ttl, now);
            }
            return Receipt::default();
        }
        let (at, cost) = match pass {
            Admission::Plain(slot) => (slot, claim.cost),
            // What is above the plain limit is not held against it once the gate closes.
            Admission::Boosted(slot) => (slot, step.limit.available(&self.plain, claim.cost, now)),
            Admission::Later(_) | Admission::Never(_) if step.limit.counts_first() => {
                (now, claim.cost)
            }
            Admission::Later(_) | Admission::Never(_) => return Receipt::default(),
        };
        let plain = (cost > 0).then(|| {
            let at = if cost == claim.cost { at } else { now };
            step.limit.spend(&mut self.plain, cost, at, now)
        });
        let boost = step.boost.as_ref().map(|boost| {
            // A closed gate does not ask the boosted limit; it is charged all the same.
            let at = match boost.slot(&self.boost, claim.cost, now) {
                Slot::At(slot) => slot.min(at),
                Slot::Never { .. } => now,
            };
            boost.spend(&mut self.boost, claim.cost, at, now)
        });
        Receipt { plain, boost }
    }

    pub(super) fn available(&self, step: &EnforcedLimit, max: u64, moment: Moment) -> u64 {
        let plain = step.limit.available(&self.plain, max, moment.now);
        match step.boost.as_ref().filter(|_| moment.spare_capacity) {
            Some(boost) => boost.available(&self.boost, max, moment.now),
            None => plain,
        }
    }

    pub(super) fn decision(
        &self,
        step: &EnforcedLimit,
        pass: Admission,
        charged: bool,
        now: Timestamp,
    ) -> Decision {
        let remaining = step.remaining(&self.plain, now);
        let above = remaining.is_some_and(|left| left < 0);
        // What a tally has beyond its limit is no debt.
        let min = if step.limit.counts_first() { 0 } else { i64::MIN };
        Decision {
            outcome: pass.outcome(now),
            enforced: step.enforced,
            remaining: remaining.map(|left| left.max(min)),
            reset_after: step.limit.full_after(&self.plain, now),
            beyond: step.beyond(&self.plain),
            soft: charged && pass.is_admitted() && step.plain.is_some() && above,
            elastic: charged && matches!(pass, Admission::Boosted(_)),
        }
    }
}

fn ask(limit: &Limit, state: &State, claim: Claim, now: Timestamp) -> Admission {
    let max_wait = claim.max_wait.unwrap_or_else(|| limit.hit_max_wait());
    match limit.ready(state, claim.cost, max_wait, now) {
        Slot::Never { max_cost } => Admission::Never(max_cost),
        Slot::At(ready) if ready > now => Admission::Later(ready),
        Slot::At(_) => match limit.slot(state, claim.cost, now) {
            Slot::At(slot) => Admission::Plain(slot),
            Slot::Never { max_cost } => Admission::Never(max_cost),
        },
    }
}

// === impl Admission ===

impl Admission {
    pub(super) const fn is_admitted(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Boosted(_))
    }

    pub(super) fn outcome(&self, now: Timestamp) -> Outcome {
        match self {
            Self::Plain(slot) | Self::Boosted(slot) => Outcome::Allow { wait: slot.since(now) },
            Self::Later(at) => Outcome::Deny { retry_after: at.since(now) },
            Self::Never(max_cost) => Outcome::Never { max_cost: *max_cost },
        }
    }

    /// When its turn comes, if it does.
    pub(super) const fn turn(&self) -> Option<Timestamp> {
        match self {
            Self::Plain(slot) | Self::Boosted(slot) => Some(*slot),
            Self::Later(_) | Self::Never(_) => None,
        }
    }
}

// === impl EnforcedLimit ===

/// A plan of one step needs no account to be hit.
impl EnforcedLimit {
    /// Whether [`EnforcedLimit::hit_single`] serves hits of this cost: on one hard limit that no id is needed for.
    #[must_use]
    pub fn supports_single_hit(&self, cost: u64) -> bool {
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        hard && cost > 0 && !self.has_slots() && !self.limit.can_lapse(cost)
    }

    /// A hit on the state of this step, by itself: what [`super::Account`] does for a plan of one.
    pub fn hit_single(&self, state: &mut State, cost: u64, now: Timestamp) -> Decision {
        let now = now.min(NOW_MAX);
        self.limit.open(state, now);
        let claim = Claim { cost, max_wait: None, holder: None, ttl: Span::MAX };
        let mut pass = ask(&self.limit, state, claim, now);
        if let Some(slot) = pass.turn() {
            self.limit.spend(state, cost, slot, now);
        } else if self.limit.counts_first() {
            self.limit.spend(state, cost, now, now);
        } else if self.counts_denied() && !matches!(pass, Admission::Never(_)) {
            self.limit.log_denied(state, cost, now);
            pass = ask(&self.limit, state, claim, now);
        }
        let decision = Decision {
            outcome: pass.outcome(now),
            enforced: true,
            remaining: self.limit.remaining(state, now),
            reset_after: self.limit.full_after(state, now),
            beyond: self.limit.beyond(state),
            soft: false,
            elastic: false,
        };
        self.limit.close(state, now);
        decision
    }
}

impl EnforcedLimit {
    /// Whether this step is charged when the request passes: an enforced one always, a shadow
    /// only if its whole rule would have let the request through.
    pub(super) fn is_charged(&self, passes: &[(&Self, Admission)]) -> bool {
        let mut siblings = passes.iter().filter(|(step, _)| step.rule == self.rule);
        self.enforced || siblings.all(|(_, pass)| pass.is_admitted())
    }

    /// What is left of the plain limit, without the room that a soft mode adds.
    fn remaining(&self, state: &State, now: Timestamp) -> Option<i64> {
        // A log may have several windows, and each has room of its own.
        if let Some(Limit::SlidingLog(_)) = &self.plain {
            return self.plain.as_ref().and_then(|plain| plain.remaining(state, now));
        }
        let left = self.limit.remaining(state, now);
        left.map(|left| clamp_signed(left.saturating_sub(signed(self.slack))))
    }

    /// How far a limit that counts first has counted beyond the plain limit.
    fn beyond(&self, state: &State) -> u64 {
        match (&self.plain, &self.limit) {
            (Some(plain), _) | (None, plain) => plain.beyond(state),
        }
    }

    pub(super) const fn has_slots(&self) -> bool {
        matches!(&self.limit, Limit::Concurrency(_))
    }

    pub(super) const fn counts_denied(&self) -> bool {
        matches!(&self.limit, Limit::SlidingLog(log) if log.counts_denied())
    }
}
