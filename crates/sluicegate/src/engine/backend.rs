//! Backends: where the counters of an engine are.
//!
//! The engine matches a request to its rules; a backend decides its steps. It answers at once if it
//! can, or returns a future ([`Deferred`]). [`MemoryBackend`](super::MemoryBackend) decides in this
//! process; `sluicegate-redis` has one for counters that many nodes share.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::OnStoreFailure;

pub use super::active_rules::{RuleState, envoy_limit, limits_of};
pub use super::admission::{
    Admission, ChargeMode, ChargedLimits, Combine, Group, Operation, admits, charges, first_same,
    largest_cost, repeat,
};
pub use super::hold::DENIED_WITHOUT_STORE;
pub use super::inspect::limit_states;
use super::{Checked, LimitState, Snapshot};
pub use crate::limiter::{CounterRef, apply_each};
pub use crate::memory::UNCOUNTED;
pub use crate::plan::{ResolvedRule, Rule};

/// Where the counters of an engine are.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides a hit without waiting. `false` if it would have to wait: then nothing is charged.
    fn check_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool;

    /// Applies an operation to every limit of a request.
    fn apply<'a>(
        &'a self,
        operation: Operation,
        call: Call<'a>,
        checked: &'a mut Checked,
    ) -> Deferred<'a, Result<(), StoreError>>;

    /// Applies an operation to steps that can be decided together, all or nothing.
    fn apply_to<'a>(
        &'a self,
        steps: &'a [BoundStep<'a>],
        op: Op,
        now: Timestamp,
    ) -> Deferred<'a, Result<Applied, ApplyError>>;

    /// State of every limit of a step.
    fn inspect<'a>(
        &'a self,
        call: Call<'a>,
        plan: &'a Plan,
        step: BoundStep<'a>,
    ) -> Deferred<'a, Result<Vec<LimitState>, StoreFailure>>;

    /// Restarts the leases of slots that are held under an id. Whether there are any.
    fn renew<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, Result<bool, StoreFailure>>;

    /// Forgets a booking whose turn has come, and starts the lease of a slot that came with it.
    /// Whether there is one.
    fn forget<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, bool>;

    /// Cancels what is held under an id, without waiting for it.
    fn cancel_in_background(&self, steps: &[BoundStep<'_>], holder: Holder, now: Timestamp);

    /// Splits steps into groups that can be decided together.
    fn group<'a>(&self, steps: Vec<BoundStep<'a>>) -> Vec<Vec<BoundStep<'a>>> {
        vec![steps]
    }

    /// Whether something can be held of a step's limits.
    fn can_hold(&self, _rules: &Snapshot<'_>, _step: &BoundStep<'_>) -> bool {
        true
    }

    /// How a request waits for a slot.
    fn slot_waiting(&self) -> SlotWaiting;
}

/// How requests wait for slots of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotWaiting {
    /// How often to retry for a slot; `None` if a released slot wakes the request.
    pub poll_interval: Option<Span>,
    /// The shortest time after which a lease is renewed.
    pub renew_interval_min: Span,
}

/// A request, and what a backend needs to decide it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The rules that it is decided by.
    pub rules: &'a Snapshot<'a>,
    /// The request.
    pub request: &'a Request<'a>,
    /// The time, by the engine's clock.
    pub now: Timestamp,
    /// Until when the client waits for the decision, if that is known.
    pub deadline: Option<Instant>,
    /// The id under which a hit holds slots, for their release; random by default.
    pub holder: Option<Holder>,
    /// Whether a denied request waits and tries again: its denial is not counted.
    pub retries: bool,
}

/// A step of a request, with its counter.
#[derive(Debug, Clone, Copy)]
pub struct BoundStep<'a> {
    /// Its index in the plan.
    pub index: usize,
    /// How it is charged.
    pub mode: ChargeMode,
    /// Its cost.
    pub cost: u64,
    /// Its counter in this node's memory.
    pub counter: CounterRef<'a>,
    /// What happens while the store does not answer.
    pub on_store_failure: OnStoreFailure,
}

/// Result of an operation on several steps.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The answer for all of them.
    pub answer: Answer,
    /// The verdict of each.
    pub verdicts: Vec<Verdict>,
    /// After a commit or cancel of one step: what each of its limits got back.
    pub returned: Vec<Option<u64>>,
}

/// Why an operation was not applied. Nothing has changed, unless the store's reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyError {
    /// The store did not answer.
    Store(StoreFailure),
    /// A limit refuses the operation.
    Refused(Refusal),
}

/// Result that is there, or a future of it.
#[must_use = "nothing happens unless it is awaited"]
pub enum Deferred<'a, T> {
    /// It is there.
    Ready(T),
    /// It has to be awaited.
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

/// State that a backend attaches to a rule, created on first use.
#[derive(Default)]
pub struct Extension(OnceLock<Box<dyn Any + Send + Sync>>);

/// Why a request got no answer: the store gave none, and a rule that applies to it has
/// `on_store_failure: error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreError {
    /// What happened.
    pub failure: StoreFailure,
    /// The descriptor whose rule it is, by its index.
    pub descriptor: usize,
}

/// Why the store gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The call timed out. It may have been executed.
    TimedOut,
    /// Too many calls are waiting. It was not sent.
    Busy,
    /// There is no connection, or the circuit breaker is open. It was not sent.
    Down,
    /// The connection broke before the reply. It may have been executed.
    Broken,
    /// The store refused: read-only, out of memory, not permitted.
    Refused,
}

/// The output of a future that waits for nothing, as those of an engine on memory; `None` if it
/// does wait, and then it is dropped.
///
/// ```
/// assert_eq!(sluicegate::backend::ready(async { 42 }), Some(42));
/// ```
pub fn ready<F: Future>(future: F) -> Option<F::Output> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<'a> Call<'a> {
    /// A request by these rules at a time, without a deadline.
    #[must_use]
    pub const fn new(rules: &'a Snapshot<'a>, request: &'a Request<'a>, now: Timestamp) -> Self {
        Self { rules, request, now, deadline: None, holder: None, retries: false }
    }
}

impl<'a, T> Deferred<'a, T> {
    /// A future that has to be awaited.
    pub fn pending(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }
}

impl<'a, T: Unpin + 'a> Future for Deferred<'a, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        match this {
            Self::Pending(future) => future.as_mut().poll(context),
            Self::Ready(_) => {
                // Polled again, it is pending for ever, as any future may be.
                let done = Self::Pending(Box::pin(std::future::pending()));
                match std::mem::replace(this, done) {
                    Self::Ready(output) => Poll::Ready(output),
                    Self::Pending(_) => Poll::Pending,
                }
            }
        }
    }
}

impl<T> fmt::Debug for Deferred<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Deferred::Ready",
            Self::Pending(_) => "Deferred::Pending",
        })
    }
}

impl Extension {
    /// The state, created now if there is none.
    ///
    /// # Panics
    /// When state of another type is attached already: an engine has one backend.
    #[inline]
    pub fn get_or_init<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> &T {
        let state = self.0.get_or_init(|| Box::new(new()));
        state.downcast_ref().expect("state of this backend")
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extension").field(&self.0.get().is_some()).finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (descriptors[{}])", self.failure, self.descriptor)
    }
}

impl std::error::Error for StoreError {}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(failure) => failure.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<Refusal> for ApplyError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl std::error::Error for StoreFailure {}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the store did not answer in time",
            Self::Busy => "too many calls wait for the store",
            Self::Down => "the store cannot be reached",
            Self::Broken => "the connection to the store broke",
            Self::Refused => "the store refused",
        })
    }
}
