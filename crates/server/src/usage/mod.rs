//! Usage records: what each identity has used under the rules that are selected, by hour, in files.
//!
//! ```text
//!   engine --UsageMeter--> table of one row for each hour, rule and identity
//!                             | every SLUICEGATE_USAGE_EVERY, at the hour, at the end
//!                             '-> DIR/usage-2026-11-19.jsonl, synced
//! ```
//!
//! Rows of the same hour, rule and identity add up: each write appends what came since the one
//! before, so a crash loses that time at most, and a restart continues. A write that fails loses
//! nothing: the rows are part of the next one. The table has a maximum number of identities;
//! beyond it, usage is counted in one further row of the rule, so that sums stay exact.

mod file;
mod query;
mod table;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::{MeteredUsage, Timestamp, UsageMeter};
use tokio::time::sleep;

use self::file::UsageFiles;
pub(crate) use self::query::{UsageQuery, UsageReport};
use self::table::{UsageRow, UsageTable};
use crate::app::App;
use crate::logs::events;
use crate::metrics::{MetricsSource, Page};

/// Microseconds of an hour.
const HOUR: u64 = 3_600_000_000;

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageOptions {
    /// The directory of the files.
    pub directory: PathBuf,
    /// Domains and ids of rules; a `*` at the end stands for any rest.
    pub rules: Vec<String>,
    /// Time between writes: what a crash loses at most.
    pub every: Duration,
    /// Maximum number of identities between two writes.
    pub identities_max: usize,
    /// Days after which a file is deleted; 0 for never.
    pub retention_days: u64,
}

/// Records usage.
#[derive(Debug)]
pub struct UsageRecorder {
    options: UsageOptions,
    table: UsageTable,
    /// Held while rows are on their way to a file, so that a query sees each once.
    writer: Mutex<UsageWriter>,
    rows: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug)]
struct UsageWriter {
    files: UsageFiles,
    /// Rows of a write that failed.
    unwritten: Vec<UsageRow>,
    /// The day of the last removal of old files.
    cleaned: Option<u64>,
}

impl UsageRecorder {
    /// Creates the directory, and checks that files can be written there.
    ///
    /// # Errors
    /// When they cannot.
    pub fn new(options: UsageOptions) -> io::Result<Self> {
        let files = UsageFiles::open(&options.directory)?;
        let table = UsageTable::new(options.identities_max);
        let writer = Mutex::new(UsageWriter { files, unwritten: Vec::new(), cleaned: None });
        let (rows, failures) = Default::default();
        Ok(Self { options, table, writer, rows, failures })
    }

    /// Writes periodically, and soon after each hour, for as long as the process runs.
    pub async fn run(self: Arc<Self>, app: &App) {
        loop {
            let now = app.engine().now().as_micros();
            let to_hour = Duration::from_micros(HOUR - now % HOUR) + Duration::from_millis(10);
            sleep(self.options.every.min(to_hour)).await;
            let (recorder, now) = (self.clone(), app.engine().now());
            // Cancelled, it still ends: the last flush waits for the lock.
            let _ = tokio::task::spawn_blocking(move || recorder.flush(now)).await;
        }
    }

    /// Writes what was not written yet. A failure is logged and counted.
    pub fn flush(&self, now: Timestamp) {
        let mut writer = self.writer.lock();
        if writer.unwritten.is_empty() {
            writer.unwritten = self.table.take();
        }
        let UsageWriter { files, unwritten, cleaned } = &mut *writer;
        let written = files.append(unwritten);
        self.rows.fetch_add(written.rows as u64, Ordering::Relaxed);
        unwritten.drain(..written.rows);
        if let Some(error) = written.error {
            self.failures.fetch_add(1, Ordering::Relaxed);
            events::usage_not_written(&self.options.directory.display(), &error, unwritten.len());
            return;
        }
        let day = now.as_micros() / HOUR / 24;
        if self.options.retention_days > 0 && *cleaned != Some(day) {
            *cleaned = Some(day);
            if let Err(error) = files.remove_before(day.saturating_sub(self.options.retention_days))
            {
                events::usage_not_removed(&self.options.directory.display(), &error);
            }
        }
    }

    /// Sums up the usage of a time, also what is not written yet.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub(crate) fn report(&self, query: &UsageQuery) -> io::Result<UsageReport> {
        let writer = self.writer.lock();
        let mut report = UsageReport::default();
        writer.files.read(query.days(), |row| report.add(query, row))?;
        for row in &writer.unwritten {
            report.add(query, row.clone());
        }
        self.table.each(|row| report.add(query, row));
        Ok(report)
    }
}

impl UsageMeter for UsageRecorder {
    fn is_metered(&self, domain: &str, rule: &str) -> bool {
        self.options.rules.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => rule.starts_with(prefix) || domain.starts_with(prefix),
            None => rule == pattern || domain == pattern,
        })
    }

    fn record(&self, usage: &MeteredUsage<'_>) {
        self.table.record(usage);
    }
}

impl MetricsSource for UsageRecorder {
    fn put(&self, page: &mut Page) {
        let help = "Usage records written to files.";
        page.counter("sluicegate_usage_rows_total", help).value(self.rows.load(Ordering::Relaxed));
        let help = "Writes of usage records that failed; the rows are part of the next write.";
        page.counter("sluicegate_usage_write_failures_total", help)
            .value(self.failures.load(Ordering::Relaxed));
        let help = "Identities whose usage is not written yet.";
        page.gauge("sluicegate_usage_pending_identities", help).value(self.table.identities());
        let help = "Records of usage under `other`: too many identities between two writes.";
        page.counter("sluicegate_usage_other_total", help).value(self.table.others());
    }
}
