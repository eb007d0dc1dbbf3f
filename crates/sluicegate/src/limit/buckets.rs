//! Buckets: tokens that are spent, queues that are drained.

use std::time::Duration;

use sluicegate_core::algorithm::leaky_bucket::LeakyBucket as CoreLeakyBucket;
use sluicegate_core::algorithm::smooth::SmoothBursty as CoreSmoothBursty;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket as CoreTokenBucket};
use sluicegate_core::algorithm::warm_up::WarmUp as CoreWarmUp;
use sluicegate_core::limit::Limit;
use sluicegate_rules::limit::LimitConfig;

use super::rated::{Rate, SECOND, rated};
use super::{IntoLimit, LimitError};
use crate::clock::span;

/// A token bucket: refilled at a steady rate, bursts pass while tokens last.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
///
/// let limiter = Limiter::new(TokenBucket::per_second(10).burst(50))?;
/// assert_eq!(limiter.policies()[0].quota, Some(50));
/// assert_eq!(limiter.hit("alice").remaining, Some(49));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    name: Option<String>,
    burst: Option<u64>,
    initial: Option<u64>,
    refill: Refill,
}
rated!(TokenBucket { burst: None, initial: None, refill: Refill::Greedy });

/// A queue drained at a steady rate: an admitted caller gets the time to wait for its turn.
///
/// ```
/// use sluicegate::limit::LeakyBucket;
/// use sluicegate::{Limiter, Outcome, Span};
///
/// let limiter = Limiter::new(LeakyBucket::per_second(10).queue(20))?;
/// limiter.hit("printer");
/// let Outcome::Allow { wait } = limiter.hit("printer").outcome else { panic!() };
/// assert!(wait > Span::from_millis(90));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    name: Option<String>,
    queue: u64,
}
rated!(LeakyBucket { queue: 0 });

impl TokenBucket {
    /// The capacity in tokens; the rate's number by default.
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = Some(tokens);
        self
    }

    /// The initial number of tokens; full by default.
    ///
    /// ```
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(TokenBucket::per_second(10).initial(1))?;
    /// assert_eq!(limiter.hit("alice").remaining, Some(0));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// How tokens are refilled: one by one by default.
    ///
    /// ```
    /// use sluicegate::limit::{Refill, TokenBucket};
    ///
    /// let hourly = TokenBucket::per_hour(10).refill(Refill::Aligned);
    /// assert!(sluicegate::Limiter::new(hourly)?.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = refill;
        self
    }
}

impl IntoLimit for TokenBucket {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let burst = self.burst.unwrap_or(self.rate.count);
        let mut bucket = CoreTokenBucket::new(self.rate.exact()?, burst)?;
        if let Some(initial) = self.initial {
            bucket = bucket.with_initial(initial)?;
        }
        let bucket = bucket.with_refill(self.refill)?;
        Ok(LimitConfig::fixed(self.name, Limit::TokenBucket(bucket)))
    }
}

impl LeakyBucket {
    /// The length of the queue; 0 by default.
    ///
    /// ```
    /// use sluicegate::limit::LeakyBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(LeakyBucket::per_second(1).queue(1))?;
    /// let allowed = [(); 3].map(|()| limiter.hit("printer").is_allowed());
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn queue(mut self, places: u64) -> Self {
        self.queue = places;
        self
    }
}

impl IntoLimit for LeakyBucket {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let bucket = CoreLeakyBucket::new(self.rate.exact()?, self.queue)?;
        Ok(LimitConfig::fixed(self.name, Limit::LeakyBucket(bucket)))
    }
}

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
