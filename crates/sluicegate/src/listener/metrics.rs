//! Decisions as counters of the `metrics` facade.

use std::sync::OnceLock;

use metrics::{Counter, counter};
use sluicegate_core::op::OpKind;

use super::{Event, Listener};

/// The operations that have a counter, with their labels.
const OPERATIONS: [(OpKind, &str); 13] = [
    (OpKind::Hit, "hit"),
    (OpKind::Acquire, "acquire"),
    (OpKind::Peek, "peek"),
    (OpKind::Take, "take"),
    (OpKind::Charge, "charge"),
    (OpKind::Refund, "refund"),
    (OpKind::Add, "add"),
    (OpKind::ForceAdd, "force_add"),
    (OpKind::Drain, "drain"),
    (OpKind::Reset, "reset"),
    (OpKind::Reserve, "reserve"),
    (OpKind::Commit, "commit"),
    (OpKind::Cancel, "cancel"),
];

/// Counts decisions with the [`metrics`] facade, for any recorder that the program installs.
///
/// | counter | labels | |
/// |---|---|---|
/// | `sluicegate_decisions_total` | `limiter`, `operation` (`hit`, `acquire`, …), `outcome` (`allowed`, `denied`) | decisions |
/// | `sluicegate_overflows_total` | `limiter` | decisions on identities that the full store had no room for |
///
/// `denied` is counted at the limiter that denied, and `allowed` at each limiter of an admitted
/// request: see the table at [`Listener`]. Which limit of the limiter denied is not a label; the
/// events of `TracingListener` have it.
///
/// Keys are not labels: a listener has at most 27 counters, independent of traffic. Counters are
/// registered by the first decision that they count.
///
/// ```
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::{Limiter, MetricsListener};
///
/// let limiter = Limiter::builder()
///     .name("logins")
///     .limit(TokenBucket::per_minute(5))
///     .listener(MetricsListener::default())
///     .build()?;
/// limiter.hit("alice");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Default)]
pub struct MetricsListener {
    /// `None` for the name of the limiter.
    limiter: Option<String>,
    /// Allowed and denied, by operation.
    decisions: [[OnceLock<Counter>; 2]; OPERATIONS.len()],
    overflows: OnceLock<Counter>,
}

impl MetricsListener {
    /// Counts under this value of the label `limiter`. By default it is the
    /// [name of the limiter](crate::Builder::name).
    pub fn new(limiter: impl Into<String>) -> Self {
        Self { limiter: Some(limiter.into()), ..Self::default() }
    }

    fn label(&self, event: &Event<'_>) -> String {
        self.limiter.clone().unwrap_or_else(|| event.limiter.to_owned())
    }
}

impl Listener for MetricsListener {
    fn decided(&self, event: &Event<'_>) {
        let index = OPERATIONS.iter().position(|(kind, _)| *kind == event.op);
        let Some(index) = index else { return };
        let is_allowed = event.verdict.is_allowed();
        let decisions = self.decisions[index][usize::from(is_allowed)].get_or_init(|| {
            let (operation, limiter) = (OPERATIONS[index].1, self.label(event));
            let outcome = if is_allowed { "allowed" } else { "denied" };
            counter!(
                "sluicegate_decisions_total",
                "limiter" => limiter, "operation" => operation, "outcome" => outcome
            )
        });
        decisions.increment(1);
        if event.overflowed {
            let new = || counter!("sluicegate_overflows_total", "limiter" => self.label(event));
            self.overflows.get_or_init(new).increment(1);
        }
    }
}
