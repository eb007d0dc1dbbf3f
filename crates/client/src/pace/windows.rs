//! What is left of each limit of an API.
//!
//! Within one window the least that any answer told is what is left, but for the calls that are
//! under way: every other call is in it. So what matters is to tell windows apart, though answers
//! overtake each other and times are rounded up to seconds. An answer that says `t` seconds to go
//! was written between sending and answering its call, so the window ends between `sent + t - 1`
//! and `answered + t`: answers whose spans meet are of one window.

use std::time::Duration;

use tokio::time::Instant;

use super::hints::Window;

/// A limit, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct TrackedWindow {
    name: String,
    quota: Option<u64>,
    /// The least that was told to be left; calls that are under way may not be in it.
    least: u64,
    end: Span,
    /// The latest end that was told: nothing of the next window is taken before.
    until: Instant,
    /// Since when it is over, and nobody has told of the next one.
    over: Option<Instant>,
    /// Calls that ended without a word, and that may be in the next window already.
    early: u64,
    /// The latest of the calls whose answers this is from.
    call_number: u64,
}

/// Between these the window ends.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: Instant,
    to: Instant,
}

/// When the next call is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    Now,
    At(Instant),
    /// When the next window is told of, which it was not since this time.
    ServerHints(Instant),
}

const ROUNDING: Duration = Duration::from_secs(1);

/// What is told beyond is not believed.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// An API with more limits at a time loses the one that it spoke of least recently.
const WINDOWS_MAX: usize = 8;

/// Takes in what the answer to a call told, which was sent then and had this number.
pub(super) fn update(
    all: &mut Vec<TrackedWindow>,
    hints: &Window,
    (number, sent): (u64, Instant),
    now: Instant,
) {
    let reset_after = hints.reset_after.min(WAIT_MAX);
    let until = now + reset_after;
    let end = Span { from: sent + reset_after.saturating_sub(ROUNDING), to: until };
    let (name, quota, least) = (hints.name.clone(), hints.quota, hints.remaining);
    let new =
        TrackedWindow { name, quota, least, end, until, over: None, early: 0, call_number: number };
    match all.iter_mut().find(|tracked| tracked.name == hints.name) {
        Some(tracked) => tracked.update(new),
        None => {
            if all.len() >= WINDOWS_MAX {
                let oldest = (0..all.len()).min_by_key(|index| all[*index].call_number);
                all.swap_remove(oldest.unwrap_or_default());
            }
            all.push(new);
        }
    }
}

impl TrackedWindow {
    fn update(&mut self, new: Self) {
        let quota = new.quota.or(self.quota);
        if new.end.from > self.end.to
            || (new.end.to < self.end.from && new.call_number > self.call_number)
        {
            *self = new;
        } else if self.over.is_some() {
            // Of the window that is over, as it seems; if not, its call is one that nothing is
            // known of.
            self.least = self.least.saturating_sub(1);
        } else if new.end.to >= self.end.from {
            self.least = self.least.min(new.least);
            self.end.from = self.end.from.max(new.end.from);
            self.end.to = self.end.to.min(new.end.to);
            self.until = self.until.max(new.until);
            self.call_number = self.call_number.max(new.call_number);
        }
        self.quota = quota;
    }

    /// A call ended, and this limit was not spoken of.
    pub(super) fn miss(&mut self, now: Instant) {
        self.least = self.least.saturating_sub(1);
        self.early += u64::from(self.over.is_none() && self.end.from <= now);
    }

    /// Begins the next window, if this one is over: it has the whole quota, if that is known.
    pub(super) fn pass_to(&mut self, now: Instant) {
        if self.over.is_none() && self.until <= now {
            self.least = self.quota.unwrap_or_default().saturating_sub(self.early);
            self.over = Some(now);
        }
    }

    /// When it lets a call pass while so many are under way.
    pub(super) fn opens(&self, in_flight: u64) -> Opens {
        match self.over {
            _ if self.least > in_flight => Opens::Now,
            None => Opens::At(self.until),
            // If none is under way nobody will tell: one has to try.
            Some(_) if in_flight == 0 => Opens::Now,
            Some(since) => Opens::ServerHints(since),
        }
    }

    /// When the next may go, after one that went at this time, if what is left were spread evenly.
    /// Only from a share of the quota on, in percent; where that cannot be known, always.
    pub(super) fn spread(&self, percent: u32, in_flight: u64, last: Instant) -> Option<Instant> {
        let left = self.least.saturating_sub(in_flight);
        let is_below = self
            .quota
            .is_none_or(|quota| u128::from(left) * 100 <= u128::from(quota) * u128::from(percent));
        let parts = u32::try_from(left.saturating_add(1)).unwrap_or(u32::MAX);
        let part = self.until.saturating_duration_since(last) / parts;
        (is_below && self.over.is_none()).then(|| last + part)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}
