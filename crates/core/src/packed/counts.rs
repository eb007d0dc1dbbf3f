//! Packed states of counters: two counts of a sliding window, one of a tally.

use super::{FastHit, LimitStatus, Pack, Packed};
use crate::algorithm::Algorithm;
use crate::algorithm::sliding_window::{CounterState, SlidingWindow};
use crate::algorithm::tally::{Tally, TallyState};
use crate::arithmetic::{EXACT_MAX, clamp_amount, signed};
use crate::time::{Span, Timestamp};

impl Pack for SlidingWindow {
    #[inline]
    fn pack(&self, state: &CounterState) -> Option<Packed> {
        let bits = self.count_bits();
        let (previous, current) = (state.previous, state.current);
        let small = (previous | current).checked_shr(bits).unwrap_or(0) == 0;
        let is_plain = state.next == 0 && state.seen.is_none() && small;
        let expires_at = self.expires_at(state);
        let held = expires_at > Timestamp::EPOCH && expires_at < Timestamp::MAX;
        let number = previous.checked_shl(bits)? | current;
        (is_plain && held && number > 0).then_some(Packed { expires_at, number })
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> CounterState {
        let bits = self.count_bits();
        let previous = packed.number.checked_shr(bits).unwrap_or(0).min(EXACT_MAX);
        let current = packed.number ^ previous.checked_shl(bits).unwrap_or(0);
        let windows = if current > 0 { 2 } else { 1 };
        let length = self.window_span().as_micros().saturating_mul(windows);
        let start = packed.expires_at.before(Span::from_micros(length));
        let current = current.min(EXACT_MAX);
        CounterState { start, previous, current, next: 0, seen: None }
    }

    /// The counts belong to the window that contains `now`, or to the one before.
    #[inline]
    fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        let mut state = match stored {
            Some(packed) => self.unpack(packed),
            None => self.fresh(now),
        };
        let window = self.window_span();
        if now.since(state.start) >= window {
            state = self.one_later(&state);
        }
        let max = self.rate().count();
        if now < state.start || now.since(state.start) >= window || cost > max {
            return None;
        }
        let held = self.estimate(&state, now);
        let left = signed(max).saturating_sub(signed(held));
        let fits = held.saturating_add(cost) <= max;
        if fits {
            state.current = state.current.saturating_add(cost);
        }
        let reset_after = self.full_at(&state, now).since(now);
        if !fits {
            let after = self.fits_at(&state, cost, now).since(now);
            let status = LimitStatus { remaining: Some(left), reset_after, beyond: 0 };
            return Some(FastHit { allowed: false, after, status, stored: None });
        }
        let stored = self.pack(&state)?;
        let left = u64::try_from(left).unwrap_or(0).saturating_sub(cost);
        Some(FastHit::admitted(Span::ZERO, left, stored, reset_after))
    }
}

impl SlidingWindow {
    /// The bits of a count up to the limit; at most half of the number.
    const fn count_bits(&self) -> u32 {
        let bits = u64::BITS.saturating_sub(self.rate().count().leading_zeros());
        if bits > 31 { 31 } else { bits }
    }
}

impl Pack for Tally {
    #[inline]
    fn pack(&self, state: &TallyState) -> Option<Packed> {
        let expires_at = self.expires_at(state);
        let held = expires_at > Timestamp::EPOCH && expires_at < Timestamp::MAX;
        held.then_some(Packed { expires_at, number: state.count })
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> TallyState {
        let start = packed.expires_at.before(self.period());
        TallyState { start, count: clamp_amount(packed.number) }
    }

    /// The window contains `now`. Denials are counted and stored too.
    #[inline]
    fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        let (count, end) = match stored {
            Some(packed) => (packed.number, packed.expires_at),
            None => (0, now.aligned(self.period()).after(self.period())),
        };
        let in_window = now < end && end.before(self.period()) <= now;
        if !in_window || cost > self.limit() {
            return None;
        }
        let reset_after = end.since(now);
        let number = clamp_amount(count.saturating_add(cost));
        let allowed = self.admits(count, cost);
        let remaining = Some(signed(self.limit().saturating_sub(number)));
        let beyond = number.saturating_sub(self.limit());
        Some(FastHit {
            allowed,
            after: if allowed { Span::ZERO } else { reset_after },
            status: LimitStatus { remaining, reset_after, beyond },
            stored: Some(Packed { expires_at: end, number }),
        })
    }
}
