//! Lines of logs by what became of them, with examples of those that could not be used.

use sluicegate_core::time::{Span, Timestamp};

/// Examples of each kind of error.
pub(super) const EXAMPLES_MAX: usize = 5;
/// Bytes of a line that an example shows.
const SHOWN_BYTES_MAX: usize = 200;

/// Lines of all logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// All lines, those that describe columns included.
    pub read: u64,
    /// Lines with a request.
    pub requests: u64,
    /// Lines that are not in the format of their log.
    pub malformed: LineErrors,
    /// Requests with a part that is not valid, which the service would refuse: `query key` with
    /// `%zz`.
    pub invalid: LineErrors,
    /// Requests that lack a part of a descriptor, which is left out then.
    pub missing_part: u64,
    /// Requests that came after later ones, within the tolerance.
    pub reordered: u64,
    /// Requests beyond the tolerance, decided at the time that was reached.
    pub late: u64,
    /// The most that one of those was beyond the tolerance.
    pub late_max: Span,
    /// The tolerance.
    pub tolerance: Span,
    /// Time of the first request.
    pub first: Option<Timestamp>,
    /// Time of the last one.
    pub last: Option<Timestamp>,
}

/// Lines with an error, the first as examples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineErrors {
    /// Their number.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<LineExample>,
}

/// A line with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineExample {
    /// Index of its log.
    pub log: usize,
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// Its beginning.
    pub text: String,
}

impl LineCounts {
    /// The time between the first and the last request.
    #[must_use]
    pub fn span(&self) -> Span {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Span::ZERO,
        }
    }
}

impl LineErrors {
    /// Adds a line of a batch.
    pub(super) fn add(&mut self, line: u64, reason: impl FnOnce() -> String, text: &[u8]) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let shown = text.get(..SHOWN_BYTES_MAX).unwrap_or(text).trim_ascii_end();
            let text = shown.utf8_chunks().flat_map(|chunk| {
                let valid =
                    chunk.valid().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
                valid.chain((!chunk.invalid().is_empty()).then_some('\u{fffd}'))
            });
            let text = text.collect();
            self.examples.push(LineExample { log: 0, line, reason: reason(), text });
        }
    }

    /// Adds those of a batch, whose log and first line are known by now.
    pub(super) fn merge(&mut self, batch: &Self, log: usize, first_line: u64) {
        self.count += batch.count;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        let examples = batch.examples.iter().take(room).cloned();
        self.examples.extend(examples.map(|one| LineExample {
            log,
            line: one.line + first_line,
            ..one
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_few_and_printable() {
        let mut errors = LineErrors::default();
        for line in 0..10 {
            errors.add(line, || "odd".to_owned(), b"a\x1b[31m\xff \"b\"\r\n");
        }
        let mut all = LineErrors::default();
        all.merge(&errors, 1, 100);
        all.merge(&errors, 2, 100);
        assert_eq!((all.count, all.examples.len()), (20, EXAMPLES_MAX));
        let first = &all.examples[0];
        assert_eq!((first.log, first.line), (1, 100));
        assert_eq!(first.text, "a\u{fffd}[31m\u{fffd} \"b\"");
    }
}
