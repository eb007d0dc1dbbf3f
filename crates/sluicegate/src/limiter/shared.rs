//! Limiters on a backend: an engine with one rule, which has the limits of the limiter.
//!
//! The limiter's name and the key are the descriptor, so that every process with a limiter of the
//! same name counts in the same place. On memory, the async operations are the sync ones.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip::SipHasher13;
use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, OpKind, RESERVE_TTL, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::domain::{DescriptorConfig, Domain, LIMITER_DOMAIN};
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::{Descriptor, Entry, Request};
use sluicegate_rules::rule::{OnStoreFailure, RuleConfig};
use sluicegate_rules::set::RuleSet;

use super::{Inner, KeyedOps, Limiter, Reservation, new_holder};
use crate::answer::Denied;
use crate::clock::span;
use crate::engine::backend::{
    ApplyError, Backend, BoundStep, ChargedLimits, DENIED_WITHOUT_STORE, StoreFailure,
};
use crate::engine::{Checked, Engine, Operation, Snapshot};
use crate::limit::LimitError;
use crate::listener::{Event, Listener};
use crate::memory::UNCOUNTED;

/// Begins the text of a key that is not UTF-8.
const BYTES_PREFIX: &str = "\0bytes:";

/// The counters of a limiter on a backend.
pub(super) struct SharedCounters<B: ?Sized> {
    engine: Engine<B>,
    name: Box<str>,
    listener: Option<Arc<dyn Listener>>,
    /// The limits.
    inner: Arc<Inner>,
}

impl<B: ?Sized> SharedCounters<B> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn notify(&self, kind: OpKind, key: &[u8], cost: u64, verdict: &Verdict) {
        if let Some(listener) = &self.listener {
            let (limiter, now) = (&*self.name, self.engine.now());
            let decided_by = self.inner.denied_by(verdict);
            let limit = decided_by.as_ref().map(|limit| &*limit.name);
            let (key, op, overflowed) = (Some(key), kind, false);
            listener.decided(&Event { limiter, op, key, cost, verdict, limit, now, overflowed });
        }
    }
}

/// Binds the request of a key.
macro_rules! let_request {
    ($request:ident, $counters:expr, $key:expr, $cost:expr) => {
        let text = text_of($key);
        let entries = [Entry::new(&$counters.name, &text)];
        let descriptors = [Descriptor::of(&entries)];
        let $request = Request { domain: LIMITER_DOMAIN, descriptors: &descriptors, hits: $cost };
    };
}

impl<B: Backend + ?Sized> SharedCounters<B> {
    /// An operation of the engine: by the limiter's consistency, and its failure policy.
    async fn operate(
        &self,
        operation: Operation,
        key: &[u8],
        cost: u64,
    ) -> Result<Verdict, StoreFailure> {
        let_request!(request, self, key, cost);
        let (rules, mut checked) = (self.engine.snapshot(), Checked::default());
        let call = self.engine.call(&rules, &request);
        let applied = self.engine.apply(operation, call, &mut checked).await;
        applied.map_err(|error| error.failure)?;
        let verdict = verdict_of(&checked);
        let kind = match operation {
            Operation::Hit => OpKind::Hit,
            Operation::Peek => OpKind::Peek,
            Operation::Refund => OpKind::Refund,
            Operation::Reset => OpKind::Reset,
        };
        self.notify(kind, key, cost, &verdict);
        Ok(verdict)
    }

    /// Any operation, at the store.
    pub(super) async fn apply(&self, key: &[u8], op: Op) -> Result<Answer, ApplyError> {
        let operation = match op {
            Op::Peek { .. } => Some(Operation::Peek),
            Op::Refund { .. } => Some(Operation::Refund),
            Op::Reset => Some(Operation::Reset),
            _ => None,
        };
        let_request!(request, self, key, op.cost());
        let (rules, mut plan) = (self.engine.snapshot(), Plan::default());
        let step = bind(&rules, &request, &mut plan)?;
        if let Some(operation) = operation {
            refuse_unsupported(&step, op.kind())?;
            let verdict = self.operate(operation, key, op.cost()).await;
            return verdict.map(Answer::from).map_err(ApplyError::Store);
        }
        if !self.engine.backend().can_hold(&rules, &step) {
            let algorithm = step.counter.rule.map_or("", |rule| rule.limits[0].algorithm());
            return Err(Refusal::Unsupported { op: op.kind(), algorithm, reason: EVENTUAL }.into());
        }
        if let Op::Reserve { ttl, .. } = op {
            step.counter.limiter.hold_time().take(Some(ttl));
        }
        let now = self.engine.now();
        let steps = std::slice::from_ref(&step);
        let mut answer = self.engine.backend().apply_to(steps, op, now).await?.answer;
        answer.verdict = step.counter.limiter.inner.with_estimate(answer.verdict, now);
        self.notify(op.kind(), key, op.cost(), &answer.verdict);
        Ok(answer)
    }

