//! `sluicegate tune`: limits from recorded traffic.
//!
//! ```text
//!   arrivals --> split by time --+--> training: the strictest limit that meets the goal, with a
//!                                |              margin for the clients that were not recorded
//!                                +--> held out: what the limit would have denied there
//! ```
//!
//! - [`goal`]: what is asked for.
//! - [`usage`]: requests by client. [`shape`]: the smallest burst, or number, that a client needs.
//! - [`trade_off`]: rate against burst. [`statistics`] and [`resample`]: promises with a confidence.
//! - [`good_clients`], [`requests`], [`protect`]: the other goals.
//! - [`outcome`]: what a limit denies, decided by the core.

pub mod goal;
pub mod good_clients;
pub mod outcome;
pub mod protect;
pub mod requests;
pub mod resample;
pub mod shape;
pub mod statistics;
pub mod trade_off;
pub mod usage;

use sluicegate_config::units::show_span;
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::{Span, Timestamp};

use self::goal::{ShareOf, TuneGoal};
use self::good_clients::GoodClients;
use self::outcome::{LimitOutcome, OutcomeOptions, outcome};
use self::protect::{Capacity, Protection, protect};
use self::requests::{DeniedShare, RequestShares, effective_clients};
use self::resample::{Stability, stability};
use self::shape::{LimitShape, rolling_peak};
use self::statistics::{
    attainable_share, clients_needed, exceeded_by, predicted_at_most, tolerated,
};
use self::trade_off::{Exceeded, TradeOffPoint, grid, over_rates, point, strictest};
use self::usage::UsageByClient;
use crate::arrival::Arrival;

/// The algorithm of the recommended limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TunedAlgorithm {
    /// Rate and burst.
    #[default]
    TokenBucket,
    /// A number in any rolling window, exactly.
    SlidingLog,
    /// A number in any rolling window, by two counts.
    SlidingWindow,
    /// A number per window of the clock.
    FixedWindow,
}

/// How a limit is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneOptions {
    /// Its algorithm.
    pub algorithm: TunedAlgorithm,
    /// The window, for the algorithms that have one.
    pub window: Span,
    /// The span in which the recommended pair of rate and burst admits least.
    pub horizon: Span,
    /// The probability with which a promise is to hold, from 0.5 to below 1.
    pub confidence: f64,
    /// The part of the active time that is held out at the end, from 0 to 0.9.
    pub hold_out: f64,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            algorithm: TunedAlgorithm::TokenBucket,
            window: Span::from_secs(60),
            horizon: Span::from_secs(60),
            confidence: 0.95,
            hold_out: 0.3,
        }
    }
}

/// A limit, and why.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// The goal.
    pub goal: TuneGoal,
    /// The options.
    pub options: TuneOptions,
    /// What was examined.
    pub facts: TrafficFacts,
    /// The limit, or why there is none.
    pub result: TuneResult,
    /// Good clients and abusers, for the goal that distinguishes them.
    pub good: Option<GoodClients>,
    /// The trade-off between rate and burst; of windows, between length and number.
    pub curve: Vec<TradeOffPoint>,
    /// The peak of each client in the horizon, in ascending order.
    pub peaks: Vec<u64>,
}

/// What was examined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficFacts {
    /// Requests.
    pub requests: usize,
    /// Clients.
    pub clients: usize,
    /// Clients with a single request.
    pub single_request_clients: usize,
    /// The part of all requests that the busiest client sent.
    pub busiest_share: f64,
    /// Clients of equal weight that would count as much in a share of requests.
    pub effective_clients: f64,
    /// Clients of the training part.
    pub training_clients: usize,
    /// The first request.
    pub first: Timestamp,
    /// Where the part held out begins.
    pub split: Timestamp,
    /// The last request.
    pub last: Timestamp,
    /// The unit of the times, zero if they are exact.
    pub resolution: Span,
}

/// What was found.
#[derive(Debug, Clone)]
pub enum TuneResult {
    /// A limit per client.
    Limit(Box<Recommendation>),
    /// Limits that hold a capacity.
    Protection(Box<Protection>),
    /// Too few clients for the promise.
    Shortage(Shortage),
}

/// A recommended limit per client.
#[derive(Debug, Clone)]
pub struct Recommendation {
    /// The limit without its size.
    pub shape: LimitShape,
    /// The burst, or the number per window.
    pub size: u64,
    /// The most that it admits of a client in the horizon.
    pub admitted_max: u64,
    /// What supports it.
    pub basis: Basis,
    /// What it would have decided.
    pub outcome: LimitOutcome,
}

