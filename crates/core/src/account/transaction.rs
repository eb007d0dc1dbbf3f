//! The desk where a request is decided: all its identities side by side, as if they were one.
//!
//! Steps and their cells are looked at in one row, part after part. Nothing asks whose they are, except
//! where something is left under an id: that each account keeps for itself.

use super::holds::{Hold, Kind, Receipt};
use super::step_state::{Cell, Pass, Want};
use super::{Account, Answer, Moment, Part};
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::EXACT_MAX;
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::op::{Op, OpKind, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome, Verdict, judge};

/// How often a denial looks for a moment at which all limits are ready.
const LOOKS_AHEAD_MAX: usize = 64;

/// The identities of one request.
pub(super) struct Desk<'d, 'a> {
    pub(super) parts: &'d mut [Part<'a>],
}

/// An answer, and what each step in the row had to say.
pub(super) struct Judged {
    pub(super) answer: Answer,
    pub(super) decisions: Vec<Decision>,
    /// What was wanted, where that was asked of every limit.
    want: Option<Want>,
}

impl Desk<'_, '_> {
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
        tell: impl FnOnce(&mut Self, &Judged),
    ) -> Result<Answer, Refusal> {
        let now = now.min(NOW_MAX);
        self.refuse_unsupported(op.kind())?;
        self.check_holder(&op, now)?;
        // Nothing leaves no trace, also beside others who are asked for something: no life begins with it.
        let asks_nothing = |(_, part): &(usize, &Part<'_>)| part.asks_nothing(op);
        let asked_nothing: Vec<(usize, Account)> = (0..)
            .zip(&*self.parts)
            .filter(asks_nothing)
            .map(|(place, part)| (place, part.account.clone()))
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
        for (place, before) in asked_nothing {
            if let Some(part) = self.parts.get_mut(place) {
                *part.account = before;
            }
        }
        judged.map(|judged| judged.answer)
    }

    /// Each part judged by its own steps, which is what it would have said on its own to the same states.
    fn judge_each(&mut self, judged: &Judged, now: Timestamp, each: &mut Vec<Verdict>) {
        let mut rest = judged.decisions.as_slice();
        for part in &mut *self.parts {
            let (own, others) = rest.split_at_checked(part.plan.len()).unwrap_or((rest, &[]));
            rest = others;
            let verdict = judge(own);
            let alone = Desk { parts: std::slice::from_mut(part) };
            each.push(match judged.want {
                Some(want) => alone.all_ready(want, now, verdict),
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

    fn carry_out(&mut self, op: Op, now: Timestamp) -> Result<Judged, Refusal> {
        match op {
            Op::Hit { cost, holder } => {
                let want = Want { cost, patience: None, holder, ttl: Span::MAX };
                Ok(self.admit(want, now).0)
            }
            Op::Peek { cost } => {
                let want = Want { cost, patience: None, holder: None, ttl: Span::MAX };
                Ok(self.judge_wanted(want, self.look(want, now), now))
            }
            Op::Acquire { cost, patience, holder } => {
                let want = Want { cost, patience: Some(patience), holder, ttl: Span::MAX };
                let (judged, receipts) = self.admit(want, now);
                let outcome = judged.answer.verdict.outcome;
                if let (Some(holder), Outcome::Allow { wait }) = (holder, outcome) {
                    let kind = Kind::Booking { made: now, turn: now.after(wait) };
                    // A slot is freed by its holder; there is nothing else to remember of it.
                    let booked = |part: &Part<'_>| part.plan.iter().any(|step| !step.has_slots());
                    self.hold((holder, kind, cost), &receipts, now, booked);
                }
                Ok(judged)
            }
            Op::Reserve { cost, ttl, holder } => {
                let want = Want { cost, patience: None, holder: Some(holder), ttl };
                let (judged, receipts) = self.admit(want, now);
                if judged.answer.verdict.is_allowed() {
                    let kind = Kind::Reservation { deadline: now.after(ttl), ttl };
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
                Ok(Judged::by(self.in_debt(now)))
            }
            Op::Refund { cost } | Op::Add { cost, force: false } => {
                self.each_for(cost, |limit, state, cost| limit.put(state, cost, now));
                self.keep_leased(now);
                Ok(Judged::by(self.as_it_stands(now)))
            }
            Op::Add { cost, force: true } => {
                self.each_for(cost, |limit, state, cost| limit.put_beyond(state, cost, now));
                self.keep_leased(now);
                Ok(Judged::by(self.as_it_stands(now)))
            }
            Op::Reset => {
                self.each(|limit, state| {
                    *state = State::New;
                    limit.open(state, now);
                    fill(limit, state, now);
                });
                self.keep_leased(now);
                for part in &mut *self.parts {
                    part.account.holds.void(now);
                }
                Ok(Judged::by(self.as_it_stands(now)))
            }
            Op::Commit { cost, holder } => self.commit(cost, holder, now),
            Op::Cancel { holder } => self.cancel(holder, now),
        }
    }
}

/// Asking and charging.
impl<'a> Desk<'_, 'a> {
    /// Charges what is wanted if every enforced limit agrees; a receipt for each step in the row.
    fn admit(&mut self, want: Want, now: Timestamp) -> (Judged, Vec<Receipt>) {
        let passes = self.passes(want, now);
        let obeyed = || passes.iter().filter(|(step, _)| step.enforced);
        let allowed = obeyed().all(|(_, pass)| pass.is_yes());
        // A cost that can never pass is a mistake, not an attempt: no log needs to remember it.
        let logged = !obeyed().any(|(_, pass)| matches!(pass, Pass::Never(_)));

        // Whoever waits for one limit uses all of them at that moment.
        let turn = obeyed().filter_map(|(_, pass)| pass.turn()).max().unwrap_or(now);
        let mut receipts = vec![Receipt::default(); passes.len()];
        let mut decisions = Vec::with_capacity(passes.len());
        let cells = self.parts.iter_mut().flat_map(|part| {
            let (moment, want) = (part.at(now), part.wants(want));
            part.account.cells.iter_mut().map(move |cell| (cell, moment, want))
        });
        let asked = passes.iter().zip(cells).zip(&mut receipts);
        for (((step, pass), (cell, moment, want)), receipt) in asked {
            let mut pass = *pass;
            let goes = step.limit.counts_first() || allowed && step.goes_through(&passes);
            let charged = want.cost > 0 && goes;
            if charged {
                *receipt = cell.charge(step, want, pass, now).with_turn(turn);
            } else if want.cost > 0 && logged && step.counts_denied() {
                step.limit.log_denied(&mut cell.plain, want.cost, now);
                pass = cell.pass(step, want, moment);
            }
            let mut decision = cell.decision(step, pass, charged, now);
            if charged && !allowed && step.enforced {
                decision.outcome = cell.pass(step, want, moment).outcome(now);
            }
            decisions.push(decision);
        }
        let mut judged = self.judge_wanted(want, decisions, now);
        // Who counted what others deny was asked again, so that the wait is true. That it agreed is its own word.
        for ((_, pass), decision) in passes.iter().zip(&mut judged.decisions) {
            if pass.is_yes() {
                decision.outcome = pass.outcome(now);
            }
        }
        (judged, receipts)
    }

    /// What all limits together say to what was asked of each.
    fn judge_wanted(&self, want: Want, decisions: Vec<Decision>, now: Timestamp) -> Judged {
        let mut judged = Judged { want: Some(want), ..Judged::by(decisions) };
        judged.answer.verdict = self.all_ready(want, now, judged.answer.verdict);
        judged
    }

    /// Leaves a hold with each account that is to keep one, with the receipts of its own steps.
    fn hold(
        &mut self,
        (holder, kind, cost): (Holder, Kind, u64),
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
    fn all_ready(&self, want: Want, now: Timestamp, verdict: Verdict) -> Verdict {
        let wavers = |part: &Part<'_>| {
            let cost = part.wants(want).cost;
            part.plan.iter().any(|step| step.limit.wavers(cost))
        };
        if !self.parts.iter().any(wavers) {
            return verdict;
        }
        let agreed = |outcome: Outcome, of: fn(&Verdict) -> Option<Outcome>| {
            let Outcome::Deny { retry_after: mut after } = outcome else { return outcome };
            for _ in 0..LOOKS_AHEAD_MAX {
                let then = now.after(after);
                let said = judge(&self.look_ahead(want, then));
                let Some(Outcome::Deny { retry_after }) = of(&said) else { break };
                after = then.after(retry_after).since(now);
            }
            Outcome::Deny { retry_after: after }
        };
        Verdict {
            outcome: agreed(verdict.outcome, |said| Some(said.outcome)),
            shadow: verdict.shadow.map(|shadow| agreed(shadow, |said| said.shadow)),
            ..verdict
        }
    }

    /// What every limit would say at a later moment if nobody came until then.
    fn look_ahead(&self, want: Want, then: Timestamp) -> Vec<Decision> {
        let opened = |part: &Part<'_>| {
            let mut copy = Account { cells: part.account.cells.clone(), ..Account::default() };
            copy.open_cells(part.plan, then);
            copy
        };
        self.with_copies(opened, |copy| copy.look(want, then))
    }

    /// What is said at a desk with copies of the accounts.
    pub(super) fn with_copies<R>(
        &self,
        copy: impl Fn(&Part<'_>) -> Account,
        ask: impl FnOnce(Desk<'_, '_>) -> R,
    ) -> R {
        let mut copies: Vec<Account> = self.parts.iter().map(copy).collect();
        let copied = self.parts.iter().zip(&mut copies);
        let mut parts: Vec<Part<'_>> =
            copied.map(|(part, account)| Part { account, ..*part }).collect();
        ask(Desk { parts: &mut parts })
    }

    /// What every limit says to this, without a trace.
    pub(super) fn look(&self, want: Want, now: Timestamp) -> Vec<Decision> {
        let said = |(step, cell, moment, want): (&EnforcedLimit, &Cell, Moment, Want)| {
            cell.decision(step, cell.pass(step, want, moment), false, now)
        };
        self.steps_for(want, now).map(said).collect()
    }

    fn passes(&self, want: Want, now: Timestamp) -> Vec<(&'a EnforcedLimit, Pass)> {
        let pass = |(step, cell, moment, want): (&'a EnforcedLimit, &Cell, Moment, Want)| {
            (step, cell.pass(step, want, moment))
        };
        self.steps_for(want, now).map(pass).collect()
    }

    fn take(&mut self, cost: u64, now: Timestamp) -> Judged {
        let obeyed = self.steps_at(now).filter(|(step, ..)| step.enforced);
        let available = obeyed.map(|(step, cell, moment)| cell.available(step, cost, moment));
        let amount = available.min().unwrap_or(cost);
        if amount == 0 {
            let want = Want { cost: cost.min(1), patience: None, holder: None, ttl: Span::MAX };
            return Judged::by(self.look(want, now)).taking(0);
        }
        let want = Want { cost: amount, patience: None, holder: None, ttl: Span::MAX };
        self.admit(want, now).0.taking(amount)
    }

    fn drain(&mut self, now: Timestamp) -> Judged {
        let left = |(step, cell): (&EnforcedLimit, &Cell)| {
            // What a soft limit has beyond itself is not its to be drained of.
            step.limit.left(&cell.plain, now).map(|left| left.saturating_sub(step.slack))
        };
        let amount = self.steps().filter_map(left).min().unwrap_or(0);
        if amount > 0 {
            self.each(|limit, state| {
                limit.spend(state, amount, now, now);
            });
        }
        Judged::by(self.as_it_stands(now)).taking(amount)
    }
}

/// All steps in a row.
impl<'a> Desk<'_, 'a> {
    pub(super) fn plan(&self) -> impl Iterator<Item = &'a EnforcedLimit> {
        self.parts.iter().flat_map(|part| part.plan)
    }

    fn steps(&self) -> impl Iterator<Item = (&'a EnforcedLimit, &Cell)> {
        self.parts.iter().flat_map(|part| part.plan.iter().zip(&part.account.cells))
    }

    /// The same, with what is known at `now`.
    fn steps_at(&self, now: Timestamp) -> impl Iterator<Item = (&'a EnforcedLimit, &Cell, Moment)> {
        self.parts.iter().flat_map(move |part| {
            let moment = part.at(now);
            part.plan.iter().zip(&part.account.cells).map(move |(step, cell)| (step, cell, moment))
        })
    }

    /// The same, each with what is wanted of its part.
    fn steps_for(
        &self,
        want: Want,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'a EnforcedLimit, &Cell, Moment, Want)> {
        self.parts.iter().flat_map(move |part| {
            let (moment, want) = (part.at(now), part.wants(want));
            let steps = part.plan.iter().zip(&part.account.cells);
            steps.map(move |(step, cell)| (step, cell, moment, want))
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

    fn keep_leased(&mut self, now: Timestamp) {
        self.parts.iter_mut().for_each(|part| part.account.keep_leased(part.plan, now));
    }

    pub(super) fn as_it_stands(&self, now: Timestamp) -> Vec<Decision> {
        let said = |(step, cell): (&EnforcedLimit, &Cell)| {
            cell.decision(step, Pass::Plain(now), false, now)
        };
        self.steps().map(said).collect()
    }

    /// As it stands, each limit asking to wait until its debt is paid.
    pub(super) fn in_debt(&self, now: Timestamp) -> Vec<Decision> {
        let wait = |(step, cell): (&EnforcedLimit, &Cell)| {
            let paid = now.after(step.limit.debt_paid_after(&cell.plain, now));
            cell.decision(step, Pass::Plain(paid), false, now)
        };
        self.steps().map(wait).collect()
    }
}

impl Judged {
    pub(super) fn by(decisions: Vec<Decision>) -> Self {
        Self { answer: judge(&decisions).into(), decisions, want: None }
    }

    fn taking(mut self, amount: u64) -> Self {
        self.answer.taken = Some(amount);
        self
    }

    pub(super) fn returning(mut self, amount: u64) -> Self {
        self.answer.returned = Some(amount);
        self
    }
}

impl Part<'_> {
    const fn at(&self, now: Timestamp) -> Moment {
        Moment { now, spare_capacity: self.spare_capacity }
    }

    /// Whether this part is asked for nothing, where the others may not be.
    const fn asks_nothing(&self, op: Op) -> bool {
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
    fn wants(&self, want: Want) -> Want {
        Want { cost: self.cost.unwrap_or(want.cost), ..want }
    }
}

/// Fills what a new state lacks.
fn fill(limit: &Limit, state: &mut State, now: Timestamp) {
    if limit.full_after(state, now) > Span::ZERO {
        limit.put(state, EXACT_MAX, now);
    }
}
