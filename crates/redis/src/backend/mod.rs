//! Rules whose counters many nodes share.
//!
//! The rules are matched here, as ever; whose turn it is, is asked of the store. Everything that one request is under goes in one round trip: as one ask, which the store decides all or
//! nothing. Only on a Cluster, where identities may lie on different nodes, an ask becomes several that go side by side; if one of them denies, what the others have
//! charged is given back behind the answer. A node that dies in between leaves that charge: never too much passes, at most one request's cost too little.

mod envoy;
mod eventual;
mod fallback;
mod hearing;
mod holding;
mod leasing;
mod levels;
mod local;
mod parts;
mod reconcile;
mod waiting;

use std::sync::Arc;

use futures_util::future::join_all;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_rules::plan::{List, Plan, Target};
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::{Consistency, OnStoreFailure};
use sluicegate_rules::set::RuleNo;
use tokio::time::Instant;

use crate::script::{ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest};
use crate::{CallError, EnvoyCounters, EnvoyKeys, HitError, Link, OperationError, Store};
use eventual::Eventual;
pub use leasing::Leased;
use leasing::Leases;
pub(crate) use levels::LevelCounters;
pub use levels::RuleLevel;
use levels::rule_state;
use local::{Here, LocalStep};
use parts::{OverrideRules, Part};
use sluicegate::Status;
use sluicegate::backend::{StoreError, Want};
use sluicegate::{Checked, Engine, Inspected, LimitState, Snapshot};

/// An engine whose counters are in a store that other nodes ask too. Clones are the same.
///
/// What it is given as an [`Engine`] has the rules, and the memory for what this node decides by itself while the store cannot be asked.
#[derive(Debug, Clone)]
pub struct SharedEngine {
    engine: Engine,
    store: Store,
    override_rules: Arc<OverrideRules>,
    leases: Leases,
    eventual: Arc<Eventual>,
    /// Counters on envoyproxy/ratelimit's keys.
    envoy: Option<Arc<EnvoyCounters>>,
}

/// What became of parts that were asked together.
struct Group<'a> {
    parts: Vec<Part<'a>>,
    /// The id that slots are held under, if there are any.
    holder: Option<Holder>,
    reply: Result<ScriptAnswer, HitError>,
}

// === impl SharedEngine ===

impl SharedEngine {
    /// The rules of an engine, with counters in a store. To be called where tokio runs.
    #[must_use]
    pub fn new(engine: Engine, store: Store) -> Self {
        let leases = Leases::start(&engine, &store);
        let eventual = Eventual::start(&store, engine.clock());
        Self { engine, store, override_rules: Arc::default(), leases, eventual, envoy: None }
    }

    /// The same with limits of Envoy's form on the keys of envoyproxy/ratelimit, so that both count on one Redis. Those per second may be
    /// counted elsewhere.
    #[must_use]
    pub fn with_envoy_keys(self, keys: EnvoyKeys, per_second: Option<Link>) -> Self {
        let counters = EnvoyCounters::new(self.store.link().clone(), per_second, keys);
        Self { envoy: Some(Arc::new(counters)), ..self }
    }

    /// The rules, and this node's own memory.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What this node decided by itself under a rule, and how far it was off.
    #[must_use]
    pub fn level(&self, rules: &Snapshot<'_>, no: RuleNo) -> RuleLevel {
        rule_state(rules, no).levels.read(rules.rules().rule(no).consistency)
    }

    /// What this node has leased, the most asked for first; of many the first `most`.
    #[must_use]
    pub fn leases(&self, most: usize) -> Vec<Leased> {
        self.leases.list(most)
    }

    /// Gives back what was leased, and tells what was counted. To be called before a node stops; requests that still come ask the store.
    pub async fn close(&self) {
        tokio::join!(self.leases.close(), self.eventual.close());
    }

