//! Redis as the backend of an engine.
//!
//! One script call decides the steps of a request, all or nothing. On a Cluster, steps whose keys
//! are in different slots take one concurrent call each; if one denies, the charges of the others
//! are refunded in the background. A node that crashes in between leaves such a charge: the limit
//! admits at most one request's cost too little, never too much.
//!
//! Steps of leased and eventual rules are decided on this node where possible (`local`), before the
//! store is called. Steps that the store does not answer are decided by their rules' failure policy
//! (`fallback`), and reconciled with the store later (`reconcile`).

mod close;
mod envoy;
mod eventual;
mod fallback;
mod leasing;
mod levels;
mod local;
mod reconcile;
mod request_rules;
mod steps;
mod throttle;

use std::sync::Arc;

use futures_util::future::join_all;
use sluicegate::backend::{
    Applied, ApplyError, Backend, BoundStep, Call, Deferred, Operation, SlotWaiting, StoreError,
    StoreFailure, repeat,
};
use sluicegate::clock::TimeSource;
use sluicegate::{Checked, Engine, LimitState, Returned, Snapshot, Status, new_holder};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::Override;
use sluicegate_rules::rule::OnStoreFailure;
use sluicegate_rules::set::RuleNo;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::handle::NameClaim;
use crate::script::{OptimisticError, ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest};
use crate::{CallError, EnvoyCounters, EnvoyKeys, HitError, Link, Store};
pub(crate) use close::Closer;
use eventual::Eventual;
pub use leasing::LeaseInfo;
use leasing::QuotaLeases;
pub(crate) use levels::LevelCounters;
pub use levels::RuleLevel;
use levels::rule_state;
use local::{LocalDecisions, is_eventual};
use request_rules::{RequestRules, ThrottleKey};
use steps::{RedisStep, has_slots};
pub use throttle::ThrottleHit;

/// Counters in a Redis that other nodes use too.
///
/// Steps that this node decides by itself while the store does not answer are counted in the memory
/// of the engine.
#[derive(Debug)]
pub struct RedisBackend {
    store: Store,
    clock: TimeSource,
    override_rules: RequestRules<Override>,
    throttle_rules: RequestRules<ThrottleKey>,
    leases: QuotaLeases,
    eventual: Arc<Eventual>,
    /// Counters on envoyproxy/ratelimit's keys.
    envoy: Option<EnvoyCounters>,
    /// The runtime of background tasks: guards may be dropped outside of it.
    runtime: Handle,
    /// The name of the limiter that it belongs to.
    _claim: Option<NameClaim>,
}

/// Steps that were sent in one call, and its reply.
struct Group<'a> {
    steps: Vec<RedisStep<'a>>,
    /// The id that slots are held under, if there are any.
    holder: Option<Holder>,
    reply: Result<ScriptAnswer, HitError>,
}

impl Group<'_> {
    /// What a refund gave back, by descriptor.
    fn returned(&self) -> impl Iterator<Item = Returned> + '_ {
        let all = self.reply.iter().flat_map(|answer| &answer.returned);
        all.filter_map(|one| {
            // The index of a part, so far.
            let descriptor = self.steps.get(one.descriptor)?.index;
            Some(Returned { descriptor, ..*one })
        })
    }
}

/// How often a request that waits for a slot looks for one: other nodes may release theirs before
/// the leases end.
const SLOT_POLL_INTERVAL: Span = Span::from_millis(50);
/// Shortest interval between renewals of a lease.
const RENEW_INTERVAL_MIN: Span = Span::from_millis(100);

impl RedisBackend {
    /// Counters in a store. `clock` is that of the engine. Must be called within a Tokio runtime.
    #[must_use]
    pub fn new(store: Store, clock: &TimeSource) -> Self {
        let leases = QuotaLeases::start(clock, &store);
        let eventual = Eventual::start(&store, clock);
        let (override_rules, throttle_rules) = Default::default();
        Self {
            store,
            clock: clock.clone(),
            override_rules,
            throttle_rules,
            leases,
            eventual,
            envoy: None,
            runtime: Handle::current(),
            _claim: None,
        }
    }

    /// The same for a limiter of this name.
    pub(crate) fn with_claim(self, claim: NameClaim) -> Self {
        Self { _claim: Some(claim), ..self }
    }