    pub(super) async fn renew(&self, key: &[u8], holder: Holder) -> Result<(), ApplyError> {
        let_request!(request, self, key, 1);
        let (rules, mut plan) = (self.engine.snapshot(), Plan::default());
        let step = bind(&rules, &request, &mut plan)?;
        let renewed = self.engine.backend().renew(step, holder, self.engine.now()).await;
        match renewed.map_err(ApplyError::Store)? {
            true => Ok(()),
            false => Err(Refusal::UnknownHolder.into()),
        }
    }

    pub(super) fn cancel_in_background(&self, key: &[u8], holder: Holder) {
        let_request!(request, self, key, 1);
        let (rules, mut plan) = (self.engine.snapshot(), Plan::default());
        if let Ok(step) = bind(&rules, &request, &mut plan) {
            self.engine.backend().cancel_in_background(&[step], holder, self.engine.now());
        }
    }

    /// A verdict in place of the store's, by the failure policy of the limiter. Other nodes could
    /// not settle what this node holds: under `Local` it is an error.
    fn without_store(&self, failure: StoreFailure) -> Result<Verdict, Denied> {
        let rules = self.engine.snapshot();
        let no = rules.rules().rules().next();
        match no.map(|no| rules.rules().rule(no).on_store_failure) {
            Some(OnStoreFailure::Allow) => Ok(UNCOUNTED),
            Some(OnStoreFailure::Deny) => Err(Denied::NotNow(DENIED_WITHOUT_STORE)),
            _ => Err(Denied::Store(failure)),
        }
    }
}

/// Why an eventual limiter refuses an operation.
const EVENTUAL: &str = "the limiter is `eventual`: its counters cannot hold anything, or be charged \
                        in part; use `Consistency::Leased` or `Strict`";

/// The step of a request, with its counter.
fn bind<'a>(
    rules: &'a Snapshot<'_>,
    request: &Request<'_>,
    plan: &'a mut Plan,
) -> Result<BoundStep<'a>, ApplyError> {
    rules.rules().plan(request, plan);
    // The only rule matches every request of its limiter.
    rules.bind_all(Operation::Hit, plan).next().ok_or(ApplyError::Store(StoreFailure::Refused))
}

/// The engine applies refunds to the limits that support them; a limiter refuses them as a whole.
fn refuse_unsupported(step: &BoundStep<'_>, op: OpKind) -> Result<(), Refusal> {
    let limits = step.counter.rule.map_or(&[][..], |rule| &rule.limits);
    for limit in limits {
        if let Some(reason) = limit.at(Timestamp::EPOCH).refuses(op) {
            return Err(Refusal::Unsupported { op, algorithm: limit.algorithm(), reason });
        }
    }
    Ok(())
}

fn verdict_of(checked: &Checked) -> Verdict {
    checked.statuses.first().map_or(UNCOUNTED, |status| status.verdict)
}

/// A key as the value of a descriptor: itself, or its bytes in hexadecimal if it is not UTF-8.
fn text_of(key: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with(BYTES_PREFIX) => text.into(),
        _ => {
            let mut text = BYTES_PREFIX.to_owned();
            for byte in key {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            text.into()
        }
    }
}

/// Waiting, which takes timers.
#[cfg(feature = "tokio")]
impl<B: Backend + ?Sized> SharedCounters<B> {
    pub(super) async fn acquire(&self, ops: &KeyedOps<'_, B>) -> Result<Verdict, Denied> {
        let holder = ops.holder.unwrap_or_else(new_holder);
        let verdict = self.wait(ops, OpKind::Acquire, holder).await?;
        let max = span(ops.jitter).as_micros();
        if max > 0 {
            let random = ops.limiter.inner.shards.hash(&holder.0.to_le_bytes());
            let delay = sluicegate_core::time::Span::from_micros(random % max.saturating_add(1));
            self.engine.clock().sleep_until(self.engine.now().after(delay)).await;
        }
        Ok(verdict)
    }

    pub(super) async fn permit(&self, ops: &KeyedOps<'_, B>) -> Result<super::Permit<B>, Denied> {
        let holder = ops.holder.unwrap_or_else(new_holder);
        let verdict = self.wait(ops, OpKind::Hit, holder).await?;
        Ok(super::Permit::new(ops, holder, verdict))
    }

