//! A transaction over all identities of a request: admitted or denied as one.
//!
//! Steps and their states form one row, part after part. Only what is held under an id (bookings,
//! reservations) belongs to a single account.

use super::holds::{Hold, HoldKind, Receipt};
use super::step_state::{Admission, Claim, StepState};
use super::{Account, Answer, Details, Moment, Part};
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::EXACT_MAX;
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::op::{Op, OpKind, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome, Verdict, judge};

/// Maximum number of evaluations in search of a moment at which all limits are ready.
const EVALUATIONS_MAX: usize = 64;

/// The identities of one request.
pub(super) struct Transaction<'d, 'a> {
    pub(super) parts: &'d mut [Part<'a>],
}

/// An answer with the decision of each step.
pub(super) struct Judgement {
    pub(super) answer: Answer,
    pub(super) decisions: Vec<Decision>,
    /// The claim, if every limit was evaluated against it.
    claim: Option<Claim>,
    /// See [`Details::returned`].
    pub(super) returned: Vec<Option<u64>>,
}

impl Transaction<'_, '_> {
    pub(super) fn apply(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.apply_and(op, now, |_, _| {})
    }

    /// The same, with the verdict of every part.
    pub(super) fn apply_to_each(
        &mut self,
        op: Op,
        now: Timestamp,
        each: &mut Vec<Verdict>,
    ) -> Result<Answer, Refusal> {
        self.apply_and(op, now, |transaction, judged| {
            transaction.judge_each(judged, now.min(NOW_MAX), each)
        })
    }

    /// The same, with the amount that every limit got back.
    pub(super) fn apply_with_details(
        &mut self,
        op: Op,
        now: Timestamp,
        details: &mut Details,
    ) -> Result<Answer, Refusal> {
        self.apply_and(op, now, |transaction, judged| {
            transaction.judge_each(judged, now.min(NOW_MAX), &mut details.verdicts);
            details.returned.extend_from_slice(&judged.returned);
        })
    }

    /// Carries out `op`; `inspect` sees the judgement while the states are open.
    fn apply_and(
        &mut self,
        op: Op,
        now: Timestamp,
        inspect: impl FnOnce(&mut Self, &Judgement),
    ) -> Result<Answer, Refusal> {
        let now = now.min(NOW_MAX);
        self.refuse_unsupported(op.kind())?;
        self.check_holder(&op, now)?;
        // A zero cost must not create a state, even next to other parts that are charged.
        let is_zero_cost = |(_, part): &(usize, &Part<'_>)| part.is_zero_cost(op);
        let zero_cost: Vec<(usize, Account)> = (0..)
            .zip(&*self.parts)
            .filter(is_zero_cost)
            .map(|(index, part)| (index, part.account.clone()))
            .collect();
        for part in &mut *self.parts {
            part.account.open(part.plan, now);
        }
        let judged = self.carry_out(op, now);
        if let Ok(judged) = &judged {
            inspect(self, judged);
        }
        for part in &mut *self.parts {
            part.account.close(part.plan, now);
        }
        for (index, before) in zero_cost {
            if let Some(part) = self.parts.get_mut(index) {
                *part.account = before;
            }
        }
        judged.map(|judged| judged.answer)
    }

    /// The verdict of each part by its own steps.
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
        // A slot can be freed even if other steps do not support cancelling.
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
                    // A slot is freed by its holder and needs no hold.
                    let booked = |part: &Part<'_>| part.plan.iter().any(|step| !step.has_slots());
                    self.hold((holder, kind, cost), &receipts, now, booked);
                }
                Ok(judged)
            }
            Op::Reserve { cost, ttl, holder } => {
                let claim = Claim { cost, max_wait: None, holder: Some(holder), ttl };
                let (judged, receipts) = self.admit(claim, now);
                if judged.answer.verdict.is_allowed() {
                    let kind = HoldKind::Reservation { deadline: now.after(ttl), ttl, used: 0 };
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
            Op::Refund { cost } | Op::Add { cost, force: false } => Ok(self.refund(cost, now)),
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
            Op::CommitPart { cost, holder } => self.commit_part(cost, holder, now),
            Op::Renew { ttl, holder } => {
                self.parts.iter_mut().for_each(|part| {
                    part.account.renew_hold(part.plan, holder, ttl, now);
                });
                Ok(Judgement::new(self.current_decisions(now)))
            }
            Op::Cancel { holder } => self.cancel(holder, now),
        }
    }
}

