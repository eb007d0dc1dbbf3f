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
//! - [`trade_off`]: rate against burst. [`statistics`] and [`resample`]: promises with a
//!   confidence.
//! - [`good_clients`], [`requests`], [`protect`]: the other goals.
//! - [`outcome`]: what a limit denies, decided by the core.
//! - [`rules_file`], and the methods of [`Tuning`]: the recommendation for the service, for people
//!   and for programs.

mod error;
mod findings;
pub mod goal;
pub mod good_clients;
mod json;
pub mod outcome;
mod page;
mod plots;
pub mod protect;
pub mod requests;
pub mod resample;
pub mod rules_file;
pub mod shape;
pub mod statistics;
pub mod trade_off;
mod tuner;
pub mod usage;

use sluicegate_core::time::{Span, Timestamp};

pub use self::error::TuneError;
use self::goal::TuneGoal;
use self::good_clients::GoodClients;
use self::outcome::LimitOutcome;
use self::protect::Protection;
use self::requests::DeniedShare;
use self::resample::Stability;
use self::shape::{LimitShape, rolling_peak};
use self::trade_off::TradeOffPoint;
use self::tuner::Tuner;
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
    /// The limit, or the reason for which none is recommended.
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
///     at: Timestamp::from_micros(i * 100_000 + 1),
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
    let good = match goal {
        TuneGoal::ServeGood { .. } => GoodClients::new(&peaks),
        _ => None,
    };
    let tuner = Tuner { usage, training, split, peaks, options, good };
    let (result, curve) = tuner.find(goal)?;
    let mut peaks = tuner.peaks;
    peaks.sort_unstable();
    Ok(Tuning { goal, options, facts, result, good, curve, peaks })
}
