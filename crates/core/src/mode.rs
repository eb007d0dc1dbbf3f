//! How a limit is enforced: hard, soft, elastic or shadow.
//!
//! A **soft** limit is the same limit with more room, and an admission within that room is marked.
//! An **elastic** limit has two limits: the plain one decides without spare capacity, a boosted one
//! may admit more with it. A **shadow** limit is evaluated but not enforced.

use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::cycle::Cycle;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::sliding_slices::SlidingSlices;
use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::smooth::SmoothBursty;
use crate::algorithm::tally::Tally;
use crate::algorithm::warm_up::WarmUp;
use crate::arithmetic::muldiv;
use crate::limit::Limit;
use crate::quota::{QuotaError, Rate};
use crate::time::{Span, Timestamp};

/// How long a load signal is valid.
pub const LOAD_STALE_AFTER: Span = Span::from_secs(10);
/// Maximum excess of a soft limit, in percent.
pub const SOFT_PERCENT_MAX: u64 = 1_000;
/// Maximum factor of an elastic limit, in thousandths.
pub const ELASTIC_FACTOR_MAX: u64 = 1_000_000;

/// How strictly a rule is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Never above the limit.
    #[default]
    Hard,
    /// Admits a percentage above the limit, marked.
    Soft {
        /// The percentage, 1 to [`SOFT_PERCENT_MAX`].
        percent: u64,
    },
    /// Admits a multiple of the limit while the load is low; the part above the plain limit is
    /// marked.
    Elastic {
        /// The factor in thousandths, 1,000 to [`ELASTIC_FACTOR_MAX`].
        up_to: u64,
        /// When the load signal opens and closes it.
        gate: GateLevels,
    },
    /// Evaluated and counted, never denied.
    Shadow,
}

/// The loads at which an elastic limit opens and closes, in thousandths of the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateLevels {
    /// Opens below this.
    below: u64,
    /// Closes above this; unchanged in between.
    above: u64,
}

/// Whether an elastic limit is open, and the time of its load signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    open: bool,
    observed_at: Option<Timestamp>,
}

/// A limit with its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnforcedLimit {
    /// The limit that decides, including the slack of a soft mode.
    pub(crate) limit: Limit,
    /// The slack above the plain limit.
    pub(crate) slack: u64,
    /// The plain limit, if soft.
    pub(crate) plain: Option<Limit>,
    /// The boosted limit, if elastic.
    pub(crate) boost: Option<Limit>,
    /// Whether it is enforced.
    pub(crate) enforced: bool,
    /// Index of its rule in the plan.
    pub(crate) rule: usize,
}

impl EnforcedLimit {
    /// `limit` under `mode`.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::{Mode, EnforcedLimit};
    ///
    /// let hard = EnforcedLimit::new(Limit::Unlimited, Mode::Hard);
    /// assert_eq!(hard, Ok(EnforcedLimit::hard(Limit::Unlimited)));
    /// assert!(EnforcedLimit::new(Limit::Closed, Mode::Soft { percent: 0 }).is_err());
    /// ```
    ///
    /// # Errors
    /// When a percentage or factor is out of range, the algorithm does not support the mode, or the
    /// resulting limit is not exact.
    pub fn new(limit: Limit, mode: Mode) -> Result<Self, QuotaError> {
        let plain = Self::hard(limit);
        match mode {
            Mode::Hard => Ok(plain),
            Mode::Shadow => Ok(Self { enforced: false, ..plain }),
            Mode::Soft { percent } => {
                let soft = limit.softened(percent)?;
                let slack = slack_of(&limit, &soft);
                Ok(Self { limit: soft, slack, plain: Some(limit), ..plain })
            }
            Mode::Elastic { up_to, .. } => Ok(Self { boost: Some(limit.boosted(up_to)?), ..plain }),
        }
    }

    /// `limit` under [`Mode::Hard`].
    #[must_use]
    pub const fn hard(limit: Limit) -> Self {
        Self { limit, slack: 0, plain: None, boost: None, enforced: true, rule: 0 }
    }

    /// The same as part of this rule. The limits of a shadow rule are counted together.
    #[must_use]
    pub const fn of_rule(self, rule: usize) -> Self {
        Self { rule, ..self }
    }

    /// Its limit and, where it is elastic, the one for spare capacity.
    pub fn stages(&self) -> impl Iterator<Item = &Limit> {
        std::iter::once(&self.limit).chain(&self.boost)
    }

    /// Whether it is elastic.
    #[must_use]
    pub const fn is_elastic(&self) -> bool {
        self.boost.is_some()
    }

    /// Whether it denies; limits in shadow mode do not.
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// The number of its rule.
    #[must_use]
    pub const fn rule(&self) -> usize {
        self.rule
    }

