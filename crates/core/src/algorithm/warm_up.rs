//! The smooth limiter that warms up, as Guava defines it.
//!
//! ```text
//!    price of a permit
//!   cold |                       /
//!        |                   /   :        stored permits are taken from the right: the colder
//!        |               /       :        the limiter, the dearer. Below the threshold, and
//! stable |-----------/           :        without stored ones, a permit costs the stable interval.
//!        |           :           :
//!        +-----------+-----------+---> stored permits
//!        0       threshold      max
//! ```
//!
//! The area under the slope is the warm-up period, that of the rectangle half of it: `threshold =
//! warm_up / 2 / stable` and `max = threshold + 2 × warm_up / (stable + cold)`. The cost of a call
//! is paid by the next one: it is granted once the time of those before has passed.
//!
//! The representation departs from Guava's, the prices do not. Guava stores permits as a float;
//! here they are stored as the time it took to gather them (`cool`, from 0 to the warm-up period),
//! which is exact. A permit is worth `warm_up / max` of that time, a plain ratio: `stable × 2(1 +
//! c) / (5 + c)` for a cold factor `c`, which is the stable interval for the usual `c = 3`. The
//! price splits into a part that never drifts and a premium for the cold:
//!
//! ```text
//!   price = cost × stable  +  (c² − 1) × t × (2a − t) / (4 × warm_up)
//! ```
//!
//! with `a` the stable time of the permits above the threshold and `t` that of the permits taken
//! from there. The first part keeps its fraction, so the stable rate holds over any run; the
//! premium is computed in 2^-14 µs and rounded up to a whole microsecond.

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{Division, EXACT_MAX, gcd, muldiv, muldiv_ceil, signed};
use crate::change::CarryOver;
use crate::quota::{ExactTime, QuotaError, Rate, length_up_to};
use crate::time::{Span, Timestamp};

/// The longest warm-up period.
pub const WARM_UP_MAX: Span = Span::from_secs(3_600);
/// The cold factor unless one is given, in thousandths.
pub const COLD_FACTOR: u64 = 3_000;
/// The largest cold factor, in thousandths.
pub const COLD_FACTOR_MAX: u64 = 100_000;

const TICKS: u64 = 1 << 14;

// The premium's intermediate values stay exact: a warm-up of an hour is below 2^46 ticks, and
// (c² − 1)(2a − t) / 4 is at most (c − 1) warm-ups, since `a` is at most 2 / (1 + c) of one.
const _: () = assert!(
    WARM_UP_MAX.as_micros() * TICKS < EXACT_MAX / (COLD_FACTOR_MAX / 1_000)
        && COLD_FACTOR_MAX * COLD_FACTOR_MAX < EXACT_MAX
);

/// A smooth limiter that warms up.
///
/// ```
/// use sluicegate_core::algorithm::warm_up::{COLD_FACTOR, WarmUp};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(2, Span::from_secs(1)).unwrap();
/// let limit = WarmUp::new(rate, Span::from_secs(4), COLD_FACTOR).unwrap();
/// assert_eq!(limit.rate(), rate);
/// assert!(WarmUp::new(rate, Span::from_secs(7_200), COLD_FACTOR).is_err(), "at most an hour");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    rate: Rate,
    warm_up: NonZeroU64,
    /// In thousandths.
    cold_factor: u64,
    /// Permits gathered per time when idle: `max` per warm-up period.
    gather: Rate,
    /// The time it takes to gather the threshold, in ticks.
    threshold_ticks: u64,
}

/// The state: when the limiter is free, and how cold it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUpState {
    /// When the next caller is granted.
    pub free: ExactTime,
    /// The stored permits, as the time it took to gather them.
    pub cool: ExactTime,
    /// When the state was last written.
    pub seen: Timestamp,
}

/// The price of a cost: time to wait and stored time used.
struct Price {
    time: ExactTime,
    cool: ExactTime,
}

impl WarmUp {
    /// The rate when warm; the warm-up period; the factor between cold and stable interval, in
    /// thousandths.
    ///
    /// # Errors
    /// When the period is empty or above [`WARM_UP_MAX`], the factor is below 1 or above
    /// [`COLD_FACTOR_MAX`], or the two with the rate do not make a ratio that is held exactly.
    pub fn new(rate: Rate, warm_up: Span, cold_factor: u64) -> Result<Self, QuotaError> {
        let length = length_up_to("the warm-up period", warm_up, WARM_UP_MAX)?;
        if !(1_000..=COLD_FACTOR_MAX).contains(&cold_factor) {
            let (what, min, max) = ("the cold factor (in thousandths)", 1_000, COLD_FACTOR_MAX);
            return Err(QuotaError::OutOfRange { what, given: cold_factor, min, max });
        }
        let (narrow, wide) = (cold_factor.saturating_add(1_000), cold_factor.saturating_add(5_000));
        // A permit takes stable × 2(1 + c) / (5 + c) to gather.
        let gather = rate.times_ratio(wide, narrow.saturating_mul(2))?;
        let threshold_ticks = match NonZeroU64::new(wide) {
            // Rounded up: the premium is rounded up at its end only.
            Some(wide) => muldiv_ceil(warm_up.as_micros().saturating_mul(TICKS), narrow, wide),
            None => 0,
        };
        Ok(Self { rate, warm_up: length, cold_factor, gather, threshold_ticks })
    }

