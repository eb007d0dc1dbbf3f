//! Live changes of a limiter.

use std::sync::Arc;

use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::Mode;
use sluicegate_rules::limit::LimitConfig;

use super::Limiter;
use crate::limit::{IntoLimit, LimitError};
use crate::plan::Rule;

impl Limiter {
    /// Replaces the limits of all identities.
    ///
    /// A new limit continues the old one of the same name; without a name, the nameless one at the
    /// same index. `carry_over` selects the state that an identity keeps. Each identity switches
    /// from the old limits to the new ones atomically. The change takes about a tenth of a second
    /// for a million identities; until it ends, some are under the new limits and others under the
    /// old.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{CarryOver, Limiter};
    ///
    /// let limiter = Limiter::new(FixedWindow::per_day(10))?;
    /// limiter.of("alice").cost(8).hit();
    /// limiter.set_limits([FixedWindow::per_day(20)], CarryOver::Used)?;
    /// assert_eq!(limiter.of("alice").peek().remaining, Some(12));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// When the new limits are invalid; then nothing has changed.
    pub fn set_limits<L: IntoLimit>(
        &self,
        limits: impl IntoIterator<Item = L>,
        carry_over: CarryOver,
    ) -> Result<(), LimitError> {
        let limits: Vec<LimitConfig> =
            limits.into_iter().map(IntoLimit::into_limit).collect::<Result<_, _>>()?;
        // Serializes changes: the lock is held until all identities have moved.
        let _changing = self.inner.changing.lock();
        let old = self.inner.rule.read().clone();
        let new = Arc::new(Rule::new(limits, old.mode)?.after(&old));
        self.inner.shards.change(&new, carry_over, self.now());
        *self.inner.rule.write() = new;
        self.inner.waiters.wake_all();
        Ok(())
    }

    /// Changes the enforcement mode, for example from shadow to hard after a trial.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Mode};
    ///
    /// let limiter =
    ///     Limiter::builder().limit(FixedWindow::per_day(1)).mode(Mode::Shadow).build()?;
    /// limiter.hit("alice");
    /// assert!(limiter.hit("alice").is_allowed());
    /// limiter.set_mode(Mode::Hard)?;
    /// assert!(!limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// When a limit does not support the mode; then nothing has changed.
    pub fn set_mode(&self, mode: Mode) -> Result<(), LimitError> {
        let _changing = self.inner.changing.lock();
        let old = self.inner.rule.read().clone();
        let new = Arc::new(Rule::new(old.limits.clone(), mode)?.after(&old));
        self.inner.shards.change(&new, CarryOver::Used, self.now());
        *self.inner.rule.write() = new;
        self.inner.waiters.wake_all();
        Ok(())
    }

    /// Reports the load of the protected resource to an elastic limiter, in thousandths of its
    /// capacity.
    ///
    /// A signal is valid for 10 seconds.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{GateLevels, Limiter, Mode};
    ///
    /// let gate = GateLevels::new(700, 850)?;
    /// let limiter = Limiter::builder()
    ///     .limit(FixedWindow::per_hour(1))
    ///     .mode(Mode::Elastic { up_to: 2_000, gate })
    ///     .build()?;
    /// limiter.hit("alice");
    /// assert!(!limiter.hit("alice").is_allowed());
    /// limiter.set_load(500);
    /// assert!(limiter.hit("alice").elastic);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn set_load(&self, thousandths: u64) {
        self.observe_load(thousandths, self.now());
    }
}
