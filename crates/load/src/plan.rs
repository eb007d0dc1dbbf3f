//! The plan of a run and its validation.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::keys::{KeyOrder, KeySpace};
use crate::request::{Protocol, RequestSpec};
use crate::schedule::{Arrivals, Rate, RateStep};

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Address of the server: see [`Target`](crate::Target).
    pub address: SocketAddr,
    /// The request.
    pub request: RequestSpec,
    /// The keys.
    pub keys: KeySpace,
    /// Closed or open loop.
    pub pace: Pace,
    /// Duration or count.
    pub amount: Amount,
    /// Uncounted load before the measurement.
    pub warm_up: Duration,
    /// Sends one request per key first, so that all keys are live.
    pub fill: bool,
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests in flight per connection: gRPC streams, pipelined RESP commands, 1 for HTTP.
    pub at_once: usize,
    /// Threads; connections, rate and amount are divided among them.
    pub threads: usize,
    /// The run is aborted after this time without a response.
    pub timeout: Duration,
    /// A request without a response after this time is abandoned and its connection closed, as
    /// clients do; HTTP only.
    pub request_timeout: Option<Duration>,
    /// Timer of an open loop.
    pub timer: Timer,
    /// HTTP statuses that mean denied.
    pub denied: Vec<u16>,
    /// Password for RESP `AUTH`.
    pub password: Option<String>,
    /// Processes whose CPU time and memory are measured.
    pub server: Server,
}

/// Closed or open loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Pace {
    /// Send as soon as the previous request is answered.
    Closed,
    /// Send at scheduled times, independent of responses.
    Open(Rate, Arrivals),
    /// The same at rates that change; the last one stays.
    Steps(Vec<RateStep>, Arrivals),
}

/// Timer of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// Spins for the last stretch, since timers are too coarse; I/O is polled on every turn. Uses a
    /// core for each thread.
    Exact,
    /// The runtime's timer, up to 2 ms late, for loads that share their core.
    Coarse,
}

/// Length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// By time.
    Time(Duration),
    /// By number of requests.
    Count(u64),
}

/// Processes whose CPU time and memory are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// Processes listening on the address, if they are local and readable.
    Listening,
    /// The given processes, such as a server and its store.
    Processes(Vec<u32>),
}

/// Errors of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The plan is invalid.
    Plan(String),
    /// The server cannot be reached.
    Connect(String),
    /// A thread cannot be started.
    Thread(String),
}

impl Plan {
    /// Upper bound of `connections`.
    pub const CONNECTIONS_MAX: usize = 20_000;
    /// Upper bound of `at_once`.
    pub const AT_ONCE_MAX: usize = 10_000;
    /// Upper bound of `threads`.
    pub const THREADS_MAX: usize = 256;
    /// Upper bound of the duration.
    pub const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

    /// Validates the plan.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Plan(text));
        let (connections, threads, at_once) = (self.connections, self.threads, self.at_once);
        if !(1..=Self::THREADS_MAX).contains(&threads) {
            return wrong(format!(
                "threads must be from 1 to {}, got `{threads}`",
                Self::THREADS_MAX
            ));
        }
        if !(1..=Self::CONNECTIONS_MAX).contains(&connections) {
            let max = Self::CONNECTIONS_MAX;
            return wrong(format!("connections must be from 1 to {max}, got `{connections}`"));
        }
        if connections < threads {
            return wrong(format!(
                "{threads} threads need a connection each, and there are {connections}; use more connections or fewer threads"
            ));
        }
        if !(1..=Self::AT_ONCE_MAX).contains(&at_once) {
            let max = Self::AT_ONCE_MAX;
            return wrong(format!("requests at once must be from 1 to {max}, got `{at_once}`"));
        }
        if self.request.protocol() == Protocol::Http && at_once != 1 {
            return wrong(format!(
                "HTTP/1.1 has one request at a time on a connection, got `{at_once}`; use more connections"
            ));
        }
        if !(1..=KeySpace::COUNT_MAX).contains(&self.keys.count) {
            let max = KeySpace::COUNT_MAX;
            return wrong(format!("keys must be from 1 to {max}, got `{}`", self.keys.count));
        }
        if let KeyOrder::Zipf(exponent) = self.keys.order
            && !(exponent > 0.0 && exponent <= 10.0)
        {
            return wrong(format!(
                "the exponent of Zipf must be above 0 and up to 10, got `{exponent}`"
            ));
        }
        let max = Self::TIME_MAX;
        let time = match self.amount {
            Amount::Time(time) => time,
            Amount::Count(count) if count < threads as u64 => {
                return wrong(format!(
                    "{count} requests are not enough for {threads} threads; use 1"
                ));
            }
            Amount::Count(_) => Duration::from_secs(1),
        };
        if time.is_zero() || time > max || self.warm_up > max {
            return wrong(format!(
                "the duration must be above zero and at most {} hours",
                max.as_secs() / 3_600
            ));
        }
        if matches!(&self.pace, Pace::Steps(steps, _) if steps.is_empty()) {
            return wrong("a pace of steps needs at least one".to_owned());
        }
        if self.request_timeout.is_some() && self.request.protocol() != Protocol::Http {
            return wrong("a timeout of single requests needs HTTP".to_owned());
        }
        if self.timeout.is_zero() {
            return wrong("the timeout must be at least 1 ms".to_owned());
        }
        Ok(())
    }

    /// The share of a thread; the first threads get the remainder.
    pub(crate) const fn share(&self, whole: u64, thread: u64) -> u64 {
        let threads = self.threads as u64;
        whole / threads + if thread < whole % threads { 1 } else { 0 }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(text) | Self::Connect(text) | Self::Thread(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LoadError {}
