//! Requests of several logs in the order of time.
//!
//! ```text
//!   log 0   ──batch──batch──▏watermark: second latest time read, less the tolerance
//!   log 1   ──batch──────────────▏
//!   merged  ────────────────▏ the least watermark: nothing earlier can come any more
//! ```
//!
//! A request before the watermark of its log is late, and is decided at the watermark. So the order
//! depends on the lines alone, not on blocks or threads. The second latest time counts, since one
//! line with a time far in the future would make all that follow late.
//!
//! A batch is sorted and stays where it is; batches are merged by their first requests. The log
//! that is furthest behind is read next: of rotated logs, those of later days wait with one batch.

use std::ops::Range;
use std::sync::Arc;

use sluicegate_core::time::{Span, Timestamp};

use super::batch::{Batch, LoggedRequest};
use super::counts::LineCounts;

/// Requests that wait for earlier ones. Beyond, the earliest do not wait any longer.
const WAITING_MAX: usize = 1_000_000;

/// Requests in the order of time, all from one batch.
#[derive(Debug, Clone)]
pub struct OrderedRequests {
    batch: Arc<Batch>,
    range: Range<usize>,
    floor: Timestamp,
}

/// Merges the batches of several logs.
#[derive(Debug)]
pub(super) struct TimeOrder {
    tolerance: Span,
    waiting_max: usize,
    logs: Vec<LogPosition>,
    runs: Vec<Run>,
    waiting: usize,
    /// The time of the last merged request.
    reached: Timestamp,
    pub(super) counts: LineCounts,
}

/// How far a log is read.
#[derive(Debug, Clone, Copy, Default)]
struct LogPosition {
    lines: u64,
    latest: Timestamp,
    second: Timestamp,
    is_ended: bool,
}

/// A batch that is not merged to its end.
#[derive(Debug)]
struct Run {
    batch: Arc<Batch>,
    next: usize,
}

impl TimeOrder {
    pub(super) fn new(logs: usize, tolerance: Span) -> Self {
        Self {
            tolerance,
            waiting_max: WAITING_MAX,
            logs: vec![LogPosition::default(); logs],
            runs: Vec::new(),
            waiting: 0,
            reached: Timestamp::EPOCH,
            counts: LineCounts { tolerance, ..LineCounts::default() },
        }
    }

    /// The same with another bound of requests that wait.
    #[cfg(test)]
    pub(super) const fn with_waiting_max(mut self, waiting_max: usize) -> Self {
        self.waiting_max = waiting_max;
        self
    }

    /// The log that is to be read next; `None` after the end of all.
    pub(super) fn furthest_behind(&self) -> Option<usize> {
        let open = self.logs.iter().enumerate().filter(|(_, log)| !log.is_ended);
        open.min_by_key(|(_, log)| log.second).map(|(index, _)| index)
    }

    /// A log has no further batch.
    pub(super) fn end(&mut self, log: usize) {
        self.logs[log].is_ended = true;
    }

    /// Adds the next batch of a log.
    pub(super) fn push(&mut self, log: usize, mut batch: Batch) {
        let position = &mut self.logs[log];
        (batch.log, batch.lines_before) = (log, position.lines);
        position.lines += batch.lines;
        let counts = &mut self.counts;
        counts.read += batch.lines;
        counts.requests += batch.len() as u64;
        counts.missing_part += batch.missing_part;
        counts.malformed.merge(&batch.malformed, log, batch.lines_before + 1);
        counts.invalid.merge(&batch.invalid, log, batch.lines_before + 1);
        batch.set_times(|at| position.pass(at, self.tolerance, counts));
        batch.sort();
        if batch.len() > 0 {
            self.waiting += batch.len();
            self.runs.push(Run { batch: Arc::new(batch), next: 0 });
        }
    }

    /// The next requests; `None` until more is read.
    pub(super) fn next(&mut self) -> Option<OrderedRequests> {
        let open = self.logs.iter().filter(|log| !log.is_ended);
        let watermark = open.map(|log| log.second.before(self.tolerance)).min();
        let head = |run: &Run| (run.batch.at(run.next), run.batch.log, run.batch.lines_before);
        let (first, run) = self.runs.iter().enumerate().min_by_key(|(_, run)| head(run))?;
        let others = self.runs.iter().enumerate().filter(|(index, _)| *index != first);
        let second = others.map(|(_, run)| head(run)).min();
        let place = (run.batch.log, run.batch.lines_before);
        let is_before_second = |at: Timestamp| {
            second.is_none_or(|(second, log, line)| (at, place) < (second, (log, line)))
        };
        // A request at the watermark is complete once nothing at the same time can follow.
        let is_complete = |at: Timestamp| watermark.is_none_or(|watermark| at < watermark);
        let mut end = run.batch.end_of(run.next, |at| is_complete(at) && is_before_second(at));
        if end == run.next {
            if self.waiting <= self.waiting_max {
                return None;
            }
            end = run.batch.end_of(run.next, is_before_second).max(run.next + 1);
        }
        let floor = self.reached;
        let ordered = OrderedRequests { batch: run.batch.clone(), range: run.next..end, floor };
        self.reached = run.batch.at(end - 1).max(floor);
        self.waiting -= ordered.len();
        self.runs[first].next = end;
        if end == ordered.batch.len() {
            self.runs.swap_remove(first);
        }
        let first = ordered.batch.at(ordered.range.start).max(floor);
        self.counts.first.get_or_insert(first);
        self.counts.last = Some(self.reached);
        Some(ordered)
    }
}

impl LogPosition {
    /// The time of the next request, not before the watermark.
    fn pass(&mut self, at: Timestamp, tolerance: Span, counts: &mut LineCounts) -> Timestamp {
        let watermark = self.second.before(tolerance);
        // One line far in the future does not make all that follow out of order.
        let is_outlier = self.latest.since(self.second) > tolerance;
        let reached = if is_outlier { self.second } else { self.latest };
        if at >= self.latest {
            (self.latest, self.second) = (at, self.latest);
            return at;
        }
        self.second = self.second.max(at);
        if at >= watermark {
            counts.reordered += u64::from(at < reached);
            return at;
        }
        counts.late += 1;
        counts.late_max = counts.late_max.max(watermark.since(at));
        watermark
    }
}

impl OrderedRequests {
    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The requests.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LoggedRequest<'_>> {
        self.range.clone().map(|index| self.batch.get(index, self.floor))
    }
}
