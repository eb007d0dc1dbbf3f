//! Observer of every decision: metrics, logs, audits.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use sluicegate_core::op::OpKind;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsListener;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingListener;

/// Receives every decision after it is made, without a lock held.
///
/// It runs on the calling thread and must be quick: the caller waits for it.
///
/// | decision | reported as | at which limiter |
/// |---|---|---|
/// | a request to a [tower layer](crate::tower), admitted | [`OpKind::Hit`] | each that applies |
/// | a request to a tower layer, denied | [`OpKind::Hit`] | the one that denied |
/// | several limiters ([`Together`](crate::Together)), admitted | the operation | each of them |
/// | several limiters, denied | the operation | the limiter that denied |
/// | an operation on one key | the operation; a permit is a [`OpKind::Hit`] | its limiter |
/// | a guard that is dropped | [`OpKind::Cancel`] | on memory its own; on stores none |
/// | an operation that is not possible, or fails at the store | nothing | |
///
/// The events of a layer are the same on every store. It reports a request once it proceeds or is
/// denied: not the reservations, refunds and released slots that this takes, nor a request whose
/// client disconnects while it waits. [`Event::limit`] names the limit that denied. The verdict of
/// an admitted request has the figures of the limiters that decided together, on memory those of
/// all that deny at once.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use sluicegate::limit::FixedWindow;
/// use sluicegate::{Event, Limiter, Listener};
///
/// #[derive(Default)]
/// struct Denials(AtomicU64);
///
/// impl Listener for Denials {
///     fn decided(&self, event: &Event<'_>) {
///         if !event.verdict.is_allowed() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let denials = Arc::new(Denials::default());
/// let limiter =
///     Limiter::builder().limit(FixedWindow::per_day(1)).listener(denials.clone()).build()?;
/// limiter.hit("alice");
/// limiter.hit("alice");
/// assert_eq!(denials.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub trait Listener: Send + Sync {
    /// Called after each decision.
    fn decided(&self, event: &Event<'_>);
}

/// A decision.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The limiter's name; empty if it has none.
    pub limiter: &'a str,
    /// The operation.
    pub op: OpKind,
    /// The key; `None` where only its hash is known, as when a guard is dropped.
    pub key: Option<&'a [u8]>,
    /// The weight.
    pub cost: u64,
    /// The answer.
    pub verdict: &'a Verdict,
    /// The name of the limit that denied; `None` where the request is admitted.
    pub limit: Option<&'a str>,
    /// When.
    pub now: Timestamp,
    /// The store was full for this identity, and the limiter's [`Overflow`](crate::Overflow) policy
    /// decided.
    pub overflowed: bool,
}

impl<L: Listener + ?Sized> Listener for std::sync::Arc<L> {
    fn decided(&self, event: &Event<'_>) {
        (**self).decided(event);
    }
}

/// Both receive every decision, the first one first.
impl<A: Listener, B: Listener> Listener for (A, B) {
    fn decided(&self, event: &Event<'_>) {
        self.0.decided(event);
        self.1.decided(event);
    }
}