    /// May this request go now, as far as this node can say so by itself? Whether it could: if not, nothing was charged, and [`SharedEngine::check_by`] asks the
    /// store.
    pub fn check_here(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> bool {
        if !rules.has_local() || rules.begin(request, checked).is_some() {
            return false;
        }
        let ticks = self.engine.ticks();
        let Checked { allowed, statuses, plan, .. } = checked;
        let here = self.ask_here(Want::Hit, rules, plan, statuses, ticks);
        let happens = !here.leaves && !here.denies;
        self.settle_here(here, happens, rules, plan, ticks);
        if here.leaves {
            return false;
        }
        parts::repeat(plan, |place| rules.is_asked_once(Want::Hit, place, plan), statuses);
        *allowed = happens;
        rules.count(plan, statuses);
        true
    }

    /// May this request go now? If so, everything that it is under is charged.
    ///
    /// # Errors
    /// When the store does not answer and a rule wants that to be told.
    pub async fn check(&self, request: &Request<'_>) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        self.check_by(&self.engine.snapshot(), request, &mut checked).await?;
        Ok(checked)
    }

    /// The same by the rules of a snapshot.
    ///
    /// # Errors
    /// As [`SharedEngine::check`].
    pub async fn check_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.check_within(rules, request, checked, None).await
    }

    /// The same for a client that waits until a moment: a decision that the store has not made by
    /// then is made without it.
    ///
    /// # Errors
    /// As [`SharedEngine::check`].
    pub async fn check_within(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
        client_deadline: Option<Instant>,
    ) -> Result<(), StoreError> {
        if self.check_here(rules, request, checked) {
            return Ok(());
        }
        self.ask(Want::Hit, rules, request, checked, client_deadline).await
    }