    /// The limit that decides.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The boosted limit, if elastic.
    #[must_use]
    pub const fn boost(&self) -> Option<&Limit> {
        self.boost.as_ref()
    }

    /// Whether denied attempts are recorded: by a log that counts them, or a limit that counts
    /// first.
    ///
    /// ```
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::time::Span;
    ///
    /// let tally = Tally::new(10, Span::from_secs(60)).unwrap();
    /// assert!(EnforcedLimit::hard(Limit::Tally(tally)).records_denials());
    /// ```
    #[must_use]
    pub const fn records_denials(&self) -> bool {
        match &self.limit {
            Limit::SlidingLog(log) => log.counts_denied(),
            limit => limit.counts_first(),
        }
    }
}

fn slack_of(plain: &Limit, soft: &Limit) -> u64 {
    let capacity = |limit: &Limit| limit.capacity().unwrap_or(0);
    capacity(soft).saturating_sub(capacity(plain))
}

impl Limit {
    /// This limit with `percent` more room.
    fn softened(&self, percent: u64) -> Result<Self, QuotaError> {
        if !(1..=SOFT_PERCENT_MAX).contains(&percent) {
            let (min, max) = (1, SOFT_PERCENT_MAX);
            return Err(QuotaError::OutOfRange {
                what: "the soft percentage",
                given: percent,
                min,
                max,
            });
        }
        let more = |n: u64| part(n, percent, 100);
        let grow = |n: u64| n.saturating_add(more(n));
        let grown = |rate: Rate| Rate::new(grow(rate.count()), rate.period());
        Ok(match self {
            Self::Unlimited | Self::Closed => *self,
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.grown(more(bucket.burst()))?),
            Self::LeakyBucket(bucket) => {
                let queue = bucket.queue().saturating_add(more(bucket.queue().saturating_add(1)));
                Self::LeakyBucket(LeakyBucket::new(bucket.rate(), queue)?)
            }
            Self::FixedWindow(window) => {
                Self::FixedWindow(FixedWindow::new(grown(window.rate())?, window.align()))
            }
            Self::SlidingLog(log) => Self::SlidingLog(log.grown(grow)?),
            Self::SlidingWindow(window) => {
                Self::SlidingWindow(SlidingWindow::new(grown(window.rate())?, window.rounding()))
            }
            Self::SlidingSlices(window) => {
                Self::SlidingSlices(SlidingSlices::new(grown(window.rate())?, window.slices())?)
            }
            Self::Cycle(cycle) => Self::Cycle(Cycle::new(grow(cycle.permits()), cycle.period())?),
            Self::Concurrency(slots) => {
                Self::Concurrency(Concurrency::new(grow(slots.max()), slots.lease())?)
            }
            Self::Tally(tally) => Self::Tally(Tally::new(grow(tally.limit()), tally.period())?),
            Self::SmoothBursty(_) | Self::WarmUp(_) => {
                return Err(QuotaError::Unfit {
                    mode: "soft",
                    algorithm: self.algorithm(),
                    remedy: "it grants any cost and lets the next caller pay, so there is nothing \
                             to exceed; use `hard`, or a token bucket",
                });
            }
        })
    }

    /// This limit with rate and size times `factor` thousandths.
    fn boosted(&self, factor: u64) -> Result<Self, QuotaError> {
        if !(1_000..=ELASTIC_FACTOR_MAX).contains(&factor) {
            let what = "the elastic factor (in thousandths)";
            let (min, max) = (1_000, ELASTIC_FACTOR_MAX);
            return Err(QuotaError::OutOfRange { what, given: factor, min, max });
        }
        if let Self::Tally(_) = self {
            return Err(QuotaError::Unfit {
                mode: "elastic",
                algorithm: self.algorithm(),
                remedy: "it counts every hit, so admissions above the limit would be charged to it \
                         once the load rises; use `hard`, or a fixed window",
            });
        }
        self.scaled(factor)
    }

    /// This limit with rate and size times `factor` thousandths, rounded down, at least 1.
    ///
    /// ```
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::time::Span;
    ///
    /// let minute = |limit| Tally::new(limit, Span::from_secs(60)).map(Limit::Tally);
    /// assert_eq!(minute(100)?.scaled(2_500), minute(250));
    /// assert_eq!(minute(1)?.scaled(500), minute(1));
    /// # Ok::<(), sluicegate_core::quota::QuotaError>(())
    /// ```
    ///
    /// # Errors
    /// When the factor is out of range or the resulting limit is not exact.
    pub fn scaled(&self, factor: u64) -> Result<Self, QuotaError> {
        if !(1..=ELASTIC_FACTOR_MAX).contains(&factor) {
            let what = "the factor (in thousandths)";
            let (min, max) = (1, ELASTIC_FACTOR_MAX);
            return Err(QuotaError::OutOfRange { what, given: factor, min, max });
        }
        let times = |n: u64| part(n, factor, 1_000).max(n.min(1));
        let grown = |rate: Rate| Rate::new(times(rate.count()), rate.period());
        Ok(match self {
            Self::Unlimited | Self::Closed => *self,
            Self::TokenBucket(bucket) => {
                let rate = match bucket.refill() {
                    crate::algorithm::token_bucket::Refill::Greedy => {
                        bucket.rate().scaled(factor)?
                    }
                    // The period stays that of the refills, and its tokens grow.
                    _ => grown(bucket.rate())?,
                };
                Self::TokenBucket(bucket.scaled(rate, times(bucket.burst()))?)
            }
            Self::LeakyBucket(bucket) => {
                let queue = times(bucket.queue().saturating_add(1)).saturating_sub(1);
                Self::LeakyBucket(LeakyBucket::new(bucket.rate().scaled(factor)?, queue)?)
            }
            Self::FixedWindow(window) => {
                Self::FixedWindow(FixedWindow::new(grown(window.rate())?, window.align()))
            }
            Self::SlidingLog(log) => Self::SlidingLog(log.grown(times)?),
            Self::SlidingWindow(window) => {
                Self::SlidingWindow(SlidingWindow::new(grown(window.rate())?, window.rounding()))
            }
            Self::SlidingSlices(window) => {
                Self::SlidingSlices(SlidingSlices::new(grown(window.rate())?, window.slices())?)
            }
            Self::SmoothBursty(smooth) => {
                let forget_after = smooth.kernel.forget_after;
                let rate = smooth.rate().scaled(factor)?;
                Self::SmoothBursty(SmoothBursty::build(rate, smooth.max_burst(), forget_after)?)
            }
            Self::WarmUp(warm_up) => {
                let rate = warm_up.rate().scaled(factor)?;
                Self::WarmUp(WarmUp::new(rate, warm_up.warm_up(), warm_up.cold_factor())?)
            }
            Self::Cycle(cycle) => Self::Cycle(Cycle::new(times(cycle.permits()), cycle.period())?),
            Self::Concurrency(slots) => {
                Self::Concurrency(Concurrency::new(times(slots.max()), slots.lease())?)
            }
            Self::Tally(tally) => Self::Tally(Tally::new(times(tally.limit()), tally.period())?),
        })
    }
}

