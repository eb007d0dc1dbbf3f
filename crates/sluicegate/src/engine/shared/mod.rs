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
mod waiting;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::{List, Plan, Under};
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;

use super::check::Want;
use super::{Checked, Engine, Inspected, LimitState, Snapshot};
use crate::redis::script::{Answered, Ask, AskPart, ShortOp, Stand};
use crate::redis::{CallError, EnvoyCounters, EnvoyKeys, Link, NotDone, Store, StoreFailure};
use eventual::Eventual;
pub use leasing::Leased;
use leasing::Leases;
pub(super) use levels::LevelCounters;
pub use levels::RuleLevel;
pub(super) use local::decides_here;
use local::{Here, LocalStep};
use parts::{Charters, Part};

/// An engine whose counters are in a store that other nodes ask too. Clones are the same.
///
/// What it is given as an [`Engine`] has the rules, and the memory for what this node decides by itself while the store cannot be asked.
#[derive(Debug, Clone)]
pub struct SharedEngine {
    engine: Engine,
    store: Store,
    charters: Arc<Charters>,
    leases: Leases,
    eventual: Arc<Eventual>,
    /// Counters on envoyproxy/ratelimit's keys.
    envoy: Option<Arc<EnvoyCounters>>,
}

/// Why a request got no answer: the store gave none, and a rule that it is under leaves that to whoever asked (`on_store_failure: error`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What happened.
    pub error: CallError,
    /// Of which descriptor the rule is, by its place.
    pub descriptor: usize,
}

/// What became of parts that were asked together.
struct Group<'a> {
    parts: Vec<Part<'a>>,
    said: Result<Answered, CallError>,
}

// === impl SharedEngine ===

