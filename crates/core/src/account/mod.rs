//! Accounts: the states and holds of an identity, and every operation on them.
//!
//! This is the whole semantics as a pure value: no clock, no lock, no store. A store with its own
//! state layout follows the same three phases and must give the same answers:
//!
//! 1. *open* every state of the plan at `now`;
//! 2. evaluate every limit; all enforced ones must admit the cost;
//! 3. charge all of them, or none (a log that counts denials logs this one, and a tally counts
//!    everything), and *close*.
//!
//! A request may name several identities: a user, an address, everyone. Each has its own account
//! and plan, and the answer is that of one account under all plans in a row ([`apply_to_all`]), on
//! request with a verdict per identity ([`apply_to_each`]).

mod codec;
mod holds;
mod lease;
mod reconcile;
mod settle;
mod step_state;
mod transaction;

pub use holds::HOLDS_MAX;
use holds::Holds;
use step_state::{Claim, StepState};
use transaction::Transaction;

use crate::algorithm::concurrency::Holder;
use crate::change::CarryOver;
use crate::lease::NodeLeases;
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::op::{Op, Refusal};
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Verdict};

/// The states and holds of one identity.
///
/// ```
/// use sluicegate_core::account::{Account, Moment};
/// use sluicegate_core::algorithm::concurrency::Holder;
/// use sluicegate_core::algorithm::token_bucket::TokenBucket;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::{Mode, EnforcedLimit};
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let rate = Rate::new(5, Span::from_secs(1)).unwrap();
/// let bucket = Limit::TokenBucket(TokenBucket::new(rate, 2).unwrap());
/// let plan = [EnforcedLimit::new(bucket, Mode::Hard).unwrap()];
/// let now = Moment::at(Timestamp::EPOCH);
/// let hit = Op::Hit { cost: 1, holder: None };
///
/// let mut account = Account::default();
/// account.forget(Holder(7));
/// assert_eq!(account.renew(&plan, Holder(7), now.now), 0);
/// assert!(account.is_new());
/// let mut allowed = || account.apply(&plan, hit, now).unwrap().verdict.outcome.is_allowed();
/// assert_eq!([allowed(), allowed(), allowed()], [true, true, false]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    states: Vec<StepState>,
    holds: Holds,
    leases: NodeLeases,
}

/// The time of an operation and the load at that time.
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
    /// The verdict of the plan.
    pub verdict: Verdict,
    /// The amount taken by `take` or `drain`.
    pub taken: Option<u64>,
    /// The amount returned by `cancel` or `commit`.
    pub returned: Option<u64>,
    /// The amount that a partial commit leaves reserved.
    pub held: Option<u64>,
}

/// What an answer says of the parts and limits of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// The verdict of each part, as from [`apply_to_each`].
    pub verdicts: Vec<Verdict>,
    /// The amount that each limit got back by a refund, an add within the capacity, a commit or a
    /// cancel, of all plans in a row: slots of a concurrency limit, else quota. `None` for a limit
    /// that was not charged. Empty after other operations.
    pub returned: Vec<Option<u64>>,
}

/// One identity of a request: its account and its plan.
#[derive(Debug)]
pub struct Part<'a> {
    /// The steps, in the order of the rules.
    pub plan: &'a [EnforcedLimit],
    /// Its account.
    pub account: &'a mut Account,
    /// Whether its elastic limits are open ([`crate::mode::Gate`]).
    pub spare_capacity: bool,
    /// Its own cost, in place of the operation's: for hit, peek, acquire, reserve, commit, charge,
    /// refund and add. Other operations have one amount for all.
    pub cost: Option<u64>,
}

