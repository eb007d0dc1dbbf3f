//! Naive models, one for each way of counting.
//!
//! A model answers three plain questions about a moment (does this cost fit, is the limit full, is it in
//! debt) from a level or a list of hits, in exact fractions. Every *time* in an answer is then found by
//! walking on, microsecond by microsecond, until the question's answer changes: no formula to get wrong.

use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::op::Op;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::Outcome;

use super::{Fraction, Reply, us};

/// How far the walk goes before it gives up: longer than any small limit needs.
const HORIZON: u64 = 4_000;

pub(crate) trait Model: Clone {
    /// The largest cost that can ever pass; `None` if there is no such number.
    fn largest(&self, now: u64) -> Option<u64>;
    /// Whether `cost` would be let in, waiting at most `patience` (`None`: a plain hit).
    fn admits(&self, cost: u64, patience: Option<u64>, now: u64) -> bool {
        self.turn(cost, now) - now <= patience.unwrap_or(0)
    }
    /// When `cost` gets its turn if it is booked now.
    fn turn(&self, cost: u64, now: u64) -> u64;
    fn charge(&mut self, cost: u64, turn: u64, now: u64);
    fn give(&mut self, amount: u64, now: u64);
    fn give_beyond(&mut self, amount: u64, now: u64);
    fn fill(&mut self, now: u64);
    fn left(&self, now: u64) -> i128;
    fn is_full(&self, now: u64) -> bool;
    fn in_debt(&self, now: u64) -> bool;
    /// What `drain` takes: what is left, whoever may have it.
    fn drains(&self, now: u64) -> u64 {
        self.left(now).max(0) as u64
    }
    /// What `take` could get.
    fn available(&self, now: u64) -> u64 {
        self.left(now).max(0) as u64
    }
}

/// The first moment from `now` on of which this is true.
pub(crate) fn first(now: u64, mut is_true: impl FnMut(u64) -> bool) -> Option<u64> {
    (now..now + HORIZON).find(|&moment| is_true(moment))
}

/// Carries out an operation on a model, as SEMANTICS says.
pub(crate) fn run<M: Model>(model: &mut M, op: Op, now: u64) -> Reply {
    let allow = |wait: u64| Outcome::Allow { wait: us(wait) };
    let mut taken = None;
    let outcome = match op {
        Op::Hit { cost, .. } => ask(model, cost, None, now, true),
        Op::Peek { cost } => ask(model, cost, None, now, false),
        Op::Acquire { cost, patience, .. } => {
            ask(model, cost, Some(patience.as_micros()), now, true)
        }
        Op::Take { cost } => {
            let amount = model.available(now).min(cost);
            taken = Some(amount);
            match amount {
                0 => ask(model, cost.min(1), None, now, false),
                _ => ask(model, amount, None, now, true),
            }
        }
        Op::Charge { cost } => {
            model.charge(cost, now, now);
            let paid = first(now, |t| !model.in_debt(t)).expect("a debt that is paid some day");
            allow(paid - now)
        }
        Op::Refund { cost } | Op::Add { cost, force: false } => {
            model.give(cost, now);
            allow(0)
        }
        Op::Add { cost, force: true } => {
            model.give_beyond(cost, now);
            allow(0)
        }
        Op::Drain => {
            let amount = model.drains(now);
            if amount > 0 {
                model.charge(amount, now, now);
            }
            taken = Some(amount);
            allow(0)
        }
        Op::Reset => {
            model.fill(now);
            allow(0)
        }
        other => unreachable!("{other:?} is not modelled"),
    };
    let full = first(now, |t| model.is_full(t)).expect("a limit that is full some day");
    Reply {
        outcome,
        remaining: Some(i64::try_from(model.left(now)).expect("a small number")),
        reset_after: full - now,
        taken,
    }
}

