//! Limits that are a level or a moment: buckets that drip, queues, and what is raised step by step.

use super::{Model, first};
use crate::support::Fraction;

/// A token bucket whose tokens drip in one by one. Also Guava's bursty limiter, which is this bucket with
/// another question: *is anything owed?* instead of *are there enough?*
#[derive(Debug, Clone)]
pub(crate) struct Drip {
    pub(crate) count: u64,
    pub(crate) period: u64,
    /// What it holds; not whole for a bursty limiter, which holds what its burst time yields.
    capacity: Fraction,
    largest: Option<u64>,
    smooth: bool,
    level: Fraction,
    seen: u64,
}

impl Drip {
    pub(crate) fn bucket(count: u64, period: u64, burst: u64) -> Self {
        let capacity = Fraction::whole(burst.into());
        Self {
            count,
            period,
            capacity,
            largest: Some(burst),
            smooth: false,
            level: capacity,
            seen: 0,
        }
    }

    /// Nothing is stored at first.
    pub(crate) fn smooth(count: u64, period: u64, max_burst: u64) -> Self {
        let capacity = Fraction::new(i128::from(max_burst) * i128::from(count), period.into());
        Self {
            count,
            period,
            capacity,
            largest: None,
            smooth: true,
            level: Fraction::whole(0),
            seen: 0,
        }
    }

    /// The same with fewer tokens at first, dripping from the first operation on.
    pub(crate) fn starting_with(mut self, initial: u64, now: u64) -> Self {
        (self.level, self.seen) = (Fraction::whole(initial.into()), now);
        self
    }

    /// A new identity is first seen with its first operation, not at the epoch.
    pub(crate) fn seen_first_at(mut self, now: u64) -> Self {
        self.seen = now;
        self
    }

    fn level_at(&self, now: u64) -> Fraction {
        if self.capacity.at_most(self.level) {
            return self.level;
        }
        let dripped = i128::from(now - self.seen) * i128::from(self.count);
        let level = self.level.plus(Fraction::new(dripped, self.period.into()));
        level.min(self.capacity)
    }

    fn set(&mut self, level: Fraction, now: u64) {
        (self.level, self.seen) = (level, now);
    }

    fn enough(&self, cost: u64, now: u64) -> bool {
        let needed = if self.smooth { 0 } else { i128::from(cost) };
        Fraction::whole(needed).at_most(self.level_at(now))
    }
}

impl Model for Drip {
    fn largest(&self, now: u64) -> Option<u64> {
        // What was added by force can be used in one go.
        self.largest.map(|burst| burst.max(self.left(now).max(0) as u64))
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        first(now, |t| self.enough(cost, t)).expect("enough tokens some day")
    }

    fn charge(&mut self, cost: u64, _turn: u64, now: u64) {
        let level = self.level_at(now);
        self.set(level.minus(Fraction::whole(cost.into())), now);
    }

    fn give(&mut self, amount: u64, now: u64) {
        let level = self.level_at(now);
        let more = level.plus(Fraction::whole(amount.into()));
        self.set(more.min(self.capacity.max(level)), now);
    }

    fn give_beyond(&mut self, amount: u64, now: u64) {
        let more = self.level_at(now).plus(Fraction::whole(amount.into()));
        // Beyond the brim there are only whole tokens: a begun one is given up.
        let beyond = !more.at_most(self.capacity);
        let more = if beyond { Fraction::whole(more.floor()) } else { more };
        self.set(more, now);
    }

    fn fill(&mut self, now: u64) {
        self.set(self.capacity, now);
    }

    fn left(&self, now: u64) -> i128 {
        let left = self.level_at(now).floor();
        // Stored permits: what is owed is not stored.
        if self.smooth { left.max(0) } else { left }
    }

    fn is_full(&self, now: u64) -> bool {
        self.capacity.at_most(self.level_at(now))
    }

    fn debt_decisions(&self, now: u64) -> bool {
        !Fraction::whole(0).at_most(self.level_at(now))
    }

    fn available(&self, now: u64) -> u64 {
        match (self.smooth, self.debt_decisions(now)) {
            (true, true) => 0,
            (true, false) => u64::MAX,
            (false, _) => self.left(now).max(0) as u64,
        }
    }
}

/// A queue: when its outflow is free again.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) interval: Fraction,
    pub(crate) indices: u64,
    free: Fraction,
}

impl Queue {
    pub(crate) fn new(count: u64, period: u64, queue: u64) -> Self {
        Self {
            interval: Fraction::new(period.into(), count.into()),
            indices: queue + 1,
            free: Fraction::whole(0),
        }
    }

    fn free_at(&self, now: u64) -> Fraction {
        self.free.max(Fraction::whole(now.into()))
    }

    /// Places not taken, in time: below nothing in debt.
    fn room(&self, now: u64) -> Fraction {
        let taken = self.free_at(now).minus(Fraction::whole(now.into()));
        self.interval.times(self.indices.into()).minus(taken)
    }
}

impl Model for Queue {
    fn largest(&self, _now: u64) -> Option<u64> {
        Some(self.indices)
    }

    fn admits(&self, cost: u64, max_wait: Option<u64>, now: u64) -> bool {
        let wait = self.turn(cost, now) - now;
        let fits = self.interval.times(cost.into()).at_most(self.room(now));
        fits && max_wait.is_none_or(|max_wait| wait <= max_wait)
    }

