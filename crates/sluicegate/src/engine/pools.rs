//! Pools: where a rule denies a request, the request draws from the next pool of the rule.
//!
//! ```text
//!   attempt 1    every rule with its own limits
//!   attempt n    each rule that denied with its next pool, the others as before
//! ```
//!
//! Every attempt is a decision of the whole request, all or nothing. The first one that admits is
//! the result; a request draws from one pool of a rule. A denial charges nothing, so the attempts
//! before it leave no trace. Where that is not so (limits that count denied hits, quotas, rules in
//! shadow mode), pools are chosen by peeks, and one attempt is charged.

use std::borrow::Cow;

use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Outcome;
use sluicegate_rules::plan::{Plan, Step, Target};
use sluicegate_rules::request::{Descriptor, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::admission::{Checked, Combine, Operation, Status};
use super::backend::{
    Applied, ApplyError, Backend, BoundStep, Call, DENIED_WITHOUT_STORE, Deferred, StoreError,
};
use super::{Engine, MemoryBackend, Snapshot};

/// Maximum number of decisions for one request. Rules move to their next pools together, so even
/// a request under several rules with pools needs more only if they deny one after the other.
const ATTEMPTS_MAX: usize = 16;

/// The attempts of one request.
pub(super) struct PoolSearch<'a> {
    operation: Operation,
    call: Call<'a>,
    /// Those of the request, each with the pool of the next attempt.
    descriptors: Vec<Descriptor<'a>>,
    /// The shortest denial of each descriptor.
    denials: Vec<Option<PoolDenial<'a>>>,
    attempts: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Attempts are decisions.
    Decide,
    /// Attempts are peeks that choose the pools.
    Choose,
    /// The pools are chosen by peeks.
    Chosen,
}

#[derive(Clone, Copy)]
struct PoolDenial<'a> {
    status: Status,
    pool: Option<&'a str>,
}

impl<'a> PoolSearch<'a> {
    pub(super) fn new(operation: Operation, call: Call<'a>) -> Self {
        let descriptors = call.request.descriptors.to_vec();
        let denials = vec![None; descriptors.len()];
        let chooses = operation == Operation::Hit && call.rules.chooses_pools(call.request);
        let phase = if chooses { Phase::Choose } else { Phase::Decide };
        Self { operation, call, descriptors, denials, attempts: 0, phase }
    }

    /// The operation of the next attempt.
    pub(super) fn operation(&self) -> Operation {
        if self.phase == Phase::Choose { Operation::Peek } else { self.operation }
    }

