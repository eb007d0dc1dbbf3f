//! A series of equal windows: own counts of the last two, and the peers' counts as last pulled.

use std::sync::Arc;

use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::{CLOCK_SLACK, Span, Timestamp};
use sluicegate_rules::limit::LimitConfig;

use crate::script::{SeriesCounts, WindowCounts};

/// Windows of peers that are stored: near an edge some peers are ahead.
const PEER_WINDOWS: usize = 3;

/// Consecutive windows and the counts of the last two.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: Arc<str>,
    windows: Windows,
    /// Whether the previous window matters.
    pub(super) is_sliding: bool,
    end: Timestamp,
    current: WindowCounts,
    previous: WindowCounts,
    /// Net admissions of all peers by start of the window, latest first.
    others: [(Timestamp, i64); PEER_WINDOWS],
}

/// Boundaries of the windows.
#[derive(Debug, Clone, Copy)]
enum Windows {
    /// Multiples of a length.
    Clock(Span),
    /// The calendar of the limit with this index.
    Calendar(usize),
}

impl Series {
    /// Whether a limit can be counted in a series.
    pub(super) fn supports(limit: &LimitConfig) -> bool {
        limit.is_calendar()
            || match limit.at(Timestamp::EPOCH) {
                Limit::FixedWindow(window) => window.align() == Align::Clock,
                Limit::SlidingWindow(_) | Limit::Unlimited | Limit::Closed => true,
                _ => false,
            }
    }

    /// The series of a limit; `None` for one that counts nothing.
    pub(super) fn new(limit: &LimitConfig, index: usize) -> Option<Self> {
        let (name, windows, is_sliding) = match limit.followed_calendar() {
            Some(calendar) => {
                let name = format!("{}/{}", calendar.zone_name(), calendar.unit().name());
                (name, Windows::Calendar(index), false)
            }
            None => {
                let (length, is_sliding) = match limit.at(Timestamp::EPOCH) {
                    Limit::FixedWindow(window) => (window.rate().period(), false),
                    Limit::SlidingWindow(window) => (window.rate().period(), true),
                    _ => return None,
                };
                (length.as_micros().to_string(), Windows::Clock(length), is_sliding)
            }
        };
        Some(Self {
            name: name.into(),
            windows,
            is_sliding,
            end: Timestamp::EPOCH,
            current: WindowCounts::default(),
            previous: WindowCounts::default(),
            others: [(Timestamp::EPOCH, 0); PEER_WINDOWS],
        })
    }

    /// Advances to the window that contains `now`.
    #[inline]
    pub(super) fn advance(&mut self, limits: &[LimitConfig], now: Timestamp) {
        if self.current.start <= now && now < self.end {
            return;
        }
        self.advance_slow(limits, now);
    }

    #[cold]
    fn advance_slow(&mut self, limits: &[LimitConfig], now: Timestamp) {
        if now < self.current.start {
            // A small step back is waited out; after a large one no count has a window.
            if self.current.start.since(now) <= self.length().max(CLOCK_SLACK) {
                return;
            }
            self.clear();
        }
        let (start, end) = self.window_at(limits, now);
        let before = match self.windows {
            Windows::Clock(length) => start.before(length),
            Windows::Calendar(_) if self.end == start => self.current.start,
            Windows::Calendar(_) => Timestamp::EPOCH,
        };
        self.previous = match self.current.start == before {
            true => self.current,
            false => WindowCounts { start: before, ..WindowCounts::default() },
        };
        self.current = WindowCounts { start, ..WindowCounts::default() };
        self.end = end;
    }

    fn window_at(&self, limits: &[LimitConfig], now: Timestamp) -> (Timestamp, Timestamp) {
        match self.windows {
            Windows::Clock(length) => {
                let into = now.as_micros().checked_rem(length.as_micros()).unwrap_or(0);
                let start = now.before(Span::from_micros(into));
                (start, start.after(length))
            }
            Windows::Calendar(index) => {
                let window = limits.get(index).and_then(|limit| limit.window_at(now));
                window.unwrap_or((now, now.after(Span::from_secs(1))))
            }
        }
    }

    fn length(&self) -> Span {
        self.end.since(self.current.start)
    }