    /// The rate when warm.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The warm-up period.
    #[must_use]
    pub const fn warm_up(&self) -> Span {
        Span::from_micros(self.warm_up.get())
    }

    /// The cold factor in thousandths.
    #[must_use]
    pub const fn cold_factor(&self) -> u64 {
        self.cold_factor
    }

    /// The rate at which permits are gathered, and the threshold as the time it takes to gather it,
    /// in ticks.
    pub(crate) const fn gathering(&self) -> (Rate, u64) {
        (self.gather, self.threshold_ticks)
    }

    /// The premium in whole microseconds for taking `wanted` of the stored time `cool`.
    /// microseconds.
    fn premium(&self, cool: ExactTime, wanted: ExactTime) -> Span {
        let above = self.ticks(cool).saturating_sub(self.threshold_ticks);
        let taken = self.ticks(wanted).min(above);
        let (above, taken) = (self.stable_ticks(above), self.stable_ticks(taken));
        let mean = above.saturating_mul(2).saturating_sub(taken);
        let squared = self.cold_factor.saturating_mul(self.cold_factor).saturating_sub(1_000_000);
        let four_millions = NonZeroU64::MIN.saturating_add(3_999_999);
        let steep = muldiv(mean, squared, four_millions).quotient;
        let period = self.warm_up.saturating_mul(NonZeroU64::MIN.saturating_add(TICKS - 1));
        let ticks = muldiv_ceil(taken, steep, period);
        Span::from_micros(ticks.div_ceil(TICKS))
    }

    /// Gathered time in ticks, at most the warm-up period.
    fn ticks(&self, gathered: ExactTime) -> u64 {
        let gathered = gathered.min(ExactTime::span(self.warm_up()));
        let parts = NonZeroU64::new(self.gather.fraction()).unwrap_or(NonZeroU64::MIN);
        let fraction = muldiv(gathered.frac(), TICKS, parts).quotient;
        gathered.us().saturating_mul(TICKS).saturating_add(fraction)
    }

    /// Gathered time as the stable time of the same permits.
    fn stable_ticks(&self, ticks: u64) -> u64 {
        let (narrow, wide) =
            (self.cold_factor.saturating_add(1_000), self.cold_factor.saturating_add(5_000));
        match NonZeroU64::new(narrow.saturating_mul(2)) {
            Some(double) => muldiv(ticks, wide, double).quotient,
            None => ticks,
        }
    }

    fn refund_time(&self, state: &mut WarmUpState, time: ExactTime, now: Timestamp) {
        state.free = self.rate.earlier(state.free, time).max(ExactTime::at(now));
        state.seen = state.seen.max(now);
    }

    /// What `cost` costs in this state.
    fn price(&self, state: &WarmUpState, cost: u64) -> Price {
        let wanted = self.gather.time_of(cost);
        let premium = self.premium(state.cool, wanted);
        let time = self.rate.time_of(cost).moved_on(premium);
        Price { time, cool: wanted.min(state.cool) }
    }

