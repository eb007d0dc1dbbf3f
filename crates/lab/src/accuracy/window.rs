//! The true count: the times of the last window.

use std::collections::VecDeque;

use sluicegate_core::time::{Span, Timestamp};

/// The times of one client's requests in a rolling window.
///
/// ```
/// use sluicegate_core::time::{Span, Timestamp};
/// use sluicegate_lab::accuracy::RollingWindow;
///
/// let (mut window, at) = (RollingWindow::default(), Timestamp::from_micros);
/// window.push(at(10));
/// assert_eq!(window.count(at(19), Span::from_micros(10)), 1);
/// assert_eq!(window.count(at(20), Span::from_micros(10)), 0, "ten microseconds later");
/// ```
#[derive(Debug, Clone, Default)]
pub struct RollingWindow {
    times: VecDeque<Timestamp>,
}

impl RollingWindow {
    /// Requests less than `window` ago; times ascend.
    pub fn count(&mut self, now: Timestamp, window: Span) -> u64 {
        while self.times.front().is_some_and(|first| first.after(window) <= now) {
            self.times.pop_front();
        }
        // A client that was busy once does not occupy memory for ever.
        if self.times.is_empty() && self.times.capacity() > 64 {
            self.times = VecDeque::new();
        }
        self.times.len() as u64
    }

    /// Adds a request.
    pub fn push(&mut self, at: Timestamp) {
        self.times.push_back(at);
    }

    /// [Counts](Self::count) the requests before this one, and adds it.
    pub fn count_and_push(&mut self, at: Timestamp, window: Span) -> u64 {
        let before = self.count(at, window);
        self.push(at);
        before
    }
}