/// `floor(n * times / of)`.
fn part(n: u64, times: u64, of: u64) -> u64 {
    std::num::NonZeroU64::new(of).map_or(n, |of| muldiv(n, times, of).quotient)
}

impl GateLevels {
    /// Opens below one load and closes above another, both in thousandths of the capacity.
    ///
    /// # Errors
    /// When `below` exceeds `above`.
    pub fn new(below: u64, above: u64) -> Result<Self, QuotaError> {
        if below > above {
            let what = "`below` of an elastic mode (in thousandths)";
            return Err(QuotaError::OutOfRange { what, given: below, min: 0, max: above });
        }
        Ok(Self { below, above })
    }

    /// The load below which it opens, in thousandths of the capacity.
    #[must_use]
    pub const fn below(&self) -> u64 {
        self.below
    }

    /// The load above which it closes, in thousandths of the capacity.
    #[must_use]
    pub const fn above(&self) -> u64 {
        self.above
    }
}

impl Gate {
    /// The gate after a load signal, in thousandths of the capacity.
    ///
    /// ```
    /// use sluicegate_core::mode::{Gate, GateLevels};
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let levels = GateLevels::new(700, 850).unwrap();
    /// let now = Timestamp::EPOCH;
    /// let gate = Gate::default().observe(&levels, 500, now);
    /// assert!(gate.is_open(now));
    /// assert!(gate.observe(&levels, 800, now).is_open(now), "in between it stays as it is");
    /// assert!(!gate.observe(&levels, 900, now).is_open(now));
    /// assert!(!gate.is_open(now.after(Span::from_secs(10))), "an old signal is no signal");
    /// ```
    #[must_use]
    pub fn observe(self, levels: &GateLevels, load: u64, now: Timestamp) -> Self {
        let open = if load < levels.below {
            true
        } else if load > levels.above {
            false
        } else {
            self.is_open(now)
        };
        Self { open, observed_at: Some(now) }
    }

    /// Whether there is spare capacity by a valid signal.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.open && self.observed_at.is_some_and(|at| now.since(at) < LOAD_STALE_AFTER)
    }
}
