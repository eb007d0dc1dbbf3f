//! One line on standard error that says how far the run is; nothing if nobody is watching.

use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Counts steps.
#[derive(Debug)]
pub(crate) struct Progress {
    steps: usize,
    done: usize,
    watched: bool,
}

// === impl Progress ===

impl Progress {
    /// A run of so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        Self { steps, done: 0, watched: io::stderr().is_terminal() }
    }

    /// The next step begins.
    pub(crate) fn step(&mut self, what: fmt::Arguments<'_>) {
        self.done += 1;
        if self.watched {
            eprint!("\r\x1b[K[{}/{}] {what}", self.done, self.steps);
            let _ = io::stderr().flush();
        }
    }

    /// All is done: the line goes away.
    pub(crate) fn done(&self) {
        if self.watched {
            eprint!("\r\x1b[K");
        }
    }
}