    /// Undoes a charge after which nothing else was charged.
    fn undo(&self, state: &mut WarmUpState, price: ExactTime, cool: ExactTime, now: Timestamp) {
        self.refund_time(state, price, now);
        state.cool = self.gather.later(state.cool, cool).min(ExactTime::span(self.warm_up()));
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    fn fresh(&self, now: Timestamp) -> WarmUpState {
        WarmUpState { free: ExactTime::at(now), cool: ExactTime::span(self.warm_up()), seen: now }
    }

    fn advance(&self, state: &mut WarmUpState, now: Timestamp) {
        if state.seen > now.after(clock_slack(self.warm_up())) {
            state.free = state.free.moved_back(state.seen.since(now));
            state.seen = now;
        }
        let free = state.free.ceil();
        if free < now {
            let gathered = state.cool.moved_on(now.since(free));
            state.cool = gathered.min(ExactTime::span(self.warm_up()));
            state.free = ExactTime::at(now);
        }
    }

    fn expires_at(&self, state: &WarmUpState) -> Timestamp {
        let missing = self.gather.earlier(ExactTime::span(self.warm_up()), state.cool);
        state.free.ceil().after(missing.ceil().since(Timestamp::EPOCH))
    }

    fn slot(&self, state: &WarmUpState, _cost: u64, now: Timestamp) -> Slot {
        Slot::At(state.free.ceil().max(now))
    }

    fn spend(&self, state: &mut WarmUpState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let Price { time: price, cool } = self.price(state, cost);
        state.cool = self.gather.earlier(state.cool, cool);
        // A caller at the very microsecond the limiter is free leaves the fraction to the next: the
        // stable rate does not drift.
        let from = if state.free.ceil() < now { ExactTime::at(now) } else { state.free };
        state.free = self.rate.later(from, price);
        state.seen = state.seen.max(now);
        Ticket { charged: cost, slot: at, trace: Trace::Price { free: state.free, price, cool } }
    }

    fn refund(&self, state: &mut WarmUpState, amount: u64, now: Timestamp) {
        self.refund_time(state, self.rate.time_of(amount), now);
    }

    fn cancel_booking(&self, state: &mut WarmUpState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Price { free, price, cool } = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        if state.free == free {
            self.undo(state, price, cool, now);
            return ticket.charged;
        }
        // Later callers keep their turns, and a gap between them is useless.
        0
    }

    fn release(
        &self,
        state: &mut WarmUpState,
        ticket: &Ticket,
        amount: u64,
        now: Timestamp,
    ) -> u64 {
        match ticket.trace {
            // No later charge: as if only the rest had been charged.
            Trace::Price { free, price, cool } if state.free == free => {
                let mut without = *state;
                without.cool = self.gather.later(state.cool, cool);
                let stored = self.price(&without, ticket.charged.saturating_sub(amount));
                state.cool = self.gather.earlier(without.cool, stored.cool);
                self.refund_time(state, self.rate.earlier(price, stored.time), now);
            }
            _ => self.refund(state, amount, now),
        }
        amount
    }

    fn remaining(&self, state: &WarmUpState, _now: Timestamp) -> i64 {
        signed(self.gather.units_in(state.cool))
    }

    fn available(&self, state: &WarmUpState, max: u64, now: Timestamp) -> u64 {
        if self.debt_paid_at(state, now) <= now { max } else { 0 }
    }

    fn left(&self, state: &WarmUpState, now: Timestamp) -> u64 {
        self.available(state, self.gather.units_in(state.cool), now)
    }

    fn debt_paid_at(&self, state: &WarmUpState, now: Timestamp) -> Timestamp {
        state.free.ceil().max(now)
    }

    fn full_at(&self, state: &WarmUpState, now: Timestamp) -> Timestamp {
        self.expires_at(state).max(now)
    }

    fn carry(
        &self,
        old: &Self,
        state: &WarmUpState,
        carry: CarryOver,
        now: Timestamp,
    ) -> WarmUpState {
        if carry == CarryOver::Nothing {
            return self.fresh(now);
        }
        // As Guava: booked time stays, stored permits scale with the new maximum; as gathered time
        // that is the same part of the warm-up period.
        let Division { quotient, remainder } =
            muldiv(state.cool.us(), self.warm_up.get(), old.warm_up);
        // The fraction of a microsecond counts in other parts now: rounded up, so colder.
        let parts = NonZeroU64::new(old.gather.fraction()).unwrap_or(NonZeroU64::MIN);
        let from_frac = muldiv_ceil(state.cool.frac(), self.gather.fraction(), parts);
        let from_rest = muldiv_ceil(remainder, self.gather.fraction(), old.warm_up);
        let cool =
            ExactTime::from_parts(&self.gather, quotient, from_frac.saturating_add(from_rest));
        let cool = cool.min(ExactTime::span(self.warm_up()));
        WarmUpState { free: ExactTime::at(state.free.ceil()), cool, seen: state.seen.max(now) }
    }
}

impl Rate {
    /// This rate times `up / down`.
    fn times_ratio(&self, up: u64, down: u64) -> Result<Self, QuotaError> {
        let common = gcd(up, down).max(1);
        let part = |n: u64| n.checked_div(common).unwrap_or(n);
        let cross_up = gcd(part(up), self.period().as_micros()).max(1);
        let cross_down = gcd(part(down), self.count()).max(1);
        let over = |n: u64, by: u64| n.checked_div(by).unwrap_or(n);
        let count = over(self.count(), cross_down).checked_mul(over(part(up), cross_up));
        let period =
            over(self.period().as_micros(), cross_up).checked_mul(over(part(down), cross_down));
        let (count, period) = (count.unwrap_or(u64::MAX), period.unwrap_or(u64::MAX));
        let common = gcd(count, period).max(1);
        Self::new(over(count, common), Span::from_micros(over(period, common)))
    }
}