/// What supports a recommendation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// A sample of clients.
    Clients {
        /// Clients of the training part that count.
        sample: usize,
        /// Of these, the promise permits so many to be denied.
        tolerated: usize,
        /// The interval of the size that exactly denies the share of the goal, and its estimate.
        interval: [u64; 2],
        /// The estimate.
        estimate: u64,
        /// How many of the clients held out may be denied, with the same confidence.
        predicted_held_out: usize,
        /// How the pair varies with other clients.
        stability: Option<Stability>,
    },
    /// The share of denied requests.
    Requests(DeniedShare),
}

/// Too few clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shortage {
    /// Clients that count.
    pub sample: usize,
    /// How many are needed.
    pub needed: u64,
    /// The smallest share that can be promised.
    pub attainable: f64,
}

/// Why nothing can be recommended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TuneError {
    /// The goal is written wrongly.
    Goal(String),
    /// There is nothing to tune on.
    NoRequests,
    /// More requests than are held.
    TooManyRequests {
        /// The maximum.
        max: usize,
    },
    /// The log is shorter than a window or the horizon.
    TooShort {
        /// The name of the option.
        option: &'static str,
        /// Its value.
        given: Span,
        /// What the part of the log covers that limits are chosen from.
        covered: Span,
    },
    /// A window is shorter than the unit of the times.
    TooCoarse {
        /// The window.
        window: Span,
        /// The unit.
        resolution: Span,
    },
    /// An option outside its range.
    Option {
        /// Its name.
        option: &'static str,
        /// What it must be.
        range: &'static str,
    },
    /// The core does not support the limit.
    Limit(QuotaError),
    /// No limit of the algorithm meets the goal.
    NoLimit,
}

impl TuneError {
    pub(crate) fn goal(problem: &str, text: &str, example: &str) -> Self {
        Self::Goal(format!("{problem}, got `{text}`; write it like {example}"))
    }
}

impl From<QuotaError> for TuneError {
    fn from(error: QuotaError) -> Self {
        Self::Limit(error)
    }
}

impl std::fmt::Display for TuneError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Goal(message) => f.write_str(message),
            Self::NoRequests => f.write_str(
                "the log has no request of a client: check the path, the format and the client",
            ),
            Self::TooManyRequests { max } => {
                write!(f, "the log has more than `{max}` requests: take fewer files or days")
            }
            Self::TooShort { option, given, covered } => {
                let (given, covered) = (show_span(*given), show_span(*covered));
                write!(
                    f,
                    "{option}: must be at most the time that limits are chosen from, `{covered}`, \
                     got `{given}`; take a longer log or a shorter time"
                )
            }
            Self::TooCoarse { window, resolution } => {
                let (window, resolution) = (show_span(*window), show_span(*resolution));
                write!(
                    f,
                    "window: must be a multiple of `{resolution}`, the unit of the log's times, \
                     got `{window}`"
                )
            }
            Self::Option { option, range } => write!(f, "{option}: must be {range}"),
            Self::Limit(error) => write!(f, "the limit that meets the goal is too large: {error}"),
            Self::NoLimit => f.write_str(
                "no limit of this algorithm meets the goal: choose another algorithm or window",
            ),
        }
    }
}

impl std::error::Error for TuneError {}

/// Finds the limit for a goal.
///
/// ```
/// use sluicegate_core::time::Timestamp;
/// use sluicegate_lab::arrival::Arrival;
/// use sluicegate_lab::tune::goal::TuneGoal;
/// use sluicegate_lab::tune::{TuneOptions, TuneResult, tune};
///
/// // A hundred clients send a request each ten seconds, for an hour.
/// let arrivals = (0..36_000_u64).map(|i| Arrival {
///     at: Timestamp::from_micros(i * 100_000),
///     client: (i % 100) as u32,
///     cost: 1,
/// });
/// let goal = TuneGoal::deny_at_most("5% of users")?;
/// let tuning = tune(arrivals.collect(), goal, TuneOptions::default())?;
/// let TuneResult::Limit(limit) = tuning.result else { panic!() };
/// assert_eq!(limit.shape.words(limit.size), "6/m with bursts of 1");
/// assert_eq!(limit.outcome.held_out.denied_requests, 0);
/// # Ok::<(), sluicegate_lab::tune::TuneError>(())
/// ```
///
/// # Errors
/// When the log is empty or too short, or no limit meets the goal. Too few clients are no error but
/// a result.
pub fn tune(
    arrivals: Vec<Arrival>,
    goal: TuneGoal,
    options: TuneOptions,
) -> Result<Tuning, TuneError> {
    options.check()?;
    let usage = UsageByClient::new(arrivals)?;
    let split = usage.active_time_passed(1.0 - options.hold_out);
    let training: Vec<Arrival> =
        usage.clients().flatten().copied().filter(|arrival| arrival.at < split).collect();
    let training = UsageByClient::new(training)?;
    options.check_length(&training, usage.resolution())?;
    let peaks = training.map_clients(|requests| rolling_peak(requests, options.horizon));
    let facts = TrafficFacts::of(&usage, &training, split);
    let mut tuner = Tuner { usage, training, split, peaks, options, good: None };
    let (result, curve) = match goal {
        TuneGoal::DenyAtMost { share, of: ShareOf::Users } => tuner.clients(share)?,
        TuneGoal::ServeGood { part } => {
            tuner.good = GoodClients::new(&tuner.peaks);
            tuner.clients(1.0 - part)?
        }
        TuneGoal::DenyAtMost { share, of: ShareOf::Requests } => tuner.requests(share)?,
        TuneGoal::Protect { capacity, window } => {
            tuner.protect(Capacity { units: capacity, window })?
        }
    };
    let good = tuner.good;
    let mut peaks = tuner.peaks;
    peaks.sort_unstable();
    Ok(Tuning { goal, options, facts, result, good, curve, peaks })
}