    fn turn(&self, _cost: u64, now: u64) -> u64 {
        self.free_at(now).ceil() as u64
    }

    fn charge(&mut self, cost: u64, _turn: u64, now: u64) {
        self.free = self.free_at(now).plus(self.interval.times(cost.into()));
    }

    fn give(&mut self, amount: u64, now: u64) {
        let sooner = self.free.minus(self.interval.times(amount.into()));
        self.free = sooner.max(Fraction::whole(now.into()));
    }

    fn give_beyond(&mut self, _amount: u64, _now: u64) {
        unreachable!("refused");
    }

    fn fill(&mut self, now: u64) {
        self.free = Fraction::whole(now.into());
    }

    fn left(&self, now: u64) -> i128 {
        (0i128..)
            .map(|more| self.indices as i128 - more)
            .find(|&left| self.interval.times(left).at_most(self.room(now)))
            .expect("some number of places")
    }

    fn is_full(&self, now: u64) -> bool {
        self.free.at_most(Fraction::whole(now.into()))
    }

    fn debt_decisions(&self, now: u64) -> bool {
        !Fraction::whole(0).at_most(self.room(now))
    }
}

/// Where a period begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    OnTheClock,
    WithTheFirstHit,
}

/// A level that is raised all at once: interval-wise buckets, fixed windows, cycles.
#[derive(Debug, Clone)]
pub(crate) struct Stairs {
    pub(crate) capacity: u64,
    pub(crate) refill: u64,
    pub(crate) period: u64,
    starts: Starts,
    /// A cycle: a booking takes what is left and the rest from coming ones.
    straddles: bool,
    /// A window: what was added by force ends with it.
    lapses: bool,
    level: i128,
    /// The start of the period that `level` was last brought up to.
    period_start: u64,
}

impl Stairs {
    pub(crate) fn bucket(refill: u64, period: u64, burst: u64, starts: Starts) -> Self {
        Self {
            capacity: burst,
            refill,
            period,
            starts,
            straddles: false,
            lapses: false,
            level: burst.into(),
            period_start: 0,
        }
    }

    /// The same with fewer tokens at first; a period that starts with a hit starts with the first operation.
    pub(crate) fn starting_with(mut self, initial: u64, now: u64) -> Self {
        self.level = initial.into();
        self.period_start = match self.starts {
            Starts::OnTheClock => now / self.period * self.period,
            Starts::WithTheFirstHit => now,
        };
        self
    }

    pub(crate) fn window(count: u64, period: u64, starts: Starts) -> Self {
        Self { lapses: true, ..Self::bucket(count, period, count, starts) }
    }

    pub(crate) fn cycle(permits: u64, period: u64) -> Self {
        Self { straddles: true, ..Self::window(permits, period, Starts::OnTheClock) }
    }

    /// Walks to `now`, one refill after the other.
    fn walked(&self, now: u64) -> Self {
        let mut walked = self.clone();
        while walked.period_start + self.period <= now {
            walked.period_start += self.period;
            let capacity = i128::from(self.capacity);
            let kept = if self.lapses { capacity } else { walked.level };
            walked.level = if walked.level >= capacity {
                kept
            } else {
                (walked.level + i128::from(self.refill)).min(capacity)
            };
        }
        walked
    }

    fn full(&self) -> bool {
        self.level >= i128::from(self.capacity)
    }
}

impl Model for Stairs {
    fn largest(&self, now: u64) -> Option<u64> {
        // What was added by force can be used in one go.
        let max = i128::from(self.capacity).max(self.left(now)) as u64;
        (!self.straddles).then_some(max)
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        if self.straddles {
            let mut booked = self.clone();
            booked.charge(cost, now, now);
            return first(now, |t| booked.walked(t).level >= 0).expect("a cycle some day");
        }
        first(now, |t| self.walked(t).level >= i128::from(cost)).expect("a refill some day")
    }

    fn charge(&mut self, cost: u64, turn: u64, now: u64) {
        *self = self.walked(now);
        if self.starts == Starts::WithTheFirstHit && self.full() {
            self.period_start = now;
        }
        if turn == now || self.straddles {
            self.level -= i128::from(cost);
            return;
        }
        // A hit at its turn, to the letter: what the refills until then bring is owed until then.
        let then = self.walked(turn);
        let refills = (then.period_start - self.period_start) / self.period;
        self.level = then.level - i128::from(cost) - i128::from(refills * self.refill);
    }

    fn give(&mut self, amount: u64, now: u64) {
        *self = self.walked(now);
        let top = self.level.max(self.capacity.into());
        self.level = (self.level + i128::from(amount)).min(top);
    }

    fn give_beyond(&mut self, amount: u64, now: u64) {
        *self = self.walked(now);
        // A full limit is as good as new, and a new one begins its period with the first operation.
        let as_new = self.level == i128::from(self.capacity);
        if self.starts == Starts::WithTheFirstHit && as_new {
            self.period_start = now;
        }
        self.level += i128::from(amount);
    }

    fn fill(&mut self, now: u64) {
        *self = self.walked(now);
        self.level = self.capacity.into();
    }

    fn left(&self, now: u64) -> i128 {
        self.walked(now).level
    }

    fn is_full(&self, now: u64) -> bool {
        self.walked(now).full()
    }

    fn debt_decisions(&self, now: u64) -> bool {
        self.walked(now).level < 0
    }
}
