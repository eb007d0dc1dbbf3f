//! One identity: what its limits keep of it, what it has pending, and every operation on both.
//!
//! This is the whole semantics in one place, as a pure value: no clock, no lock, no store. A store that
//! keeps states in a layout of its own follows the same three phases, and must give the same answers:
//!
//! 1. *open* every state of the plan at `now`;
//! 2. ask every limit; all that are enforced must agree;
//! 3. charge all of them, or none (a log that counts denied attempts logs this one), and *close*.

mod holds;

pub use holds::HOLDS_MAX;
use holds::{Hold, Holds, Kind, Receipt};

use crate::algorithm::Slot;
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::{signed, within};
use crate::change::Keep;
use crate::limit::{Limit, State};
use crate::mode::Step;
use crate::op::{Op, OpKind, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome, Verdict, judge};

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

/// The state of one step: of its limit, and of the boosted one beside it if it is elastic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Cell {
    plain: State,
    boost: State,
}

/// What a caller wants.
#[derive(Clone, Copy)]
struct Want {
    cost: u64,
    /// How long it would wait; `None` leaves that to each limit.
    patience: Option<Span>,
    holder: Option<Holder>,
}

/// Whether a step lets a cost in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Within the limit, with its turn at this moment.
    Plain(Timestamp),
    /// Above the plain limit, within the boosted one.
    Boosted(Timestamp),
    /// Not now, but from this moment on.
    Later(Timestamp),
    /// Not at any time.
    Never(u64),
}

// === impl Account ===