impl TuneOptions {
    fn check(&self) -> Result<(), TuneError> {
        if !(0.5..1.0).contains(&self.confidence) {
            return Err(TuneError::Option {
                option: "confidence",
                range: "from `50%` to below `100%`",
            });
        }
        if !(0.0..=0.9).contains(&self.hold_out) {
            return Err(TuneError::Option { option: "hold-out", range: "from `0%` to `90%`" });
        }
        Ok(())
    }

    fn check_length(&self, training: &UsageByClient, resolution: Span) -> Result<(), TuneError> {
        let covered = training.last().since(training.first());
        let too_short = |option, given| TuneError::TooShort { option, given, covered };
        if self.algorithm != TunedAlgorithm::TokenBucket {
            if self.window > covered {
                return Err(too_short("window", self.window));
            }
            let is_multiple = |unit: u64| unit == 0 || self.window.as_micros().is_multiple_of(unit);
            if !is_multiple(resolution.as_micros()) {
                return Err(TuneError::TooCoarse { window: self.window, resolution });
            }
        }
        if self.horizon > covered {
            return Err(too_short("horizon", self.horizon));
        }
        Ok(())
    }

    fn windowed(&self, window: Span) -> LimitShape {
        match self.algorithm {
            TunedAlgorithm::SlidingWindow => LimitShape::SlidingWindow(window),
            TunedAlgorithm::FixedWindow => LimitShape::FixedWindow(window),
            TunedAlgorithm::SlidingLog | TunedAlgorithm::TokenBucket => {
                LimitShape::SlidingLog(window)
            }
        }
    }
}

impl TrafficFacts {
    fn of(usage: &UsageByClient, training: &UsageByClient, split: Timestamp) -> Self {
        let counts = || usage.clients().map(<[Arrival]>::len);
        let busiest = counts().max().unwrap_or(0);
        Self {
            requests: usage.request_count(),
            clients: usage.client_count(),
            single_request_clients: counts().filter(|count| *count == 1).count(),
            busiest_share: busiest as f64 / usage.request_count() as f64,
            effective_clients: effective_clients(usage),
            training_clients: training.client_count(),
            first: usage.first(),
            split,
            last: usage.last(),
            resolution: usage.resolution(),
        }
    }
}

/// What the goals have in common.
struct Tuner {
    usage: UsageByClient,
    training: UsageByClient,
    split: Timestamp,
    peaks: Vec<u64>,
    options: TuneOptions,
    good: Option<GoodClients>,
}

type Found = (TuneResult, Vec<TradeOffPoint>);

impl Tuner {
    /// A limit that denies at most a share of the clients that count.
    fn clients(&self, share: f64) -> Result<Found, TuneError> {
        let TuneOptions { confidence, horizon, .. } = self.options;
        let peak_max = self.good.map_or(u64::MAX, |good| good.peak_max);
        let counts: Vec<bool> = self.peaks.iter().map(|peak| *peak <= peak_max).collect();
        let sample = counts.iter().filter(|counts| **counts).count();
        let tolerated = tolerated(sample, share, confidence);
        let exceeded = Exceeded {
            promised: tolerated.unwrap_or(0),
            estimate: (share * sample as f64) as usize,
            lower: exceeded_by(sample, share, confidence),
        };
        let (curve, best) = self.curve(&counts, exceeded);
        let (Some(tolerated), Some(best)) = (tolerated, best) else {
            let needed = clients_needed(share, confidence);
            let attainable = attainable_share(sample, confidence);
            return Ok((TuneResult::Shortage(Shortage { sample, needed, attainable }), curve));
        };
        let outcome = self.outcome(best.shape, best.size, peak_max)?;
        let held_out = outcome.held_out.counted_clients;
        let basis = Basis::Clients {
            sample,
            tolerated,
            interval: [best.lower.min(best.size), best.size],
            estimate: best.estimate,
            predicted_held_out: predicted_at_most(held_out, tolerated, sample, confidence),
            stability: match self.options.algorithm {
                TunedAlgorithm::TokenBucket => stability(&curve, tolerated, horizon),
                _ => None,
            },
        };
        Ok((self.recommendation(best.shape, best.size, basis, outcome), curve))
    }