    /// The rules of an engine, with counters in a store. [`Redis`](crate::Redis) has the
    /// constructor for most programs.
    #[must_use]
    pub fn attach(engine: Engine, store: Store) -> Engine<Self> {
        let backend = Self::new(store, engine.clock());
        engine.with_backend(backend)
    }

    /// Stores limits in Envoy's form under the keys of envoyproxy/ratelimit, so that both share the
    /// counters of one Redis. Limits per second may use a second Redis.
    #[must_use]
    pub fn with_envoy_keys(self, keys: EnvoyKeys, per_second: Option<Link>) -> Self {
        let counters = EnvoyCounters::new(self.store.link().clone(), per_second, keys);
        Self { envoy: Some(counters), ..self }
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Decisions of this node under a rule, and their accuracy.
    #[must_use]
    pub fn level(&self, rules: &Snapshot<'_>, no: RuleNo) -> RuleLevel {
        rule_state(rules, no).levels.read(rules.rules().rule(no).consistency)
    }

    /// The leases of this node, the most used first; the first `max` of many.
    #[must_use]
    pub fn leases(&self, max: usize) -> Vec<LeaseInfo> {
        self.leases.list(max)
    }

    /// Decides a request on this node alone, if every step can be.
    fn check_local(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        let Call { rules, request, retries, .. } = *call;
        if !rules.has_local() || rules.begin(Operation::Hit, request, checked) {
            return false;
        }
        let ticks = self.clock.ticks();
        let Checked { allowed, statuses, plan, .. } = checked;
        let local = self.decide_locally(Operation::Hit, rules, plan, statuses, ticks);
        let is_admitted = local.is_complete && !local.denies;
        self.finish_local(local, is_admitted, rules, plan, ticks);
        if !local.is_complete {
            return false;
        }
        repeat(rules, Operation::Hit, plan, statuses);
        *allowed = is_admitted;
        if is_admitted || !retries {
            rules.count(plan, statuses);
        }
        true
    }

    async fn decide(
        &self,
        operation: Operation,
        call: Call<'_>,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        let Call { rules, request, now, .. } = call;
        if rules.begin(operation, request, checked) {
            return Ok(());
        }
        let Checked { allowed, statuses, plan, returned, .. } = checked;
        let mut local = match operation {
            Operation::Hit | Operation::Peek if rules.has_local() => {
                self.decide_locally(operation, rules, plan, statuses, self.clock.ticks())
            }
            _ => LocalDecisions::default(),
        };
        // Whether the request is an error unless the steps that follow deny it.
        let mut failed = Ok(());
        if !local.is_complete && rules.has_eventual() {
            // Rare, and a large future.
            failed = Box::pin(self.pull(operation, call, plan, statuses, &mut local)).await;
        }
        let mut steps = self.steps(operation, rules, plan, now);
        self.drop_decided(operation, local, rules, plan, &mut steps);
        let mut applied = operation;
        if self.envoy.is_some() {
            let (envoy, others): (Vec<_>, Vec<_>) =
                steps.into_iter().partition(|step| self.is_on_envoy_keys(rules, step));
            let decided = self.decide_on_envoy_keys(operation, call, plan, &envoy, statuses);
            failed = failed.and(Box::pin(decided).await);
            steps = others;
            if operation == Operation::Hit && !rules.admits(statuses) {
                applied = Operation::Peek;
            }
        }
        if failed.is_err() {
            match operation {
                Operation::Hit => applied = Operation::Peek,
                Operation::Peek => {}
                // Nothing denies these.
                Operation::Refund | Operation::Reset => steps.clear(),
            }
        }
        let groups = self.call_groups(applied, steps, &call).await;
        let decided = self.write_verdicts(applied, (&call, plan), &groups, statuses);
        repeat(rules, operation, plan, statuses);
        let admits = rules.admits(statuses);
        let decided = if admits { failed.and(decided) } else { decided };
        *allowed = decided.is_ok() && admits;
        self.observe_replies(operation, rules, plan, &groups);
        if operation == Operation::Refund {
            returned.extend(groups.iter().flat_map(Group::returned));
            returned.sort_unstable_by_key(|one| (one.descriptor, one.limit));
        }
        if operation == Operation::Hit && rules.has_local() {
            self.finish_local(local, *allowed, rules, plan, self.clock.ticks());
        }
        if applied == Operation::Hit {
            match decided {
                Ok(()) => self.reconcile(groups, statuses, *allowed),
                // The request ends with an error: nothing was decided.
                Err(_) => self.refund_answered(groups),
            }
        }
        decided?;
        if operation == Operation::Hit {
            if *allowed || !call.retries {
                rules.count(plan, statuses);
            }
            rules.sweep_now_and_then(now);
        }
        if matches!(operation, Operation::Refund | Operation::Reset) {
            rules.observe_usage(checked);
        }
        if operation == Operation::Refund {
            rules.meter_refund(&checked.plan, &checked.statuses);
        }
        rules.estimate_slot_waits(checked, now);
        Ok(())
    }

    /// Sends steps to the store, those of one slot in one call, all calls side by side.
    async fn call_groups<'a>(
        &self,
        operation: Operation,
        steps: Vec<RedisStep<'a>>,
        &Call { deadline, holder, .. }: &Call<'_>,
    ) -> Vec<Group<'a>> {
        let new_holder = || holder.unwrap_or_else(new_holder);
        let (local, steps) = self.split_local_mode(operation, steps, holder);
        let mut groups = self.group_by_slot(steps, |step| &step.script.key);
        let call = |steps: Vec<RedisStep<'a>>| async move {
            let parts: Vec<ScriptPart> = steps.iter().map(|step| step.script.clone()).collect();
            let needs_holder = operation == Operation::Hit && parts.iter().any(has_slots);
            let holder = needs_holder.then(new_holder);
            let reply = self.call_group(operation, parts, holder, deadline).await;
            Group { steps, holder, reply }
        };
        let mut replies = match groups.len() {
            0 => Vec::new(),
            // Nearly always.
            1 => vec![call(groups.remove(0)).await],
            _ => Box::pin(join_all(groups.into_iter().map(call))).await,
        };
        replies.extend(local);
        replies
    }

    /// Splits off the steps that are decided locally because this node has not rejoined its peers.
    fn split_local_mode<'a>(
        &self,
        operation: Operation,
        steps: Vec<RedisStep<'a>>,
        holder: Option<Holder>,
    ) -> (Option<Group<'a>>, Vec<RedisStep<'a>>) {
        if !self.store.is_local_mode() || !matches!(operation, Operation::Hit | Operation::Peek) {
            return (None, steps);
        }
        let (local, others): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| step.on_store_failure == OnStoreFailure::Local);
        let needs_holder = local.iter().any(|step| step.counter.has_slots());
        let holder = needs_holder.then(|| holder.unwrap_or_else(new_holder));
        let group = Group { steps: local, holder, reply: Err(CallError::Down.into()) };
        ((!group.steps.is_empty()).then_some(group), others)
    }

    fn group_by_slot<T>(&self, steps: Vec<T>, key: impl Fn(&T) -> &Arc<[u8]>) -> Vec<Vec<T>> {
        let mut groups: Vec<(Option<u16>, Vec<T>)> = Vec::new();
        for step in steps {
            let slot = self.store.slot_of(key(&step));
            match groups.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, group)) => group.push(step),
                None => groups.push((slot, vec![step])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    async fn call_group(
        &self,
        operation: Operation,
        parts: Vec<ScriptPart>,
        holder: Option<Holder>,
        deadline: Option<std::time::Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        if operation == Operation::Hit {
            let request = ScriptRequest { parts, op: ScriptOp::Hit, holder, count: 1 };
            return self.store.hit(request, deadline.map(Instant::from_std)).await;
        }
        // Boxed: the future of a hit stays small.
        let reply = async move {
            match operation {
                Operation::Hit | Operation::Refund => {
                    let op = ScriptOp::Refund;
                    self.store.refund(ScriptRequest { parts, op, holder: None, count: 1 }).await
                }
                Operation::Peek => {
                    let cost = parts.iter().map(|part| part.cost).max().unwrap_or(0);
                    let applied = self.store.apply(&parts, Op::Peek { cost }).await?;
                    let allowed = applied.answer.verdict.is_allowed();
                    Ok(ScriptAnswer { allowed, verdicts: applied.each, returned: Vec::new() })
                }
                Operation::Reset => {
                    let mut verdicts = Vec::with_capacity(parts.len());
                    for part in &parts {
                        let applied =
                            self.store.apply(std::slice::from_ref(part), Op::Reset).await?;
                        verdicts.push(applied.answer.verdict);
                    }
                    Ok(ScriptAnswer { allowed: true, verdicts, returned: Vec::new() })
                }
            }
        };
        Box::pin(reply).await.map_err(|error: CallError| HitError::from(error))
    }

    /// Writes the verdict of every step to its status: the store's, or that of its rule's failure
    /// policy.
    fn write_verdicts(
        &self,
        operation: Operation,
        by: (&Call<'_>, &Plan),
        groups: &[Group<'_>],
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let mut unanswered: Option<&CallError> = None;
        for Group { steps, reply, .. } in groups {
            match reply {
                Ok(answer) => {
                    for (step, verdict) in steps.iter().zip(&answer.verdicts) {
                        statuses[step.index].verdict = *verdict;
                    }
                }
                Err(HitError { error, .. }) => unanswered = Some(error),
            }
        }
        let Some(error) = unanswered else { return Ok(()) };
        let groups = groups.iter().filter(|group| group.reply.is_err());
        let steps: Vec<&RedisStep<'_>> = groups.flat_map(|group| &group.steps).collect();
        self.fall_back(operation, by, &steps, error, statuses)
    }
}

impl Backend for RedisBackend {
    fn check_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        self.check_local(call, checked)
    }

    fn apply<'a>(
        &'a self,
        operation: Operation,
        call: Call<'a>,
        checked: &'a mut Checked,
    ) -> Deferred<'a, Result<(), StoreError>> {
        if operation == Operation::Hit && self.check_local(&call, checked) {
            return Deferred::Ready(Ok(()));
        }
        Deferred::pending(self.decide(operation, call, checked))
    }

    fn apply_to<'a>(
        &'a self,
        steps: &'a [BoundStep<'a>],
        op: Op,
        now: Timestamp,
    ) -> Deferred<'a, Result<Applied, ApplyError>> {
        let parts: Vec<_> = steps.iter().map(|step| self.script_part(step, now)).collect();
        Deferred::pending(async move {
            let applied = self.store.apply(&parts, op).await.map_err(|error| match error {
                OptimisticError::Refused(refusal) => ApplyError::Refused(refusal),
                error => ApplyError::Store((&CallError::from(error)).into()),
            })?;
            let (answer, verdicts, returned) = (applied.answer, applied.each, applied.returned);
            Ok(Applied { answer, verdicts, returned })
        })
    }

    fn inspect<'a>(
        &'a self,
        call: Call<'a>,
        plan: &'a Plan,
        step: BoundStep<'a>,
    ) -> Deferred<'a, Result<Vec<LimitState>, StoreFailure>> {
        Deferred::pending(self.inspect_step(call, plan, step))
    }

    fn renew<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, Result<bool, StoreFailure>> {
        Deferred::pending(async move {
            let renewed = self.store.renew(&self.script_part(&step, now), holder).await;
            let renewed = renewed.map_err(|error| StoreFailure::from(&CallError::from(error)))?;
            Ok(renewed > 0)
        })
    }

    fn forget<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, bool> {
        Deferred::pending(async move {
            let part = self.script_part(&step, now);
            // If the store is unreachable, the booking expires there after a day.
            let _ = self.store.forget(&part, holder).await;
            let has_slots = step.counter.has_slots();
            if has_slots {
                let _ = self.store.renew(&part, holder).await;
            }
            has_slots
        })
    }

    fn cancel_in_background(&self, steps: &[BoundStep<'_>], holder: Holder, now: Timestamp) {
        let parts: Vec<_> = steps.iter().map(|step| self.script_part(step, now)).collect();
        let store = self.store.clone();
        self.runtime.spawn(async move {
            for part in parts {
                // A step that was never booked refuses it.
                let _ = store.apply(&[part], Op::Cancel { holder }).await;
            }
        });
    }

    fn group<'a>(&self, steps: Vec<BoundStep<'a>>) -> Vec<Vec<BoundStep<'a>>> {
        let with_keys: Vec<_> = steps.into_iter().map(|step| (self.key_of(&step), step)).collect();
        let groups = self.group_by_slot(with_keys, |(key, _)| key);
        groups.into_iter().map(|group| group.into_iter().map(|(_, step)| step).collect()).collect()
    }

    fn can_hold(&self, rules: &Snapshot<'_>, step: &BoundStep<'_>) -> bool {
        !is_eventual(rules, step)
    }

    fn slot_waiting(&self) -> SlotWaiting {
        let poll_interval = Some(SLOT_POLL_INTERVAL);
        SlotWaiting { poll_interval, renew_interval_min: RENEW_INTERVAL_MIN }
    }
}