impl SharedEngine {
    /// The rules of an engine, with counters in a store. To be called where tokio runs.
    #[must_use]
    pub fn new(engine: Engine, store: Store) -> Self {
        let leases = Leases::start(&engine, &store);
        let eventual = Eventual::start(&store, engine.inner.store.clock.clone());
        Self { engine, store, charters: Arc::default(), leases, eventual, envoy: None }
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
        rules.levels(no).read(rules.rules().rule(no).consistency)
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
        if self.check_here(rules, request, checked) {
            return Ok(());
        }
        self.ask(Want::Hit, rules, request, checked).await
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
        self.ask(Want::Peek, rules, request, checked).await
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
        self.ask(Want::Refund, rules, request, checked).await
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
        self.ask(Want::Reset, rules, request, checked).await
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
                Some(part) => self
                    .look_at(rules, &checked.plan, &part)
                    .await
                    .map_err(|not| StoreError { error: not.into(), descriptor: place })?,
            };
            all.push(Inspected { under: step.under, limits });
        }
        Ok(all)
    }

    async fn look_at(
        &self,
        rules: &Snapshot<'_>,
        plan: &Plan,
        part: &Part<'_>,
    ) -> Result<Vec<LimitState>, NotDone> {
        if self.is_envoys(rules, part) {
            return self.look_at_envoys(rules, plan, part).await.map_err(NotDone::Store);
        }
        if let Some(step) = self.step_at(Want::Peek, rules, plan, part.place)
            && let (Consistency::Eventual { sync_interval }, Under::Rule(no)) =
                (step.consistency, part.under)
        {
            let one = LocalStep { cost: 1, ..step };
            let said = self.eventual.look(&one, sync_interval).await;
            return Ok(rules.inspect_decided(no, said.map_err(NotDone::Store)?));
        }
        let one = AskPart { cost: 1, ..part.part.clone() };
        match part.under {
            Under::Rule(no) => Ok(rules.inspect_decided(no, self.store.look(&one).await?)),
            Under::Override(limit) => {
                let said = self.store.apply(&[one], Op::Peek { cost: 1 }).await?.answer.verdict;
                Ok(vec![Snapshot::override_state(limit, &said)])
            }
            Under::Nothing | Under::Replaced(_) => Ok(Vec::new()),
        }
    }

    async fn ask(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &mut Checked,
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
        let mut tell = |place: usize, verdict| statuses[place].verdict = verdict;
        let (parts, then) = match self.envoy {
            None => (parts, want),
            Some(_) => {
                let (envoys, others): (Vec<_>, Vec<_>) =
                    parts.into_iter().partition(|part| self.is_envoys(rules, part));
                let asked = self.ask_envoys(want, rules, plan, &envoys, now, &mut tell);
                Box::pin(asked).await?;
                let goes_on = rules.is_allowed(statuses) || want != Want::Hit;
                (others, if goes_on { want } else { Want::Peek })
            }
        };
        let groups = self.ask_groups(then, parts).await;
        let settled = self.settle(then, &groups, now, |place, verdict| {
            statuses[place].verdict = verdict;
        });
        parts::repeat(plan, |place| rules.is_asked_once(want, place, plan), statuses);
        *allowed = settled.is_ok() && rules.is_allowed(statuses);
        self.learn(want, rules, plan, &groups);
        if want == Want::Hit && rules.has_local() {
            self.settle_here(here, *allowed, rules, plan, self.engine.ticks());
        }
        if then == Want::Hit && !*allowed {
            self.give_back(groups);
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
    async fn ask_groups<'a>(&self, want: Want, parts: Vec<Part<'a>>) -> Vec<Group<'a>> {
        let mut groups: Vec<(Option<u16>, Vec<Part<'a>>)> = Vec::new();
        for part in parts {
            let slot = self.store.slot_of(&part.part.key);
            match groups.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, group)) => group.push(part),
                None => groups.push((slot, vec![part])),
            }
        }
        let ask = |(_, parts): (_, Vec<Part<'a>>)| async move {
            let asked = parts.iter().map(|part| part.part.clone()).collect();
            let said = self.ask_group(want, asked).await;
            Group { parts, said }
        };
        match groups.len() {
            0 => Vec::new(),
            // Nearly always.
            1 => vec![ask(groups.remove(0)).await],
            _ => Box::pin(join_all(groups.into_iter().map(ask))).await,
        }
    }

    async fn ask_group(&self, want: Want, parts: Vec<AskPart>) -> Result<Answered, CallError> {
        match want {
            Want::Hit => {
                let holder = parts::needs_holder(&parts).then(Engine::new_holder);
                self.store.hit(Ask { parts, op: ShortOp::Hit, holder, count: 1 }).await
            }
            // What is asked less often has its room elsewhere: it would be in the way of every hit.
            _ => Box::pin(self.ask_other(want, parts)).await,
        }
    }

    async fn ask_other(&self, want: Want, parts: Vec<AskPart>) -> Result<Answered, CallError> {
        match want {
            Want::Hit | Want::Refund => {
                self.store.refund(Ask { parts, op: ShortOp::Refund, holder: None, count: 1 }).await
            }
            Want::Peek => {
                let cost = parts.iter().map(|part| part.cost).max().unwrap_or(0);
                let said = self.store.apply(&parts, Op::Peek { cost }).await?;
                let allowed = said.answer.verdict.is_allowed();
                Ok(Answered { allowed, verdicts: said.each })
            }
            Want::Reset => {
                let mut verdicts = Vec::with_capacity(parts.len());
                for part in &parts {
                    let said = self.store.apply(std::slice::from_ref(part), Op::Reset).await?;
                    verdicts.push(said.answer.verdict);
                }
                Ok(Answered { allowed: true, verdicts })
            }
        }
    }

    /// What is said of every part, by the store or in its place. Each verdict goes to `tell` with the place of its descriptor.
    fn settle(
        &self,
        want: Want,
        groups: &[Group<'_>],
        now: Timestamp,
        mut tell: impl FnMut(usize, Verdict),
    ) -> Result<(), StoreError> {
        let mut failed = Ok(());
        for group in groups {
            match &group.said {
                Ok(answered) => {
                    for (part, verdict) in group.parts.iter().zip(&answered.verdicts) {
                        if want == Want::Hit && verdict.is_allowed() {
                            self.keep_warm(part, now);
                        }
                        tell(part.place, *verdict);
                    }
                }
                Err(error) => {
                    let fallen = self.fall_back(want, &group.parts, error, now, &mut tell);
                    failed = failed.and(fallen);
                }
            }
        }
        failed
    }

    /// What was charged to some of a request that does not go is given back, behind its answer. What lies together was decided together.
    fn give_back(&self, groups: Vec<Group<'_>>) {
        if groups.len() < 2 {
            return;
        }
        for Group { parts, said } in groups {
            let charged = said.is_ok_and(|answered| answered.allowed);
            let parts = parts.into_iter().map(|part| part.part);
            let mut parts: Vec<AskPart> =
                parts.filter(|part| charged && part.stand == Stand::Together).collect();
            if parts.is_empty() {
                continue;
            }
            parts.iter_mut().for_each(|part| part.stand = Stand::Alone);
            let store = self.store.clone();
            tokio::spawn(async move {
                let ask = Ask { parts, op: ShortOp::Refund, holder: None, count: 1 };
                // If that fails too, a little less passes than might.
                let _ = store.refund(ask).await;
            });
        }
    }
}

// === impl StoreError ===

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a server says of itself is for its operators.
        write!(f, "{} (descriptors[{}])", StoreFailure::from(&self.error), self.descriptor)
    }
}

impl std::error::Error for StoreError {}

impl From<NotDone> for CallError {
    fn from(not: NotDone) -> Self {
        match not {
            NotDone::Store(error) => error,
            NotDone::Refused(refusal) => Self::Refused(refusal.to_string().into()),
        }
    }
}
