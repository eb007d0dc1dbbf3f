//! Access logs on the command line, for all commands that read them; their progress.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use sluicegate::clock::{Clock, SystemClock};
use sluicegate::{Span, Timestamp};
use sluicegate_config::rules::{request_hits, request_part};
use sluicegate_config::units::span_or_zero;
use sluicegate_lab::log_input::arrivals::ClientParts;
use sluicegate_lab::log_input::{LogInput, ReadProgress, TOLERANCE};
use sluicegate_rules::mapping::Part;

/// Logs and how to read them.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Access logs, also gzip and zstd; `-` is standard input
    #[arg(value_name = "LOG", required = true)]
    pub(crate) logs: Vec<PathBuf>,
    /// Format, such as combined, envoy, caddy, gateway, cloudfront, alb, or columns by name:
    /// csv:time=TIMESTAMP,client_ip=ip [default: by the first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// How much later than its successors a line may come [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = tolerance)]
    reorder: Option<Span>,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
}

/// What identifies the clients of a log.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClientArgs {
    /// The part of a request that is its client: client_ip, header X-User, query key, …
    #[arg(long, value_name = "PART", default_value = "client_ip", value_parser = part)]
    client: Part,
    /// The part that is its cost, such as `header X-Tokens or 1` [default: that of the log, else 1]
    #[arg(long, value_name = "PART", value_parser = hits)]
    hits: Option<Part>,
}

fn tolerance(text: &str) -> Result<Span, String> {
    span_or_zero(text).map_err(|error| error.to_string())
}

fn part(text: &str) -> Result<Part, String> {
    request_part(text).map_err(|error| error.to_string())
}

/// A part of a request that is a cost.
pub(crate) fn hits(text: &str) -> Result<Part, String> {
    request_hits(text).map_err(|error| error.to_string())
}

impl LogArgs {
    /// The logs, parsed by all threads but the one that uses them.
    pub(crate) fn input(&self) -> anyhow::Result<LogInput> {
        let format = self.format.as_ref().map(|format| format.parse()).transpose();
        let format = format.map_err(|error| anyhow::anyhow!("--format: {error}"))?;
        Ok(LogInput {
            logs: self.logs.clone(),
            format,
            tolerance: self.reorder.unwrap_or(TOLERANCE),
            parsers: self.threads() - 1,
        })
    }

    /// Threads to use.
    pub(crate) fn threads(&self) -> usize {
        let available = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(available, usize::from)
    }
}

impl ClientArgs {
    /// The parts of a request.
    pub(crate) fn parts(&self) -> ClientParts {
        ClientParts { client: self.client.clone(), hits: self.hits.clone() }
    }
}

/// Progress of reading on standard error, if that is a terminal.
#[derive(Debug)]
pub(crate) struct ReadingLine {
    /// What is read.
    unit: &'static str,
    is_terminal: bool,
    began: Timestamp,
    shown: Option<Timestamp>,
}

const INTERVAL: Duration = Duration::from_millis(200);
const BAR_CELLS: u64 = 24;

impl ReadingLine {
    /// Begins to read lines now.
    pub(crate) fn begin() -> Self {
        Self::begin_of("lines")
    }

    /// Begins to read something else than lines, such as requests.
    pub(crate) fn begin_of(unit: &'static str) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { unit, is_terminal, began: SystemClock::get().now(), shown: None }
    }

    /// Shows how far the logs are read, a few times a second.
    pub(crate) fn show(&mut self, progress: ReadProgress) {
        if !self.is_terminal {
            return;
        }
        let now = SystemClock::get().now();
        let is_due = |at: Timestamp| now.since(at).to_duration() >= INTERVAL;
        if self.shown.is_none_or(is_due) {
            self.shown = Some(now);
            let line = line(progress, self.unit, now.since(self.began));
            // What cannot be shown is no reason to end.
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        }
    }
}

impl Drop for ReadingLine {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: ReadProgress, unit: &str, elapsed: Span) -> String {
    let seconds = (elapsed.as_micros() as f64 / 1e6).max(1e-3);
    let rate = progress.lines as f64 / seconds;
    let speed = match rate {
        0.0..1e4 => format!("{rate:.0}"),
        1e4..1e6 => format!("{:.0}k", rate / 1e3),
        _ => format!("{:.1}M", rate / 1e6),
    };
    let speed = format!("{} {unit}, {speed}/s", progress.lines);
    let Some(total) = progress.bytes_total.filter(|total| *total > 0) else { return speed };
    let share = progress.bytes.min(total) as f64 / total as f64;
    let filled = (share * BAR_CELLS as f64) as usize;
    let bar = "#".repeat(filled) + &".".repeat(BAR_CELLS as usize - filled);
    let left = match share {
        0.0..0.01 => String::new(),
        _ => format!(", {:.0} s left", seconds / share - seconds),
    };
    format!("[{bar}] {:.0} %  {speed}{left}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_a_bar_where_the_size_is_known() {
        let progress = |bytes_total| ReadProgress { lines: 3_000_000, bytes: 25, bytes_total };
        let after = Span::from_secs(2);
        assert_eq!(line(progress(None), "lines", after), "3000000 lines, 1.5M/s");
        assert_eq!(
            line(progress(Some(100)), "lines", after),
            "[######..................] 25 %  3000000 lines, 1.5M/s, 6 s left"
        );
        assert_eq!(line(progress(Some(0)), "lines", Span::ZERO).split(',').count(), 2);
    }
}
