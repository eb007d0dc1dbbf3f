//! Access logs as requests in the order of time.
//!
//! ```text
//!   log ── blocks of lines ── parsed and mapped to descriptors ── merged by time ── requests
//!           one at a time           in several threads              in this one
//! ```
//!
//! - [`mapping`]: the descriptors of a logged request.
//! - [`batch`]: the requests of a block.
//! - [`order`]: several logs, and lines out of order.
//! - [`counts`]: lines that are malformed, invalid, late.
//! - [`arrivals`]: requests by client, without rules.

pub mod arrivals;
pub mod batch;
pub mod counts;
pub mod mapping;
pub mod order;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;

use sluicegate_accesslog::{Format, LogFile};
use sluicegate_core::time::Span;

use self::batch::ShardKey;
use self::counts::LineCounts;
use self::mapping::LogMapping;
use self::order::{OrderedRequests, TimeOrder};
use self::reader::{LineTarget, OpenLogs};

/// Logs to read.
#[derive(Debug, Clone)]
pub struct LogInput {
    /// The files; `-` is standard input.
    pub logs: Vec<PathBuf>,
    /// Their format; by default that of the first lines of each.
    pub format: Option<Format>,
    /// How much later than its successors a line may come.
    pub tolerance: Span,
    /// Threads that parse beside the calling one; with none, that one parses.
    pub parsers: usize,
}

/// How far logs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadProgress {
    /// Lines.
    pub lines: u64,
    /// Bytes of the files, compressed ones as they are stored.
    pub bytes: u64,
    /// All bytes, unless one of the logs is no file.
    pub bytes_total: Option<u64>,
}

/// Why logs were not read to their end.
#[derive(Debug)]
pub enum LogError {
    /// A log cannot be opened or read, or its format is unknown.
    Log(sluicegate_accesslog::LogError),
    /// The rules cannot be enforced.
    Rules(String),
    /// The caller ends the reading.
    Stopped(io::Error),
    /// A parsing thread ended.
    Ended,
}

/// Default tolerance.
pub const TOLERANCE: Span = Span::from_secs(5);

impl LogInput {
    /// These logs, in the format of their first lines, with the default tolerance.
    #[must_use]
    pub fn new(logs: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let logs = logs.into_iter().map(Into::into).collect();
        Self { logs, format: None, tolerance: TOLERANCE, parsers: 0 }
    }

    /// Reads the logs, and calls `each` with their requests in the order of time.
    ///
    /// ```
    /// use sluicegate_lab::log_input::LogInput;
    /// use sluicegate_lab::log_input::mapping::LogMapping;
    ///
    /// let path = std::env::temp_dir().join(format!("sluicegate-doc-{}.log", std::process::id()));
    /// std::fs::write(&path, "192.0.2.7 - - [16/Nov/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n")?;
    /// let mapping = [LogMapping::of_part("client_ip".parse()?)];
    /// let mut clients = Vec::new();
    /// let counts = LogInput::new([&path]).read(&mapping, None, |_| {}, |requests| {
    ///     clients.extend(requests.iter().filter_map(|one| one.first_value().map(str::to_owned)));
    ///     Ok(())
    /// })?;
    /// assert_eq!((counts.read, clients), (1, vec!["192.0.2.7".to_owned()]));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a log cannot be read, or `each` fails. A malformed line is no error: it is counted.
    pub fn read(
        &self,
        mappings: &[LogMapping],
        shard_key: Option<&ShardKey>,
        mut progress: impl FnMut(ReadProgress),
        mut each: impl FnMut(OrderedRequests) -> io::Result<()>,
    ) -> Result<LineCounts, LogError> {
        let open = self.logs.iter().map(|path| LogFile::open(path, self.format.as_ref()));
        let logs = OpenLogs::new(open.collect::<Result<_, _>>().map_err(LogError::Log)?);
        let mut order = TimeOrder::new(logs.len(), self.tolerance);
        logs.with_batches(LineTarget { mappings, shard_key }, self.parsers, |batches| {
            while let Some(log) = order.furthest_behind() {
                match batches.next(log)? {
                    Some(batch) => order.push(log, batch),
                    None => order.end(log),
                }
                while let Some(requests) = order.next() {
                    each(requests).map_err(LogError::Stopped)?;
                }
                let (bytes, bytes_total) = logs.progress();
                progress(ReadProgress { lines: order.counts.read, bytes, bytes_total });
            }
            Ok(())
        })?;
        Ok(order.counts)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Rules(message) => f.write_str(message),
            Self::Stopped(error) => error.fmt(f),
            Self::Ended => f.write_str("a thread that parses the logs ended"),
        }
    }
}

impl std::error::Error for LogError {}
