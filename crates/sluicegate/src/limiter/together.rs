//! Several limiters, one decision.

use sluicegate_core::account::Answer;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::{Limiter, new_holder};
use crate::answer::Policy;
use crate::memory::{Answered, Target, apply_together};

/// A request decided by several limiters: all are charged, or none.
///
/// ```
/// use sluicegate::limit::{FixedWindow, TokenBucket};
/// use sluicegate::{Limiter, Op, Together};
///
/// let per_user = Limiter::new(FixedWindow::per_day(3))?;
/// let per_address = Limiter::new(TokenBucket::per_second(10))?;
/// let everybody = Limiter::new(TokenBucket::per_second(10_000))?;
///
/// let request = Together::new()
///     .and(&per_user, "alice")
///     .and(&per_address, "192.0.2.7")
///     .and(&everybody, "");
/// assert_eq!(request.policies().len(), 3);
/// assert_eq!(request.peek().remaining, Some(3), "the least of all");
/// assert_eq!(request.hit().remaining, Some(2));
/// assert!(request.clone().cost(2).at(per_user.now()).hit().is_allowed());
/// request.ask(Op::Charge { cost: 4 })?;
/// assert_eq!(per_user.of("alice").peek().remaining, Some(-4), "a debt");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is asked yet"]
pub struct Together<'a> {
    members: Vec<(&'a Limiter, Vec<u8>)>,
    cost: Option<u64>,
    now: Option<Timestamp>,
}

impl<'a> Together<'a> {
    /// A request without limiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the limits of `limiter` on `key`.
    ///
    /// The time is that of the first limiter's clock. The same identity named twice is charged
    /// once.
    pub fn and(mut self, limiter: &'a Limiter, key: impl AsRef<[u8]>) -> Self {
        self.members.push((limiter, key.as_ref().to_vec()));
        self
    }

    /// The cost; 1 by default.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// The time; that of the first limiter's clock by default.
    pub fn at(self, now: Timestamp) -> Self {
        Self { now: Some(now), ..self }
    }

    /// Charges the cost to all limiters if all admit it, else to none.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Together};
    ///
    /// let (one, two) = (Limiter::new(FixedWindow::per_day(1))?, Limiter::new(FixedWindow::per_day(5))?);
    /// let request = Together::new().and(&one, "alice").and(&two, "alice");
    /// request.hit();
    /// assert!(!request.hit().is_allowed());
    /// assert_eq!(two.of("alice").peek().remaining, Some(4), "charged once");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn hit(&self) -> Verdict {
        self.infallible(Op::Hit { cost: self.weight(), holder: Some(new_holder()) })
    }

    /// The verdict that a hit would get now; changes nothing.
    #[must_use]
    pub fn peek(&self) -> Verdict {
        self.infallible(Op::Peek { cost: self.weight() })
    }

    /// Applies any operation of the core to all of them.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the id is missing, unknown or in use.
    pub fn ask(&self, op: Op) -> Result<Answer, Refusal> {
        let now = self.now.or_else(|| self.members.first().map(|(limiter, _)| limiter.now()));
        let now = now.unwrap_or_default();
        let target = |(limiter, key): &(&'a Limiter, Vec<u8>)| Target {
            shards: &limiter.inner.shards,
            hash: limiter.inner.shards.hash(key),
            spare_capacity: limiter.inner.gate.lock().is_open(now),
            rule: None,
            cost: None,
        };
        let targets: Vec<Target<'_>> = self.members.iter().map(target).collect();
        let Answered { answer, overflowed } = apply_together(&targets, op, now)?;
        self.notify(op, &answer.verdict, now, overflowed);
        Ok(answer)
    }

    /// The public description of all limits; a verdict's `decided_by` is an index into it.
    #[must_use]
    pub fn policies(&self) -> Vec<Policy> {
        self.members.iter().flat_map(|(limiter, _)| limiter.policies().to_vec()).collect()
    }

    /// Reports the verdict to each limiter's listener; a denial to that of the limiter that denied.
    fn notify(&self, op: Op, verdict: &Verdict, now: Timestamp, overflowed: bool) {
        let counts = self.members.iter().map(|(limiter, _)| limiter.policies().len());
        for ((limiter, key), verdict) in self.members.iter().zip(split(verdict, counts)) {
            if let Some(verdict) = verdict.filter(|_| !limiter.is_quiet) {
                limiter.inner.notify(op.kind(), Some(key), op.cost(), &verdict, now, overflowed);
            }
        }
    }

    fn weight(&self) -> u64 {
        self.cost.unwrap_or(1)
    }

    fn infallible(&self, op: Op) -> Verdict {
        // No algorithm refuses a peek or a hit with a fresh id.
        self.ask(op).map_or(crate::memory::UNCOUNTED, |answer| answer.verdict)
    }
}

/// The verdict on several limiters as each of them reports it, given their numbers of limits: with
/// the index of its own limit, if one decided. `None` for those that a denial does not come from.
pub(crate) fn split(
    verdict: &Verdict,
    counts: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Option<Verdict>> {
    let mut first = 0;
    counts.map(move |own| {
        let index = verdict.decided_by.and_then(|index| index.checked_sub(first));
        let decided_by = index.filter(|index| *index < own);
        first += own;
        let is_reported =
            verdict.is_allowed() || verdict.decided_by.is_none() || decided_by.is_some();
        is_reported.then_some(Verdict { decided_by, ..*verdict })
    })
}
