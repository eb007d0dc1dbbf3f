//! One identity: what its limits keep of it, what it has pending, and every operation on both.
//!
//! This is the whole semantics in one place, as a pure value: no clock, no lock, no store. A store that
//! keeps states in a layout of its own follows the same three phases, and must give the same answers:
//!
//! 1. *open* every state of the plan at `now`;
//! 2. ask every limit; all that are enforced must agree;
//! 3. charge all of them, or none (a log that counts denied attempts logs this one), and *close*.

mod cell;
mod holds;
mod settling;

use cell::{Cell, Pass, Want};
pub use holds::HOLDS_MAX;
use holds::{Hold, Holds, Kind, Receipt};

use crate::arithmetic::EXACT_MAX;
use crate::change::Keep;
use crate::limit::{Limit, State};
use crate::mode::Step;
use crate::op::{Op, OpKind, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome, Verdict, judge};

/// How often a denial looks for a moment at which all limits are ready.
const LOOKS_AHEAD_MAX: usize = 64;

/// What is kept of one identity.
///
/// ```
/// use sluicegate_core::account::{Account, Moment};
/// use sluicegate_core::algorithm::token_bucket::TokenBucket;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::{Mode, Step};
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let rate = Rate::new(5, Span::from_secs(1)).unwrap();
/// let bucket = Limit::TokenBucket(TokenBucket::new(rate, 2).unwrap());
/// let plan = [Step::new(bucket, Mode::Hard).unwrap()];
/// let now = Moment::at(Timestamp::EPOCH);
/// let hit = Op::Hit { cost: 1, holder: None };
///
/// let mut account = Account::default();
/// let mut allowed = || account.apply(&plan, hit, now).unwrap().verdict.outcome.is_allowed();
/// assert_eq!([allowed(), allowed(), allowed()], [true, true, false]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    cells: Vec<Cell>,
    holds: Holds,
}

/// The time of an operation and what else is known at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// Whether elastic limits are open ([`crate::mode::Gate`]).
    pub spare_capacity: bool,
}

/// The answer to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the plan says.
    pub verdict: Verdict,
    /// How much a `take` or `drain` took.
    pub taken: Option<u64>,
    /// How much a `cancel` or `commit` gave back.
    pub returned: Option<u64>,
}

// === impl Account ===

impl Account {
    /// Carries out `op` under `plan`.
    ///
    /// # Errors
    /// When a limit of the plan has no meaning for the operation, or its id is not what it needs to be.
    /// Then nothing has changed.
    pub fn apply(&mut self, plan: &[Step], op: Op, moment: Moment) -> Result<Answer, Refusal> {
        if op.leaves_no_trace() {
            return self.clone().apply_for_good(plan, op, moment);
        }
        self.apply_for_good(plan, op, moment)
    }

    fn apply_for_good(&mut self, plan: &[Step], op: Op, moment: Moment) -> Result<Answer, Refusal> {
        let moment = Moment { now: moment.now.min(NOW_MAX), ..moment };
        refuse_unsupported(plan, op.kind())?;
        self.check_holder(plan, &op, moment.now)?;
        self.cells.resize_with(plan.len(), Cell::default);
        self.expire_reservations(plan, moment.now);
        self.open(plan, moment.now);
        let answer = self.carry_out(plan, op, moment);
        self.close(plan, moment.now);
        answer
    }

    /// Moves to another plan. `from` names, for each new step, the old one it continues, if any.
    pub fn change(
        &mut self,
        old: &[Step],
        new: &[Step],
        from: &[Option<usize>],
        keep: Keep,
        now: Timestamp,
    ) {
        let now = now.min(NOW_MAX);
        self.cells.resize_with(old.len(), Cell::default);
        self.expire_reservations(old, now);
        let carry = |(step, from): (&Step, &Option<usize>)| {
            let found = from.and_then(|i| old.get(i).zip(self.cells.get(i)));
            let Some((old_step, cell)) = found else {
                return Cell::default();
            };
            let plain = step.limit.carry(&old_step.limit, cell.plain.clone(), keep, now);
            let boost = match (&step.boost, &old_step.boost) {
                (Some(new), Some(old)) => new.carry(old, cell.boost.clone(), keep, now),
                _ => State::New,
            };
            Cell { plain, boost }
        };
        self.cells = new.iter().zip(from).map(carry).collect();
        self.holds.follow(from);
    }

    /// The state that a step's limit keeps.
    #[must_use]
    pub fn state(&self, step: usize) -> Option<&State> {
        self.cells.get(step).map(|cell| &cell.plain)
    }