    /// The request of the next attempt.
    pub(super) fn request(&self) -> Request<'_> {
        Request { descriptors: &self.descriptors, ..*self.call.request }
    }

    /// The next attempt. Its denial is not counted.
    pub(super) fn call<'b>(&'b self, request: &'b Request<'b>) -> Call<'b> {
        Call { request, retries: true, ..self.call }
    }

    /// Whether another attempt follows this one.
    pub(super) fn advance(&mut self, checked: &Checked) -> bool {
        let is_final = match self.phase {
            Phase::Chosen => true,
            Phase::Decide => checked.allowed && self.operation == Operation::Hit,
            Phase::Choose => false,
        };
        if is_final || checked.listed().is_some() || checked.denied_unmatched().is_some() {
            return false;
        }
        self.attempts += 1;
        let moved = self.move_denied(checked) && self.attempts < ATTEMPTS_MAX;
        if !moved && self.phase == Phase::Choose {
            for (descriptor, denial) in self.descriptors.iter_mut().zip(&self.denials) {
                // Where every pool denies, the one with the shortest wait does.
                if let Some(denial) = denial {
                    descriptor.pool = denial.pool;
                }
            }
            self.phase = Phase::Chosen;
            return true;
        }
        moved
    }

    /// Moves each rule that denies to its next pool; whether any has moved. Keeps the denials of
    /// those that still deny.
    fn move_denied(&mut self, checked: &Checked) -> bool {
        let (rules, mut moved) = (self.call.rules.rules(), false);
        let originals = self.call.request.descriptors;
        for (index, status) in checked.statuses.iter().enumerate() {
            let (Some(descriptor), Some(denial)) =
                (self.descriptors.get_mut(index), self.denials.get_mut(index))
            else {
                continue;
            };
            let Target::Rule(no) = status.target else { continue };
            if !denies(status) {
                *denial = None;
                continue;
            }
            if denial.is_none_or(|best| rank(status) < rank(&best.status)) {
                *denial = Some(PoolDenial { status: *status, pool: descriptor.pool });
            }
            let is_named = originals.get(index).is_some_and(|one| {
                one.pool.is_some_and(|name| rules.pool_named(rules.first_pool(no), name).is_some())
            });
            // Another pool would have to wait for the store again.
            if is_named || status.verdict == DENIED_WITHOUT_STORE {
                continue;
            }
            if let Some(next) = rules.next_pool(no) {
                descriptor.pool = rules.pool_of(next);
                moved = true;
            }
        }
        moved
    }

    /// Completes the result of the last attempt: of the pools that deny, the one with the shortest
    /// wait is reported. Counts a denied hit.
    pub(super) fn finish(mut self, checked: &mut Checked) {
        self.write_denials(checked);
        if self.operation == Operation::Hit && !checked.allowed && !self.call.retries {
            self.call.rules.count_decided(checked);
        }
    }

    /// The same for a request that holds something, which its caller counts.
    pub(super) fn write_denials(&mut self, checked: &mut Checked) {
        let mut replans = false;
        let all = self.denials.iter().zip(&mut self.descriptors).zip(&mut checked.statuses);
        for ((denial, descriptor), status) in all.filter(|(_, status)| denies(status)) {
            match denial {
                Some(denial) if self.phase == Phase::Decide => {
                    replans |= descriptor.pool != denial.pool;
                    (*status, descriptor.pool) = (denial.status, denial.pool);
                }
                // Another request has used what was left since the peek: the next attempt draws
                // from the next pool.
                None if self.phase == Phase::Chosen && self.call.rules.has_next_pool(status) => {
                    status.verdict.outcome = match status.verdict.outcome {
                        Outcome::Allow { wait } => Outcome::Allow { wait },
                        _ => Outcome::Deny { retry_after: Span::from_micros(1) },
                    };
                }
                _ => {}
            }
        }
        if replans {
            let request = Request { descriptors: &self.descriptors, ..*self.call.request };
            self.call.rules.rules().plan(&request, &mut checked.plan);
        }
    }
}

/// Whether a rule denies, or would if it were enforced.
fn denies(status: &Status) -> bool {
    !status.verdict.shadow.unwrap_or(status.verdict.outcome).is_allowed()
}

/// Order of denials: the shortest wait first, then the largest cost that could pass.
fn rank(status: &Status) -> (u8, u64) {
    match status.verdict.shadow.unwrap_or(status.verdict.outcome) {
        Outcome::Allow { .. } => (0, 0),
        Outcome::Deny { retry_after } => (1, retry_after.as_micros()),
        Outcome::Never { max_cost } => (2, u64::MAX - max_cost),
    }
}

// === all pools at once ===

/// The descriptors of a request, followed by one for each further pool of their rules.
pub(super) struct AllPools<'a> {
    request: Request<'a>,
    descriptors: Cow<'a, [Descriptor<'a>]>,
    /// The descriptor that each further pool belongs to.
    origins: Vec<usize>,
}

impl<'a> AllPools<'a> {
    pub(super) fn new(rules: &'a RuleSet, request: &Request<'a>) -> Self {
        let (mut descriptors, mut origins) = (Cow::Borrowed(request.descriptors), Vec::new());
        if rules.has_pools() {
            let further;
            (origins, further) = rules.further_pools(request).into_iter().unzip();
            let further: Vec<Descriptor<'a>> = further;
            descriptors = [request.descriptors, &further].concat().into();
        }
        Self { request: *request, descriptors, origins }
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request { descriptors: &self.descriptors, ..self.request }
    }

