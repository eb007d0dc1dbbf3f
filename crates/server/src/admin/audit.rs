//! Audit log: who has changed what through the console and the API.
//!
//! Every entry is a log line. The last ones are in memory; a file has all of them, if it is
//! configured.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate::Timestamp;

use super::access::Caller;
use crate::logs::{events, rfc3339};

/// Entries in memory.
const ENTRIES_MAX: usize = 1_000;
/// Characters of the target of an entry.
const TARGET_CHARS_MAX: usize = 500;

/// Changes through the admin endpoint.
#[derive(Debug, Default)]
pub struct AuditLog {
    entries: Mutex<VecDeque<AuditEntry>>,
    file: Option<Mutex<File>>,
    recorded: AtomicU64,
    failures: AtomicU64,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// Name of the token.
    pub caller: String,
    /// What was done, such as `rules.propose`.
    pub action: &'static str,
    /// To what, without secrets.
    pub target: String,
}

impl AuditLog {
    /// A log with a file that entries are appended to, as JSON lines.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn with_file(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self { file: Some(Mutex::new(options.open(path)?)), ..Self::default() })
    }

    /// Records a change.
    pub fn record(&self, at: Timestamp, caller: &Caller, action: &'static str, target: &str) {
        let entry = AuditEntry {
            at,
            caller: caller.name.as_ref().to_owned(),
            action,
            target: target.chars().take(TARGET_CHARS_MAX).collect(),
        };
        self.recorded.fetch_add(1, Ordering::Relaxed);
        events::admin_change(&entry.caller, action, &entry.target);
        if let Some(file) = &self.file {
            let line = format!("{}\n", entry.to_json());
            if let Err(error) = file.lock().write_all(line.as_bytes()) {
                self.failures.fetch_add(1, Ordering::Relaxed);
                events::audit_failed(&error);
            }
        }
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Entries since the start, and those of them that could not be written to the file.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.recorded.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// The last entries, the newest first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<AuditEntry> {
        self.entries.lock().iter().rev().take(count).cloned().collect()
    }
}

impl AuditEntry {
    /// As a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "at": rfc3339(self.at).to_string(),
            "caller": self.caller,
            "action": self.action,
            "target": self.target,
        })
    }
}
