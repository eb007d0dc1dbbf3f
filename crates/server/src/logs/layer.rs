//! The `tracing` layer that writes log lines, and its non-blocking writer.

use std::io::{self, Write};

use parking_lot::Mutex;
use sluicegate::LimitError;
use sluicegate::clock::Clock;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::format::line;
use super::rate_limit::CallSites;
use super::{Format, Options};

/// Lines in the queue of the writer thread; a line has at most some ten thousand bytes.
const QUEUED_LINES_MAX: usize = 1_024;

/// Prefix of the targets of our own crates.
const OWN_TARGET: &str = "sluicegate";

/// A subscriber that writes log lines, each with one call of `writer`. It ignores spans:
/// [`crate::traces`] follows requests.
///
/// ```
/// use sluicegate::clock::{ManualClock, Timestamp};
/// use sluicegate_server::logs::{Options, subscriber};
///
/// let clock = ManualClock::at(Timestamp::from_micros(1_794_744_000_123_000));
/// let (mut lines, writer) = std::io::pipe()?;
/// tracing::subscriber::with_default(subscriber(Options::default(), clock, writer)?, || {
///     tracing::warn!(target: "sluicegate", endpoint = "grpc", open = 7, "connection refused");
/// });
/// let text = std::io::read_to_string(&mut lines)?;
/// assert_eq!(text, "2026-11-15T12:00:00.123Z WARN  connection refused endpoint=grpc open=7\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If [`Options::per_second`] exceeds what a limiter can hold.
pub fn subscriber(
    options: Options,
    clock: impl Clock + 'static,
    writer: impl Write + Send + 'static,
) -> Result<impl Subscriber + Send + Sync, LimitError> {
    let call_sites = CallSites::new(options.per_second, clock)?;
    let (level, format) = (options.level.filter(), options.format);
    let writer = Mutex::new(writer);
    Ok(Registry::default().with(LogLayer { level, format, call_sites, writer }))
}

struct LogLayer<W> {
    level: LevelFilter,
    format: Format,
    call_sites: CallSites,
    writer: Mutex<W>,
}

impl<W> LogLayer<W> {
    fn is_enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries are verbose: below `trace`, only their warnings and errors are logged.
        let of_libraries = match self.level {
            LevelFilter::TRACE => LevelFilter::TRACE,
            level => level.min(LevelFilter::WARN),
        };
        let max = if is_own(metadata) { self.level } else { of_libraries };
        !metadata.is_span() && *metadata.level() <= max
    }
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN_TARGET)
}

impl<S: Subscriber, W: Write + Send + 'static> Layer<S> for LogLayer<W> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Cached per call site: a disabled event costs one load.
        if self.is_enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let now = self.call_sites.now();
        let call_site = event.metadata().callsite();
        let Some(suppressed) = self.call_sites.admit(call_site.clone(), now) else {
            return;
        };
        let line = line(event, now, suppressed, self.format, is_own(event.metadata()));
        if self.writer.lock().write_all(line.as_bytes()).is_err() {
            // Reported by the next line of this call site.
            self.call_sites.suppress(call_site, suppressed + 1);
        }
    }
}

/// A writer that queues lines for a thread, and fails at once when the queue is full.
///
/// Standard error is often a pipe whose reader may stall; the service must not stall with it.
pub(super) struct QueueWriter {
    queue: NonBlocking,
    dropped: ErrorCounter,
}

impl QueueWriter {
    /// Starts the thread. Dropping the guard writes the queued lines, for at most a second.
    pub(super) fn start(writer: impl Write + Send + 'static) -> (Self, WorkerGuard) {
        let builder = NonBlockingBuilder::default().thread_name("logs");
        let (queue, guard) = builder.buffered_lines_limit(QUEUED_LINES_MAX).finish(writer);
        let dropped = queue.error_counter();
        (Self { queue, dropped }, guard)
    }
}

impl Write for QueueWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // `NonBlocking` counts a dropped line instead of failing. There is no other writer.
        let dropped = self.dropped.dropped_lines();
        let written = self.queue.write(line)?;
        if self.dropped.dropped_lines() == dropped {
            Ok(written)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, pipe};

    use super::*;

    #[test]
    fn queued_lines_are_written_at_the_end() {
        let (lines, writer) = pipe().unwrap();
        let (mut queue, guard) = QueueWriter::start(writer);
        for line in 0..QUEUED_LINES_MAX / 2 {
            queue.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        drop((guard, queue));
        let lines: Vec<String> = BufReader::new(lines).lines().map(Result::unwrap).collect();
        assert_eq!(lines, Vec::from_iter((0..QUEUED_LINES_MAX / 2).map(|line| line.to_string())));
    }

    #[test]
    fn a_stalled_reader_blocks_neither_writers_nor_the_end() {
        let (_stalled, writer) = pipe().unwrap();
        let (mut queue, guard) = QueueWriter::start(writer);
        let line = [b'x'; 4_096];
        // A pipe takes some dozens of lines.
        let error = (0..10 * QUEUED_LINES_MAX).find_map(|_| queue.write_all(&line).err());
        assert_eq!(error.unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(guard);
    }
}