fn ask<M: Model>(m: &mut M, cost: u64, patience: Option<u64>, now: u64, charge: bool) -> Outcome {
    if cost == 0 {
        return Outcome::Allow { wait: Span::ZERO };
    }
    if let Some(max_cost) = m.largest(now).filter(|&most| cost > most) {
        return Outcome::Never { max_cost };
    }
    if m.admits(cost, patience, now) {
        let turn = m.turn(cost, now);
        if charge {
            m.charge(cost, turn, now);
        }
        return Outcome::Allow { wait: us(turn - now) };
    }
    let then = first(now, |t| m.admits(cost, patience, t)).expect("a cost that fits some day");
    Outcome::Deny { retry_after: us(then - now) }
}

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

    fn in_debt(&self, now: u64) -> bool {
        !Fraction::whole(0).at_most(self.level_at(now))
    }

    fn available(&self, now: u64) -> u64 {
        match (self.smooth, self.in_debt(now)) {
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
    pub(crate) places: u64,
    free: Fraction,
}

impl Queue {
    pub(crate) fn new(count: u64, period: u64, queue: u64) -> Self {
        Self {
            interval: Fraction::new(period.into(), count.into()),
            places: queue + 1,
            free: Fraction::whole(0),
        }
    }

    fn free_at(&self, now: u64) -> Fraction {
        self.free.max(Fraction::whole(now.into()))
    }

    /// Places not taken, in time: below nothing in debt.
    fn room(&self, now: u64) -> Fraction {
        let taken = self.free_at(now).minus(Fraction::whole(now.into()));
        self.interval.times(self.places.into()).minus(taken)
    }
}

impl Model for Queue {
    fn largest(&self, _now: u64) -> Option<u64> {
        Some(self.places)
    }

    fn admits(&self, cost: u64, patience: Option<u64>, now: u64) -> bool {
        let wait = self.turn(cost, now) - now;
        let fits = self.interval.times(cost.into()).at_most(self.room(now));
        fits && patience.is_none_or(|patience| wait <= patience)
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
            .map(|more| self.places as i128 - more)
            .find(|&left| self.interval.times(left).at_most(self.room(now)))
            .expect("some number of places")
    }

    fn is_full(&self, now: u64) -> bool {
        self.free.at_most(Fraction::whole(now.into()))
    }

    fn in_debt(&self, now: u64) -> bool {
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
        let most = i128::from(self.capacity).max(self.left(now)) as u64;
        (!self.straddles).then_some(most)
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

    fn in_debt(&self, now: u64) -> bool {
        self.walked(now).level < 0
    }
}

/// Every hit, remembered for ever.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) windows: Vec<(u64, u64)>,
    pub(crate) min_gap: u64,
    /// When, and how much.
    pub(crate) hits: Vec<(u64, u64)>,
}

impl Ledger {
    pub(crate) fn new(windows: Vec<(u64, u64)>, min_gap: u64) -> Self {
        Self { windows, min_gap, hits: Vec::new() }
    }

    fn held(&self, window: u64, now: u64) -> u64 {
        let counts = |&&(then, _): &&(u64, u64)| then + window > now;
        self.hits.iter().filter(counts).map(|&(_, cost)| cost).sum()
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        let gap_over = self.hits.iter().all(|&(then, _)| then + self.min_gap <= now);
        let mut windows = self.windows.iter();
        gap_over && windows.all(|&(most, window)| self.held(window, now) + cost <= most)
    }
}

impl Model for Ledger {
    fn largest(&self, _now: u64) -> Option<u64> {
        self.windows.iter().map(|&(most, _)| most).min()
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        first(now, |t| self.fits(cost, t)).expect("room some day")
    }

    fn charge(&mut self, cost: u64, turn: u64, _now: u64) {
        if cost > 0 {
            self.hits.push((turn, cost));
            self.hits.sort_by_key(|&(then, _)| then);
        }
    }

    /// The newest first: what is given back was most likely taken last.
    fn give(&mut self, amount: u64, _now: u64) {
        let mut rest = amount;
        for (_, cost) in self.hits.iter_mut().rev() {
            let back = rest.min(*cost);
            *cost -= back;
            rest -= back;
        }
        self.hits.retain(|&(_, cost)| cost > 0);
    }

    fn give_beyond(&mut self, _amount: u64, _now: u64) {
        unreachable!("refused");
    }

    fn fill(&mut self, _now: u64) {
        self.hits.clear();
    }

    fn left(&self, now: u64) -> i128 {
        let left =
            |&(most, window): &(u64, u64)| i128::from(most) - i128::from(self.held(window, now));
        self.windows.iter().map(left).min().expect("a window")
    }

    fn is_full(&self, now: u64) -> bool {
        self.windows.iter().all(|&(_, window)| self.held(window, now) == 0)
    }

    fn in_debt(&self, now: u64) -> bool {
        self.left(now) < 0
    }

    fn available(&self, now: u64) -> u64 {
        if self.hits.iter().any(|&(then, _)| then + self.min_gap > now) {
            return 0;
        }
        self.left(now).max(0) as u64
    }
}

/// Counts per window, weighed by their overlap in exact fractions.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    pub(crate) most: u64,
    pub(crate) window: u64,
    pub(crate) rounding: Rounding,
    /// (window index, hits in it)
    counts: Vec<(u64, u64)>,
    /// Nothing passes before the window of a booking: it was counted ahead.
    booked_until: u64,
}