/// Carries out `op` on all parts: all or nothing.
///
/// The answer is that of one account under all plans in a row, and [`Verdict::decided_by`] an index
/// into that row. Each account holds its own part of a booking or reservation. A commit requires
/// that all accounts know the id; a cancel refunds wherever it is known.
///
/// ```
/// use sluicegate_core::account::{Account, Part, apply_to_all};
/// use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let a_minute = |count| {
///     let rate = Rate::new(count, Span::from_secs(60)).unwrap();
///     [EnforcedLimit::hard(Limit::FixedWindow(FixedWindow::new(rate, Align::Clock)))]
/// };
/// let (per_user, in_all) = (a_minute(5), a_minute(6));
/// let [mut alice, mut bob, mut all] = [(); 3].map(|()| Account::default());
///
/// let mut allowed = |user, cost| {
///     let user = Part { plan: &per_user, account: user, spare_capacity: false, cost: None };
///     let everyone = Part { plan: &in_all, account: &mut all, spare_capacity: false, cost: None };
///     let op = Op::Hit { cost, holder: None };
///     let answer = apply_to_all(&mut [user, everyone], op, Timestamp::EPOCH);
///     answer.unwrap().verdict.outcome.is_allowed()
/// };
/// assert!(allowed(&mut alice, 5));
/// assert!(!allowed(&mut bob, 2), "only one is left for everyone");
/// assert!(bob.is_new(), "so nothing is held against him");
/// ```
///
/// # Errors
/// When a limit of a plan does not support the operation, or the id is missing or invalid. Nothing
/// has changed then.
pub fn apply_to_all(parts: &mut [Part<'_>], op: Op, now: Timestamp) -> Result<Answer, Refusal> {
    transact(parts, op, |transaction| transaction.apply(op, now))
}

/// The same as [`apply_to_all`], with the verdict of every part in `each`: by its own steps alone,
/// so that [`Verdict::decided_by`] counts from its first step.
///
/// If another part denies, a part that admits the cost reports that, though it was not charged
/// (unless by [`Limit::counts_first`]). For operations other than admissions a part reports its
/// current status. Previous contents of `each` are removed, even if the operation is refused.
///
/// ```
/// use sluicegate_core::account::{Account, Part, apply_to_each};
/// use sluicegate_core::algorithm::tally::Tally;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::{Mode, EnforcedLimit};
/// use sluicegate_core::op::Op;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let a_minute = |count| {
///     let tally = Tally::new(count, Span::from_secs(60)).unwrap();
///     [EnforcedLimit::new(Limit::Tally(tally), Mode::Hard).unwrap()]
/// };
/// let (per_user, per_path) = (a_minute(5), a_minute(1));
/// let (mut user, mut path) = (Account::default(), Account::default());
///
/// let mut each = Vec::new();
/// for _ in 0..2 {
///     let user = Part { plan: &per_user, account: &mut user, spare_capacity: false, cost: None };
///     let cost = Some(1);
///     let path = Part { plan: &per_path, account: &mut path, spare_capacity: false, cost };
///     let hit = Op::Hit { cost: 1, holder: None };
///     apply_to_each(&mut [user, path], hit, Timestamp::EPOCH, &mut each).unwrap();
/// }
/// assert!(each[0].is_allowed() && !each[1].is_allowed());
/// assert_eq!(each[0].remaining, Some(3), "counted all the same");
/// ```
///
/// # Errors
/// As [`apply_to_all`].
pub fn apply_to_each(
    parts: &mut [Part<'_>],
    op: Op,
    now: Timestamp,
    each: &mut Vec<Verdict>,
) -> Result<Answer, Refusal> {
    each.clear();
    transact(parts, op, |transaction| transaction.apply_to_each(op, now, each))
}

/// The same as [`apply_to_each`], with the amount that each limit got back.
///
/// ```
/// use sluicegate_core::account::{Account, Details, Part, apply_with_details};
/// use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let window = |secs| {
///     let rate = Rate::new(10, Span::from_secs(secs)).unwrap();
///     EnforcedLimit::hard(Limit::FixedWindow(FixedWindow::new(rate, Align::Clock)))
/// };
/// let plan = [window(1), window(60)];
/// let (mut account, mut details) = (Account::default(), Details::default());
/// let mut apply = |op, secs| {
///     let part = Part { plan: &plan, account: &mut account, spare_capacity: false, cost: None };
///     let now = Timestamp::EPOCH.after(Span::from_secs(secs));
///     apply_with_details(&mut [part], op, now, &mut details).unwrap();
///     details.returned.clone()
/// };
/// apply(Op::Hit { cost: 4, holder: None }, 0);
/// assert_eq!(apply(Op::Refund { cost: 4 }, 1), [Some(0), Some(4)], "the second is over");
/// ```
///
/// # Errors
/// As [`apply_to_all`].
pub fn apply_with_details(
    parts: &mut [Part<'_>],
    op: Op,
    now: Timestamp,
    details: &mut Details,
) -> Result<Answer, Refusal> {
    details.verdicts.clear();
    details.returned.clear();
    transact(parts, op, |transaction| transaction.apply_with_details(op, now, details))
}

/// Runs a transaction on these parts, or on copies of them if the operation is read-only.
fn transact<R>(
    parts: &mut [Part<'_>],
    op: Op,
    run: impl FnOnce(&mut Transaction<'_, '_>) -> R,
) -> R {
    let mut transaction = Transaction { parts };
    if op.is_read_only() {
        return transaction.with_copies(|part| part.account.clone(), |mut copy| run(&mut copy));
    }
    run(&mut transaction)
}

impl Account {
    /// Carries out `op` under `plan`.
    ///
    /// # Errors
    /// When a limit of the plan does not support the operation, or the id is missing or invalid.
    /// Nothing has changed then.
    pub fn apply(
        &mut self,
        plan: &[EnforcedLimit],
        op: Op,
        moment: Moment,
    ) -> Result<Answer, Refusal> {
        let spare_capacity = moment.spare_capacity;
        apply_to_all(
            &mut [Part { plan, account: self, spare_capacity, cost: None }],
            op,
            moment.now,
        )
    }

    /// The decision of each step of `plan` on a cost, by itself. Nothing changes.
    ///
    /// ```
    /// use sluicegate_core::account::{Account, Moment};
    /// use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let window = |count, secs| {
    ///     let rate = Rate::new(count, Span::from_secs(secs)).unwrap();
    ///     EnforcedLimit::hard(Limit::FixedWindow(FixedWindow::new(rate, Align::Clock)))
    /// };
    /// let plan = [window(5, 1), window(100, 60)];
    /// let decisions = Account::default().evaluate(&plan, 7, Moment::at(Timestamp::EPOCH));
    /// assert!(!decisions[0].outcome.is_allowed() && decisions[1].outcome.is_allowed());
    /// assert_eq!((decisions[0].remaining, decisions[1].remaining), (Some(5), Some(100)));
    /// ```
    #[must_use]
    pub fn evaluate(&self, plan: &[EnforcedLimit], cost: u64, moment: Moment) -> Vec<Decision> {
        let now = moment.now.min(NOW_MAX);
        let mut copy = self.clone();
        copy.open(plan, now);
        let spare_capacity = moment.spare_capacity;
        let part = Part { plan, account: &mut copy, spare_capacity, cost: None };
        Transaction { parts: &mut [part] }
            .evaluate(Claim { cost, max_wait: None, holder: None, ttl: Span::MAX }, now)
    }

    /// Moves to another plan. `from` names the old step that each new step continues, if any.
    pub fn change(
        &mut self,
        old: &[EnforcedLimit],
        new: &[EnforcedLimit],
        from: &[Option<usize>],
        carry: CarryOver,
        now: Timestamp,
    ) {
        let now = now.min(NOW_MAX);
        self.states.resize_with(old.len(), StepState::default);
        self.expire_reservations(old, now);
        let carry = |(step, from): (&EnforcedLimit, &Option<usize>)| {
            let found = from.and_then(|i| old.get(i).zip(self.states.get(i)));
            let Some((old_step, state)) = found else {
                return StepState::default();
            };
            let plain = step.limit.carry(&old_step.limit, state.plain.clone(), carry, now);
            let boost = match (&step.boost, &old_step.boost) {
                (Some(new), Some(old)) => new.carry(old, state.boost.clone(), carry, now),
                // Requests in flight count under both.
                (Some(_), None) if step.has_slots() => plain.clone(),
                _ => State::New,
            };
            StepState { plain, boost }
        };
        self.states = new.iter().zip(from).map(carry).collect();
        self.holds.follow(from);
    }

    /// Renews the leases of the slots of `holder`; returns how many. Nothing is charged.
    pub fn renew(&mut self, plan: &[EnforcedLimit], holder: Holder, now: Timestamp) -> u64 {
        let now = now.min(NOW_MAX);
        self.open(plan, now);
        let renewed = self.renew_slots(plan, holder, Span::MAX, now);
        self.close(plan, now);
        renewed
    }

    /// The same in open states, for `ttl` at most.
    fn renew_slots(
        &mut self,
        plan: &[EnforcedLimit],
        holder: Holder,
        ttl: Span,
        now: Timestamp,
    ) -> u64 {
        let mut renewed = 0u64;
        for (step, state) in plan.iter().zip(&mut self.states).filter(|(step, _)| step.has_slots())
        {
            let both =
                [(Some(&step.limit), &mut state.plain), (step.boost.as_ref(), &mut state.boost)];
            for (limit, state) in
                both.into_iter().filter_map(|(limit, state)| limit.zip(Some(state)))
            {
                // Taken again, so that a lease may become shorter.
                let slots = limit.free(state, holder);
                if slots > 0 {
                    limit.hold(state, holder, slots, ttl, now);
                    renewed = renewed.saturating_add(1);
                }
            }
        }
        renewed
    }

    /// Drops a booking whose turn has come and that can no longer be cancelled. A slot held under
    /// the same id stays held.
    pub fn forget(&mut self, holder: Holder) {
        self.holds.take(holder);
    }

    /// The state of a step's limit.
    #[must_use]
    pub fn state(&self, step: usize) -> Option<&State> {
        self.states.get(step).map(|state| &state.plain)
    }

    /// Whether there is no state and no hold.
    #[must_use]
    pub fn is_new(&self) -> bool {
        let is_bare = self.holds.is_empty() && self.leases.is_empty();
        is_bare && self.states.iter().all(|state| *state == StepState::default())
    }

    /// Opens the states of this plan at `now`.
    fn open(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        self.states.resize_with(plan.len(), StepState::default);
        self.expire_reservations(plan, now);
        self.open_states(plan, now);
        self.leases.clamp_expiry(now);
        // Before they are removed: what is leased counts as used when it expires.
        self.enforce_leases(plan, now);
        self.leases.remove_expired(now);
    }

    fn open_states(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        plan.iter().zip(&mut self.states).for_each(|(step, state)| state.open(step, now));
    }

    fn close(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        // A refund does not release leased quota.
        self.enforce_leases(plan, now);
        self.close_states(plan, now);
    }

    fn close_states(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        plan.iter().zip(&mut self.states).for_each(|(step, state)| state.close(step, now));
    }

    fn each(&mut self, plan: &[EnforcedLimit], mut act: impl FnMut(&Limit, &mut State)) {
        plan.iter().zip(&mut self.states).for_each(|(step, state)| state.each(step, &mut act));
    }
}

impl Moment {
    /// This time, without spare capacity.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self { now, spare_capacity: false }
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, taken: None, returned: None, held: None }
    }
}
