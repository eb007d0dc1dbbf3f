//! Limits without a rate.

use std::time::Duration;

use sluicegate_core::algorithm::concurrency::Concurrency as CoreConcurrency;
use sluicegate_core::algorithm::cycle::Cycle as CoreCycle;
use sluicegate_core::limit::Limit;
use sluicegate_rules::limit::LimitConfig;

use super::rated::named;
use super::{IntoLimit, LimitError};
use crate::clock::span;

/// A number of permits per cycle, bookable in coming cycles.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::Limiter;
/// use sluicegate::limit::Cycle;
///
/// for cycle in [Cycle::of(50), Cycle::of(50).every(Duration::from_millis(500))] {
///     assert_eq!(Limiter::new(cycle)?.hit("api").remaining, Some(49));
/// }
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    permits: u64,
    period: Duration,
    name: Option<String>,
}
named!(Cycle, Cycle::of(50));

/// A maximum number in flight: see [`KeyedOps::permit`](crate::KeyedOps::permit).
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::Concurrency;
///
/// let limiter = Limiter::new(Concurrency::at_most(10))?;
/// let permit = limiter.of("reports").permit()?;
/// assert_eq!(permit.verdict().remaining, Some(9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concurrency {
    max: u64,
    lease: Duration,
    name: Option<String>,
}
named!(Concurrency, Concurrency::at_most(10));

/// Everything passes; listeners can count it.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::Unlimited;
///
/// assert_eq!(Limiter::new(Unlimited)?.hit("alice").remaining, None);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlimited;

const CYCLE: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);

impl Cycle {
    /// `permits` per cycle of a second by default.
    pub const fn of(permits: u64) -> Self {
        Self { permits, period: CYCLE, name: None }
    }

    /// How long a cycle is.
    pub const fn every(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }
}

impl IntoLimit for Cycle {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let cycle = CoreCycle::new(self.permits, span(self.period))?;
        Ok(LimitConfig::fixed(self.name, Limit::Cycle(cycle)))
    }
}

impl Concurrency {
    /// A maximum number in flight, each for a minute at most unless renewed.
    pub const fn at_most(max: u64) -> Self {
        Self { max, lease: LEASE, name: None }
    }

    /// Maximum time that a slot is held, so that a crashed caller does not leak it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::Concurrency;
    ///
    /// let limit = Concurrency::at_most(10).lease(Duration::from_secs(5));
    /// assert!(sluicegate::Limiter::new(limit)?.of("reports").permit().is_ok());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

impl IntoLimit for Concurrency {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let limit = CoreConcurrency::new(self.max, span(self.lease))?;
        Ok(LimitConfig::fixed(self.name, Limit::Concurrency(limit)))
    }
}

impl IntoLimit for Unlimited {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        Ok(LimitConfig::fixed(None, Limit::Unlimited))
    }
}
