//! Requests that are settled later: reserved or booked first, then committed or cancelled.
//!
//! What is held is part of the counters, under an id. A request is settled by naming it again with
//! its id: nothing else is stored, so every node that reaches the counters can settle. Limits in
//! Envoy's form count each hit when it comes and cannot hold anything: a request under one is
//! refused before anything is charged.

use std::fmt;

use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::rule::OnStoreFailure;

use super::admission::{Admission, Combine, Group, Operation, repeat};
use super::backend::{Applied, ApplyError, Backend, BoundStep, Call, StoreError, StoreFailure};
use super::pools::{AllPools, PoolSearch};
use super::{Checked, Engine, Returned};
use crate::memory::UNCOUNTED;

/// Why nothing is held, or nothing was settled. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldError {
    /// A descriptor is under a limit in Envoy's form, which counts each hit when it comes.
    CountsAtOnce {
        /// The index of the descriptor.
        descriptor: usize,
    },
    /// A descriptor is under an eventual rule, whose counters cannot hold anything.
    Eventual {
        /// The index of the descriptor.
        descriptor: usize,
    },
    /// A limit refuses the operation, or holds too much already.
    Refused(Refusal),
    /// The store did not answer.
    Store(StoreFailure),
    /// What was held under this id has expired, and was refunded.
    Expired,
    /// Nothing is held under this id: it was never issued, is settled, or expired more than a day
    /// ago.
    Unknown,
}

/// When a client that is denied because the store does not answer may try again.
const RETRY_AFTER: Span = Span::from_secs(1);

/// Verdict of `on_store_failure: deny`.
pub const DENIED_WITHOUT_STORE: Verdict = Verdict {
    outcome: Outcome::Deny { retry_after: RETRY_AFTER },
    remaining: Some(0),
    ..UNCOUNTED
};

/// The operation for a cost.
type OpOf<'a> = &'a (dyn Fn(u64) -> Op + Sync);

impl<B: Backend + ?Sized> Engine<B> {
    /// Checks a request and charges an estimate, to be committed or cancelled later under `holder`;
    /// after `ttl` it is cancelled. A slot of a concurrency limit is held until then, or until its
    /// lease ends.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::backend::ready;
    /// use sluicegate::{Checked, Engine, Span, new_holder, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: llm
    /// descriptors:
    ///   - key: user
    ///     limits: { algorithm: token_bucket, rate: 100000/day }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = |hits| Request { domain: "llm", descriptors: &descriptors, hits };
    ///
    /// let (rules, mut checked) = (engine.snapshot(), Checked::default());
    /// let holder = new_holder();
    /// let estimate = request(4_000);
    /// let call = engine.call(&rules, &estimate);
    /// ready(engine.reserve(call, holder, Span::from_secs(60), &mut checked)).expect("on memory")?;
    /// assert_eq!(checked.statuses[0].verdict.remaining, Some(96_000));
    ///
    /// let used = request(1_250);
    /// let call = engine.call(&rules, &used);
    /// assert_eq!(ready(engine.commit(call, holder, &mut checked)).expect("on memory")?, 2_750);
    /// assert_eq!(checked.statuses[0].verdict.remaining, Some(98_750));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a limit cannot be reserved, or the store does not answer and a rule neither admits nor
    /// denies everything then.
    pub async fn reserve(
        &self,
        call: Call<'_>,
        holder: Holder,
        ttl: Span,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        self.hold(&|cost| Op::Reserve { cost, ttl, holder }, call, holder, checked).await?;
        call.rules.take_slots(&checked.plan, Some(ttl));
        call.rules.finish_reserved(checked, &call);
        Ok(())
    }

    /// Checks a request that would wait up to `max_wait`, and books its turn. [`Checked::wait`] is
    /// the time until then. A slot of a concurrency limit cannot be booked: it is free now, or the
    /// request is denied.
    ///
    /// # Errors
    /// As [`Engine::reserve`].
    pub async fn book(
        &self,
        call: Call<'_>,
        holder: Holder,
        max_wait: Span,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let op = |cost| Op::Acquire { cost, max_wait, holder: Some(holder) };
        self.hold(&op, call, holder, checked).await?;
        call.rules.finish_held(checked, &call);
        Ok(())
    }

