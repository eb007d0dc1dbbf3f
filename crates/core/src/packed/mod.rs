//! States packed into two numbers, and the fast path of a hit on them.
//!
//! Nearly every state is defined by its expiry and one more number: a bucket by its TAT and the
//! fraction of it, a window by its end and its count. A store with millions of states stores these
//! two and keeps a whole [`State`] only if [`Limit::pack`] fails.
//!
//! | kernel | `expires_at` | `number` | not packed |
//! |---|---|---|---|
//! | GCRA | its TAT, rounded up | its fraction | extra units, debt, a gap, or not starting full |
//! | periodic | when it is full | units used | above capacity, a gap, or not starting full |
//! | counter | when both counts expire | both counts | with bookings |
//! | tally | the end of its window | its count | |
//!
//! [`EnforcedLimit::hit_fast`] is the fast path for the common case: a hit on a hard limit with a
//! packed state, without debt or clock steps. It takes a few additions and comparisons, and returns
//! `None` for any other case, which the slow path ([`crate::account::Account`]) decides. Both give
//! the same answers (`tests/packed.rs` compares them).

mod counts;

use std::num::NonZeroU64;

use crate::algorithm::Algorithm;
use crate::algorithm::gcra::{Gcra, GcraState};
use crate::algorithm::period::Period;
use crate::algorithm::periodic::{Periodic, PeriodicState};
use crate::arithmetic::{EXACT_MAX, signed};
use crate::limit::{Kernel, Limit, State};
use crate::mode::EnforcedLimit;
use crate::quota::ExactTime;
use crate::time::{NOW_MAX, SPAN_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome};

/// A packed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// When it expires, or later. Always after the epoch.
    pub expires_at: Timestamp,
    /// A number whose meaning depends on the limit.
    pub number: u64,
}

/// The result of a fast hit: plain numbers that stay in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastHit {
    /// Whether it is admitted.
    pub allowed: bool,
    /// The wait of an admitted caller, or the retry time of a denied one.
    pub after: Span,
    /// The status of the limit afterwards.
    pub status: LimitStatus,
    /// The state to store: after an admission, and always for [`Limit::counts_first`]. `None` if
    /// nothing is stored or the state does not change.
    pub stored: Option<Packed>,
}

/// The status of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    /// Whole units left; `None` if unlimited.
    pub remaining: Option<i64>,
    /// How long until the limit is full.
    pub reset_after: Span,
    /// How far a limit that counts first is beyond its limit.
    pub beyond: u64,
}

/// A bucket or queue whose units take a whole number of microseconds, as with most rates: there are
/// no fractions to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerBucket {
    interval: NonZeroU64,
    full_us: u64,
    capacity: u64,
    /// Whether an admitted caller waits for its turn.
    waits: bool,
}

/// A kernel whose states can be packed.
trait Pack: Algorithm {
    fn pack(&self, state: &Self::State) -> Option<Packed>;
    fn unpack(&self, packed: Packed) -> Self::State;

    /// A hit on the fast path.
    fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit>;
}

impl Limit {
    /// Packs a state of this limit, if possible.
    ///
    /// ```
    /// use sluicegate_core::algorithm::token_bucket::TokenBucket;
    /// use sluicegate_core::limit::{Limit, State};
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let thrice = Rate::new(3, Span::from_secs(1)).unwrap();
    /// let limit = Limit::TokenBucket(TokenBucket::new(thrice, 9).unwrap());
    /// let mut state = State::New;
    /// limit.open(&mut state, Timestamp::EPOCH);
    /// limit.spend(&mut state, 1, Timestamp::EPOCH, Timestamp::EPOCH);
    ///
    /// let packed = limit.pack(&state).unwrap();
    /// assert_eq!((packed.expires_at.as_micros(), packed.number), (333_334, 1));
    /// assert_eq!(limit.unpack(packed), state);
    /// ```
    #[must_use]
    pub fn pack(&self, state: &State) -> Option<Packed> {
        match (self.kernel(), state) {
            (Kernel::Gcra(kernel), State::Gcra(state)) => kernel.pack(state),
            (Kernel::Periodic(kernel), State::Periodic(state)) => kernel.pack(state),
            (Kernel::Counter(kernel), State::Counter(state)) => kernel.pack(state),
            (Kernel::Tally(kernel), State::Tally(state)) => kernel.pack(state),
            _ => None,
        }
    }