impl Counts {
    pub(crate) fn new(most: u64, window: u64, rounding: Rounding) -> Self {
        Self { most, window, rounding, counts: Vec::new(), booked_until: 0 }
    }

    fn count(&self, index: u64) -> i128 {
        let here = self.counts.iter().filter(|(i, _)| *i == index);
        here.map(|&(_, n)| i128::from(n)).sum()
    }

    fn estimate(&self, now: u64) -> i128 {
        let (index, into) = (now / self.window, now % self.window);
        let previous = index.checked_sub(1).map_or(0, |before| self.count(before));
        let overlap = Fraction::new((self.window - into).into(), self.window.into());
        let estimate = overlap.times(previous).plus(Fraction::whole(self.count(index)));
        match self.rounding {
            Rounding::Floor => estimate.floor(),
            Rounding::Up => estimate.ceil(),
        }
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        now >= self.booked_until && self.estimate(now) + i128::from(cost) <= self.most.into()
    }
}

impl Model for Counts {
    fn largest(&self, _now: u64) -> Option<u64> {
        Some(self.most)
    }

    fn turn(&self, cost: u64, now: u64) -> u64 {
        first(now, |t| self.fits(cost, t)).expect("room some day")
    }

    fn charge(&mut self, cost: u64, turn: u64, now: u64) {
        let index = turn.max(self.booked_until).max(now) / self.window;
        self.counts.push((index, cost));
        if index > now / self.window {
            self.booked_until = index * self.window;
        }
    }

    /// From the current window first, then from the one before.
    fn give(&mut self, amount: u64, now: u64) {
        let index = now.max(self.booked_until) / self.window;
        let mut rest = amount;
        for at in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let here = self.counts.iter_mut().filter(|(i, _)| *i == at);
            for (_, count) in here {
                let back = rest.min(*count);
                *count -= back;
                rest -= back;
            }
        }
    }

    fn give_beyond(&mut self, _amount: u64, _now: u64) {
        unreachable!("refused");
    }

    fn fill(&mut self, _now: u64) {
        self.counts.clear();
        self.booked_until = 0;
    }

    fn left(&self, now: u64) -> i128 {
        i128::from(self.most) - self.estimate(now.max(self.booked_until))
    }

    fn is_full(&self, now: u64) -> bool {
        now >= self.booked_until && self.estimate(now) == 0
    }

    fn in_debt(&self, now: u64) -> bool {
        now < self.booked_until || self.estimate(now) > self.most.into()
    }

    fn drains(&self, now: u64) -> u64 {
        self.available(now)
    }

    fn available(&self, now: u64) -> u64 {
        if now < self.booked_until { 0 } else { self.left(now).max(0) as u64 }
    }
}
