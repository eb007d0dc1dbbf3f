//! A state in two numbers, and a hit on it in one go.
//!
//! Nearly every identity of nearly every limit is told by when it will be as good as new, and one
//! number more: a bucket by its mark and the fraction of it, a window by its end and what was used in
//! it. A store that keeps millions of them keeps these two and nothing else; whatever does not fit
//! ([`Limit::pack`] says so) it keeps as a whole [`State`].
//!
//! | kernel | `expires_at` | `number` | not packed |
//! |---|---|---|---|
//! | meter | its mark, rounded up | the mark's fraction | with extra units, in debt, a hole, or an identity that does not start full |
//! | steps | when it is full | units used | above its capacity, a hole, or an identity that does not start full |
//! | counter | when both counts are over | both counts | with bookings |
//!
//! [`Step::hit_packed`] is the short way through a decision for the common case: a hit on a hard limit whose
//! state is packed. It says nothing of its own; it asks the kernels the same questions in the same order
//! as [`crate::account::Account`], with everything in registers (`tests/packed.rs` compares the two).

use crate::algorithm::meter::{Meter, MeterState};
use crate::algorithm::period::Period;
use crate::algorithm::sliding_window::{CounterState, SlidingWindow};
use crate::algorithm::steps::{Steps, StepsState};
use crate::algorithm::{Algorithm, Slot};
use crate::arithmetic::{EXACT_MAX, signed};
use crate::limit::{Kernel, Limit, State};
use crate::mode::Step;
use crate::quota::Mark;
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome};

/// A state in two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// From when on it is as good as new, or later. Always later than the epoch.
    pub expires_at: Timestamp,
    /// What its limit makes of it.
    pub number: u64,
}

/// What a hit on a packed state came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedHit {
    /// What the limit says.
    pub decision: Decision,
    /// What is to be kept from now on, if the hit was charged.
    pub charged: Charged,
}

/// What is to be kept after a hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charged {
    /// What was there before: nothing was charged.
    Nothing,
    /// This.
    Packed(Packed),
    /// This, which cannot be packed.
    Whole(State),
}

/// A kernel whose states can be packed.
trait Pack: Algorithm {
    fn pack(&self, state: &Self::State) -> Option<Packed>;
    fn unpack(&self, packed: Packed) -> Self::State;
    fn whole(state: Self::State) -> State;
}

// === impl Limit ===

impl Limit {
    /// A state of this limit in two numbers, if it can be told by them.
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
            (Kernel::Meter(kernel), State::Meter(state)) => kernel.pack(state),
            (Kernel::Steps(kernel), State::Steps(state)) => kernel.pack(state),
            (Kernel::Counter(kernel), State::Counter(state)) => kernel.pack(state),
            _ => None,
        }
    }

    /// The state that these two numbers tell; a limit that packs nothing has none.
    ///
    /// Any numbers give a state that can be used, whoever made them.
    #[must_use]
    pub fn unpack(&self, packed: Packed) -> State {
        match self.kernel() {
            Kernel::Meter(kernel) => State::Meter(kernel.unpack(packed)),
            Kernel::Steps(kernel) => State::Steps(kernel.unpack(packed)),
            Kernel::Counter(kernel) => State::Counter(kernel.unpack(packed)),
            _ => State::New,
        }
    }
}

// === impl Step ===

impl Step {
    /// The largest cost that [`Step::hit_packed`] serves; `None` where it serves none. It serves hard limits
    /// whose states are packed as a rule.
    #[must_use]
    pub fn packed_cost_max(&self) -> Option<u64> {
        let packs = match self.limit.kernel() {
            Kernel::Open | Kernel::Counter(_) => true,
            Kernel::Meter(meter) => !meter.starts_short(),
            Kernel::Steps(steps) => !steps.starts_short(),
            Kernel::Closed | Kernel::Log(_) | Kernel::WarmUp(_) | Kernel::Slots(_) => false,
        };
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        // What wavers takes more than one look.
        let most = if let Limit::Cycle(cycle) = &self.limit { cycle.permits() } else { u64::MAX };
        (packs && hard).then_some(most)
    }

    /// A hit of `cost`, 1 or more, on what is kept, or on an identity of which nothing is.
    ///
    /// Only up to [`Step::packed_cost_max`]: a step that has none lets everything pass.
    #[inline]
    #[must_use]
    pub fn hit_packed(&self, kept: Option<Packed>, cost: u64, now: Timestamp) -> PackedHit {
        let now = now.min(NOW_MAX);
        match self.limit.kernel() {
            Kernel::Meter(kernel) => hit(kernel, kept, cost, now),
            Kernel::Steps(kernel) => hit(kernel, kept, cost, now),
            Kernel::Counter(kernel) => hit(kernel, kept, cost, now),
            _ => PackedHit {
                decision: says(Outcome::Allow { wait: Span::ZERO }, None, Span::ZERO),
                charged: Charged::Nothing,
            },
        }
    }

    /// What the limit would say of itself now, had it not been asked: for the limits that would have agreed
    /// when another of the plan does not.
    #[must_use]
    pub fn glance_packed(&self, kept: Option<Packed>, now: Timestamp) -> Decision {
        let now = now.min(NOW_MAX);
        let allow = Outcome::Allow { wait: Span::ZERO };
        match self.limit.kernel() {
            Kernel::Meter(kernel) => glance(kernel, &opened(kernel, kept, now), allow, now),
            Kernel::Steps(kernel) => glance(kernel, &opened(kernel, kept, now), allow, now),
            Kernel::Counter(kernel) => glance(kernel, &opened(kernel, kept, now), allow, now),
            _ => says(allow, None, Span::ZERO),
        }
    }
}

