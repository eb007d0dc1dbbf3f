//! Buckets: tokens that are spent, queues that are drained.

use std::time::Duration;

use sluicegate_core::algorithm::leaky_bucket::LeakyBucket as CoreLeakyBucket;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket as CoreTokenBucket};
use sluicegate_core::limit::Limit;
use sluicegate_rules::limit::LimitConfig;

use super::rated::{Rate, rated};
use super::{IntoLimit, LimitError};
/// A token bucket: refilled at a steady rate, bursts pass while tokens last.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
///
/// let limiter = Limiter::new(TokenBucket::per_second(10).burst(50))?;
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
    ///
    /// ```
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(TokenBucket::per_second(10).burst(50))?;
    /// assert_eq!(limiter.policies()[0].quota, Some(50));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
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
