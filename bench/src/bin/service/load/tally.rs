//! What was answered, and how long it took.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::slot::Answer;

/// So many failures, and nobody has to wait for more.
const HOPELESS: u64 = 100;
/// Longer than anybody waits.
const MINUTE_NS: u64 = 60_000_000_000;

#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    pub(crate) over: u64,
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// Nanoseconds.
    pub(crate) took: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let took = Histogram::new_with_bounds(1, MINUTE_NS, 3).expect("bounds that make sense");
        Self { ok: 0, over: 0, failed: 0, first_failure: None, took }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, answer: anyhow::Result<Answer>, took: Duration) {
        match answer {
            Ok(Answer::Ok) => self.ok += 1,
            Ok(Answer::Over) => self.over += 1,
            Err(failure) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| format!("{failure:#}"));
                return;
            }
        }
        self.took.saturating_record(took.as_nanos() as u64);
    }

    pub(crate) fn is_hopeless(&self) -> bool {
        self.failed > HOPELESS
    }
}