#[inline]
fn hit<K: Pack>(kernel: &K, kept: Option<Packed>, cost: u64, now: Timestamp) -> PackedHit {
    let mut state = opened(kernel, kept, now);
    let ready = kernel.ready(&state, cost, kernel.hit_patience(), now);
    let slot = match ready {
        Slot::At(at) if at <= now => kernel.slot(&state, cost, now),
        later => later,
    };
    let outcome = match (ready, slot) {
        (Slot::At(at), Slot::At(slot)) if at <= now => {
            kernel.spend(&mut state, cost, slot, now);
            let decision = glance(kernel, &state, Outcome::Allow { wait: slot.since(now) }, now);
            let charged = match kernel.pack(&state) {
                Some(packed) => Charged::Packed(packed),
                None => Charged::Whole(K::whole(state)),
            };
            return PackedHit { decision, charged };
        }
        (Slot::Never { max_cost }, _) | (_, Slot::Never { max_cost }) => {
            Outcome::Never { max_cost }
        }
        (Slot::At(at), _) => Outcome::Deny { retry_after: at.since(now) },
    };
    PackedHit { decision: glance(kernel, &state, outcome, now), charged: Charged::Nothing }
}

/// The state at `now`; a fresh one where none is kept, or it is as good as that.
#[inline]
fn opened<K: Pack>(kernel: &K, kept: Option<Packed>, now: Timestamp) -> K::State {
    let Some(packed) = kept else { return kernel.fresh(now) };
    let mut state = kernel.unpack(packed);
    kernel.settle(&mut state, now);
    if kernel.expires_at(&state) > now { state } else { kernel.fresh(now) }
}

#[inline]
fn glance<K: Pack>(kernel: &K, state: &K::State, outcome: Outcome, now: Timestamp) -> Decision {
    says(outcome, Some(kernel.remaining(state, now)), kernel.full_at(state, now).since(now))
}

const fn says(outcome: Outcome, remaining: Option<i64>, reset_after: Span) -> Decision {
    Decision { outcome, enforced: true, remaining, reset_after, soft: false, elastic: false }
}

// === impl Pack: meter ===

impl Pack for Meter {
    #[inline]
    fn pack(&self, state: &MeterState) -> Option<Packed> {
        let told_by_mark = state.extra == 0 && state.seen.is_none() && state.hole_until.is_none();
        let expires_at = state.mark.ceil();
        let held = expires_at > Timestamp::EPOCH && expires_at < Timestamp::MAX;
        (told_by_mark && held).then(|| Packed { expires_at, number: state.mark.frac() })
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> MeterState {
        let begun = u64::from(packed.number > 0);
        let us = packed.expires_at.as_micros().saturating_sub(begun);
        let mark = Mark::from_parts(&self.rate, us, packed.number);
        MeterState { mark, extra: 0, seen: None, hole_until: None }
    }

    fn whole(state: MeterState) -> State {
        State::Meter(state)
    }
}

// === impl Pack: steps ===

impl Pack for Steps {
    #[inline]
    fn pack(&self, state: &StepsState) -> Option<Packed> {
        let used = self.capacity_signed().saturating_sub(state.level);
        let number = u64::try_from(used).ok().filter(|used| (1..=EXACT_MAX).contains(used))?;
        let told_by_both = state.seen.is_none() && state.hole_until.is_none();
        let expires_at = self.expires_at(state);
        let packed = Packed { expires_at, number };
        let held = told_by_both && expires_at < Timestamp::MAX;
        let found_again = match self.period {
            Period::Clock(_) | Period::FirstHit(_) => true,
            // A calendar knows a few windows only, and they move on with the time.
            Period::Calendar(_) => self.anchor_of(packed) == state.anchor,
        };
        (held && found_again).then_some(packed)
    }

    #[inline]
    fn unpack(&self, packed: Packed) -> StepsState {
        let level = self.capacity_signed().saturating_sub(signed(packed.number));
        StepsState { level, anchor: self.anchor_of(packed), seen: None, hole_until: None }
    }

    fn whole(state: StepsState) -> State {
        State::Steps(state)
    }
}

impl Steps {
    /// When the period began that, so many refills later, ends where the state expires.
    #[inline]
    fn anchor_of(&self, packed: Packed) -> Timestamp {
        match &self.period {
            Period::Clock(length) | Period::FirstHit(length) => {
                // Nearly always within one refill: windows are.
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
                    // In no window near: the clock was set, and what is ahead of it is moved.
                    _ => packed.expires_at.before(Span::from_micros(1)),
                }
            }
        }
    }
}

// === impl Pack: counter ===

impl Pack for SlidingWindow {
    #[inline]
    fn pack(&self, state: &CounterState) -> Option<Packed> {
        let bits = self.count_bits();
        let (previous, current) = (state.previous, state.current);
        let small = (previous | current).checked_shr(bits).unwrap_or(0) == 0;
        let told_by_counts = state.next == 0 && state.seen.is_none() && small;
        let expires_at = self.expires_at(state);
        let held = expires_at > Timestamp::EPOCH && expires_at < Timestamp::MAX;
        let number = previous.checked_shl(bits)? | current;
        (told_by_counts && held && number > 0).then_some(Packed { expires_at, number })
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

    fn whole(state: CounterState) -> State {
        State::Counter(state)
    }
}

impl SlidingWindow {
    /// The bits that hold any count up to the limit; at most half of what a number has.
    const fn count_bits(&self) -> u32 {
        let bits = u64::BITS.saturating_sub(self.rate().count().leading_zeros());
        if bits > 31 { 31 } else { bits }
    }
}
