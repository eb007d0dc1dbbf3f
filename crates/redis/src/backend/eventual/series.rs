//! The windows of one length, or of one calendar: what this node has counted in the last two of them, and what it heard of the others.

use std::sync::Arc;

use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::{CLOCK_SLACK, Span, Timestamp};
use sluicegate_rules::limit::LimitConfig;

use crate::sync::{SeriesCounts, WindowCounts};

/// How many windows of the others are remembered: around an edge, some are ahead of us.
const HEARD: usize = 3;

/// Windows one after the other, and the counts of the last two.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: Arc<str>,
    windows: Windows,
    /// Whether what was counted in the window before matters.
    pub(super) slides: bool,
    end: Timestamp,
    current: WindowCounts,
    previous: WindowCounts,
    /// What all others have admitted and not given back, by the start of the window; the latest first.
    others: [(Timestamp, i64); HEARD],
}

/// Where windows begin.
#[derive(Debug, Clone, Copy)]
enum Windows {
    /// On multiples of this length.
    Clock(Span),
    /// Where the calendar says that the limit at this place follows.
    Calendar(usize),
}

impl Series {
    /// Whether a limit can be counted like this.
    pub(super) fn serves(limit: &LimitConfig) -> bool {
        limit.is_calendar()
            || match limit.at(Timestamp::EPOCH) {
                Limit::FixedWindow(window) => window.align() == Align::Clock,
                Limit::SlidingWindow(_) | Limit::Unlimited | Limit::Closed => true,
                _ => false,
            }
    }

    /// What the limit at a place counts in; `None` for one that counts nothing.
    pub(super) fn of(limit: &LimitConfig, place: usize) -> Option<Self> {
        let (name, windows, slides) = match limit.followed_calendar() {
            Some(calendar) => {
                let name = format!("{}/{}", calendar.zone_name(), calendar.unit().name());
                (name, Windows::Calendar(place), false)
            }
            None => {
                let (length, slides) = match limit.at(Timestamp::EPOCH) {
                    Limit::FixedWindow(window) => (window.rate().period(), false),
                    Limit::SlidingWindow(window) => (window.rate().period(), true),
                    _ => return None,
                };
                (length.as_micros().to_string(), Windows::Clock(length), slides)
            }
        };
        Some(Self {
            name: name.into(),
            windows,
            slides,
            end: Timestamp::EPOCH,
            current: WindowCounts::default(),
            previous: WindowCounts::default(),
            others: [(Timestamp::EPOCH, 0); HEARD],
        })
    }

    /// Goes on to the window that holds `now`.
    #[inline]
    pub(super) fn roll(&mut self, limits: &[LimitConfig], now: Timestamp) {
        if self.current.start <= now && now < self.end {
            return;
        }
        self.roll_on(limits, now);
    }

    #[cold]
    fn roll_on(&mut self, limits: &[LimitConfig], now: Timestamp) {
        if now < self.current.start {
            // A small step back is waited out. After a large one nothing that was counted has a place.
            if self.current.start.since(now) <= self.length().max(CLOCK_SLACK) {
                return;
            }
            self.forget();
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
            Windows::Calendar(place) => {
                let window = limits.get(place).and_then(|limit| limit.window_at(now));
                window.unwrap_or((now, now.after(Span::from_secs(1))))
            }
        }
    }

    fn length(&self) -> Span {
        self.end.since(self.current.start)
    }

    /// When the current window began.
    #[inline]
    pub(super) const fn start(&self) -> Timestamp {
        self.current.start
    }

    /// When the window before it began.
    pub(super) const fn start_before(&self) -> Timestamp {
        self.previous.start
    }

    /// From when on nothing of this is of use.
    pub(super) fn over(&self) -> Timestamp {
        self.end.after(self.length())
    }

    /// What everybody has used of the current window, as far as is known.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.used_of(&self.current)
    }

    /// The same of the window before.
    #[inline]
    pub(super) fn used_before(&self) -> u64 {
        self.used_of(&self.previous)
    }

    #[inline]
    fn used_of(&self, window: &WindowCounts) -> u64 {
        let heard = self.others.iter().find(|(start, _)| *start == window.start);
        // Each is at most 2^53.
        let own = window.admitted as i64 - window.refunded as i64;
        let all = own + heard.map_or(0, |(_, net)| *net);
        u64::try_from(all).unwrap_or(0).min(EXACT_MAX)
    }

    /// What this node has used of the current window.
    pub(super) const fn own(&self) -> u64 {
        self.current.admitted.saturating_sub(self.current.refunded)
    }

    /// Counts what was admitted.
    #[inline]
    pub(super) fn charge(&mut self, cost: u64) {
        let admitted = &mut self.current.admitted;
        *admitted = admitted.saturating_add(cost).min(EXACT_MAX);
    }

    /// Gives back so much: of this window as far as it goes, the rest of the one before. Whether that was anything.
    pub(super) fn give(&mut self, amount: u64) -> bool {
        let now = amount.min(self.used());
        let before = (amount - now).min(self.used_before());
        let more = |given: &mut u64, by: u64| *given = given.saturating_add(by).min(EXACT_MAX);
        more(&mut self.current.refunded, now);
        more(&mut self.previous.refunded, before);
        now > 0 || before > 0
    }

    /// Begins at nothing, in the same windows.
    pub(super) fn forget(&mut self) {
        let begun =
            |window: WindowCounts| WindowCounts { start: window.start, ..WindowCounts::default() };
        (self.current, self.previous) = (begun(self.current), begun(self.previous));
        self.others = [(Timestamp::EPOCH, 0); HEARD];
    }

    /// Goes on where this node stood when it last told.
    pub(super) fn adopt(&mut self, limits: &[LimitConfig], own: &SeriesCounts) {
        let (start, end) = self.window_at(limits, own.current.start);
        if start == own.current.start {
            (self.current, self.previous, self.end) = (own.current, own.previous, end);
        }
    }

    /// The same of limits that were replaced by others.
    pub(super) fn go_on(&mut self, old: Self) {
        let Self { end, current, previous, others, .. } = old;
        (self.end, self.current, self.previous, self.others) = (end, current, previous, others);
    }

    /// What the others have in a window. How much more that is than was known.
    pub(super) fn hear(&mut self, start: Timestamp, net: i64) -> u64 {
        if let Some((_, known)) = self.others.iter_mut().find(|(at, _)| *at == start) {
            return u64::try_from(net - std::mem::replace(known, net)).unwrap_or(0);
        }
        let place = self.others.iter().position(|(at, _)| *at < start);
        let Some(place) = place else { return 0 };
        self.others[place..].rotate_right(1);
        self.others[place] = (start, net);
        u64::try_from(net).unwrap_or(0)
    }

    /// What this node has counted.
    pub(super) fn counted(&self) -> SeriesCounts {
        let Self { name, current, previous, .. } = self;
        let (name, over) = (name.clone(), self.over());
        SeriesCounts { name, over, current: *current, previous: *previous }
    }

    /// Whether that is anything.
    pub(super) fn has_counted(&self) -> bool {
        let is_any = |window: &WindowCounts| window.admitted > 0 || window.refunded > 0;
        is_any(&self.current) || is_any(&self.previous)
    }

    /// That it has counted nothing, and for how long that is of use.
    pub(super) fn nothing(&self) -> SeriesCounts {
        let current = WindowCounts { start: self.current.start, ..WindowCounts::default() };
        let previous = WindowCounts::default();
        SeriesCounts { name: self.name.clone(), over: self.over(), current, previous }
    }
}
