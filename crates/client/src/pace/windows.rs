//! Remaining quota of each limit of an API.
//!
//! Within a window the remaining quota is the minimum over all responses, minus the calls in
//! flight, which may not be counted yet. Windows must be separated although responses overtake
//! each other and times are rounded up to seconds. A response with `t` seconds to the reset was
//! written between sending and answering its call, so its window ends between `sent + t - 1` and
//! `answered + t`. Responses whose spans overlap belong to one window.

use std::time::Duration;

use tokio::time::Instant;

use super::hints::Window;

/// Observed state of a limit.
#[derive(Debug, Clone)]
pub(super) struct TrackedWindow {
    name: String,
    quota: Option<u64>,
    /// Minimum of the announced remaining quota; calls in flight may not be included.
    least: u64,
    end: Span,
    /// Latest announced end: the next window does not start before.
    until: Instant,
    /// End of the window, if the next one has not been announced.
    over: Option<Instant>,
    /// Calls without an announcement that may belong to the next window.
    early: u64,
    /// Highest number of the calls whose responses contributed.
    call_number: u64,
}

/// Bounds of the end of a window.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: Instant,
    to: Instant,
}

/// Time at which the next call is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    Now,
    At(Instant),
    /// When the next window is announced; the last one ended at this time.
    ServerHints(Instant),
}

const ROUNDING: Duration = Duration::from_secs(1);

/// Longer announced waits are cut to this.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Maximum number of limits per API; the least recently announced one is evicted.
const WINDOWS_MAX: usize = 8;

/// Updates the windows with the response to a call, its send time and its number.
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
            // Presumably of the ended window; otherwise its call counts as unannounced.
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

    /// Registers a call whose response did not announce this limit.
    pub(super) fn miss(&mut self, now: Instant) {
        self.least = self.least.saturating_sub(1);
        self.early += u64::from(self.over.is_none() && self.end.from <= now);
    }

    /// Starts the next window if this one has ended, with the full quota if that is known.
    pub(super) fn pass_to(&mut self, now: Instant) {
        if self.over.is_none() && self.until <= now {
            self.least = self.quota.unwrap_or_default().saturating_sub(self.early);
            self.over = Some(now);
        }
    }

    /// Time at which a call is admitted with this many calls in flight.
    pub(super) fn opens(&self, in_flight: u64) -> Opens {
        match self.over {
            _ if self.least > in_flight => Opens::Now,
            None => Opens::At(self.until),
            // Without a call in flight no announcement follows: a trial call is needed.
            Some(_) if in_flight == 0 => Opens::Now,
            Some(since) => Opens::ServerHints(since),
        }
    }

    /// Send time of the next call after one at `last` if the remaining quota is spread evenly.
    /// Applies once at most `percent` of the quota remains, or always if the quota is unknown.
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