impl Account {
    /// Carries out `op` under `plan`.
    ///
    /// # Errors
    /// When a limit of the plan has no meaning for the operation, or its id is not what it needs to be.
    /// Then nothing has changed.
    pub fn apply(&mut self, plan: &[Step], op: Op, moment: Moment) -> Result<Answer, Refusal> {
        let moment = Moment {
            now: moment.now.min(NOW_MAX),
            ..moment
        };
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
            let plain = step
                .limit
                .carry(&old_step.limit, cell.plain.clone(), keep, now);
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
                let want = Want {
                    cost,
                    patience: None,
                    holder,
                };
                Ok(self.admit(plan, want, moment).0.into())
            }
            Op::Peek { cost } => {
                let want = Want {
                    cost,
                    patience: None,
                    holder: None,
                };
                Ok(judge(&self.look(plan, want, moment)).into())
            }
            Op::Acquire {
                cost,
                patience,
                holder,
            } => {
                let want = Want {
                    cost,
                    patience: Some(patience),
                    holder,
                };
                let (verdict, receipts) = self.admit(plan, want, moment);
                // A slot is freed by its holder; there is nothing else to remember of it.
                let booked = plan.iter().any(|step| !step.has_slots());
                if let (Some(holder), true) = (holder, verdict.outcome.is_allowed() && booked) {
                    self.holds.add(Hold {
                        holder,
                        kind: Kind::Booking,
                        cost,
                        receipts,
                    });
                }
                Ok(verdict.into())
            }
            Op::Reserve { cost, ttl, holder } => {
                let want = Want {
                    cost,
                    patience: None,
                    holder: Some(holder),
                };
                let (verdict, receipts) = self.admit(plan, want, moment);
                if verdict.outcome.is_allowed() {
                    let kind = Kind::Reservation {
                        deadline: now.after(ttl),
                    };
                    self.holds.add(Hold {
                        holder,
                        kind,
                        cost,
                        receipts,
                    });
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

        let mut receipts = vec![Receipt::default(); plan.len()];
        let mut decisions = Vec::with_capacity(plan.len());
        let cells = plan
            .iter()
            .zip(&mut self.cells)
            .zip(&passes)
            .zip(&mut receipts);
        for (((step, cell), pass), receipt) in cells {
            let mut pass = *pass;
            let charged = allowed && pass.is_yes() && want.cost > 0;
            if charged {
                *receipt = cell.charge(step, want, pass, now);
            } else if want.cost > 0 && logged && step.counts_denied() {
                step.limit.log_denied(&mut cell.plain, want.cost, now);
                pass = cell.pass(step, want, moment);
            }
            decisions.push(cell.decision(step, pass, charged, now));
        }
        (judge(&decisions), receipts)
    }

    /// What every limit says to this, without a trace.
    fn look(&self, plan: &[Step], want: Want, moment: Moment) -> Vec<Decision> {
        let passes = self.passes(plan, want, moment);
        let steps = plan.iter().zip(&self.cells).zip(passes);
        steps
            .map(|((step, cell), pass)| cell.decision(step, pass, false, moment.now))
            .collect()
    }

    fn passes(&self, plan: &[Step], want: Want, moment: Moment) -> Vec<Pass> {
        let steps = plan.iter().zip(&self.cells);
        steps
            .map(|(step, cell)| cell.pass(step, want, moment))
            .collect()
    }

    fn take(&mut self, plan: &[Step], cost: u64, moment: Moment) -> Answer {
        let obeyed = plan
            .iter()
            .zip(&self.cells)
            .filter(|(step, _)| step.enforced);
        let amount = obeyed
            .map(|(step, cell)| cell.available(step, cost, moment))
            .min()
            .unwrap_or(cost);
        if amount == 0 {
            let want = Want {
                cost: cost.min(1),
                patience: None,
                holder: None,
            };
            let verdict = judge(&self.look(plan, want, moment));
            return Answer {
                verdict,
                taken: Some(0),
                returned: None,
            };
        }
        let want = Want {
            cost: amount,
            patience: None,
            holder: None,
        };
        let mut verdict = self.admit(plan, want, moment).0;
        if !plan.iter().any(|step| step.enforced) {
            verdict.outcome = Outcome::Allow { wait: Span::ZERO };
        }
        Answer {
            verdict,
            taken: Some(amount),
            returned: None,
        }
    }

    fn drain(&mut self, plan: &[Step], now: Timestamp) -> Answer {
        let left = plan.iter().zip(&self.cells);
        let amount = left
            .filter_map(|(step, cell)| step.limit.left(&cell.plain, now))
            .min();
        let amount = amount.unwrap_or(0);
        if amount > 0 {
            self.each(plan, |limit, state| {
                limit.spend(state, amount, now, now);
            });
        }
        let verdict = judge(&self.as_it_stands(plan, now));
        Answer {
            verdict,
            taken: Some(amount),
            returned: None,
        }
    }
}

/// Settling and cancelling.
impl Account {
    fn commit(
        &mut self,
        plan: &[Step],
        actual: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let hold = self.holds.take(holder).ok_or(Refusal::UnknownHolder)?;
        let expired = matches!(hold.kind, Kind::Expired { .. });
        let reserved = if expired { 0 } else { hold.cost };
        let none = Receipt::default();
        for (place, (step, cell)) in plan.iter().zip(&mut self.cells).enumerate() {
            let receipt = if expired {
                &none
            } else {
                hold.receipts.get(place).unwrap_or(&none)
            };
            receipt.give_back(step, (&mut cell.plain, &mut cell.boost), actual, now);
            let more = actual.saturating_sub(reserved);
            if more > 0 {
                step.limit.spend(&mut cell.plain, more, now, now);
                if let Some(boost) = &step.boost {
                    boost.spend(&mut cell.boost, more, now, now);
                }
            }
        }
        let verdict = judge(&self.in_debt(plan, now));
        let returned = Some(reserved.saturating_sub(actual));
        Ok(Answer {
            verdict,
            taken: None,
            returned,
        })
    }

