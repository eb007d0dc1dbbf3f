//! The limit by latency: a queue estimate, and the throughput as its judge.
//!
//! ```text
//!   elasticity = change of the throughput / change of the concurrency, in logarithms
//!
//!   limit falls,  elasticity > 1/2    fewer in flight, fewer responses: no queue, the server is
//!                                     slower than it was. The baseline rises to the latency.
//!   limit rises,  elasticity < 1/4    more in flight, no more responses: a queue.
//!                                     The baseline falls.
//!   limit rises,  elasticity > 0.9    no queue yet. The baseline rises to the latency.
//!   limit stays                       raised by a quarter for six windows, ever more rarely, for
//!                                     nothing else shows that it is too low.
//! ```
//!
//! The baseline alone cannot tell a queue from a server that has become slower. Under a mild
//! overload the latency never shows what it is without a queue, so a baseline that follows the
//! latency upwards drifts, and with it the limit. Here it rises only if the throughput shows that
//! there is no queue, or while the limit is not in use and latency does not depend on concurrency.
//!
//! The 90th percentile varies by chance from window to window, with few or irregular requests by a
//! tenth and more. The lowest of many is too low, and a limit of hundreds would never rise. So the
//! usual change from one window to the next does not count as a queue.

use super::window::{History, WindowSummary};

/// State of a limit that follows the latency. Latencies are in microseconds.
#[derive(Debug)]
pub(super) struct LatencyControl {
    limit_max: f64,
    history: History,
    baseline: Option<f64>,
    /// Windows in a row in which the limit was not in use.
    unused: usize,
    /// Times in a row that the limit has risen without a queue.
    rises: u32,
    trend: Option<Trend>,
    trial: Trial,
}

/// Where the limit moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// A limit that moves, or has moved a few windows ago.
#[derive(Debug, Clone, Copy)]
struct Trend {
    direction: Direction,
    /// The window before it.
    from: WindowSummary,
    /// Windows since the limit moved.
    held: usize,
}

/// A limit that has not moved for some time is raised.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Windows for which the limit has not moved, or those of the trial.
    windows: usize,
    /// Windows after which a trial begins.
    after: usize,
    /// The limit after the last trial.
    limit: f64,
    /// The limit before the present trial, and its windows.
    from: Option<(f64, WindowSummary)>,
}

/// Windows whose median latency is judged: a single one may be disturbed.
const RECENT: usize = 3;
/// The least logarithm of a limit, for thresholds: that of two.
const LOG_MIN: f64 = 0.3;
/// Noise of the median of three windows for a usual change from one to the next: twice its standard
/// deviation; and the most.
const NOISE_FACTOR: f64 = 1.4;
const NOISE_MAX: f64 = 0.3;
/// Share of the limit that is in flight if the limit bounds it.
const FULL_MIN: f64 = 0.8;
/// Change of the concurrency from which the throughput is compared, as a logarithm; and in standard
/// deviations of the number of requests.
const CHANGE_MIN: f64 = 0.2;
const CHANGE_DEVIATIONS: f64 = 5.0;
/// Windows for which a limit that has stopped moving is compared with what it was before.
const TREND_HELD_MAX: usize = 5;
/// Elasticities, as above, and the least one in a trial.
const USEFUL: f64 = 0.5;
const USELESS: f64 = 0.25;
const PROPORTIONAL: f64 = 0.9;
const USEFUL_TRIAL: f64 = 0.7;
/// Windows without a move before the first trial; twice as many after each one that was of no use,
/// up to the second number.
const TRIAL_AFTER: usize = 10;
const TRIAL_AFTER_MAX: usize = 160;
const TRIAL_WINDOWS: usize = 6;
/// Part of the limit of the last trial below which the next one is as early as the first.
const TRIAL_FALLEN: f64 = 0.8;
/// Windows without use of the limit from which the baseline may rise, and the correlation of
/// latency and concurrency up to which it does.
const UNUSED_MIN: usize = 10;
const CORRELATED: f64 = 0.3;

impl LatencyControl {
    pub(super) fn new(limit: f64, limit_max: f64) -> Self {
        let trial = Trial { windows: 0, after: TRIAL_AFTER, limit, from: None };
        let history = History::default();
        Self { limit_max, history, baseline: None, unused: 0, rises: 0, trend: None, trial }
    }

    /// The latency without a queue.
    pub(super) const fn baseline(&self) -> Option<f64> {
        self.baseline
    }

    /// The limit was changed for another reason.
    pub(super) const fn interrupt(&mut self) {
        (self.trend, self.trial.from, self.trial.windows) = (None, None, 0);
    }

    /// The limit after a window.
    pub(super) fn decide(&mut self, limit: f64, now: WindowSummary, is_used: bool) -> f64 {
        self.history.push(now);
        self.unused = if is_used { 0 } else { self.unused + 1 };
        let recent = self.history.latency(RECENT);
        self.update_baseline(recent);
        if let Some(from) = self.trial.from {
            return self.try_limit(limit, from, now);
        }
        let log = limit.log10().max(LOG_MIN);
        let (low, high) = (3.0 * log, 6.0 * log);
        // Of the last window too: the median is late when the limit moves.
        let (queue, queue_now) = (self.queue(limit, recent), self.queue(limit, now.latency));
        let excess = queue.min(queue_now) / high;
        let direction = match () {
            () if excess > 1.0 => Some(Direction::Down),
            () if queue < low && is_used => Some(Direction::Up),
            () => None,
        };
        if self.is_refuted(limit, direction, now, recent) {
            return limit;
        }
        if self.begins_trial(limit, direction, now) {
            return limit + (limit / 4.0).max(1.0);
        }
        let is_free = direction == Some(Direction::Up) && queue_now < log;
        self.rises = if is_free { self.rises + 1 } else { 0 };
        let step = log.max(1.0);
        match direction {
            None => limit,
            // Twice as fast with each step without a queue; never by more than a half at once.
            Some(Direction::Up) => {
                let times = f64::from(1_u32 << self.rises.saturating_sub(1).min(20));
                limit + (step * times).min((limit / 2.0).max(step))
            }
            // Faster, the longer the queue is; never by more than a quarter at once.
            Some(Direction::Down) => limit - (step * excess).min(limit / 4.0),
        }
    }

