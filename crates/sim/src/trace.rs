//! Event log: always hashed, optionally printed.

use std::fmt::Arguments;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::time::WorldClock;

/// Records all events.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    truth: Arc<WorldClock>,
    shared: Arc<Mutex<Lines>>,
}

#[derive(Debug)]
struct Lines {
    hasher: DefaultHasher,
    count: u64,
    is_verbose: bool,
}

impl Trace {
    /// A trace from now on.
    #[must_use]
    pub(crate) fn new(truth: &Arc<WorldClock>, is_verbose: bool) -> Self {
        let lines = Lines { hasher: DefaultHasher::new(), count: 0, is_verbose };
        Self { truth: truth.clone(), shared: Arc::new(Mutex::new(lines)) }
    }

    /// Records an event.
    pub(crate) fn line(&self, event: Arguments<'_>) {
        let age = self.truth.age_us();
        let text = format!("{:4}.{:06} {event}", age / 1_000_000, age % 1_000_000);
        let mut lines = self.shared.lock();
        lines.hasher.write(text.as_bytes());
        lines.count += 1;
        if lines.is_verbose {
            println!("{text}");
        }
    }

    /// Hash of all events: equal for equal seeds.
    #[must_use]
    pub(crate) fn hash(&self) -> u64 {
        self.shared.lock().hasher.finish()
    }

    /// Number of lines.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.shared.lock().count
    }
}