    /// The state of a packed one; [`State::New`] if this limit does not pack.
    ///
    /// Any numbers give a valid state.
    #[must_use]
    pub fn unpack(&self, packed: Packed) -> State {
        match self.kernel() {
            Kernel::Gcra(kernel) => State::Gcra(kernel.unpack(packed)),
            Kernel::Periodic(kernel) => State::Periodic(kernel.unpack(packed)),
            Kernel::Counter(kernel) => State::Counter(kernel.unpack(packed)),
            Kernel::Tally(kernel) => State::Tally(kernel.unpack(packed)),
            _ => State::New,
        }
    }

    /// [`EnforcedLimit::hit_fast`] for this limit as a hard step.
    #[inline]
    #[must_use]
    pub fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        if now > NOW_MAX {
            return None;
        }
        match self.kernel() {
            Kernel::Gcra(kernel) => kernel.hit_fast(stored, cost, now),
            Kernel::Periodic(kernel) => kernel.hit_fast(stored, cost, now),
            Kernel::Counter(kernel) => kernel.hit_fast(stored, cost, now),
            Kernel::Tally(kernel) => kernel.hit_fast(stored, cost, now),
            Kernel::Open => Some(FastHit {
                allowed: true,
                after: Span::ZERO,
                status: LimitStatus { remaining: None, reset_after: Span::ZERO, beyond: 0 },
                stored: None,
            }),
            Kernel::Closed | Kernel::Log(_) | Kernel::WarmUp(_) | Kernel::Slots(_) => None,
        }
    }

    /// This limit as an integer bucket, if its units take whole microseconds and identities start
    /// full.
    #[must_use]
    pub fn integer_bucket(&self) -> Option<IntegerBucket> {
        match self.kernel() {
            Kernel::Gcra(gcra) if !gcra.starts_partial() => IntegerBucket::from_gcra(gcra),
            _ => None,
        }
    }
}

impl EnforcedLimit {
    /// The largest cost on the fast path; `None` if this step is never on it. It serves hard limits
    /// whose states are packed as a rule.
    #[must_use]
    pub fn fast_cost_max(&self) -> Option<u64> {
        let packs = match self.limit.kernel() {
            Kernel::Open | Kernel::Counter(_) | Kernel::Tally(_) => true,
            Kernel::Gcra(gcra) => !gcra.starts_partial(),
            Kernel::Periodic(periodic) => {
                !periodic.starts_partial() && periodic.refill == periodic.capacity
            }
            Kernel::Closed | Kernel::Log(_) | Kernel::WarmUp(_) | Kernel::Slots(_) => false,
        };
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        (packs && hard).then(|| self.limit.capacity().unwrap_or(EXACT_MAX))
    }

    /// A hit of `cost`, from 1 to [`EnforcedLimit::fast_cost_max`], on no state or one that has not
    /// expired. `None` if the slow path must decide.
    #[inline]
    #[must_use]
    pub fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        self.limit.hit_fast(stored, cost, now)
    }

    /// This step as an integer bucket, if [`EnforcedLimit::hit_fast`] serves it.
    #[must_use]
    pub fn integer_bucket(&self) -> Option<IntegerBucket> {
        self.fast_cost_max()?;
        self.limit.integer_bucket()
    }

    /// The status of an uncharged limit that admits a hit when another of the plan denies it.
    #[must_use]
    pub fn status(&self, stored: Option<Packed>, now: Timestamp) -> LimitStatus {
        let mut state = stored.map_or(State::New, |packed| self.limit.unpack(packed));
        self.limit.open(&mut state, now);
        let remaining = self.limit.remaining(&state, now);
        let beyond = self.limit.beyond(&state);
        LimitStatus { remaining, reset_after: self.limit.full_after(&state, now), beyond }
    }
}

impl FastHit {
    #[inline]
    const fn admitted(after: Span, left: u64, stored: Packed, reset_after: Span) -> Self {
        let status = LimitStatus { remaining: Some(signed(left)), reset_after, beyond: 0 };
        Self { allowed: true, after, status, stored: Some(stored) }
    }