    /// Start of the current window.
    #[inline]
    pub(super) const fn start(&self) -> Timestamp {
        self.current.start
    }

    /// Start of the previous window.
    pub(super) const fn previous_start(&self) -> Timestamp {
        self.previous.start
    }

    /// Time from which no count matters.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.end.after(self.length())
    }

    /// Known total of all nodes in the current window.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.total_of(&self.current)
    }

    /// The same for the previous window.
    #[inline]
    pub(super) fn previous_used(&self) -> u64 {
        self.total_of(&self.previous)
    }

    #[inline]
    fn total_of(&self, window: &WindowCounts) -> u64 {
        let peers = self.others.iter().find(|(start, _)| *start == window.start);
        // Each is at most 2^53.
        let own = window.admitted as i64 - window.refunded as i64;
        let all = own + peers.map_or(0, |(_, net)| *net);
        u64::try_from(all).unwrap_or(0).min(EXACT_MAX)
    }

    /// Own net count in the current window.
    pub(super) const fn own(&self) -> u64 {
        self.current.admitted.saturating_sub(self.current.refunded)
    }

    /// Counts an admission.
    #[inline]
    pub(super) fn charge(&mut self, cost: u64) {
        let admitted = &mut self.current.admitted;
        *admitted = admitted.saturating_add(cost).min(EXACT_MAX);
    }

    /// Refunds from the current window first, then from the previous. Returns whether anything was.
    pub(super) fn refund(&mut self, amount: u64) -> bool {
        let now = amount.min(self.used());
        let before = (amount - now).min(self.previous_used());
        let more = |given: &mut u64, by: u64| *given = given.saturating_add(by).min(EXACT_MAX);
        more(&mut self.current.refunded, now);
        more(&mut self.previous.refunded, before);
        now > 0 || before > 0
    }

    /// Clears all counts.
    pub(super) fn clear(&mut self) {
        let begun =
            |window: WindowCounts| WindowCounts { start: window.start, ..WindowCounts::default() };
        (self.current, self.previous) = (begun(self.current), begun(self.previous));
        self.others = [(Timestamp::EPOCH, 0); PEER_WINDOWS];
    }

    /// Restores the counts that this node pushed before a restart.
    pub(super) fn restore(&mut self, limits: &[LimitConfig], own: &SeriesCounts) {
        let (start, end) = self.window_at(limits, own.current.start);
        if start == own.current.start {
            (self.current, self.previous, self.end) = (own.current, own.previous, end);
        }
    }

    /// Continues the counts of a series with the same windows.
    pub(super) fn carry_over(&mut self, old: Self) {
        let Self { end, current, previous, others, .. } = old;
        (self.end, self.current, self.previous, self.others) = (end, current, previous, others);
    }

    /// Replaces the peers' count of a window. Returns its increase.
    pub(super) fn merge_peers(&mut self, start: Timestamp, net: i64) -> u64 {
        if let Some((_, known)) = self.others.iter_mut().find(|(at, _)| *at == start) {
            return u64::try_from(net - std::mem::replace(known, net)).unwrap_or(0);
        }
        let index = self.others.iter().position(|(at, _)| *at < start);
        let Some(index) = index else { return 0 };
        self.others[index..].rotate_right(1);
        self.others[index] = (start, net);
        u64::try_from(net).unwrap_or(0)
    }

    /// Own counts.
    pub(super) fn counts(&self) -> SeriesCounts {
        let Self { name, current, previous, .. } = self;
        let (name, over) = (name.clone(), self.expires_at());
        SeriesCounts { name, over, current: *current, previous: *previous }
    }

    /// Whether there are own counts.
    pub(super) fn has_counts(&self) -> bool {
        let is_any = |window: &WindowCounts| window.admitted > 0 || window.refunded > 0;
        is_any(&self.current) || is_any(&self.previous)
    }

    /// Zero counts, for a reset.
    pub(super) fn zero_counts(&self) -> SeriesCounts {
        let current = WindowCounts { start: self.current.start, ..WindowCounts::default() };
        let previous = WindowCounts::default();
        SeriesCounts { name: self.name.clone(), over: self.expires_at(), current, previous }
    }
}
