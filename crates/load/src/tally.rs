//! Counts and latencies of one thread, by second, so that threads can be merged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::request::Answer;
use crate::wire::Received;

/// Upper bound of recorded latencies.
const MINUTE_NS: u64 = 60_000_000_000;
/// Bounds the number of distinct error texts.
const TEXTS_MAX: usize = 20;
const OTHERS: &str = "others";
/// Text of abandoned requests.
const TIMED_OUT: &str = "no response in time";

/// Responses that one thread received within one second of the run.
#[derive(Debug)]
pub(crate) struct Second {
    pub(crate) thread: usize,
    /// Second since the start.
    pub(crate) index: u64,
    /// The thread has completed all seconds up to this one.
    pub(crate) through: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) failures: Failures,
    /// Requests sent more than [`LATE`] after their scheduled time, and the maximum delay.
    pub(crate) late: u64,
    pub(crate) latest: Duration,
    pub(crate) reconnects: u64,
    /// Latencies in nanoseconds.
    pub(crate) took: Histogram<u64>,
    /// Of the denied requests among them, if there are any.
    pub(crate) took_denied: Option<Box<Histogram<u64>>>,
}

/// Failures by error text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failures(pub(crate) BTreeMap<String, u64>);

/// A request sent later than this counts as late: the load had no CPU or no idle connection.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// Accumulates the results of a thread.
#[derive(Debug)]
pub(crate) struct Tally {
    began: Instant,
    /// Later responses count for this second.
    last: u64,
    second: Second,
    out: Sender<Second>,
    /// Since the last answer.
    failures_in_a_row: u64,
    completed: u64,
}

/// A run is aborted after this many consecutive failures.
const FAILURES_MAX: u64 = 1_000;

impl Tally {
    pub(crate) fn new(thread: usize, began: Instant, last: u64, out: Sender<Second>) -> Self {
        let second = Second { thread, ..Second::new(0) };
        Self { began, last, second, out, failures_in_a_row: 0, completed: 0 }
    }

    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// Records the response to a request with its scheduled time.
    pub(crate) fn add(&mut self, due: Instant, received: Received) {
        self.advance(received.at);
        self.completed += 1;
        match received.answer {
            Ok(answer) => {
                let took = received.at.saturating_duration_since(due).as_nanos() as u64;
                self.second.took.saturating_record(took);
                match answer {
                    Answer::Allowed => self.second.allowed += 1,
                    Answer::Denied => self.second.add_denied(took),
                }
                self.failures_in_a_row = 0;
            }
            Err(failure) => self.failed(failure, 1),
        }
    }

    /// Records failures.
    pub(crate) fn failed(&mut self, failure: String, count: u64) {
        self.second.failures.add(failure, count);
        self.failures_in_a_row += count;
    }

    /// Records requests that were abandoned. The run goes on, however many there are.
    pub(crate) fn timed_out(&mut self, at: Instant, count: u64) {
        self.advance(at);
        self.completed += count;
        self.second.failures.add(TIMED_OUT.to_owned(), count);
    }

    /// Records the delay between scheduled and actual sending.
    pub(crate) fn sent_after(&mut self, behind: Duration) {
        self.second.late += u64::from(behind > LATE);
        self.second.latest = self.second.latest.max(behind);
    }

    pub(crate) const fn reconnected(&mut self, count: u64) {
        self.second.reconnects += count;
    }

    /// Answers and failures so far.
    pub(crate) const fn completed(&self) -> u64 {
        self.completed
    }

    pub(crate) const fn is_failing(&self) -> bool {
        self.failures_in_a_row >= FAILURES_MAX
    }

    /// Takes the last second.
    pub(crate) fn finish(&mut self) {
        self.hand_over(u64::MAX);
    }

    /// Begins the second of this time.
    fn advance(&mut self, at: Instant) {
        let index = at.saturating_duration_since(self.began).as_secs().min(self.last);
        if index > self.second.index {
            self.hand_over(index);
        }
    }