    /// Would it go now? Nothing is charged.
    ///
    /// # Errors
    /// As [`SharedEngine::check`].
    pub async fn peek_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.ask(Want::Peek, rules, request, checked, None).await
    }

    /// Gives back the hits of a request that was charged and did not happen.
    ///
    /// # Errors
    /// As [`SharedEngine::check`].
    pub async fn refund_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.ask(Want::Refund, rules, request, checked, None).await
    }

    /// Makes every limit that it is under as new for who is described.
    ///
    /// # Errors
    /// As [`SharedEngine::check`].
    pub async fn reset_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.ask(Want::Reset, rules, request, checked, None).await
    }

    /// How every limit of every descriptor stands, in their order.
    ///
    /// # Errors
    /// When the store does not answer, whatever the rules say.
    pub async fn inspect_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
    ) -> Result<Vec<Inspected>, StoreError> {
        let now = self.engine.now();
        let mut checked = Checked::default();
        rules.begin(request, &mut checked);
        let mut all: Vec<Inspected> = Vec::new();
        for (place, step) in checked.plan.steps().iter().enumerate() {
            let part = self.part_of(Want::Peek, rules, &checked.plan, place, now);
            let limits = match part {
                None => Vec::new(),
                Some(part) => self.look_at(rules, &checked.plan, &part).await.map_err(|not| {
                    StoreError { failure: (&CallError::from(not)).into(), descriptor: place }
                })?,
            };
            all.push(Inspected { target: step.target, limits });
        }
        Ok(all)
    }

    async fn look_at(
        &self,
        rules: &Snapshot<'_>,
        plan: &Plan,
        part: &Part<'_>,
    ) -> Result<Vec<LimitState>, OperationError> {
        if self.is_envoys(rules, part) {
            return self.look_at_envoys(rules, plan, part).await.map_err(OperationError::Store);
        }
        if let Some(step) = self.step_at(Want::Peek, rules, plan, part.place)
            && let (Consistency::Eventual { sync_interval }, Target::Rule(no)) =
                (step.consistency, part.target)
        {
            let one = LocalStep { cost: 1, ..step };
            let said = self.eventual.look(&one, sync_interval).await;
            return Ok(rules.inspect_decided(no, said.map_err(OperationError::Store)?));
        }
        let one = ScriptPart { cost: 1, ..part.part.clone() };
        match part.target {
            Target::Rule(no) => Ok(rules.inspect_decided(no, self.store.inspect(&one).await?)),
            Target::Override(limit) => {
                let said = self.store.apply(&[one], Op::Peek { cost: 1 }).await?.answer.verdict;
                Ok(vec![Snapshot::override_state(limit, &said)])
            }
            Target::None | Target::Replaced(_) => Ok(Vec::new()),
        }
    }

    async fn ask(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
        client_deadline: Option<Instant>,
    ) -> Result<(), StoreError> {
        let now = self.engine.now();
        if let Some(listed) = rules.begin(request, checked)
            && want != Want::Reset
        {
            if listed.list == List::Deny && want != Want::Refund {
                checked.deny_listed(listed);
            }
            return Ok(());
        }
        let Checked { allowed, statuses, plan, .. } = checked;
        let mut here = match want {
            Want::Hit | Want::Peek if rules.has_local() => {
                self.ask_here(want, rules, plan, statuses, self.engine.ticks())
            }
            _ => Here::nothing(),
        };
        if here.leaves && rules.has_eventual() {
            // Rare, and large.
            let heard = Box::pin(self.hear(want, rules, plan, statuses, &mut here, now)).await;
            if let Err(error) = heard {
                self.settle_here(here, false, rules, plan, self.engine.ticks());
                *allowed = false;
                return Err(error);
            }
        }
        let mut parts = self.parts(want, rules, plan, now);
        self.leave_out(want, here, rules, plan, &mut parts);
        let (parts, then) = match self.envoy {
            None => (parts, want),
            Some(_) => {
                let (envoys, others): (Vec<_>, Vec<_>) =
                    parts.into_iter().partition(|part| self.is_envoys(rules, part));
                let asked = self.ask_envoys(want, rules, plan, &envoys, now, statuses);
                if let Err(error) = Box::pin(asked).await {
                    *allowed = false;
                    self.settle_here(here, false, rules, plan, self.engine.ticks());
                    return Err(error);
                }
                let goes_on = rules.is_allowed(statuses) || want != Want::Hit;
                (others, if goes_on { want } else { Want::Peek })
            }
        };
        let groups = self.ask_groups(then, parts, client_deadline).await;
        let settled = self.settle(then, (rules, plan), &groups, statuses);
        parts::repeat(plan, |place| rules.is_asked_once(want, place, plan), statuses);
        *allowed = settled.is_ok() && rules.is_allowed(statuses);
        self.learn(want, rules, plan, &groups);
        if want == Want::Hit && rules.has_local() {
            self.settle_here(here, *allowed, rules, plan, self.engine.ticks());
        }
        if then == Want::Hit {
            match settled {
                Ok(()) => self.reconcile(groups, statuses, *allowed),
                // Nothing was decided.
                Err(_) => self.refund_answered(groups),
            }
        }
        settled?;
        if want == Want::Hit {
            rules.count(plan, statuses);
            // Of what this node keeps for the case that the store is away.
            rules.look_after_memory(now);
        }
        Ok(())
    }

    /// Asks all parts, those that lie together together, and all side by side.
    async fn ask_groups<'a>(
        &self,
        want: Want,
        parts: Vec<Part<'a>>,
        client_deadline: Option<Instant>,
    ) -> Vec<Group<'a>> {
        let mut groups: Vec<(Option<u16>, Vec<Part<'a>>)> = Vec::new();
        let (local, parts) = self.split_local(want, parts);
        for part in parts {
            let slot = self.store.slot_of(&part.part.key);
            match groups.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, group)) => group.push(part),
                None => groups.push((slot, vec![part])),
            }
        }
        let ask = |(_, parts): (_, Vec<Part<'a>>)| async move {
            let asked: Vec<ScriptPart> = parts.iter().map(|part| part.part.clone()).collect();
            let needs_holder = want == Want::Hit && parts::needs_holder(&asked);
            let holder = needs_holder.then(Engine::new_holder);
            let reply = self.ask_group(want, asked, holder, client_deadline).await;
            Group { parts, holder, reply }
        };
        let mut asked = match groups.len() {
            0 => Vec::new(),
            // Nearly always.
            1 => vec![ask(groups.remove(0)).await],
            _ => Box::pin(join_all(groups.into_iter().map(ask))).await,
        };
        asked.extend(local);
        asked
    }

    /// Splits off the parts that are decided locally because this node has not rejoined its peers.
    fn split_local<'a>(
        &self,
        want: Want,
        parts: Vec<Part<'a>>,
    ) -> (Option<Group<'a>>, Vec<Part<'a>>) {
        if !self.store.is_local_mode() || !matches!(want, Want::Hit | Want::Peek) {
            return (None, parts);
        }
        let (local, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.policy == OnStoreFailure::Local);
        let needs_holder = local.iter().any(|part| part.asked.has_slots());
        let holder = needs_holder.then(Engine::new_holder);
        let group = Group { parts: local, holder, reply: Err(CallError::Down.into()) };
        ((!group.parts.is_empty()).then_some(group), others)
    }

    async fn ask_group(
        &self,
        want: Want,
        parts: Vec<ScriptPart>,
        holder: Option<Holder>,
        client_deadline: Option<Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        match want {
            Want::Hit => {
                let ask = ScriptRequest { parts, op: ScriptOp::Hit, holder, count: 1 };
                self.store.hit(ask, client_deadline).await
            }
            // What is asked less often has its room elsewhere: it would be in the way of every hit.
            _ => Box::pin(self.ask_other(want, parts)).await.map_err(HitError::from),
        }
    }

    async fn ask_other(
        &self,
        want: Want,
        parts: Vec<ScriptPart>,
    ) -> Result<ScriptAnswer, CallError> {
        match want {
            Want::Hit | Want::Refund => {
                self.store
                    .refund(ScriptRequest { parts, op: ScriptOp::Refund, holder: None, count: 1 })
                    .await
            }
            Want::Peek => {
                let cost = parts.iter().map(|part| part.cost).max().unwrap_or(0);
                let said = self.store.apply(&parts, Op::Peek { cost }).await?;
                let allowed = said.answer.verdict.is_allowed();
                Ok(ScriptAnswer { allowed, verdicts: said.each })
            }
            Want::Reset => {
                let mut verdicts = Vec::with_capacity(parts.len());
                for part in &parts {
                    let said = self.store.apply(std::slice::from_ref(part), Op::Reset).await?;
                    verdicts.push(said.answer.verdict);
                }
                Ok(ScriptAnswer { allowed: true, verdicts })
            }
        }
    }

    /// Writes the verdict of every part to its status: the store's, or that of its rule's failure
    /// policy.
    fn settle(
        &self,
        want: Want,
        by: (&Snapshot<'_>, &Plan),
        groups: &[Group<'_>],
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let mut unanswered: Option<&CallError> = None;
        for Group { parts, reply, .. } in groups {
            match reply {
                Ok(answered) => {
                    for (part, verdict) in parts.iter().zip(&answered.verdicts) {
                        statuses[part.place].verdict = *verdict;
                    }
                }
                Err(HitError { error, .. }) => unanswered = Some(error),
            }
        }
        let Some(error) = unanswered else { return Ok(()) };
        let without = groups.iter().filter(|group| group.reply.is_err());
        let parts: Vec<&Part<'_>> = without.flat_map(|group| &group.parts).collect();
        self.fall_back(want, by, &parts, error, statuses)
    }
}

impl From<OperationError> for CallError {
    fn from(not: OperationError) -> Self {
        match not {
            OperationError::Store(error) => error,
            OperationError::Refused(refusal) => Self::Refused(refusal.to_string().into()),
        }
    }
}
