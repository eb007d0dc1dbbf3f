//! The desk where a request is decided: all its identities side by side, as if they were one.
//!
//! Periodic and their states are looked at in one row, part after part. Nothing asks whose they are, except
//! where something is left under an id: that each account keeps for itself.

use super::holds::{Hold, HoldKind, Receipt};
use super::step_state::{Admission, Claim, StepState};
use super::{Account, Answer, Moment, Part};
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::EXACT_MAX;
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::op::{Op, OpKind, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome, Verdict, judge};

/// How often a denial looks for a moment at which all limits are ready.
const EVALUATIONS_MAX: usize = 64;

/// The identities of one request.
pub(super) struct Transaction<'d, 'a> {
    pub(super) parts: &'d mut [Part<'a>],
}

/// An answer, and what each step in the row had to say.
pub(super) struct Judgement {
    pub(super) answer: Answer,
    pub(super) decisions: Vec<Decision>,
    /// What was wanted, where that was asked of every limit.
    claim: Option<Claim>,
}

impl Transaction<'_, '_> {
    pub(super) fn apply(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.apply_and(op, now, |_, _| {})
    }

    /// The same, with the verdict of every part on its own.
    pub(super) fn apply_to_each(
        &mut self,
        op: Op,
        now: Timestamp,
        each: &mut Vec<Verdict>,
    ) -> Result<Answer, Refusal> {
        self.apply_and(op, now, |desk, judged| desk.judge_each(judged, now.min(NOW_MAX), each))
    }

