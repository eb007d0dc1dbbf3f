//! Naive models, one for each way of counting.
//!
//! A model answers three plain questions about a moment (does this cost fit, is the limit full, is it in
//! debt) from a level or a list of hits, in exact fractions. Every *time* in an answer is then found by
//! walking on, microsecond by microsecond, until the question's answer changes: no formula to get wrong.

pub(crate) mod levels;
pub(crate) mod lists;

use sluicegate_core::op::Op;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::Outcome;

use super::{Reply, us};

/// How far the walk goes before it gives up: longer than any small limit needs.
const HORIZON: u64 = 4_000;

pub(crate) trait Model: Clone {
    /// The largest cost that can ever pass; `None` if there is no such number.
    fn largest(&self, now: u64) -> Option<u64>;
    /// Whether `cost` would be let in, waiting at most `max_wait` (`None`: a plain hit).
    fn admits(&self, cost: u64, max_wait: Option<u64>, now: u64) -> bool {
        self.turn(cost, now) - now <= max_wait.unwrap_or(0)
    }
    /// When `cost` gets its turn if it is booked now.
    fn turn(&self, cost: u64, now: u64) -> u64;
    fn charge(&mut self, cost: u64, turn: u64, now: u64);
    fn give(&mut self, amount: u64, now: u64);
    fn give_beyond(&mut self, amount: u64, now: u64);
    fn fill(&mut self, now: u64);
    /// Takes back one booking with its turn at this moment, where each is remembered on its own.
    fn strike(&mut self, _cost: u64, _turn: u64) {
        unreachable!("not remembered on its own");
    }
    fn left(&self, now: u64) -> i128;
    fn is_full(&self, now: u64) -> bool;
    fn debt_decisions(&self, now: u64) -> bool;
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

/// Carries out an operation on a model, as SEMANTICS says: a cost of 0 leaves no trace.
pub(crate) fn run<M: Model>(model: &mut M, op: Op, now: u64) -> Reply {
    let nothing =
        matches!(op, Op::Charge { cost: 0 } | Op::Refund { cost: 0 } | Op::Add { cost: 0, .. });
    if nothing { carry_out(&mut model.clone(), op, now) } else { carry_out(model, op, now) }
}

fn carry_out<M: Model>(model: &mut M, op: Op, now: u64) -> Reply {
    let allow = |wait: u64| Outcome::Allow { wait: us(wait) };
    let mut taken = None;
    let outcome = match op {
        Op::Hit { cost, .. } => ask(model, cost, None, now, true),
        Op::Peek { cost } => ask(model, cost, None, now, false),
        Op::Acquire { cost, max_wait, .. } => {
            ask(model, cost, Some(max_wait.as_micros()), now, true)
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
            let paid =
                first(now, |t| !model.debt_decisions(t)).expect("a debt that is paid some day");
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

fn ask<M: Model>(m: &mut M, cost: u64, max_wait: Option<u64>, now: u64, charge: bool) -> Outcome {
    if cost == 0 {
        return Outcome::Allow { wait: Span::ZERO };
    }
    if let Some(max_cost) = m.largest(now).filter(|&max| cost > max) {
        return Outcome::Never { max_cost };
    }
    if m.admits(cost, max_wait, now) {
        let turn = m.turn(cost, now);
        if charge {
            m.charge(cost, turn, now);
        }
        return Outcome::Allow { wait: us(turn - now) };
    }
    let then = first(now, |t| m.admits(cost, max_wait, t)).expect("a cost that fits some day");
    Outcome::Deny { retry_after: us(then - now) }
}