    /// A limit that denies at most a share of requests.
    fn requests(&self, share: f64) -> Result<Found, TuneError> {
        let shares = RequestShares::new(&self.training, self.options.confidence);
        let (shape, size, denied) =
            requests::strictest(&shares, &self.shapes(), share, self.options.horizon)?;
        let outcome = self.outcome(shape, size, u64::MAX)?;
        let curve = self.whole_curve();
        Ok((self.recommendation(shape, size, Basis::Requests(denied), outcome), curve))
    }

    /// Limits that hold a capacity.
    fn protect(&self, capacity: Capacity) -> Result<Found, TuneError> {
        let covered = self.training.last().since(self.training.first());
        if capacity.window > covered {
            let (option, given) = ("protect", capacity.window);
            return Err(TuneError::TooShort { option, given, covered });
        }
        let shapes = self.shapes();
        // Neighbouring rates hold a capacity at nearly the same cost.
        let step = if shapes.len() > 1 { 2 } else { 1 };
        let shapes: Vec<LimitShape> = shapes.into_iter().step_by(step).collect();
        let found = protect(
            &self.training,
            &self.usage,
            self.split,
            capacity,
            &shapes,
            self.options.horizon,
        )?;
        Ok((TuneResult::Protection(Box::new(found)), self.whole_curve()))
    }

    /// The curve, and its recommended point.
    fn curve(
        &self,
        counts: &[bool],
        exceeded: Exceeded,
    ) -> (Vec<TradeOffPoint>, Option<TradeOffPoint>) {
        let horizon = self.options.horizon;
        if self.options.algorithm == TunedAlgorithm::TokenBucket {
            let curve = over_rates(&self.training, counts, exceeded, horizon);
            let best = strictest(&curve, horizon).cloned();
            return (curve, best);
        }
        let at = |window| point(self.options.windowed(window), &self.training, counts, exceeded);
        let covered = self.training.last().since(self.training.first());
        let chosen = self.options.window;
        let mut windows: Vec<Span> =
            [1, 10, 60, 600, 3_600, 86_400].into_iter().map(Span::from_secs).collect();
        windows.push(chosen);
        windows.sort_unstable();
        windows.dedup();
        let unit = self.usage.resolution().as_micros().max(1);
        windows.retain(|window| *window <= covered && window.as_micros().is_multiple_of(unit));
        (windows.into_iter().map(at).collect(), Some(at(chosen)))
    }

    /// The curve of goals that are not about a share of clients.
    fn whole_curve(&self) -> Vec<TradeOffPoint> {
        let exceeded = Exceeded { promised: 0, estimate: 0, lower: 0 };
        self.curve(&vec![true; self.peaks.len()], exceeded).0
    }

    fn shapes(&self) -> Vec<LimitShape> {
        if self.options.algorithm != TunedAlgorithm::TokenBucket {
            return vec![self.options.windowed(self.options.window)];
        }
        let length = self.training.last().since(self.training.first()).as_micros().max(1);
        let adds_a_token = |rate: &sluicegate_core::quota::Rate| {
            u128::from(rate.count()) * u128::from(length) >= u128::from(rate.period().as_micros())
        };
        grid().into_iter().filter(adds_a_token).map(LimitShape::TokenBucket).collect()
    }

    fn outcome(
        &self,
        shape: LimitShape,
        size: u64,
        peak_max: u64,
    ) -> Result<LimitOutcome, TuneError> {
        let limit = shape.limit(size)?;
        let options = OutcomeOptions { split: self.split, horizon: self.options.horizon, peak_max };
        Ok(outcome(&limit, &self.usage, options))
    }

    fn recommendation(
        &self,
        shape: LimitShape,
        size: u64,
        basis: Basis,
        outcome: LimitOutcome,
    ) -> TuneResult {
        let admitted_max = shape.admitted_max(size, self.options.horizon);
        TuneResult::Limit(Box::new(Recommendation { shape, size, admitted_max, basis, outcome }))
    }
}