    fn cancel(&mut self, plan: &[Step], holder: Holder, now: Timestamp) -> Result<Answer, Refusal> {
        let hold = self.holds.take(holder);
        let mut freed = None;
        for (step, cell) in plan.iter().zip(&mut self.cells) {
            if step.has_slots() {
                let slots = step.limit.free(&mut cell.plain, holder);
                if let Some(boost) = &step.boost {
                    boost.free(&mut cell.boost, holder);
                }
                freed = freed.max((slots > 0).then_some(slots));
            }
        }
        let returned = match hold {
            Some(hold) => self.give_back(plan, &hold, now).min(hold.cost),
            None => freed.ok_or(Refusal::UnknownHolder)?,
        };
        let verdict = judge(&self.as_it_stands(plan, now));
        Ok(Answer {
            verdict,
            taken: None,
            returned: Some(returned),
        })
    }

    /// Gives back all that can be of a hold; how much the least generous limit returned.
    fn give_back(&mut self, plan: &[Step], hold: &Hold, now: Timestamp) -> u64 {
        let mut least = None;
        let cells = plan.iter().zip(&mut self.cells).zip(&hold.receipts);
        for ((step, cell), receipt) in cells {
            let states = (&mut cell.plain, &mut cell.boost);
            let back = match hold.kind {
                Kind::Booking => receipt.unbook(step, states, now),
                Kind::Reservation { .. } => receipt.give_back(step, states, 0, now),
                Kind::Expired { .. } => Some(0),
            };
            least = match (least, back) {
                (Some(least), Some(back)) => Some(u64::min(least, back)),
                (least, back) => least.or(back),
            };
        }
        least.unwrap_or(0)
    }

    fn expire_reservations(&mut self, plan: &[Step], now: Timestamp) {
        while let Some((hold, deadline)) = self.holds.next_expired(now) {
            self.open(plan, deadline);
            self.give_back(plan, &hold, deadline);
            self.close(plan, deadline);
        }
    }