    /// Requests in the queue of the server, by a latency. What may be noise is not a queue.
    fn queue(&self, limit: f64, latency: f64) -> f64 {
        let noise = (NOISE_FACTOR * self.history.latency_change()).min(NOISE_MAX);
        let baseline = self.baseline.unwrap_or(latency);
        limit * (1.0 - baseline * noise.exp() / latency).max(0.0)
    }

    /// The baseline falls with the latency. It rises while the limit is not in use, unless the
    /// latency depends on the concurrency.
    fn update_baseline(&mut self, recent: f64) {
        let known = *self.baseline.get_or_insert(recent);
        if recent < known {
            self.baseline = Some(f64::midpoint(known, recent));
        } else if self.unused >= UNUSED_MIN
            && self.history.latency_correlation().is_some_and(|one| one < CORRELATED)
        {
            let usual = self.history.latency(UNUSED_MIN);
            self.baseline = Some(known + (usual - known).max(0.0) / 10.0);
        }
    }

    /// Corrects the baseline by the throughput. Whether the limit must not fall.
    fn is_refuted(
        &mut self,
        limit: f64,
        direction: Option<Direction>,
        now: WindowSummary,
        recent: f64,
    ) -> bool {
        match (direction, &mut self.trend) {
            (None, Some(trend)) => trend.held += 1,
            (Some(one), Some(trend)) if trend.direction == one => trend.held = 0,
            (Some(direction), trend) => *trend = Some(Trend { direction, from: now, held: 0 }),
            (None, None) => {}
        }
        let Some(trend) = self.trend.filter(|trend| trend.held <= TREND_HELD_MAX) else {
            self.trend = None;
            return false;
        };
        let Some(elasticity) = trend.elasticity(limit, now) else { return false };
        let known = self.baseline.unwrap_or(recent);
        // The next comparison begins with the next window.
        self.trend = None;
        match trend.direction {
            Direction::Down if elasticity > USEFUL => {
                self.baseline = Some(recent);
                self.rises = 0;
                self.history.clear();
                return true;
            }
            Direction::Up if elasticity < USELESS => {
                // At a given throughput, latency grows with the requests in flight.
                self.baseline = Some(known.min(recent * trend.from.in_flight / now.in_flight));
            }
            Direction::Up if elasticity > PROPORTIONAL => self.baseline = Some(known.max(recent)),
            Direction::Down | Direction::Up => {}
        }
        false
    }

    /// Whether the limit has not moved for long, so that it is raised.
    fn begins_trial(
        &mut self,
        limit: f64,
        direction: Option<Direction>,
        now: WindowSummary,
    ) -> bool {
        let is_held = direction.is_none() && now.in_flight >= limit * FULL_MIN;
        self.trial.windows = if is_held { self.trial.windows + 1 } else { 0 };
        if limit < self.trial.limit * TRIAL_FALLEN {
            self.trial.after = TRIAL_AFTER;
        }
        if self.trial.windows < self.trial.after || limit >= self.limit_max {
            return false;
        }
        self.trial.from = Some((limit, self.history.mean(TRIAL_AFTER)));
        (self.trial.windows, self.trend) = (0, None);
        true
    }

    /// The limit in a trial, and at its end.
    fn try_limit(
        &mut self,
        limit: f64,
        (limit_before, before): (f64, WindowSummary),
        now: WindowSummary,
    ) -> f64 {
        self.trial.windows += 1;
        let is_full = now.in_flight >= limit * FULL_MIN;
        // One window more, since the first one has requests of both limits.
        if is_full && self.trial.windows <= TRIAL_WINDOWS {
            return limit;
        }
        let mean = self.history.mean(TRIAL_WINDOWS);
        let change = (mean.in_flight / before.in_flight).ln();
        let elasticity = (mean.throughput / before.throughput).ln() / change;
        let is_useful = is_full && change > CHANGE_MIN / 2.0 && elasticity > USEFUL_TRIAL;
        if is_useful {
            let usual = self.history.latency(TRIAL_WINDOWS);
            self.baseline = self.baseline.map(|baseline| baseline.max(usual));
        }
        let after = if is_useful { TRIAL_AFTER } else { self.trial.after * 2 };
        let limit = if is_useful { limit } else { limit_before };
        self.trial = Trial { windows: 0, after: after.min(TRIAL_AFTER_MAX), limit, from: None };
        limit
    }
}

impl Trend {
    /// Change of the throughput for one of the concurrency, if the limit bounds that and it has
    /// changed enough to tell.
    fn elasticity(&self, limit: f64, now: WindowSummary) -> Option<f64> {
        let Self { direction, from, .. } = self;
        let change = (now.in_flight / from.in_flight).ln();
        let count = now.count.min(from.count).max(1) as f64;
        let is_enough = change.abs() >= CHANGE_MIN.max(CHANGE_DEVIATIONS / count.sqrt());
        let is_full = now.in_flight >= limit * FULL_MIN;
        let is_same = (change > 0.0) == (*direction == Direction::Up);
        (is_full && is_enough && is_same).then(|| (now.throughput / from.throughput).ln() / change)
    }
}