/// Evaluation and charging.
impl<'a> Transaction<'_, 'a> {
    /// Charges the claim if every enforced limit admits it; returns a receipt for each step.
    fn admit(&mut self, claim: Claim, now: Timestamp) -> (Judgement, Vec<Receipt>) {
        let admissions = self.admissions(claim, now);
        let enforced = || admissions.iter().filter(|(step, _)| step.enforced);
        let allowed = enforced().all(|(_, admission)| admission.is_admitted());
        // A cost that can never pass is an error of the caller and is not logged as an attempt.
        let logged = !enforced().any(|(_, admission)| matches!(admission, Admission::Never(_)));

        // A caller that waits for one limit uses all of them at that moment.
        let turn = enforced().filter_map(|(_, admission)| admission.turn()).max().unwrap_or(now);
        let mut receipts = vec![Receipt::default(); admissions.len()];
        let mut decisions = Vec::with_capacity(admissions.len());
        let states = self.parts.iter_mut().flat_map(|part| {
            let (moment, claim) = (part.at(now), part.claim_of(claim));
            part.account.states.iter_mut().map(move |state| (state, moment, claim))
        });
        let steps = admissions.iter().zip(states).zip(&mut receipts);
        for (((step, admission), (state, moment, claim)), receipt) in steps {
            let mut admission = *admission;
            let goes = step.limit.counts_first() || allowed && step.is_charged(&admissions);
            let charged = claim.cost > 0 && goes;
            if charged {
                *receipt = state.charge(step, claim, admission, now).with_turn(turn);
            } else if claim.cost > 0 && logged && step.counts_denied() {
                step.limit.log_denied(&mut state.plain, claim.cost, now);
                admission = state.admission(step, claim, moment);
            }
            let mut decision = state.decision(step, admission, charged, now);
            if charged && !allowed && step.enforced {
                decision.outcome = state.admission(step, claim, moment).outcome(now);
            }
            decisions.push(decision);
        }
        let mut judged = self.judge_claim(claim, decisions, now);
        // A limit that was charged despite a denial was evaluated again for its wait; its own
        // decision stands.
        for ((_, admission), decision) in admissions.iter().zip(&mut judged.decisions) {
            if admission.is_admitted() {
                decision.outcome = admission.outcome(now);
            }
        }
        (judged, receipts)
    }

    /// The judgement of all limits on a claim.
    fn judge_claim(&self, claim: Claim, decisions: Vec<Decision>, now: Timestamp) -> Judgement {
        let mut judged = Judgement { claim: Some(claim), ..Judgement::new(decisions) };
        judged.answer.verdict = self.all_ready(claim, now, judged.answer.verdict);
        judged
    }

    /// Adds a hold with its receipts to each account that `is_held` selects.
    fn hold(
        &mut self,
        (holder, kind, cost): (Holder, HoldKind, u64),
        receipts: &[Receipt],
        now: Timestamp,
        is_held: impl Fn(&Part<'_>) -> bool,
    ) {
        let mut rest = receipts.iter().copied();
        for part in &mut *self.parts {
            let receipts = rest.by_ref().take(part.plan.len()).collect();
            if is_held(part) {
                let cost = part.cost.unwrap_or(cost);
                part.account.holds.add(Hold { holder, kind, cost, receipts }, now);
            }
        }
    }

    /// Corrects the waits of a verdict where a limit may be ready only for a while: evaluates again
    /// at the moment that the other limits require, until all agree.
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

    /// The decisions at a later moment if no other request comes first.
    fn evaluate_ahead(&self, claim: Claim, then: Timestamp) -> Vec<Decision> {
        let opened = |part: &Part<'_>| {
            let mut copy = Account { states: part.account.states.clone(), ..Account::default() };
            copy.open_states(part.plan, then);
            copy
        };
        self.with_copies(opened, |copy| copy.evaluate(claim, then))
    }

    /// Runs `run` on a transaction with copies of the accounts.
    pub(super) fn with_copies<R>(
        &self,
        copy: impl Fn(&Part<'_>) -> Account,
        run: impl FnOnce(Transaction<'_, '_>) -> R,
    ) -> R {
        let mut copies: Vec<Account> = self.parts.iter().map(copy).collect();
        let copied = self.parts.iter().zip(&mut copies);
        let mut parts: Vec<Part<'_>> =
            copied.map(|(part, account)| Part { account, ..*part }).collect();
        run(Transaction { parts: &mut parts })
    }

    /// The decision of every limit; nothing changes.
    pub(super) fn evaluate(&self, claim: Claim, now: Timestamp) -> Vec<Decision> {
        let decision =
            |(step, state, moment, claim): (&EnforcedLimit, &StepState, Moment, Claim)| {
                state.decision(step, state.admission(step, claim, moment), false, now)
            };
        self.steps_claiming(claim, now).map(decision).collect()
    }

    fn admissions(&self, claim: Claim, now: Timestamp) -> Vec<(&'a EnforcedLimit, Admission)> {
        let admission =
            |(step, state, moment, claim): (&'a EnforcedLimit, &StepState, Moment, Claim)| {
                (step, state.admission(step, claim, moment))
            };
        self.steps_claiming(claim, now).map(admission).collect()
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
            // A drain does not take the slack of a soft limit.
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

    pub(super) fn steps(&self) -> impl Iterator<Item = (&'a EnforcedLimit, &StepState)> {
        self.parts.iter().flat_map(|part| part.plan.iter().zip(&part.account.states))
    }

    /// The same, with the moment of each part.
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

    /// The same, each with the claim on its part.
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

    /// Calls `act` on each limit with the cost of its part.
    pub(super) fn each_for(&mut self, cost: u64, mut act: impl FnMut(&Limit, &mut State, u64)) {
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

    pub(super) fn enforce_leases(&mut self, now: Timestamp) {
        self.parts.iter_mut().for_each(|part| part.account.enforce_leases(part.plan, now));
    }

    pub(super) fn current_decisions(&self, now: Timestamp) -> Vec<Decision> {
        let decision = |(step, state): (&EnforcedLimit, &StepState)| {
            state.decision(step, Admission::Plain(now), false, now)
        };
        self.steps().map(decision).collect()
    }

    /// The current decisions, each with the wait until its debt is paid.
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
        Self { answer: judge(&decisions).into(), decisions, claim: None, returned: Vec::new() }
    }

    fn with_taken(mut self, amount: u64) -> Self {
        self.answer.taken = Some(amount);
        self
    }

    pub(super) fn with_returned(mut self, amount: u64, each: Vec<Option<u64>>) -> Self {
        self.answer.returned = Some(amount);
        self.returned = each;
        self
    }

    pub(super) fn with_held(mut self, amount: u64) -> Self {
        self.answer.held = Some(amount);
        self
    }
}

impl Part<'_> {
    const fn at(&self, now: Timestamp) -> Moment {
        Moment { now, spare_capacity: self.spare_capacity }
    }

    /// Whether this part has a cost of 0 of its own.
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

    /// The claim on this part.
    fn claim_of(&self, claim: Claim) -> Claim {
        Claim { cost: self.cost.unwrap_or(claim.cost), ..claim }
    }
}

/// Fills a new state that does not start full.
fn fill(limit: &Limit, state: &mut State, now: Timestamp) {
    if limit.full_after(state, now) > Span::ZERO {
        limit.refund(state, EXACT_MAX, now);
    }
}
