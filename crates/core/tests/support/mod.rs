//! What the properties share: short names for limits and operations, a world that runs them, an exact
//! fraction, and generators of limits.
//!
//! Nothing here looks inside the core; every expectation is worked out from the specification.

// Each test file is a crate of its own and uses its own part of this module.
#![allow(dead_code)]

pub(crate) mod anything;
pub(crate) mod limits;
pub(crate) mod models;
pub(crate) mod plans;
pub(crate) mod uses;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use sluicegate_core::account::{Account, Answer, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Outcome;

pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const EXACT_MAX: u64 = (1 << 53) - 1;

/// So many cases, the same ones every time: what passed once passes again. `PROPTEST_CASES` asks for more,
/// and for others each time. A failure prints its input, and becomes a test with a name rather than a
/// line in a regressions file.
pub(crate) fn cases(at_least: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..ProptestConfig::default()
    }
}

pub(crate) fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

pub(crate) fn us(us: u64) -> Span {
    Span::from_micros(us)
}

pub(crate) fn rate(count: u64, period_us: u64) -> Rate {
    Rate::new(count, us(period_us)).expect("a rate within the bounds")
}

pub(crate) fn step(limit: Limit, mode: Mode) -> EnforcedLimit {
    EnforcedLimit::new(limit, mode).expect("a mode that fits the limit")
}

// --- operations, shortly ---

pub(crate) fn hit(cost: u64) -> Op {
    Op::Hit { cost, holder: None }
}

pub(crate) fn hit_as(cost: u64, id: u64) -> Op {
    Op::Hit { cost, holder: Some(Holder(id)) }
}

pub(crate) fn peek(cost: u64) -> Op {
    Op::Peek { cost }
}

pub(crate) fn acquire(cost: u64, max_wait: u64) -> Op {
    Op::Acquire { cost, max_wait: us(max_wait), holder: None }
}

pub(crate) fn acquire_as(cost: u64, max_wait: u64, id: u64) -> Op {
    Op::Acquire { cost, max_wait: us(max_wait), holder: Some(Holder(id)) }
}

pub(crate) fn reserve(cost: u64, ttl: u64, id: u64) -> Op {
    Op::Reserve { cost, ttl: us(ttl), holder: Holder(id) }
}

pub(crate) fn commit(cost: u64, id: u64) -> Op {
    Op::Commit { cost, holder: Holder(id) }
}

pub(crate) fn cancel(id: u64) -> Op {
    Op::Cancel { holder: Holder(id) }
}

// --- a world ---

/// An answer, flattened: what a line of `try` would say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) remaining: Option<i64>,
    pub(crate) reset_after: u64,
    pub(crate) taken: Option<u64>,
}

impl Reply {
    pub(crate) fn allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    pub(crate) fn wait(&self) -> u64 {
        match self.outcome {
            Outcome::Allow { wait } => wait.as_micros(),
            other => panic!("not allowed: {other:?}"),
        }
    }

    /// `None` for what is not a plain denial.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Deny { retry_after } => Some(retry_after.as_micros()),
            _ => None,
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            outcome: answer.verdict.outcome,
            remaining: answer.verdict.remaining,
            reset_after: answer.verdict.reset_after.as_micros(),
            taken: answer.taken,
        }
    }
}

/// One identity under one plan.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) plan: Vec<EnforcedLimit>,
    pub(crate) account: Account,
    /// Whether there is spare capacity for elastic limits.
    pub(crate) open: bool,
}

impl World {
    pub(crate) fn of(plan: Vec<EnforcedLimit>) -> Self {
        Self { plan, account: Account::default(), open: false }
    }

    pub(crate) fn hard(limit: Limit) -> Self {
        Self::of(vec![step(limit, Mode::Hard)])
    }

    pub(crate) fn answer(&mut self, op: Op, now: u64) -> Result<Answer, Refusal> {
        let moment = Moment { now: at(now), spare_capacity: self.open };
        self.account.apply(&self.plan, op, moment)
    }

    pub(crate) fn ask(&mut self, op: Op, now: u64) -> Reply {
        match self.answer(op, now) {
            Ok(answer) => answer.into(),
            Err(refusal) => panic!("{op:?} at {now} was refused: {refusal}"),
        }
    }

    /// What the operation would say, leaving this world as it is.
    pub(crate) fn would(&self, op: Op, now: u64) -> Reply {
        self.clone().ask(op, now)
    }

    pub(crate) fn allows(&mut self, op: Op, now: u64) -> bool {
        self.ask(op, now).allowed()
    }

    /// What peeks of several costs say at several moments from `now` on: the world as a client sees it.
    pub(crate) fn probe(&self, now: u64, step_us: u64) -> Vec<Reply> {
        let mut seen = Vec::new();
        for moment in 0..24 {
            for cost in [1, 2, 3, 5] {
                seen.push(self.would(peek(cost), now + moment * step_us));
            }
        }
        seen
    }
}

// --- an exact fraction ---

/// An exact fraction with a positive denominator. Small worlds never overflow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fraction {
    num: i128,
    den: i128,
}

impl Fraction {
    pub(crate) fn new(num: i128, den: i128) -> Self {
        assert!(den > 0, "a fraction has a positive denominator");
        let common = gcd(num.unsigned_abs(), den.unsigned_abs()).max(1) as i128;
        Self { num: num / common, den: den / common }
    }

    pub(crate) fn whole(n: i128) -> Self {
        Self { num: n, den: 1 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self::new(self.num * other.den + other.num * self.den, self.den * other.den)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self::new(-other.num, other.den))
    }

    pub(crate) fn times(self, n: i128) -> Self {
        Self::new(self.num * n, self.den)
    }

    pub(crate) fn at_most(self, other: Self) -> bool {
        self.num * other.den <= other.num * self.den
    }

    pub(crate) fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }

    pub(crate) fn ceil(self) -> i128 {
        -(-self.num).div_euclid(self.den)
    }

    pub(crate) fn min(self, other: Self) -> Self {
        if self.at_most(other) { self } else { other }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        if self.at_most(other) { other } else { self }
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
