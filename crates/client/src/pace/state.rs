//! When the next call may be sent, from the announced limits and the calls in flight.
//!
//! ```text
//!                    429
//!   free ----------------------------------------> held, until Retry-After
//!     ^                                              |
//!     |   it is answered: not too many               v
//!     +--------------------- one goes, the others wait for its answer
//! ```
//! In addition, no window admits more calls than its remaining quota. An ended window has its full
//! quota again; if the quota is unknown, one trial call is sent first.

use std::time::Duration;

use tokio::time::Instant;

use super::hints::ServerHints;
use super::windows::{self, Opens, TrackedWindow, WAIT_MAX};

/// Pacing state of an API.
///
/// Call [`when`](Self::when) before each call, [`sent`](Self::sent) when it is sent, and then
/// [`answered`](Self::answered) or [`lost`](Self::lost).
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Percentage of a quota below which the remaining quota is spread.
    spread_below_percent: Option<u32>,
    windows: Vec<TrackedWindow>,
    held_until: Option<Instant>,
    trial: Trial,
    calls: u64,
    last_sent: Option<Instant>,
    in_flight: u64,
    denials_in_a_row: u32,
}

/// Send time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendTime {
    /// Immediately.
    Now,
    /// Not before this time. A response may change it.
    At(Instant),
}

/// A call in flight.
#[derive(Debug)]
#[must_use = "a call is answered, or lost"]
pub struct SentCall {
    number: u64,
    at: Instant,
}

/// State of the trial call after a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Trial {
    #[default]
    None,
    /// The next call is the trial.
    Due,
    /// The trial call is in flight.
    Since(Instant),
}

/// Initial backoff of a denial without a time; it doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Timeout of a trial call, after which another is sent; some APIs respond after a minute.
const ANSWER: Duration = Duration::from_secs(1);

impl Pace {
    /// A state without known limits: all calls may be sent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`new`](Self::new), but spreads the remaining quota evenly until the reset once it is at
    /// most this percentage of the quota.
    #[must_use]
    pub fn spreading_below(percent: u32) -> Self {
        Self { spread_below_percent: Some(percent), ..Self::default() }
    }

    /// Send time of the next call.
    pub fn when(&mut self, now: Instant) -> SendTime {
        self.pass_to(now);
        let trial = match self.trial {
            Trial::Since(sent) => Some(sent + ANSWER),
            Trial::Due | Trial::None => None,
        };
        let windows = self.windows.iter().filter_map(|tracked| self.opens(tracked)).max();
        match self.held_until.max(trial).max(windows).filter(|at| *at > now) {
            Some(at) => SendTime::At(at),
            None => SendTime::Now,
        }
    }

    /// Time at which a window admits the next call; `None` if it does now.
    fn opens(&self, tracked: &TrackedWindow) -> Option<Instant> {
        let in_flight = self.in_flight;
        match tracked.opens(in_flight) {
            Opens::Now => tracked.spread(self.spread_below_percent?, in_flight, self.last_sent?),
            Opens::At(at) => Some(at),
            Opens::ServerHints(since) => {
                Some(self.last_sent.map_or(since, |sent| since.max(sent)) + ANSWER)
            }
        }
    }

    /// Registers a call as sent.
    pub fn sent(&mut self, now: Instant) -> SentCall {
        self.calls += 1;
        self.in_flight += 1;
        self.last_sent = Some(now);
        if self.trial != Trial::None {
            self.trial = Trial::Since(now);
        }
        SentCall { number: self.calls, at: now }
    }

    /// Registers a response.
    pub fn answered(&mut self, call: SentCall, hints: &ServerHints, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.pass_to(now);
        if hints.denied {
            self.hold(hints, now);
        } else {
            self.denials_in_a_row = 0;
            if let Trial::Since(_) = self.trial {
                self.trial = Trial::None;
            }
            // A limit that the API no longer announces does not exist.
            self.windows.retain(|tracked| !tracked.is_over() || hints.mentions(tracked.name()));
        }
        for tracked in self.windows.iter_mut().filter(|tracked| !hints.mentions(tracked.name())) {
            tracked.miss(now);
        }
        // The time of a denial applies to its exhausted windows.
        for window in hints.windows.iter().filter(|window| !hints.denied || window.remaining > 0) {
            windows::update(&mut self.windows, window, (call.number, call.at), now);
        }
    }

    /// Registers a call without a response, or whose response was not awaited.
    pub fn lost(&mut self, _: SentCall, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.windows.iter_mut().for_each(|tracked| tracked.miss(now));
        if let Trial::Since(_) = self.trial {
            self.trial = Trial::Due;
        }
    }

    /// Whether no hold, call in flight or current window remains.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        self.pass_to(now);
        let is_over = self.windows.iter().all(TrackedWindow::is_over);
        self.in_flight == 0 && self.held_until.is_none() && is_over
    }

    fn hold(&mut self, hints: &ServerHints, now: Instant) {
        let spent = || hints.windows.iter().filter(|window| window.remaining == 0);
        let resets = spent().map(|window| window.reset_after).max();
        let backoff = BACKOFF * 2_u32.pow(self.denials_in_a_row.min(16));
        let wait = hints.retry_after.or(resets).unwrap_or(backoff.min(BACKOFF_MAX));
        self.held_until = self.held_until.max(Some(now + wait.min(WAIT_MAX)));
        self.denials_in_a_row = self.denials_in_a_row.saturating_add(1);
        self.trial = Trial::Due;
        self.windows.retain(|tracked| !spent().any(|window| window.name == tracked.name()));
    }

    /// Drops expired state.
    fn pass_to(&mut self, now: Instant) {
        self.held_until = self.held_until.filter(|at| *at > now);
        self.windows.iter_mut().for_each(|tracked| tracked.pass_to(now));
    }
}
