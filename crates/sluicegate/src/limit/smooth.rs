//! Steady rates, as in Guava's limiters.

use std::time::Duration;

use sluicegate_core::algorithm::smooth::SmoothBursty as CoreSmoothBursty;
use sluicegate_core::algorithm::warm_up::WarmUp as CoreWarmUp;
use sluicegate_core::limit::Limit;
use sluicegate_rules::limit::LimitConfig;

use super::rated::{Rate, SECOND, rated};
use super::{IntoLimit, LimitError};
use crate::clock::span;

/// A steady rate: any cost is granted at once, and the next caller waits for it. As Guava's.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::SmoothBursty;
///
/// let limiter = Limiter::new(SmoothBursty::per_second(5))?;
/// assert!(limiter.of("export").cost(100).hit().is_allowed());
/// assert!(!limiter.of("export").hit().is_allowed(), "the next one pays");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmoothBursty {
    rate: Rate,
    name: Option<String>,
    max_burst: Duration,
}
rated!(SmoothBursty { max_burst: SECOND });

/// A steady rate that is lower after a pause, for resources that need to warm up. As Guava's.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::Limiter;
/// use sluicegate::limit::WarmUp;
///
/// let limiter = Limiter::new(WarmUp::per_second(5).over(Duration::from_secs(4)))?;
/// assert!(limiter.hit("cache").is_allowed());
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmUp {
    rate: Rate,
    name: Option<String>,
    warm_up: Duration,
    cold_factor: u64,
}
rated!(WarmUp { warm_up: SECOND, cold_factor: 3_000 });

impl SmoothBursty {
    /// The time's worth of unused permits that are stored; a second by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::SmoothBursty;
    ///
    /// let limit = SmoothBursty::per_second(5).max_burst(Duration::from_secs(10));
    /// assert!(sluicegate::Limiter::new(limit)?.hit("export").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn max_burst(mut self, time: Duration) -> Self {
        self.max_burst = time;
        self
    }
}

impl IntoLimit for SmoothBursty {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let smooth = CoreSmoothBursty::new(self.rate.exact()?, span(self.max_burst))?;
        Ok(LimitConfig::fixed(self.name, Limit::SmoothBursty(smooth)))
    }
}

impl WarmUp {
    /// The warm-up period; a second by default, an hour at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::WarmUp;
    ///
    /// let limit = WarmUp::per_second(5).over(Duration::from_secs(60));
    /// assert!(sluicegate::Limiter::new(limit)?.hit("cache").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn over(mut self, time: Duration) -> Self {
        self.warm_up = time;
        self
    }

    /// How many times slower it is when cold, in thousandths; 3,000 by default.
    ///
    /// ```
    /// use sluicegate::limit::WarmUp;
    ///
    /// let limit = WarmUp::per_second(5).cold_factor(2_000);
    /// assert!(sluicegate::Limiter::new(limit)?.hit("cache").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn cold_factor(mut self, thousandths: u64) -> Self {
        self.cold_factor = thousandths;
        self
    }
}

impl IntoLimit for WarmUp {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let limit = CoreWarmUp::new(self.rate.exact()?, span(self.warm_up), self.cold_factor)?;
        Ok(LimitConfig::fixed(self.name, Limit::WarmUp(limit)))
    }
}