    fn hand_over(&mut self, next: u64) {
        let fresh = Second { thread: self.second.thread, ..Second::new(next) };
        let mut done = std::mem::replace(&mut self.second, fresh);
        done.through = next - 1;
        // A closed channel means that the run was aborted.
        let _ = self.out.send(done);
    }
}

impl Second {
    pub(crate) fn new(index: u64) -> Self {
        Self {
            thread: 0,
            index,
            through: index,
            allowed: 0,
            denied: 0,
            failures: Failures::default(),
            late: 0,
            latest: Duration::ZERO,
            reconnects: 0,
            took: histogram(),
            took_denied: None,
        }
    }

    fn add_denied(&mut self, took: u64) {
        self.denied += 1;
        self.took_denied.get_or_insert_with(|| Box::new(histogram())).saturating_record(took);
    }

    /// Latencies of the allowed requests.
    pub(crate) fn took_allowed(&self) -> Cow<'_, Histogram<u64>> {
        let Some(denied) = &self.took_denied else { return Cow::Borrowed(&self.took) };
        let mut took = self.took.clone();
        // The denied ones are a part of them.
        let _ = took.subtract(&**denied);
        Cow::Owned(took)
    }

    /// Adds the counts of another thread or second.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failures.merge(&other.failures);
        self.late += other.late;
        self.latest = self.latest.max(other.latest);
        self.reconnects += other.reconnects;
        // Both have the same bounds.
        let _ = self.took.add(&other.took);
        if let Some(denied) = &other.took_denied {
            let own = self.took_denied.get_or_insert_with(|| Box::new(histogram()));
            let _ = own.add(&**denied);
        }
    }

    pub(crate) const fn answered(&self) -> u64 {
        self.allowed + self.denied
    }
}

/// Three significant digits up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(1, MINUTE_NS, 3);
    #[allow(clippy::expect_used, reason = "the bounds are constants, and tests make one")]
    made.expect("valid bounds")
}

impl Failures {
    fn add(&mut self, failure: String, count: u64) {
        if let Some(known) = self.0.get_mut(&failure) {
            *known += count;
            return;
        }
        let text = if self.0.len() < TEXTS_MAX { failure } else { OTHERS.to_owned() };
        *self.0.entry(text).or_default() += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(text, count)| self.add(text.clone(), *count));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_never_end_are_others() {
        let mut failures = Failures::default();
        (0..100).for_each(|number| failures.add(format!("error {number:02}"), 1));
        assert_eq!(failures.0.len(), TEXTS_MAX + 1);
        assert_eq!(failures.0[OTHERS], 80);
        assert_eq!(failures.count(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn latencies_of_denied_requests_can_be_left_out() {
        let (out, seconds) = std::sync::mpsc::channel();
        let began = Instant::now();
        let mut tally = Tally::new(0, began, 1, out);
        for (millis, answer) in [(1, Answer::Denied), (9, Answer::Allowed), (2, Answer::Denied)] {
            let at = began + Duration::from_millis(millis);
            tally.add(began, Received { at, answer: Ok(answer) });
        }
        tally.timed_out(began, 2);
        tally.finish();
        let second = seconds.recv().unwrap();
        assert_eq!((second.answered(), second.failures.count()), (3, 2));
        let allowed = second.took_allowed();
        assert_eq!((allowed.len(), allowed.min() / 1_000_000), (1, 8));
    }

    #[tokio::test(start_paused = true)]
    async fn seconds_add_up_and_the_last_takes_what_comes_late() {
        let (out, seconds) = std::sync::mpsc::channel();
        let began = Instant::now();
        let mut tally = Tally::new(0, began, 1, out);
        for millis in [0, 999, 1_000, 5_000] {
            let at = began + Duration::from_millis(millis);
            tally.add(began, Received { at, answer: Ok(Answer::Allowed) });
        }
        tally.finish();
        drop(tally);
        let counts: Vec<_> = seconds.iter().map(|one| (one.index, one.allowed)).collect();
        assert_eq!(counts, [(0, 2), (1, 2)]);
    }
}