    /// Whether nothing is kept at all.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.holds.is_empty() && self.cells.iter().all(|cell| *cell == Cell::default())
    }

    fn carry_out(&mut self, plan: &[Step], op: Op, moment: Moment) -> Result<Answer, Refusal> {
        let now = moment.now;
        match op {
            Op::Hit { cost, holder } => {
                let want = Want { cost, patience: None, holder };
                Ok(self.admit(plan, want, moment).0.into())
            }
            Op::Peek { cost } => {
                let want = Want { cost, patience: None, holder: None };
                let verdict = judge(&self.look(plan, want, moment));
                Ok(self.all_ready(plan, want, moment, verdict).into())
            }
            Op::Acquire { cost, patience, holder } => {
                let want = Want { cost, patience: Some(patience), holder };
                let (verdict, receipts) = self.admit(plan, want, moment);
                // A slot is freed by its holder; there is nothing else to remember of it.
                let booked = plan.iter().any(|step| !step.has_slots());
                if let (Some(holder), true) = (holder, verdict.outcome.is_allowed() && booked) {
                    self.holds.add(Hold { holder, kind: Kind::Booking, cost, made: now, receipts });
                }
                Ok(verdict.into())
            }
            Op::Reserve { cost, ttl, holder } => {
                let want = Want { cost, patience: None, holder: Some(holder) };
                let (verdict, receipts) = self.admit(plan, want, moment);
                if verdict.outcome.is_allowed() {
                    let kind = Kind::Reservation { deadline: now.after(ttl), ttl };
                    self.holds.add(Hold { holder, kind, cost, made: now, receipts });
                }
                Ok(verdict.into())
            }
            Op::Take { cost } => Ok(self.take(plan, cost, moment)),
            Op::Drain => Ok(self.drain(plan, now)),
            Op::Charge { cost } => {
                self.each(plan, |limit, state| {
                    limit.spend(state, cost, now, now);
                });
                Ok(judge(&self.in_debt(plan, now)).into())
            }
            Op::Refund { cost } | Op::Add { cost, force: false } => {
                self.each(plan, |limit, state| limit.put(state, cost, now));
                Ok(judge(&self.as_it_stands(plan, now)).into())
            }
            Op::Add { cost, force: true } => {
                self.each(plan, |limit, state| limit.put_beyond(state, cost, now));
                Ok(judge(&self.as_it_stands(plan, now)).into())
            }
            Op::Reset => {
                self.each(plan, |limit, state| {
                    *state = State::New;
                    limit.open(state, now);
                    fill(limit, state, now);
                });
                self.holds.void(now);
                Ok(judge(&self.as_it_stands(plan, now)).into())
            }
            Op::Commit { cost, holder } => self.commit(plan, cost, holder, now),
            Op::Cancel { holder } => self.cancel(plan, holder, now),
        }
    }
}

/// Asking and charging.
impl Account {
    /// Charges what is wanted if every enforced limit agrees.
    fn admit(&mut self, plan: &[Step], want: Want, moment: Moment) -> (Verdict, Vec<Receipt>) {
        let now = moment.now;
        let passes = self.passes(plan, want, moment);
        let obeyed = || plan.iter().zip(&passes).filter(|(step, _)| step.enforced);
        let allowed = obeyed().all(|(_, pass)| pass.is_yes());
        // A cost that can never pass is a mistake, not an attempt: no log needs to remember it.
        let logged = !obeyed().any(|(_, pass)| matches!(pass, Pass::Never(_)));

        // Whoever waits for one limit uses all of them at that moment.
        let turn = obeyed().filter_map(|(_, pass)| pass.turn()).max().unwrap_or(now);
        let mut receipts = vec![Receipt::default(); plan.len()];
        let mut decisions = Vec::with_capacity(plan.len());
        let cells = plan.iter().zip(&mut self.cells).zip(&passes).zip(&mut receipts);
        for (((step, cell), pass), receipt) in cells {
            let mut pass = *pass;
            let charged = want.cost > 0 && allowed && step.goes_through(plan, &passes);
            if charged {
                *receipt = cell.charge(step, want, pass, now).with_turn(turn);
            } else if want.cost > 0 && logged && step.counts_denied() {
                step.limit.log_denied(&mut cell.plain, want.cost, now);
                pass = cell.pass(step, want, moment);
            }
            decisions.push(cell.decision(step, pass, charged, now));
        }
        (self.all_ready(plan, want, moment, judge(&decisions)), receipts)
    }

