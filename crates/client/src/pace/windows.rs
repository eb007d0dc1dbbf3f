//! What is left of each limit of an API.
//!
//! Answers overtake each other and are rounded to seconds. So within one window the least that was told counts, less what is under way and may not be in it; and a window is a
//! new one when it ends clearly later than the one that is known: that is also how a limit is seen to refill bit by bit.

use std::time::Duration;

use tokio::time::Instant;

use super::told::Window;

/// A limit, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    name: String,
    quota: Option<u64>,
    /// How many may go.
    pub(super) left: u64,
    /// Until when; nothing is known of that after a reset, until the next answer.
    pub(super) ends: Option<Ends>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// As it was told first.
    first: Instant,
    /// The latest that was told.
    pub(super) last: Instant,
}

/// Ends that are told differ by so much because they are rounded.
const ROUNDING: Duration = Duration::from_secs(1);

/// What is told beyond is not believed.
pub(super) const TOLD_MAX: Duration = Duration::from_secs(86_400);

/// An API with more limits at a time loses the one that ends first.
const WINDOWS_MAX: usize = 8;

/// Takes in what was told, while so many calls are under way.
pub(super) fn heard(all: &mut Vec<Kept>, told: &Window, under_way: u64, now: Instant) {
    let end = now + told.reset_after.min(TOLD_MAX);
    let left = told.remaining.saturating_sub(under_way);
    let ends = Some(Ends { first: end, last: end });
    match all.iter_mut().find(|kept| kept.name == told.name) {
        Some(kept) => {
            kept.quota = told.quota.or(kept.quota);
            match &mut kept.ends {
                Some(known) if end <= known.first + ROUNDING => {
                    kept.left = kept.left.min(left);
                    known.last = known.last.max(end);
                }
                _ => (kept.left, kept.ends) = (left, ends),
            }
        }
        None => {
            if all.len() >= WINDOWS_MAX {
                let first =
                    (0..all.len()).min_by_key(|place| all[*place].ends.map(|ends| ends.last));
                all.swap_remove(first.unwrap_or_default());
            }
            all.push(Kept { name: told.name.clone(), quota: told.quota, left, ends });
        }
    }
}

/// Resets what has ended. Whether one ended of which is not known how much it allows.
pub(super) fn roll(all: &mut Vec<Kept>, under_way: u64, now: Instant) -> bool {
    let before = all.len();
    all.retain_mut(|kept| {
        let Some(Ends { .. }) = kept.ends.filter(|ends| ends.last <= now) else { return true };
        kept.ends = None;
        kept.left = kept.quota.unwrap_or_default().saturating_sub(under_way);
        kept.quota.is_some()
    });
    all.len() < before
}

impl Kept {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether no more than this share of it is left, in percent; where that cannot be known, it is.
    pub(super) fn is_below(&self, percent: u32) -> bool {
        let all = u128::from(self.quota.unwrap_or_default()) * u128::from(percent);
        self.quota.is_none() || u128::from(self.left) * 100 <= all
    }
}