    #[inline]
    const fn denied(after: Span, left: u64, reset_after: Span) -> Self {
        let status = LimitStatus { remaining: Some(signed(left)), reset_after, beyond: 0 };
        Self { allowed: false, after, status, stored: None }
    }

    /// The decision.
    #[inline]
    #[must_use]
    pub const fn decision(&self) -> Decision {
        let outcome = match self.allowed {
            true => Outcome::Allow { wait: self.after },
            false => Outcome::Deny { retry_after: self.after },
        };
        Decision {
            outcome,
            enforced: true,
            remaining: self.status.remaining,
            reset_after: self.status.reset_after,
            beyond: self.status.beyond,
            soft: false,
            elastic: false,
        }
    }
}

impl Pack for Gcra {
    #[inline]
    fn pack(&self, state: &GcraState) -> Option<Packed> {
        let is_tat_only = state.extra == 0 && state.seen.is_none() && state.hole_until.is_none();
        let expires_at = state.tat.ceil();
        let held = expires_at > Timestamp::EPOCH && expires_at < Timestamp::MAX;
        (is_tat_only && held).then(|| Packed { expires_at, number: state.tat.frac() })
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> GcraState {
        let begun = u64::from(packed.number > 0);
        let us = packed.expires_at.as_micros().saturating_sub(begun);
        let tat = ExactTime::from_parts(&self.rate, us, packed.number);
        GcraState { tat, extra: 0, seen: None, hole_until: None }
    }

    /// The TAT lies between `now` and `tat_max`, and an admitted hit moves it within.
    fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        match IntegerBucket::from_gcra(self) {
            Some(bucket) => bucket.hit(stored, cost, now),
            None => self.hit_fractional(stored, cost, now),
        }
    }
}

impl Gcra {
    fn hit_fractional(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        let tat_max = self.tat_max(now);
        let start = match stored {
            Some(packed) => self.unpack(packed).tat.max(ExactTime::at(now)),
            None => ExactTime::at(now),
        };
        if start > tat_max || cost > self.capacity || !self.cost_must_fit() {
            return None;
        }
        let poured = self.rate.later(start, self.rate.time_of(cost));
        if poured > tat_max {
            let ready = self.rate.earlier(poured, self.full).ceil();
            let left = self.rate.units_in(self.rate.earlier(tat_max, start));
            return Some(FastHit::denied(ready.since(now), left, start.ceil().since(now)));
        }
        let wait = if self.is_queue() { start.ceil().since(now) } else { Span::ZERO };
        let left = self.rate.units_in(self.rate.earlier(tat_max, poured));
        let stored = Packed { expires_at: poured.ceil(), number: poured.frac() };
        Some(FastHit::admitted(wait, left, stored, stored.expires_at.since(now)))
    }
}

impl IntegerBucket {
    fn from_gcra(gcra: &Gcra) -> Option<Self> {
        let interval = gcra.rate.whole_interval()?;
        let (full_us, capacity, waits) = (gcra.full.us(), gcra.capacity, gcra.is_queue());
        gcra.cost_must_fit().then_some(Self { interval, full_us, capacity, waits })
    }

    /// A bucket of `tokens`, full at first, that refills one token per `interval`: the one that
    /// [`Limit::integer_bucket`] gives for that rate. `None` if there is no such bucket.
    ///
    /// ```
    /// use sluicegate_core::algorithm::token_bucket::TokenBucket;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::packed::IntegerBucket;
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::Span;
    ///
    /// let rate = Rate::new(30, Span::from_secs(60)).unwrap();
    /// let limit = Limit::TokenBucket(TokenBucket::new(rate, 16).unwrap());
    /// let bucket = IntegerBucket::with_tokens(16, Span::from_secs(2));
    /// assert!(bucket.is_some());
    /// assert_eq!(bucket, limit.integer_bucket());
    /// ```
    #[must_use]
    pub fn with_tokens(tokens: u64, interval: Span) -> Option<Self> {
        let interval = NonZeroU64::new(interval.as_micros())?;
        let full_us = interval.get().checked_mul(tokens)?;
        let held = (1..=EXACT_MAX).contains(&tokens) && full_us <= SPAN_MAX.as_micros();
        held.then_some(Self { interval, full_us, capacity: tokens, waits: false })
    }