    /// The verdict with its waits made true where a limit may be ready only for a while: look again at
    /// the moment that the others ask for, until they agree.
    fn all_ready(&self, plan: &[Step], want: Want, moment: Moment, verdict: Verdict) -> Verdict {
        if !plan.iter().any(|step| step.limit.wavers(want.cost)) {
            return verdict;
        }
        let agreed = |outcome: Outcome, of: fn(&Verdict) -> Option<Outcome>| {
            let Outcome::Deny { retry_after: mut after } = outcome else { return outcome };
            for _ in 0..LOOKS_AHEAD_MAX {
                let now = moment.now.after(after);
                let mut then = self.clone();
                then.open(plan, now);
                let said = judge(&then.look(plan, want, Moment { now, ..moment }));
                let Some(Outcome::Deny { retry_after }) = of(&said) else { break };
                after = now.after(retry_after).since(moment.now);
            }
            Outcome::Deny { retry_after: after }
        };
        Verdict {
            outcome: agreed(verdict.outcome, |said| Some(said.outcome)),
            shadow: verdict.shadow.map(|shadow| agreed(shadow, |said| said.shadow)),
            ..verdict
        }
    }

    /// What every limit says to this, without a trace.
    fn look(&self, plan: &[Step], want: Want, moment: Moment) -> Vec<Decision> {
        let passes = self.passes(plan, want, moment);
        let steps = plan.iter().zip(&self.cells).zip(passes);
        steps.map(|((step, cell), pass)| cell.decision(step, pass, false, moment.now)).collect()
    }

    fn passes(&self, plan: &[Step], want: Want, moment: Moment) -> Vec<Pass> {
        let steps = plan.iter().zip(&self.cells);
        steps.map(|(step, cell)| cell.pass(step, want, moment)).collect()
    }

    fn take(&mut self, plan: &[Step], cost: u64, moment: Moment) -> Answer {
        let obeyed = plan.iter().zip(&self.cells).filter(|(step, _)| step.enforced);
        let amount =
            obeyed.map(|(step, cell)| cell.available(step, cost, moment)).min().unwrap_or(cost);
        if amount == 0 {
            let want = Want { cost: cost.min(1), patience: None, holder: None };
            let verdict = judge(&self.look(plan, want, moment));
            return Answer { verdict, taken: Some(0), returned: None };
        }
        let want = Want { cost: amount, patience: None, holder: None };
        let verdict = self.admit(plan, want, moment).0;
        Answer { verdict, taken: Some(amount), returned: None }
    }

    fn drain(&mut self, plan: &[Step], now: Timestamp) -> Answer {
        let left = |(step, cell): (&Step, &Cell)| {
            // What a soft limit has beyond itself is not its to be drained of.
            step.limit.left(&cell.plain, now).map(|left| left.saturating_sub(step.slack))
        };
        let amount = plan.iter().zip(&self.cells).filter_map(left).min().unwrap_or(0);
        if amount > 0 {
            self.each(plan, |limit, state| {
                limit.spend(state, amount, now, now);
            });
        }
        let verdict = judge(&self.as_it_stands(plan, now));
        Answer { verdict, taken: Some(amount), returned: None }
    }
}

/// All cells at once.
impl Account {
    fn open(&mut self, plan: &[Step], now: Timestamp) {
        self.each(plan, |limit, state| limit.open(state, now));
    }

    fn close(&mut self, plan: &[Step], now: Timestamp) {
        self.each(plan, |limit, state| limit.close(state, now));
    }

    fn each(&mut self, plan: &[Step], mut act: impl FnMut(&Limit, &mut State)) {
        for (step, cell) in plan.iter().zip(&mut self.cells) {
            act(&step.limit, &mut cell.plain);
            if let Some(boost) = &step.boost {
                act(boost, &mut cell.boost);
            }
        }
    }

    fn as_it_stands(&self, plan: &[Step], now: Timestamp) -> Vec<Decision> {
        let steps = plan.iter().zip(&self.cells);
        steps.map(|(step, cell)| cell.decision(step, Pass::Plain(now), false, now)).collect()
    }

    /// As it stands, each limit asking to wait until its debt is paid.
    fn in_debt(&self, plan: &[Step], now: Timestamp) -> Vec<Decision> {
        let wait = |(step, cell): (&Step, &Cell)| {
            let paid = now.after(step.limit.debt_paid_after(&cell.plain, now));
            cell.decision(step, Pass::Plain(paid), false, now)
        };
        plan.iter().zip(&self.cells).map(wait).collect()
    }
}

fn refuse_unsupported(plan: &[Step], op: OpKind) -> Result<(), Refusal> {
    for step in plan {
        if let Some(reason) = step.limit.refuses(op) {
            let algorithm = step.limit.algorithm();
            return Err(Refusal::Unsupported { op, algorithm, reason });
        }
    }
    Ok(())
}

/// Fills what a new state lacks.
fn fill(limit: &Limit, state: &mut State, now: Timestamp) {
    if limit.full_after(state, now) > Span::ZERO {
        limit.put(state, EXACT_MAX, now);
    }
}

// === impl Moment, Answer ===

impl Moment {
    /// This time, without spare capacity.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self { now, spare_capacity: false }
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, taken: None, returned: None }
    }
}