    /// The number of descriptors of the request itself.
    pub(super) fn len(&self) -> usize {
        self.request.descriptors.len()
    }

    /// The further pools of a descriptor, by their indexes.
    pub(super) fn further(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let len = self.len();
        let all = self.origins.iter().enumerate();
        all.filter(move |(_, origin)| **origin == index).map(move |(at, _)| len + at)
    }

    /// Removes the further pools from a result.
    pub(super) fn truncate(&self, checked: &mut Checked) {
        checked.statuses.truncate(self.len());
        checked.plan.truncate(self.len());
    }
}

// === the engine ===

impl MemoryBackend {
    /// The same for rules with pools.
    #[cold]
    pub(super) fn apply_pools(operation: Operation, call: &Call<'_>, checked: &mut Checked) {
        match operation {
            Operation::Refund => Self::apply_once(operation, call, checked),
            Operation::Reset => {
                let all = AllPools::new(call.rules.rules(), call.request);
                let request = all.request();
                Self::apply_once(operation, &Call { request: &request, ..*call }, checked);
                all.truncate(checked);
            }
            Operation::Hit | Operation::Peek => {
                let mut search = PoolSearch::new(operation, *call);
                loop {
                    let request = search.request();
                    Self::apply_once(search.operation(), &search.call(&request), checked);
                    if !search.advance(checked) {
                        break;
                    }
                }
                search.finish(checked);
            }
        }
    }
}