    /// Refuses what needs an id and has none, or one that cannot be used.
    fn check_holder(&self, plan: &[Step], op: &Op, now: Timestamp) -> Result<(), Refusal> {
        let has_slots = plan
            .iter()
            .any(|step| matches!(step.limit, Limit::Concurrency(_)));
        match *op {
            Op::Hit { cost, holder: None }
            | Op::Acquire {
                cost, holder: None, ..
            } if has_slots && cost > 0 => Err(Refusal::NeedsHolder),
            Op::Acquire {
                holder: Some(holder),
                ..
            }
            | Op::Reserve { holder, .. } => self.holds.may_add(holder, now),
            Op::Commit { holder, .. } => self.holds.may_commit(holder),
            _ => Ok(()),
        }
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
        steps
            .map(|(step, cell)| cell.decision(step, Pass::Plain(now), false, now))
            .collect()
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

// === impl Cell ===

impl Cell {
    fn pass(&self, step: &Step, want: Want, moment: Moment) -> Pass {
        let now = moment.now;
        if want.cost == 0 || self.renews(want) {
            return Pass::Plain(now);
        }
        let plain = ask(&step.limit, &self.plain, want, now);
        let Some(boost) = step.boost.as_ref().filter(|_| moment.spare_capacity) else {
            return plain;
        };
        match (plain, ask(boost, &self.boost, want, now)) {
            (Pass::Plain(slot), _) if slot <= now => plain,
            (_, Pass::Plain(slot)) => Pass::Boosted(slot),
            (Pass::Plain(_), _) => plain,
            (Pass::Later(a), Pass::Later(b)) => Pass::Later(a.min(b)),
            (Pass::Never(_), boosted) => boosted,
            _ => plain,
        }
    }

    /// Whether the caller holds its slot already.
    fn renews(&self, want: Want) -> bool {
        match (&self.plain, want.holder) {
            (State::Slots(slots), Some(holder)) => slots.holds(holder),
            _ => false,
        }
    }

    fn charge(&mut self, step: &Step, want: Want, pass: Pass, now: Timestamp) -> Receipt {
        if let (Limit::Concurrency(_), Some(holder)) = (&step.limit, want.holder) {
            step.limit.hold(&mut self.plain, holder, want.cost, now);
            if let Some(boost) = &step.boost {
                boost.hold(&mut self.boost, holder, want.cost, now);
            }
            return Receipt::default();
        }
        let (at, cost) = match pass {
            Pass::Plain(slot) => (slot, want.cost),
            // What is above the plain limit is not held against it once the gate closes.
            Pass::Boosted(slot) => (slot, step.limit.available(&self.plain, want.cost, now)),
            Pass::Later(_) | Pass::Never(_) => return Receipt::default(),
        };
        let plain = (cost > 0).then(|| {
            let at = if cost == want.cost { at } else { now };
            step.limit.spend(&mut self.plain, cost, at, now)
        });
        let boost = step.boost.as_ref().map(|boost| {
            let at = if matches!(pass, Pass::Boosted(_)) {
                at
            } else {
                now
            };
            boost.spend(&mut self.boost, want.cost, at, now)
        });
        Receipt { plain, boost }
    }

    fn available(&self, step: &Step, most: u64, moment: Moment) -> u64 {
        let plain = step.limit.available(&self.plain, most, moment.now);
        match step.boost.as_ref().filter(|_| moment.spare_capacity) {
            Some(boost) => plain.max(boost.available(&self.boost, most, moment.now)),
            None => plain,
        }
    }

    fn decision(&self, step: &Step, pass: Pass, charged: bool, now: Timestamp) -> Decision {
        let outcome = match pass {
            Pass::Plain(slot) | Pass::Boosted(slot) => Outcome::Allow {
                wait: slot.since(now),
            },
            Pass::Later(at) => Outcome::Deny {
                retry_after: at.since(now),
            },
            Pass::Never(max_cost) => Outcome::Never { max_cost },
        };
        let slack = signed(step.slack);
        let left = step.limit.remaining(&self.plain, now);
        let remaining = left.map(|left| within(left.saturating_sub(slack)));
        Decision {
            outcome,
            enforced: step.enforced,
            remaining,
            reset_after: step.limit.full_after(&self.plain, now),
            soft: charged && step.slack > 0 && remaining.is_some_and(|left| left < 0),
            elastic: charged && matches!(pass, Pass::Boosted(_)),
        }
    }
}

fn ask(limit: &Limit, state: &State, want: Want, now: Timestamp) -> Pass {
    let patience = want.patience.unwrap_or_else(|| limit.hit_patience());
    match limit.ready(state, want.cost, patience, now) {
        Slot::Never { max_cost } => Pass::Never(max_cost),
        Slot::At(ready) if ready > now => Pass::Later(ready),
        Slot::At(_) => match limit.slot(state, want.cost, now) {
            Slot::At(slot) => Pass::Plain(slot),
            Slot::Never { max_cost } => Pass::Never(max_cost),
        },
    }
}

fn refuse_unsupported(plan: &[Step], op: OpKind) -> Result<(), Refusal> {
    for step in plan {
        if let Some(reason) = step.limit.refuses(op) {
            let algorithm = step.limit.algorithm();
            return Err(Refusal::Unsupported {
                op,
                algorithm,
                reason,
            });
        }
    }
    Ok(())
}

/// Fills what a new state lacks.
fn fill(limit: &Limit, state: &mut State, now: Timestamp) {
    if limit.full_after(state, now) > Span::ZERO {
        limit.put(state, crate::arithmetic::EXACT_MAX, now);
    }
}

// === impl Pass ===

impl Pass {
    const fn is_yes(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Boosted(_))
    }
}

// === impl Step ===

impl Step {
    const fn has_slots(&self) -> bool {
        matches!(&self.limit, Limit::Concurrency(_))
    }

    const fn counts_denied(&self) -> bool {
        matches!(&self.limit, Limit::SlidingLog(log) if log.counts_denied())
    }
}

// === impl Moment, Answer ===

impl Moment {
    /// This time, without spare capacity.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now,
            spare_capacity: false,
        }
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            taken: None,
            returned: None,
        }
    }
}
