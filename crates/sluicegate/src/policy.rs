//! The public description of a limit.

use sluicegate_core::time::Span;

/// The public description of one limit of a plan; a [`Verdict`](sluicegate_core::verdict::Verdict)
/// refers to it by index.
///
/// ```
/// use sluicegate::Policy;
/// use sluicegate::Span;
///
/// // A bucket of 50 that is refilled at 10/s.
/// let burst = Policy {
///     name: "burst".to_owned(),
///     algorithm: "token_bucket",
///     quota: Some(50),
///     window: Some(Span::from_secs(5)),
///     enforced: true,
/// };
/// assert_eq!(burst.quota, Some(50));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name, which identifies it within the plan.
    pub name: String,
    /// The algorithm, by its name in rules.
    pub algorithm: &'static str,
    /// The maximum remaining quota; `None` if there is none.
    pub quota: Option<u64>,
    /// The time in which the quota refills once, so that quota per window is the rate: the window,
    /// or the time to fill an empty bucket. `None` if the quota does not refill with time.
    pub window: Option<Span>,
    /// Whether it is enforced; a shadow limit is not, and is hidden from clients.
    pub enforced: bool,
}

impl Policy {
    /// Whether the quota is a number of slots.
    pub(crate) fn has_slots(&self) -> bool {
        self.algorithm == "concurrency"
    }
}