    /// Waits for a turn or a slot, and reports it as `kind`.
    async fn wait(
        &self,
        ops: &KeyedOps<'_, B>,
        kind: OpKind,
        holder: Holder,
    ) -> Result<Verdict, Denied> {
        use crate::engine::HoldError;

        let_request!(request, self, ops.key, ops.cost);
        let waited = match self.engine.wait(&request, holder, ops.max_wait).await {
            Ok(waited) => waited,
            Err(HoldError::Store(failure)) => return self.without_store(failure),
            Err(HoldError::Refused(refusal)) => return Err(refusal.into()),
            Err(_) => {
                let (op, algorithm) = (OpKind::Acquire, "eventual");
                return Err(Refusal::Unsupported { op, algorithm, reason: EVENTUAL }.into());
            }
        };
        let verdict = verdict_of(&waited.checked);
        self.notify(kind, ops.key, ops.cost, &verdict);
        Denied::unless_allowed(verdict)?;
        Ok(verdict)
    }
}

impl<B: ?Sized> Limiter<B> {
    /// The id of a text: on a backend the same in every process.
    pub(super) fn holder_of(&self, id: &[u8]) -> Holder {
        if self.shared.is_none() {
            return Holder(self.inner.shards.hash(id));
        }
        let mut hasher = SipHasher13::new_with_keys(0x736c_7569_6365, 0x686f_6c64_6572);
        hasher.write(id);
        Holder(hasher.finish())
    }

    /// The same counters as a limiter on memory: those that a backend falls back on, if it is on
    /// one.
    #[cfg(feature = "tokio")]
    pub(crate) fn in_memory(&self) -> Limiter {
        Limiter { inner: self.inner.clone(), shared: None, is_quiet: self.is_quiet }
    }

    /// The same limiter, without reports to its listener by guards and stores.
    #[cfg(feature = "tower")]
    pub(crate) fn quiet(&self) -> Self {
        let shared = self.shared.as_ref().map(|shared| {
            let SharedCounters { engine, name, inner, .. } = &**shared;
            let (engine, name, inner) = (engine.clone(), name.clone(), inner.clone());
            Arc::new(SharedCounters { engine, name, listener: None, inner })
        });
        Self { inner: self.inner.clone(), shared, is_quiet: true }
    }

    /// Whether a backend has its counters.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

impl<B: Backend> Limiter<B> {
    /// The limiter of a rule on a backend, which is made for the engine's clock.
    pub(super) fn on_backend(
        name: &str,
        rule: RuleConfig,
        engine: impl FnOnce(RuleSet) -> Result<Engine<B>, LimitError>,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Self, LimitError> {
        let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any(name) };
        let domain = Domain { descriptors: vec![users], ..Domain::new(LIMITER_DOMAIN) };
        let rules =
            RuleSet::new(vec![domain]).map_err(|error| LimitError::Text(error.to_string()))?;
        let engine = engine(rules)?;
        let inner = {
            let rules = engine.snapshot();
            let no = rules.rules().rules().next();
            let no = no.ok_or_else(|| LimitError::Text("there is no rule".to_owned()))?;
            rules.counter(ChargedLimits::Rule(no), b"").limiter.inner.clone()
        };
        let limits = inner.clone();
        let shared = SharedCounters { engine, name: name.into(), listener, inner: limits };
        Ok(Self { inner, shared: Some(Arc::new(shared)), is_quiet: false })
    }

    /// The engine that decides, if its counters are on a backend.
    #[must_use]
    pub fn engine(&self) -> Option<&Engine<B>> {
        self.shared.as_ref().map(|shared| &shared.engine)
    }
}

/// The same limiter, for code that works on every backend.
impl<B: Backend> From<Limiter<B>> for Limiter<dyn Backend> {
    fn from(limiter: Limiter<B>) -> Self {
        let shared = limiter.shared.map(|shared| {
            let SharedCounters { engine, name, listener, inner } = &*shared;
            let (name, listener) = (name.clone(), listener.clone());
            let (engine, inner) = (engine.clone().into(), inner.clone());
            Arc::new(SharedCounters { engine, name, listener, inner })
        });
        Self { inner: limiter.inner, shared, is_quiet: limiter.is_quiet }
    }
}

impl<B: Backend + ?Sized> Limiter<B> {
    /// Charges 1 to `key` if the limits admit it.
    ///
    /// On memory it answers at once, as [`Limiter::hit`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{CounterStore, Limiter, Memory};
    ///
    /// /// The same for every store.
    /// async fn may_log_in(store: &impl CounterStore) -> Result<bool, Box<dyn std::error::Error>> {
    ///     let logins =
    ///         Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).on(store)?;
    ///     Ok(logins.hit_async("alice").await?.is_allowed())
    /// }
    ///
    /// assert!(may_log_in(&Memory::new()).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer, and the limiter has [`OnStoreFailure::Error`].
    pub async fn hit_async(&self, key: impl AsRef<[u8]>) -> Result<Verdict, StoreFailure> {
        self.of(&key).hit_async().await
    }
}

/// Operations on any backend. On memory they answer at once.
impl<B: Backend + ?Sized> KeyedOps<'_, B> {
    /// Charges the cost if the limits admit it: see [`KeyedOps::hit`].
    ///
    /// # Errors
    /// When the store does not answer, and the limiter has [`OnStoreFailure::Error`].
    pub async fn hit_async(&self) -> Result<Verdict, StoreFailure> {
        let Some(shared) = &self.limiter.shared else { return Ok(self.hit_in_memory()) };
        if self.holder.is_none() {
            return shared.operate(Operation::Hit, self.key, self.cost).await;
        }
        match shared.apply(self.key, Op::Hit { cost: self.cost, holder: self.holder }).await {
            Ok(answer) => Ok(answer.verdict),
            Err(ApplyError::Refused(_)) => self.peek_async().await,
            Err(ApplyError::Store(failure)) => match shared.without_store(failure) {
                Ok(verdict) | Err(Denied::NotNow(verdict)) => Ok(verdict),
                Err(_) => Err(failure),
            },
        }
    }

