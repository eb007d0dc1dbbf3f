//! Who hears what is said through `tracing`, and writes it down.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use sluicegate::LimitError;
use sluicegate::clock::Clock;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::format::line;
use super::rate_limit::Places;
use super::{Format, Options};

/// Writes down what is said. Spans are nothing to it: what a request went through is the business of [`crate::traces`].
///
/// ```
/// use sluicegate::clock::{ManualClock, Timestamp};
/// use sluicegate_server::logs::{Logs, Options};
///
/// let clock = ManualClock::at(Timestamp::from_micros(1_794_744_000_123_000));
/// let (mut lines, writer) = std::io::pipe()?;
/// let logs = Logs::new(Options::default(), clock, writer)?;
/// tracing::subscriber::with_default(logs, || {
///     tracing::warn!(target: "sluicegate", door = "grpc", open = 7, "connection refused");
/// });
/// let text = std::io::read_to_string(&mut lines)?;
/// assert_eq!(text, "2026-11-15T12:00:00.123Z WARN  connection refused door=grpc open=7\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Logs<W> {
    level: LevelFilter,
    format: Format,
    places: Places,
    writer: Mutex<W>,
}

/// How everything that we say ourselves begins to be called.
const OURS: &str = "sluicegate";

impl<W: Write + Send + 'static> Logs<W> {
    /// Lines with the time of a clock, to a writer that gets each in one piece.
    ///
    /// # Errors
    /// When the limit's number cannot be held.
    pub fn new(
        options: Options,
        clock: impl Clock + 'static,
        writer: W,
    ) -> Result<Self, LimitError> {
        let places = Places::new(options.per_second, clock)?;
        let (level, format) = (options.level.filter(), options.format);
        Ok(Self { level, format, places, writer: Mutex::new(writer) })
    }

    fn hears(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        // A library at work says more in a second than anybody reads in a day.
        let from_libraries = match self.level {
            LevelFilter::TRACE => LevelFilter::TRACE,
            other => other.min(LevelFilter::WARN),
        };
        let most = if is_ours(metadata) { self.level } else { from_libraries };
        !metadata.is_span() && level <= most
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OURS)
}

impl<W: Write + Send + 'static> Subscriber for Logs<W> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Asked once for each place: whoever is not heard costs one look at a number.
        if self.hears(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.hears(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let now = self.places.now();
        let place = event.metadata().callsite();
        let Some(suppressed) = self.places.may_speak(place.clone(), now) else {
            return;
        };
        let line = line(event, now, suppressed, self.format, is_ours(event.metadata()));
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.write_all(line.as_bytes()).is_err() {
            // The next one that is heard tells of it.
            self.places.not_heard(place, suppressed + 1);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