    /// Carries out `op`, and lets `tell` see how it was judged while the states are open.
    fn apply_and(
        &mut self,
        op: Op,
        now: Timestamp,
        tell: impl FnOnce(&mut Self, &Judgement),
    ) -> Result<Answer, Refusal> {
        let now = now.min(NOW_MAX);
        self.refuse_unsupported(op.kind())?;
        self.check_holder(&op, now)?;
        // Nothing leaves no trace, also beside others who are asked for something: no life begins with it.
        let is_zero_cost = |(_, part): &(usize, &Part<'_>)| part.is_zero_cost(op);
        let asked_nothing: Vec<(usize, Account)> = (0..)
            .zip(&*self.parts)
            .filter(is_zero_cost)
            .map(|(index, part)| (index, part.account.clone()))
            .collect();
        for part in &mut *self.parts {
            part.account.open(part.plan, now);
        }
        let judged = self.carry_out(op, now);
        if let Ok(judged) = &judged {
            tell(self, judged);
        }
        for part in &mut *self.parts {
            part.account.close(part.plan, now);
        }
        for (index, before) in asked_nothing {
            if let Some(part) = self.parts.get_mut(index) {
                *part.account = before;
            }
        }
        judged.map(|judged| judged.answer)
    }

    /// Each part judged by its own steps, which is what it would have said on its own to the same states.
    fn judge_each(&mut self, judged: &Judgement, now: Timestamp, each: &mut Vec<Verdict>) {
        let mut rest = judged.decisions.as_slice();
        for part in &mut *self.parts {
            let (own, others) = rest.split_at_checked(part.plan.len()).unwrap_or((rest, &[]));
            rest = others;
            let verdict = judge(own);
            let alone = Transaction { parts: std::slice::from_mut(part) };
            each.push(match judged.claim {
                Some(claim) => alone.all_ready(claim, now, verdict),
                None => verdict,
            });
        }
    }

    fn refuse_unsupported(&self, op: OpKind) -> Result<(), Refusal> {
        // A slot is freed, whoever stands beside it and has nothing to cancel.
        if op == OpKind::Cancel && self.plan().any(EnforcedLimit::has_slots) {
            return Ok(());
        }
        for step in self.plan() {
            if let Some(reason) = step.limit.refuses(op) {
                let algorithm = step.limit.algorithm();
                return Err(Refusal::Unsupported { op, algorithm, reason });
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, op: Op, now: Timestamp) -> Result<Judgement, Refusal> {
        match op {
            Op::Hit { cost, holder } => {
                let claim = Claim { cost, max_wait: None, holder, ttl: Span::MAX };
                Ok(self.admit(claim, now).0)
            }
            Op::Peek { cost } => {
                let claim = Claim { cost, max_wait: None, holder: None, ttl: Span::MAX };
                Ok(self.judge_claim(claim, self.evaluate(claim, now), now))
            }
            Op::Acquire { cost, max_wait, holder } => {
                let claim = Claim { cost, max_wait: Some(max_wait), holder, ttl: Span::MAX };
                let (judged, receipts) = self.admit(claim, now);
                let outcome = judged.answer.verdict.outcome;
                if let (Some(holder), Outcome::Allow { wait }) = (holder, outcome) {
                    let kind = HoldKind::Booking { made: now, turn: now.after(wait) };
                    // A slot is freed by its holder; there is nothing else to remember of it.
                    let booked = |part: &Part<'_>| part.plan.iter().any(|step| !step.has_slots());
                    self.hold((holder, kind, cost), &receipts, now, booked);
                }
                Ok(judged)
            }
            Op::Reserve { cost, ttl, holder } => {
                let claim = Claim { cost, max_wait: None, holder: Some(holder), ttl };
                let (judged, receipts) = self.admit(claim, now);
                if judged.answer.verdict.is_allowed() {
                    let kind = HoldKind::Reservation { deadline: now.after(ttl), ttl };
                    self.hold((holder, kind, cost), &receipts, now, |_| true);
                }
                Ok(judged)
            }
            Op::Take { cost } => Ok(self.take(cost, now)),
            Op::Drain => Ok(self.drain(now)),
            Op::Charge { cost } => {
                self.each_for(cost, |limit, state, cost| {
                    limit.spend(state, cost, now, now);
                });
                Ok(Judgement::new(self.debt_decisions(now)))
            }
            Op::Refund { cost } | Op::Add { cost, force: false } => {
                self.each_for(cost, |limit, state, cost| limit.refund(state, cost, now));
                self.enforce_leases(now);
                Ok(Judgement::new(self.current_decisions(now)))
            }
            Op::Add { cost, force: true } => {
                self.each_for(cost, |limit, state, cost| {
                    limit.add_beyond_capacity(state, cost, now)
                });
                self.enforce_leases(now);
                Ok(Judgement::new(self.current_decisions(now)))
            }
            Op::Reset => {
                self.each(|limit, state| {
                    *state = State::New;
                    limit.open(state, now);
                    fill(limit, state, now);
                });
                self.enforce_leases(now);
                for part in &mut *self.parts {
                    part.account.holds.void(now);
                }
                Ok(Judgement::new(self.current_decisions(now)))
            }
            Op::Commit { cost, holder } => self.commit(cost, holder, now),
            Op::Cancel { holder } => self.cancel(holder, now),
        }
    }
}

/// Asking and charging.
impl<'a> Transaction<'_, 'a> {
    /// Charges what is wanted if every enforced limit agrees; a receipt for each step in the row.
    fn admit(&mut self, claim: Claim, now: Timestamp) -> (Judgement, Vec<Receipt>) {
        let passes = self.passes(claim, now);
        let enforced = || passes.iter().filter(|(step, _)| step.enforced);
        let allowed = enforced().all(|(_, pass)| pass.is_admitted());
        // A cost that can never pass is a mistake, not an attempt: no log needs to remember it.
        let logged = !enforced().any(|(_, pass)| matches!(pass, Admission::Never(_)));

        // Whoever waits for one limit uses all of them at that moment.
        let turn = enforced().filter_map(|(_, pass)| pass.turn()).max().unwrap_or(now);
        let mut receipts = vec![Receipt::default(); passes.len()];
        let mut decisions = Vec::with_capacity(passes.len());
        let states = self.parts.iter_mut().flat_map(|part| {
            let (moment, claim) = (part.at(now), part.claim_of(claim));
            part.account.states.iter_mut().map(move |state| (state, moment, claim))
        });
        let asked = passes.iter().zip(states).zip(&mut receipts);
        for (((step, pass), (state, moment, claim)), receipt) in asked {
            let mut pass = *pass;
            let goes = step.limit.counts_first() || allowed && step.is_charged(&passes);
            let charged = claim.cost > 0 && goes;
            if charged {
                *receipt = state.charge(step, claim, pass, now).with_turn(turn);
            } else if claim.cost > 0 && logged && step.counts_denied() {
                step.limit.log_denied(&mut state.plain, claim.cost, now);
                pass = state.pass(step, claim, moment);
            }
            let mut decision = state.decision(step, pass, charged, now);
            if charged && !allowed && step.enforced {
                decision.outcome = state.pass(step, claim, moment).outcome(now);
            }
            decisions.push(decision);
        }
        let mut judged = self.judge_claim(claim, decisions, now);
        // Who counted what others deny was asked again, so that the wait is true. That it agreed is its own word.
        for ((_, pass), decision) in passes.iter().zip(&mut judged.decisions) {
            if pass.is_admitted() {
                decision.outcome = pass.outcome(now);
            }
        }
        (judged, receipts)
    }

    /// What all limits together say to what was asked of each.
    fn judge_claim(&self, claim: Claim, decisions: Vec<Decision>, now: Timestamp) -> Judgement {
        let mut judged = Judgement { claim: Some(claim), ..Judgement::new(decisions) };
        judged.answer.verdict = self.all_ready(claim, now, judged.answer.verdict);
        judged
    }

    /// Leaves a hold with each account that is to keep one, with the receipts of its own steps.
    fn hold(
        &mut self,
        (holder, kind, cost): (Holder, HoldKind, u64),
        receipts: &[Receipt],
        now: Timestamp,
        kept: impl Fn(&Part<'_>) -> bool,
    ) {
        let mut rest = receipts.iter().copied();
        for part in &mut *self.parts {
            let receipts = rest.by_ref().take(part.plan.len()).collect();
            if kept(part) {
                let cost = part.cost.unwrap_or(cost);
                part.account.holds.add(Hold { holder, kind, cost, receipts }, now);
            }
        }
    }

    /// The verdict with its waits made true where a limit may be ready only for a while: look again at
    /// the moment that the others ask for, until they agree.
    fn all_ready(&self, claim: Claim, now: Timestamp, verdict: Verdict) -> Verdict {
        let can_lapse = |part: &Part<'_>| {
            let cost = part.claim_of(claim).cost;
            part.plan.iter().any(|step| step.limit.can_lapse(cost))
        };
        if !self.parts.iter().any(can_lapse) {
            return verdict;
        }
        let agreed = |outcome: Outcome, of: fn(&Verdict) -> Option<Outcome>| {
            let Outcome::Deny { retry_after: mut after } = outcome else { return outcome };
            for _ in 0..EVALUATIONS_MAX {
                let then = now.after(after);
                let decision = judge(&self.evaluate_ahead(claim, then));
                let Some(Outcome::Deny { retry_after }) = of(&decision) else { break };
                after = then.after(retry_after).since(now);
            }
            Outcome::Deny { retry_after: after }
        };
        Verdict {
            outcome: agreed(verdict.outcome, |decision| Some(decision.outcome)),
            shadow: verdict.shadow.map(|shadow| agreed(shadow, |decision| decision.shadow)),
            ..verdict
        }
    }

    /// What every limit would say at a later moment if nobody came until then.
    fn evaluate_ahead(&self, claim: Claim, then: Timestamp) -> Vec<Decision> {
        let opened = |part: &Part<'_>| {
            let mut copy = Account { states: part.account.states.clone(), ..Account::default() };
            copy.open_states(part.plan, then);
            copy
        };
        self.with_copies(opened, |copy| copy.evaluate(claim, then))
    }

    /// What is said at a desk with copies of the accounts.
    pub(super) fn with_copies<R>(
        &self,
        copy: impl Fn(&Part<'_>) -> Account,
        ask: impl FnOnce(Transaction<'_, '_>) -> R,
    ) -> R {
        let mut copies: Vec<Account> = self.parts.iter().map(copy).collect();
        let copied = self.parts.iter().zip(&mut copies);
        let mut parts: Vec<Part<'_>> =
            copied.map(|(part, account)| Part { account, ..*part }).collect();
        ask(Transaction { parts: &mut parts })
    }

    /// What every limit says to this, without a trace.
    pub(super) fn evaluate(&self, claim: Claim, now: Timestamp) -> Vec<Decision> {
        let decision =
            |(step, state, moment, claim): (&EnforcedLimit, &StepState, Moment, Claim)| {
                state.decision(step, state.pass(step, claim, moment), false, now)
            };
        self.steps_claiming(claim, now).map(decision).collect()
    }

    fn passes(&self, claim: Claim, now: Timestamp) -> Vec<(&'a EnforcedLimit, Admission)> {
        let pass =
            |(step, state, moment, claim): (&'a EnforcedLimit, &StepState, Moment, Claim)| {
                (step, state.pass(step, claim, moment))
            };
        self.steps_claiming(claim, now).map(pass).collect()
    }

    fn take(&mut self, cost: u64, now: Timestamp) -> Judgement {
        let enforced = self.steps_at(now).filter(|(step, ..)| step.enforced);
        let available = enforced.map(|(step, state, moment)| state.available(step, cost, moment));
        let amount = available.min().unwrap_or(cost);
        if amount == 0 {
            let claim = Claim { cost: cost.min(1), max_wait: None, holder: None, ttl: Span::MAX };
            return Judgement::new(self.evaluate(claim, now)).with_taken(0);
        }
        let claim = Claim { cost: amount, max_wait: None, holder: None, ttl: Span::MAX };
        self.admit(claim, now).0.with_taken(amount)
    }

    fn drain(&mut self, now: Timestamp) -> Judgement {
        let left = |(step, state): (&EnforcedLimit, &StepState)| {
            // What a soft limit has beyond itself is not its to be drained of.
            step.limit.left(&state.plain, now).map(|left| left.saturating_sub(step.slack))
        };
        let amount = self.steps().filter_map(left).min().unwrap_or(0);
        if amount > 0 {
            self.each(|limit, state| {
                limit.spend(state, amount, now, now);
            });
        }
        Judgement::new(self.current_decisions(now)).with_taken(amount)
    }
}

/// All steps in a row.
impl<'a> Transaction<'_, 'a> {
    pub(super) fn plan(&self) -> impl Iterator<Item = &'a EnforcedLimit> {
        self.parts.iter().flat_map(|part| part.plan)
    }