    /// The verdict that a hit would get now; changes nothing.
    ///
    /// # Errors
    /// As [`KeyedOps::hit_async`].
    pub async fn peek_async(&self) -> Result<Verdict, StoreFailure> {
        match &self.limiter.shared {
            None => Ok(self.peek_in_memory()),
            Some(shared) => shared.operate(Operation::Peek, self.key, self.cost).await,
        }
    }

    /// Charges as much as possible, up to the cost: see [`KeyedOps::take`].
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn take_async(&self) -> Result<(u64, Verdict), ApplyError> {
        let answer = self.ask_async(Op::Take { cost: self.cost }).await?;
        Ok((answer.taken.unwrap_or(0), answer.verdict))
    }

    /// Consumes the cost, into debt if necessary: see [`KeyedOps::charge`].
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn charge_async(&self) -> Result<Verdict, ApplyError> {
        Ok(self.ask_async(Op::Charge { cost: self.cost }).await?.verdict)
    }

    /// Refunds the cost, at most until full.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn refund_async(&self) -> Result<Verdict, ApplyError> {
        Ok(self.ask_async(Op::Refund { cost: self.cost }).await?.verdict)
    }

    /// Adds the cost, even beyond the capacity: a bonus.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn add_async(&self) -> Result<Verdict, ApplyError> {
        Ok(self.ask_async(Op::Add { cost: self.cost, force: true }).await?.verdict)
    }

    /// Consumes the remaining quota and returns it.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn drain_async(&self) -> Result<u64, ApplyError> {
        Ok(self.ask_async(Op::Drain).await?.taken.unwrap_or(0))
    }

    /// Resets the limits to full.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the store does not answer.
    pub async fn reset_async(&self) -> Result<Verdict, ApplyError> {
        Ok(self.ask_async(Op::Reset).await?.verdict)
    }

    /// Applies any operation of the core and returns the complete answer.
    ///
    /// # Errors
    /// When a limit does not support the operation, the id is missing, unknown or in use, or the
    /// store does not answer.
    pub async fn ask_async(&self, op: Op) -> Result<Answer, ApplyError> {
        match &self.limiter.shared {
            None => self.ask_in_memory(op, self.when()).map_err(ApplyError::Refused),
            Some(shared) => shared.apply(self.key, op).await,
        }
    }

    /// Charges an estimate, which [`Reservation::commit_async`] settles within a minute: see
    /// [`KeyedOps::reserve`].
    ///
    /// # Errors
    /// When the limits deny the request, or the store does not answer.
    pub async fn reserve_async(&self) -> Result<Reservation<B>, Denied> {
        self.reserve_for_async(RESERVE_TTL.to_duration()).await
    }

    /// Charges an estimate that expires after `ttl`: see [`KeyedOps::reserve_for`].
    ///
    /// # Errors
    /// When the limits deny the request, or the store does not answer.
    pub async fn reserve_for_async(&self, ttl: Duration) -> Result<Reservation<B>, Denied> {
        let Some(shared) = &self.limiter.shared else { return self.reserve_in_memory(span(ttl)) };
        let holder = self.holder.unwrap_or_else(new_holder);
        let op = Op::Reserve { cost: self.cost, ttl: span(ttl), holder };
        let verdict = match shared.apply(self.key, op).await {
            Ok(answer) => answer.verdict,
            Err(ApplyError::Refused(refusal)) => return Err(refusal.into()),
            Err(ApplyError::Store(failure)) => {
                let verdict = shared.without_store(failure)?;
                return Ok(Reservation::uncounted(self, verdict));
            }
        };
        Denied::unless_allowed(verdict)?;
        Ok(Reservation::new(self, holder, verdict))
    }
}

impl<B: ?Sized> fmt::Debug for SharedCounters<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCounters").field("name", &self.name).finish_non_exhaustive()
    }
}
