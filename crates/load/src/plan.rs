//! What is to be done.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::request::{Ask, Protocol};
use crate::keys::{KeyOrder, KeySpace};
use crate::schedule::{Arrivals, Rate};

/// A run of load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Who is asked: see [`Place`](crate::Place).
    pub address: SocketAddr,
    /// What.
    pub ask: Ask,
    /// For whom.
    pub keys: KeySpace,
    /// When.
    pub pace: Pace,
    /// How much.
    pub amount: Amount,
    /// The same before it, which does not count.
    pub warm_up: Duration,
    /// Ask for each key once before all else, so that all of them are live.
    pub fill: bool,
    /// Of all threads together.
    pub connections: usize,
    /// Requests under way on each connection: streams of gRPC, commands in a row of RESP, 1 of HTTP.
    pub at_once: usize,
    /// Each with a share of the connections, the rate and the amount.
    pub threads: usize,
    /// A server that answers nothing for so long is given up.
    pub patience: Duration,
    /// Statuses of HTTP that are a no.
    pub denied: Vec<u16>,
    /// What a server of RESP wants to hear first.
    pub password: Option<String>,
    /// Whose CPU time and memory are watched.
    pub server: Server,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As soon as there was an answer.
    Closed,
    /// At times that no answer can move.
    Open(Rate, Arrivals),
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// For so long.
    Time(Duration),
    /// So many requests.
    Count(u64),
}

/// Whose CPU time and memory are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// Whoever listens at the address, if that is here and may be looked at.
    Listening,
    /// These processes, such as a server and the store behind it.
    Processes(Vec<u32>),
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// This cannot be meant.
    Plan(String),
    /// Nobody is there.
    Connect(String),
    /// The machine has no thread for it.
    Thread(String),
}

// === impl Plan ===

impl Plan {
    /// So many are more than one machine can hold open.
    pub const CONNECTIONS_MAX: usize = 20_000;
    /// More would be a queue of its own.
    pub const AT_ONCE_MAX: usize = 10_000;
    /// More than machines have cores.
    pub const THREADS_MAX: usize = 256;
    /// A load ends, also when nobody ends it.
    pub const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

    /// What does not fit together.
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
            let most = Self::CONNECTIONS_MAX;
            return wrong(format!("connections must be from 1 to {most}, got `{connections}`"));
        }
        if connections < threads {
            return wrong(format!(
                "{threads} threads need a connection each, and there are {connections}; ask for more connections or fewer threads"
            ));
        }
        if !(1..=Self::AT_ONCE_MAX).contains(&at_once) {
            let most = Self::AT_ONCE_MAX;
            return wrong(format!("requests at once must be from 1 to {most}, got `{at_once}`"));
        }
        if self.ask.protocol() == Protocol::Http && at_once != 1 {
            return wrong(format!(
                "HTTP/1.1 has one request at a time on a connection, got `{at_once}`; ask for more connections"
            ));
        }
        if !(1..=KeySpace::COUNT_MAX).contains(&self.keys.count) {
            let most = KeySpace::COUNT_MAX;
            return wrong(format!("keys must be from 1 to {most}, got `{}`", self.keys.count));
        }
        if let KeyOrder::Zipf(exponent) = self.keys.order
            && !(exponent > 0.0 && exponent <= 10.0)
        {
            return wrong(format!(
                "the exponent of Zipf must be above 0 and up to 10, got `{exponent}`"
            ));
        }
        let most = Self::TIME_MAX;
        let time = match self.amount {
            Amount::Time(time) => time,
            Amount::Count(count) if count < threads as u64 => {
                return wrong(format!(
                    "{count} requests are not enough for {threads} threads; use 1"
                ));
            }
            Amount::Count(_) => Duration::from_secs(1),
        };
        if time.is_zero() || time > most || self.warm_up > most {
            return wrong(format!(
                "a run takes more than nothing and at most {} hours",
                most.as_secs() / 3_600
            ));
        }
        if self.patience.is_zero() {
            return wrong("a server needs some time to answer; give it at least 1 ms".to_owned());
        }
        Ok(())
    }

    /// The share of a thread: of what is not divisible the first ones get more.
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