    fn steps(&self) -> impl Iterator<Item = (&'a EnforcedLimit, &StepState)> {
        self.parts.iter().flat_map(|part| part.plan.iter().zip(&part.account.states))
    }

    /// The same, with what is known at `now`.
    fn steps_at(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'a EnforcedLimit, &StepState, Moment)> {
        self.parts.iter().flat_map(move |part| {
            let moment = part.at(now);
            part.plan
                .iter()
                .zip(&part.account.states)
                .map(move |(step, state)| (step, state, moment))
        })
    }

    /// The same, each with what is wanted of its part.
    fn steps_claiming(
        &self,
        claim: Claim,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'a EnforcedLimit, &StepState, Moment, Claim)> {
        self.parts.iter().flat_map(move |part| {
            let (moment, claim) = (part.at(now), part.claim_of(claim));
            let steps = part.plan.iter().zip(&part.account.states);
            steps.map(move |(step, state)| (step, state, moment, claim))
        })
    }

    /// Each limit, with what is asked of its part.
    fn each_for(&mut self, cost: u64, mut act: impl FnMut(&Limit, &mut State, u64)) {
        for part in &mut *self.parts {
            let cost = part.cost.unwrap_or(cost);
            part.account.each(part.plan, &mut |limit: &Limit, state: &mut State| {
                act(limit, state, cost);
            });
        }
    }

