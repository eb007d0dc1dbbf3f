//! The line that changes while a run goes on.

use std::io::{self, IsTerminal as _, Write as _};

use sluicegate_load::Progress;

/// On standard error, if somebody looks at it.
#[derive(Debug)]
pub(crate) struct Line {
    watched: bool,
}

impl Line {
    /// The first words are for what comes before the measured part.
    pub(crate) fn new() -> Self {
        let watched = io::stderr().is_terminal();
        if watched {
            let _ = write!(io::stderr(), "warming up");
        }
        Self { watched }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        if self.watched {
            // Back to the beginning, and what was there is gone.
            let _ = write!(io::stderr(), "\r\x1b[2K{}", progress.to_line());
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.watched {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
