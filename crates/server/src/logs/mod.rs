//! Log lines on standard error, as text or as JSON.
//!
//! ```text
//!   2026-11-15T12:00:00.123Z WARN  certificate not loaded path=tls.crt error="..." suppressed=12
//!   {"@timestamp":"2026-11-15T12:00:00.123Z","level":"warning","@message":"…","path":"tls.crt"}
//! ```
//!
//! - Each call site has a rate limit; `suppressed` of its next line counts the lines left out.
//! - A thread writes, so that a stalled reader stalls nothing else; lines that do not fit into its
//!   queue count as suppressed.
//! - [`events`] lists the service's own log lines. Libraries that use `tracing` are logged too.

pub mod events;
mod format;
mod layer;
mod rate_limit;

use std::fmt;
use std::io;

use sluicegate::clock::SystemClock;
use sluicegate::{LimitError, Timestamp};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;

pub(crate) use format::rfc3339;
pub use layer::subscriber;

/// Options of logging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Least severe level that is logged.
    pub level: Level,
    /// Format of a line.
    pub format: Format,
    /// Lines per second of each call site; 0 for no limit.
    pub per_second: u32,
}

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object with the field names of envoyproxy/ratelimit.
    Json,
}

/// Least severe level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Everything, with the descriptor values of denied requests.
    Trace,
    /// Denied requests, without descriptor values.
    Debug,
    /// Changes of the service's state.
    Info,
    /// Conditions that an operator should know.
    #[default]
    Warn,
    /// Conditions that an operator must act on.
    Error,
    /// Nothing: fatal errors are printed by the command. `panic` is the same.
    Fatal,
}

/// Logging cannot be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogsError {
    /// The process has a global subscriber already.
    AlreadyStarted,
    /// The rate limit is invalid.
    Limit(LimitError),
}

/// Logs everything in this process to standard error, without ever blocking on it. Dropping the
/// guard writes the queued lines.
///
/// # Errors
/// If logging was started before.
pub fn start(options: Options) -> Result<WorkerGuard, LogsError> {
    let (writer, guard) = layer::QueueWriter::start(io::stderr());
    let subscriber = subscriber(options, SystemClock::get(), writer).map_err(LogsError::Limit)?;
    let started = tracing::subscriber::set_global_default(subscriber);
    started.map(|()| guard).map_err(|_| LogsError::AlreadyStarted)
}

/// Log lines of an error that ends the program, one for each line of its message. They are written
/// directly: logging may not have started, or has ended.
///
/// ```
/// use sluicegate::Timestamp;
/// use sluicegate_server::logs::{Format, fatal_lines};
///
/// let noon = Timestamp::from_micros(1_794_744_000_123_000);
/// assert_eq!(
///     fatal_lines("no rules", noon, Format::Json),
///     "{\"@timestamp\":\"2026-11-15T12:00:00.123Z\",\"level\":\"fatal\",\"@message\":\"no rules\"}\n"
/// );
/// ```
#[must_use]
pub fn fatal_lines(message: &str, now: Timestamp, format: Format) -> String {
    message.lines().map(|line| format::fatal_line(line, now, format)).collect()
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::default(), format: Format::default(), per_second: 100 }
    }
}

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

impl fmt::Display for LogsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("logging was started before"),
            Self::Limit(error) => write!(f, "rate limit of log lines: {error}"),
        }
    }
}

impl std::error::Error for LogsError {}