    fn each(&mut self, mut act: impl FnMut(&Limit, &mut State)) {
        for part in &mut *self.parts {
            part.account.each(part.plan, &mut act);
        }
    }

    fn enforce_leases(&mut self, now: Timestamp) {
        self.parts.iter_mut().for_each(|part| part.account.enforce_leases(part.plan, now));
    }

    pub(super) fn current_decisions(&self, now: Timestamp) -> Vec<Decision> {
        let decision = |(step, state): (&EnforcedLimit, &StepState)| {
            state.decision(step, Admission::Plain(now), false, now)
        };
        self.steps().map(decision).collect()
    }

    /// As it stands, each limit asking to wait until its debt is paid.
    pub(super) fn debt_decisions(&self, now: Timestamp) -> Vec<Decision> {
        let wait = |(step, state): (&EnforcedLimit, &StepState)| {
            let paid = now.after(step.limit.debt_paid_after(&state.plain, now));
            state.decision(step, Admission::Plain(paid), false, now)
        };
        self.steps().map(wait).collect()
    }
}

impl Judgement {
    pub(super) fn new(decisions: Vec<Decision>) -> Self {
        Self { answer: judge(&decisions).into(), decisions, claim: None }
    }

    fn with_taken(mut self, amount: u64) -> Self {
        self.answer.taken = Some(amount);
        self
    }

    pub(super) fn with_returned(mut self, amount: u64) -> Self {
        self.answer.returned = Some(amount);
        self
    }
}

impl Part<'_> {
    const fn at(&self, now: Timestamp) -> Moment {
        Moment { now, spare_capacity: self.spare_capacity }
    }

    /// Whether this part is asked for nothing, where the others may not be.
    const fn is_zero_cost(&self, op: Op) -> bool {
        let has_own_cost = matches!(
            op,
            Op::Hit { .. }
                | Op::Acquire { holder: None, .. }
                | Op::Charge { .. }
                | Op::Refund { .. }
                | Op::Add { .. }
        );
        has_own_cost && matches!(self.cost, Some(0))
    }

    /// What is wanted of this part.
    fn claim_of(&self, claim: Claim) -> Claim {
        Claim { cost: self.cost.unwrap_or(claim.cost), ..claim }
    }
}

/// Fills what a new state lacks.
fn fill(limit: &Limit, state: &mut State, now: Timestamp) {
    if limit.full_after(state, now) > Span::ZERO {
        limit.refund(state, EXACT_MAX, now);
    }
}