impl<B: Backend + ?Sized> Engine<B> {
    #[cold]
    pub(super) fn apply_pools<'a>(
        &'a self,
        operation: Operation,
        call: Call<'a>,
        checked: &'a mut Checked,
    ) -> Deferred<'a, Result<(), StoreError>> {
        Deferred::pending(async move {
            match operation {
                Operation::Refund => self.backend().apply(operation, call, checked).await,
                Operation::Reset => {
                    let all = AllPools::new(call.rules.rules(), call.request);
                    let request = all.request();
                    let call = Call { request: &request, ..call };
                    let applied = self.backend().apply(operation, call, checked).await;
                    all.truncate(checked);
                    applied
                }
                Operation::Hit | Operation::Peek => {
                    let mut search = PoolSearch::new(operation, call);
                    loop {
                        let request = search.request();
                        let attempt = search.call(&request);
                        self.backend().apply(search.operation(), attempt, checked).await?;
                        if !search.advance(checked) {
                            break;
                        }
                    }
                    search.finish(checked);
                    Ok(())
                }
            }
        })
    }

    /// Applies an operation to a step or, where nothing is held of that, to the first of its
    /// further pools that holds something under the id. Returns the index of that step, too.
    pub(super) async fn apply_where_held(
        &self,
        (rules, plan): (&Snapshot<'_>, &Plan),
        all: &AllPools<'_>,
        mut step: BoundStep<'_>,
        op: &(dyn Fn(&mut BoundStep<'_>) -> Op + Sync),
        now: Timestamp,
    ) -> (usize, Result<Applied, ApplyError>) {
        let is_unknown = |applied: &Result<Applied, ApplyError>| {
            matches!(applied, Err(ApplyError::Refused(Refusal::UnknownHolder)))
        };
        let (index, first) = (step.index, op(&mut step));
        let applied = self.backend().apply_to(std::slice::from_ref(&step), first, now).await;
        let (mut at, mut applied) = (index, applied);
        for pool in all.further(index) {
            if !is_unknown(&applied) {
                break;
            }
            let Some(mut pooled) = rules.bind(Operation::Hit, plan, pool) else { continue };
            pooled.index = index;
            let op = op(&mut pooled);
            let by_pool = self.backend().apply_to(std::slice::from_ref(&pooled), op, now).await;
            if !is_unknown(&by_pool) {
                (at, applied) = (pool, by_pool);
            }
        }
        (at, applied)
    }

    #[cold]
    pub(super) fn check_pools_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        let mut search = PoolSearch::new(Operation::Hit, *call);
        loop {
            let request = search.request();
            let attempt = search.call(&request);
            let is_decided = match search.operation() {
                Operation::Hit => self.backend().check_now(&attempt, checked),
                // A future that is not polled has not begun.
                operation => matches!(
                    self.backend().apply(operation, attempt, checked),
                    Deferred::Ready(Ok(()))
                ),
            };
            if !is_decided {
                return false;
            }
            if !search.advance(checked) {
                break;
            }
        }
        search.finish(checked);
        true
    }
}

impl Snapshot<'_> {
    /// Whether the pools of a request are chosen by peeks: a hit that is denied would change
    /// counters, or a rule in shadow mode never denies.
    fn chooses_pools(&self, request: &Request<'_>) -> bool {
        let has_override = request.descriptors.iter().any(|one| one.limit.is_some());
        if !self.active.counts_denied && !has_override {
            return false;
        }
        let mut plan = Plan::default();
        self.rules().plan(request, &mut plan);
        let has_pools = |step: &Step| match step.target {
            Target::Rule(no) => self.rules().next_pool(no).is_some(),
            _ => false,
        };
        let counts_denied = |step: &Step| {
            let rule_counts = match step.target {
                Target::Rule(no) => counts_denied(self.rules().rule(no), has_pools(step)),
                _ => false,
            };
            let combine = self.charge_mode(Operation::Hit, step).map(|mode| mode.combine);
            rule_counts || combine.is_some_and(|combine| combine != Combine::AllOrNothing)
        };
        plan.steps().iter().any(has_pools) && plan.steps().iter().any(counts_denied)
    }

    fn has_next_pool(&self, status: &Status) -> bool {
        matches!(status.target, Target::Rule(no) if self.rules().next_pool(no).is_some())
    }

    /// The further pool of its rule that decided a descriptor; `None` where the rule itself did.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: llm
    /// descriptors:
    ///   - key: team
    ///     limits: { algorithm: fixed_window, rate: 100/year }
    ///     pools:
    ///       - { name: credits, limits: { algorithm: fixed_window, rate: 1000/year } }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("team", "search")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "llm", descriptors: &descriptors, hits: 60 };
    /// let drawn = || engine.snapshot().pool(&engine.check(&request).statuses[0]).map(str::to_owned);
    /// assert_eq!((drawn(), drawn()), (None, Some("credits".to_owned())));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pool(&self, status: &Status) -> Option<&str> {
        match status.target {
            Target::Rule(no) if self.rules().has_pools() => self.rules().pool_of(no),
            _ => None,
        }
    }

    /// The descriptors of a request, each with the pool that decided it.
    pub fn with_pools<'a>(
        &'a self,
        request: &Request<'a>,
        statuses: &[Status],
    ) -> Vec<Descriptor<'a>> {
        let all = request.descriptors.iter().enumerate();
        all.map(|(index, one)| {
            let pool = statuses.get(index).and_then(|status| self.pool(status));
            Descriptor { pool: pool.or(one.pool), ..*one }
        })
        .collect()
    }

    /// The first descriptor whose rule has a pool of this name, by its index.
    #[must_use]
    pub fn descriptor_with_pool(&self, request: &Request<'_>, name: &str) -> Option<usize> {
        let mut plan = Plan::default();
        self.rules().plan(request, &mut plan);
        let first = |no: RuleNo| self.rules().first_pool(no);
        let has_it = |step: &Step| match step.target {
            Target::Rule(no) => self.rules().pool_named(first(no), name).is_some(),
            _ => false,
        };
        plan.steps().iter().position(has_it)
    }
}

/// Whether a hit that is denied changes counters of a rule, or the rule is not enforced.
pub(super) fn counts_denied(rule: &RuleConfig, has_pools: bool) -> bool {
    match &rule.limits {
        Limits::Unlimited => false,
        Limits::Envoy { .. } => true,
        Limits::Native(limits) => {
            rule.quota_mode
                || has_pools && rule.mode == Mode::Shadow
                || limits.iter().any(|limit| match limit.at(Timestamp::EPOCH) {
                    Limit::SlidingLog(log) => log.counts_denied(),
                    limit => limit.counts_first(),
                })
        }
    }
}
