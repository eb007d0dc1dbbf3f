//! Log lines: what an operator reads when something is odd, as text or as JSON.
//!
//! ```text
//!   2026-11-15T12:00:00.123Z WARN  rules not reloaded: they stay as they were error="rules.yaml: ..." suppressed=12
//!   {"@timestamp":"2026-11-15T12:00:00.123Z","level":"warning","@message":"rules not reloaded ...","error":"..."}
//! ```
//!
//! - A line is one line, whatever a client has sent: control characters are escaped, and long values are cut.
//! - A place in the program that has too much to say is silenced, and only it; when it may speak again it says how many lines are missing.
//!   The limit is one of our own: a token bucket for each place.
//! - A thread of its own writes, so that a reader that stalls stalls nothing else; lines beyond what may wait count as silenced.
//! - [`events`] holds what the service has to say, in one place.
//! - Everything goes through `tracing`, so what libraries say is heard too: their warnings and errors, or everything at [`Level::Trace`].

mod aside;
pub mod events;
mod format;
mod layer;
mod rate_limit;
mod text;

use std::fmt;
use std::io;
use std::str::FromStr;

use sluicegate::LimitError;
use sluicegate::clock::SystemClock;
use tracing::level_filters::LevelFilter;

pub use aside::Written;
pub use layer::Logs;

/// What is said, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What is worth a line.
    pub level: Level,
    /// How a line looks.
    pub format: Format,
    /// How many lines each place in the program may write in a second; 0 for as many as it likes.
    pub per_second: u32,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: a JSON object, its fields called as envoyproxy/ratelimit calls them.
    Json,
}

/// What is worth a line: this, and whatever is more severe.
///
/// ```
/// use sluicegate_server::logs::Level;
///
/// assert_eq!("WARNING".parse(), Ok(Level::Warn));
/// let error = "loud".parse::<Level>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown level `loud`; use trace, debug, info, warn, error, fatal or panic");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Everything, with the keys of whoever asks.
    Trace,
    /// Single requests, but not whose.
    Debug,
    /// What happens to the service.
    Info,
    /// What an operator should know.
    #[default]
    Warn,
    /// What an operator must act on.
    Error,
    /// Nothing: what ends the process is told by whoever started it. `panic` is the same.
    Fatal,
}

/// A name that is none of a level, or of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static str,
}

/// Why nothing will be logged.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Something else listens already.
    AlreadyStarted,
    /// The limit is none.
    Limit(LimitError),
    /// There is no thread that would write.
    Thread(io::Error),
}

/// From now on everything that is said in this process goes to standard error. Nobody waits for whoever reads it: what is too much for it is left out.
///
/// # Errors
/// When it was started before.
pub fn start(options: Options) -> Result<Written, StartError> {
    let (aside, written) = aside::start(io::stderr()).map_err(StartError::Thread)?;
    let logs = Logs::new(options, SystemClock::get(), aside).map_err(StartError::Limit)?;
    let started = tracing::subscriber::set_global_default(logs);
    started.map(|()| written).map_err(|_| StartError::AlreadyStarted)
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::default(), format: Format::default(), per_second: 100 }
    }
}

// === impl Level ===

impl Level {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Trace => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warn => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
            Self::Fatal => LevelFilter::OFF,
        }
    }
}

/// As envoyproxy/ratelimit reads `LOG_LEVEL`, in any case.
impl FromStr for Level {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "trace" => Self::Trace,
            "debug" => Self::Debug,
            "info" => Self::Info,
            "warn" | "warning" => Self::Warn,
            "error" => Self::Error,
            "fatal" | "panic" => Self::Fatal,
            _ => {
                let known = "trace, debug, info, warn, error, fatal or panic";
                return Err(UnknownName { what: "level", name: name.to_owned(), known });
            }
        })
    }
}

// === impl Format ===

/// As envoyproxy/ratelimit reads `LOG_FORMAT`, in any case.
impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name.to_ascii_lowercase().as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownName { what: "format", name: name.to_owned(), known: "text or json" }),
        }
    }
}

// === errors ===

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} `{}`; use {}", self.what, self.name, self.known)
    }
}

impl std::error::Error for UnknownName {}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("logs were started before; start them once"),
            Self::Limit(error) => write!(f, "the limit of log lines: {error}"),
            Self::Thread(error) => write!(f, "no thread that writes log lines: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