    /// Settles a reservation with the actual cost, which is that of the request's hits: a smaller
    /// one returns the rest, a larger one is charged, into debt if need be. Slots are released.
    /// Returns the amount that every limit got back at least; [`Checked::returned`] has that of
    /// each.
    ///
    /// # Errors
    /// When nothing is held under this id, or the store does not answer.
    pub async fn commit(
        &self,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle(&|cost| Op::Commit { cost, holder }, call, holder, checked).await
    }

    /// Cancels what is held, as far as it can be returned. Returns the amount that every limit got
    /// back at least; [`Checked::returned`] has that of each.
    ///
    /// # Errors
    /// When nothing is held under this id, or the store does not answer.
    pub async fn cancel(
        &self,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle(&|_| Op::Cancel { holder }, call, holder, checked).await
    }

    /// Makes a part of a reservation final: the cost of the request's hits. The rest stays
    /// reserved, slots stay held, and a later commit counts what was used since. Descriptors with
    /// their own hits are settled by the last commit. Returns the smallest amount that stays
    /// reserved.
    ///
    /// # Errors
    /// When nothing is reserved under this id, or the store does not answer.
    pub async fn commit_part(
        &self,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        let descriptors = call.request.descriptors;
        let has_own_hits =
            |index: usize| descriptors.get(index).is_some_and(|one| one.hits.is_some());
        let op = |step: &mut BoundStep<'_>| {
            if has_own_hits(step.index) {
                step.cost = 0;
            }
            Op::CommitPart { cost: step.cost, holder }
        };
        let answers = self.update_held(&op, call, checked).await?;
        call.rules.observe_usage(checked);
        let shared = answers.into_iter().filter(|(index, _)| !has_own_hits(*index));
        Ok(shared.filter_map(|(_, answer)| answer.held).min().unwrap_or(0))
    }

    /// Makes a part of each descriptor of a reservation final: its own hits, those of the request
    /// where it has none. [`Checked::statuses`] have the remaining quota.
    ///
    /// # Errors
    /// As [`Engine::commit_part`].
    pub async fn commit_parts(
        &self,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let op = |step: &mut BoundStep<'_>| Op::CommitPart { cost: step.cost, holder };
        self.update_held(&op, call, checked).await.map(drop)
    }

    /// Restarts the time after which a reservation is cancelled, and the leases of its slots.
    /// Returns the time until the first part of it expires: `ttl`, or the lease of a slot.
    ///
    /// # Errors
    /// When nothing is held under this id, it has expired, or the store does not answer.
    pub async fn renew(
        &self,
        call: Call<'_>,
        holder: Holder,
        ttl: Span,
        checked: &mut Checked,
    ) -> Result<Span, HoldError> {
        self.update_held(&|_| Op::Renew { ttl, holder }, call, checked).await?;
        Ok(call.rules.lease(&checked.plan, call.now).map_or(ttl, |lease| lease.min(ttl)))
    }

    /// Applies an operation to each step that holds something; the answers, by descriptor.
    async fn update_held(
        &self,
        op: &(dyn Fn(&mut BoundStep<'_>) -> Op + Sync),
        call: Call<'_>,
        checked: &mut Checked,
    ) -> Result<Vec<(usize, Answer)>, HoldError> {
        let Call { rules, request, now, .. } = call;
        let all = AllPools::new(rules.rules(), request);
        let request = all.request();
        if rules.begin(Operation::Refund, &request, checked) {
            all.truncate(checked);
            return Ok(Vec::new());
        }
        let Checked { statuses, plan, .. } = &mut *checked;
        let (mut refused, mut answers) = (None, Vec::new());
        for step in rules.bind_all(Operation::Hit, plan).filter(|step| step.mode.is_once) {
            let index = step.index;
            if index >= all.len() {
                continue;
            }
            let (at, applied) = self.apply_where_held((rules, plan), &all, step, op, now).await;
            statuses[index].target = statuses[at].target;
            let steps = std::slice::from_ref(&step);
            let verdict = match applied {
                Ok(applied) => {
                    if let Op::CommitPart { cost, .. } = op(&mut { step }) {
                        rules.meter_settled(plan, at, cost);
                    }
                    answers.push((index, applied.answer));
                    applied.answer.verdict
                }
                Err(ApplyError::Refused(refusal)) => {
                    refused = refused.filter(|known| *known != Refusal::UnknownHolder);
                    refused = refused.or(Some(refusal));
                    let peeked = self.backend().apply_to(steps, Op::Peek { cost: 0 }, now).await;
                    peeked.map_err(HoldError::from)?.answer.verdict
                }
                Err(error) => return Err(error.into()),
            };
            statuses[index].verdict = verdict;
        }
        repeat(rules, Operation::Hit, plan, statuses);
        all.truncate(checked);
        match refused.filter(|_| answers.is_empty()) {
            None => Ok(answers),
            Some(Refusal::UnknownHolder) => Err(HoldError::Unknown),
            Some(Refusal::Expired) => Err(HoldError::Expired),
            Some(refusal) => Err(HoldError::Refused(refusal)),
        }
    }

    /// Applies an operation that holds something, to all steps or none. Nothing is counted.
    pub(super) async fn hold(
        &self,
        op: OpOf<'_>,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        if !call.rules.rules().has_pools() {
            return self.hold_once(op, call, holder, checked).await;
        }
        let mut search = PoolSearch::new(Operation::Hit, call);
        loop {
            let request = search.request();
            let attempt = search.call(&request);
            match search.operation() {
                Operation::Hit => self.hold_once(op, attempt, holder, checked).await?,
                operation => self.backend().apply(operation, attempt, checked).await?,
            }
            if !search.advance(checked) {
                break;
            }
        }
        search.write_denials(checked);
        Ok(())
    }

    /// The same with one pool of each rule.
    async fn hold_once(
        &self,
        op: OpOf<'_>,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let Call { rules, request, now, .. } = call;
        if rules.begin(Operation::Hit, request, checked) {
            return Ok(());
        }
        let Checked { allowed, statuses, plan, .. } = checked;
        let mut steps = rules.bind_all(Operation::Hit, plan);
        if let Some(BoundStep { index: descriptor, .. }) = steps.find(|step| !step.mode.is_once) {
            return Err(HoldError::CountsAtOnce { descriptor });
        }
        let mut steps = rules.bind_all(Operation::Hit, plan);
        if let Some(step) = steps.find(|step| !self.backend().can_hold(rules, step)) {
            return Err(HoldError::Eventual { descriptor: step.index });
        }
        let bind = |index| rules.bind(Operation::Hit, plan, index);
        let mut held: Vec<BoundStep<'_>> = Vec::new();
        // Why it is an error, unless a step that follows denies it.
        let mut failed = None;
        let mut admission = Admission::new(rules, Operation::Hit, plan);
        while let Some(group) = admission.next(statuses) {
            let groups = match group {
                Group::One(index, _) => vec![bind(index).into_iter().collect()],
                Group::Together { .. } => {
                    let steps = admission.together().filter_map(|(index, ..)| bind(index));
                    self.backend().group(steps.collect())
                }
            };
            // One after the other: a group that denies keeps the next from being charged.
            for steps in groups {
                let is_together =
                    steps.iter().all(|step| step.mode.combine == Combine::AllOrNothing);
                let is_charged = failed.is_none() && (!is_together || rules.admits(statuses));
                let cost = steps.iter().map(|step| step.cost).max().unwrap_or(0);
                let op = if is_charged { op(cost) } else { Op::Peek { cost } };
                match self.backend().apply_to(&steps, op, now).await {
                    Ok(applied) => {
                        for (step, verdict) in steps.iter().zip(&applied.verdicts) {
                            statuses[step.index].verdict = *verdict;
                        }
                        if is_charged && applied.answer.verdict.is_allowed() {
                            held.extend(steps);
                        }
                    }
                    Err(ApplyError::Refused(refusal)) => {
                        self.cancel_all(&held, holder, call).await;
                        return Err(HoldError::Refused(refusal));
                    }
                    Err(ApplyError::Store(failure)) => {
                        for step in &steps {
                            statuses[step.index].verdict = match step.on_store_failure {
                                OnStoreFailure::Allow => UNCOUNTED,
                                OnStoreFailure::Deny => DENIED_WITHOUT_STORE,
                                // Other nodes could not settle what this node holds.
                                OnStoreFailure::Local | OnStoreFailure::Error => {
                                    failed.get_or_insert(failure);
                                    UNCOUNTED
                                }
                            };
                        }
                    }
                }
            }
        }
        let admits = rules.admits(statuses);
        *allowed = admits && failed.is_none();
        if !*allowed {
            // A quota that admits holds nothing for a request that is denied.
            self.cancel_all(&held, holder, call).await;
        }
        match failed.filter(|_| admits) {
            Some(failure) => Err(HoldError::Store(failure)),
            None => Ok(()),
        }
    }

    async fn cancel_all(&self, held: &[BoundStep<'_>], holder: Holder, call: Call<'_>) {
        for step in held {
            // A step that holds nothing refuses it. If the store is gone, what is held expires.
            let steps = std::slice::from_ref(step);
            let _ = self.backend().apply_to(steps, Op::Cancel { holder }, call.now).await;
        }
    }

    async fn settle(
        &self,
        op: OpOf<'_>,
        call: Call<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        let Call { rules, request, now, .. } = call;
        // The pool that holds it is found by its id.
        let all = AllPools::new(rules.rules(), request);
        let request = all.request();
        if rules.begin(Operation::Refund, &request, checked) {
            all.truncate(checked);
            return Ok(0);
        }
        let Checked { statuses, plan, returned: each, .. } = &mut *checked;
        let (mut is_limited, mut returned, mut freed) = (false, None::<u64>, None::<u64>);
        for step in rules.bind_all(Operation::Hit, plan).filter(|step| step.mode.is_once) {
            if step.index >= all.len() {
                continue;
            }
            is_limited = true;
            let steps = std::slice::from_ref(&step);
            let apply = |op| self.backend().apply_to(steps, op, now);
            let op = |step: &mut BoundStep<'_>| op(step.cost);
            let (at, mut settled) =
                self.apply_where_held((rules, plan), &all, step, &op, now).await;
            statuses[step.index].target = statuses[at].target;
            if let (Ok(_), Op::Commit { cost, .. }) = (&settled, op(&mut { step }))
                && !step.counter.has_slots_only()
            {
                rules.meter_settled(plan, at, cost);
            }
            for op in [Op::Cancel { holder }, Op::Peek { cost: 0 }] {
                // There may be a slot that was taken without a reservation.
                if matches!(settled, Err(ApplyError::Refused(_))) {
                    settled = apply(op).await;
                }
            }
            let Applied { answer, returned: of_limits, .. } = settled.map_err(HoldError::from)?;
            statuses[step.index].verdict = answer.verdict;
            if let Some(amount) = answer.returned {
                each.extend(Returned::of_limits(step.index, &of_limits));
                // A released slot counts only where nothing else was held beside it.
                let least = if step.counter.has_slots_only() { &mut freed } else { &mut returned };
                *least = Some(least.map_or(amount, |least| least.min(amount)));
            }
        }
        repeat(rules, Operation::Hit, plan, statuses);
        all.truncate(checked);
        rules.observe_usage(checked);
        match returned.or(freed) {
            Some(returned) => Ok(returned),
            None if is_limited => Err(HoldError::Unknown),
            None => Ok(0),
        }
    }
}

impl From<ApplyError> for HoldError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Store(failure) => Self::Store(failure),
            ApplyError::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl From<StoreError> for HoldError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.failure)
    }
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CountsAtOnce { descriptor } => write!(
                f,
                "descriptors[{descriptor}] is under a limit in Envoy's form, which counts each hit when it \
                 comes; write it with `limits`, such as {{ algorithm: fixed_window, rate: 100/m }}"
            ),
            Self::Eventual { descriptor } => write!(
                f,
                "descriptors[{descriptor}] is under an `eventual` rule, whose counters cannot hold \
                 anything; write `consistency: leased` or `strict`"
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(failure) => failure.fmt(f),
            Self::Expired => Refusal::Expired.fmt(f),
            Self::Unknown => f.write_str(
                "nothing is held under this id: it was never issued, is settled, or has expired",
            ),
        }
    }
}

impl std::error::Error for HoldError {}