    /// [`EnforcedLimit::hit_fast`] for such a limit.
    #[inline(always)]
    #[must_use]
    pub fn hit(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        let now_us = now.as_micros();
        let tat_max = now_us.saturating_add(self.full_us);
        let start = match stored {
            Some(packed) => packed.expires_at.as_micros().max(now_us),
            None => now_us,
        };
        if start > tat_max || cost > self.capacity || now > NOW_MAX {
            return None;
        }
        // The time of at most a whole bucket: nothing is later than `NOW_MAX + 2 × SPAN_MAX`, and
        // stored values are within `tat_max`.
        let poured = start.saturating_add(self.interval.get().saturating_mul(cost));
        let allowed = poured <= tat_max;
        let after = if allowed { poured } else { start };
        let left = tat_max.saturating_sub(after).checked_div(self.interval.get()).unwrap_or(0);
        let reset_after = Span::exact(after.saturating_sub(now_us));
        if !allowed {
            let retry_after = Span::exact(poured.saturating_sub(tat_max));
            return Some(FastHit::denied(retry_after, left, reset_after));
        }
        let wait = if self.waits { start.saturating_sub(now_us) } else { 0 };
        let stored = Packed { expires_at: Timestamp::exact(poured), number: 0 };
        Some(FastHit::admitted(Span::exact(wait), left, stored, reset_after))
    }
}

impl Pack for Periodic {
    #[inline]
    fn pack(&self, state: &PeriodicState) -> Option<Packed> {
        let used = self.capacity_signed().saturating_sub(state.level);
        let number = u64::try_from(used).ok().filter(|used| (1..=EXACT_MAX).contains(used))?;
        let is_plain = state.seen.is_none() && state.hole_until.is_none();
        let expires_at = self.expires_at(state);
        let packed = Packed { expires_at, number };
        let held = is_plain && expires_at < Timestamp::MAX;
        let found_again = match self.period {
            Period::Clock(_) | Period::FirstHit(_) => true,
            // A calendar knows a few windows only, which move on with time.
            Period::Calendar(_) => self.anchor_of(packed) == state.anchor,
        };
        (held && found_again).then_some(packed)
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> PeriodicState {
        let level = self.capacity_signed().saturating_sub(signed(packed.number));
        PeriodicState { level, anchor: self.anchor_of(packed), seen: None, hole_until: None }
    }

    /// The window contains `now` and has no debt.
    #[inline]
    fn hit_fast(&self, stored: Option<Packed>, cost: u64, now: Timestamp) -> Option<FastHit> {
        let capacity = self.capacity.get();
        let (used, end) = match stored {
            Some(packed) => (packed.number, packed.expires_at),
            None => (0, self.period.end_of(now)),
        };
        let in_window = match &self.period {
            Period::Clock(length) | Period::FirstHit(length) => {
                now < end && end.before(Span::from_micros(length.get())) <= now
            }
            Period::Calendar(_) => end == self.period.end_of(now),
        };
        if !in_window || self.refill != self.capacity || used > capacity || cost > capacity {
            return None;
        }
        let free = capacity.saturating_sub(used);
        let reset_after = end.since(now);
        if cost > free {
            return Some(FastHit::denied(reset_after, free, reset_after));
        }
        let stored = Packed { expires_at: end, number: used.saturating_add(cost) };
        Some(FastHit::admitted(Span::ZERO, free.saturating_sub(cost), stored, reset_after))
    }
}

impl Periodic {
    /// Start of the period that ends, after the refills, when the state expires.
    #[inline]
    fn anchor_of(&self, packed: Packed) -> Timestamp {
        match &self.period {
            Period::Clock(length) | Period::FirstHit(length) => {
                // Windows are always within one refill.
                let refills = match packed.number <= self.refill.get() {
                    true => 1,
                    false => crate::quota::periods(packed.number, self.refill),
                };
                packed.expires_at.before(Span::from_micros(length.get().saturating_mul(refills)))
            }
            Period::Calendar(edges) => {
                let starts = edges.starts().iter().rev().skip_while(|at| **at != packed.expires_at);
                match starts.copied().nth(1) {
                    Some(start) if packed.number <= self.refill.get() => start,
                    // In no known window: the clock was set, and states ahead of it are moved.
                    _ => packed.expires_at.before(Span::from_micros(1)),
                }
            }
        }
    }
}
