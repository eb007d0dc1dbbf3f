//! All shards together: equality of the fast and the slow path, counters, released memory,
//! admission at the cap.

mod cap;
mod counting;
mod each;
mod giving_back;
mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::account::{Answer, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::limit::LimitConfig;

use super::{Answered, Overflow, SHARD_BITS, Shards, Target, UNCOUNTED, apply_together};
use crate::limit::IntoLimit;
use crate::memory::shard::ShardUsage;
use crate::memory::shard_set::ShardUpkeep as _;
use crate::memory::{Memory, Store};
use crate::plan::Rule;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// A day in 2024, at noon UTC.
const NOON: u64 = 1_717_416_000 * SECOND;

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

/// Hash of an identity in a given shard.
fn who(shard: u8, number: u64) -> u64 {
    u64::from(shard) << 56 | number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// One of many anywhere.
fn anybody(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn limit(limit: impl IntoLimit) -> LimitConfig {
    limit.into_limit().unwrap()
}

/// A rule of a later generation than all before.
fn rule(limits: Vec<LimitConfig>, mode: Mode) -> Arc<Rule> {
    try_rule(limits, mode).unwrap()
}

fn try_rule(limits: Vec<LimitConfig>, mode: Mode) -> Result<Arc<Rule>, QuotaError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let generation = NEXT.fetch_add(1, Ordering::Relaxed);
    Rule::new(limits, mode).map(|rule| Arc::new(rule.with_generation(generation)))
}

/// A limiter without its clock, alone on its store.
struct World {
    shards: Shards,
    store: Arc<Store>,
}

impl World {
    fn new(limits: Vec<LimitConfig>, max: usize, overflow: Overflow) -> Self {
        let store = Memory::with_key(max, [1, 2]).store;
        let shards =
            Shards::new(store.clone(), &rule(limits, Mode::Hard), overflow, SHARD_BITS, at(NOON));
        Self { shards, store }
    }

    /// With room for all identities.
    fn roomy(limits: Vec<LimitConfig>) -> Self {
        Self::new(limits, 1 << 40, Overflow::Deny)
    }

    /// As a limiter does: the fast path if it decides, else the slow path.
    fn hit(&self, hash: u64, cost: u64, now: u64) -> Verdict {
        let mut verdict = UNCOUNTED;
        match self.shards.hit(None, hash, cost, at(now), &mut verdict) {
            Some(_) => verdict,
            None => self.hit_long(hash, cost, now),
        }
    }

    /// The slow path, unconditionally.
    fn hit_long(&self, hash: u64, cost: u64, now: u64) -> Verdict {
        // An id that is never used again, as for a hit without one.
        let holder = Some(Holder(now.wrapping_mul(31) ^ hash ^ cost));
        self.ask(hash, Op::Hit { cost, holder }, now).unwrap().verdict
    }

    fn ask(&self, hash: u64, op: Op, now: u64) -> Result<Answer, Refusal> {
        let moment = Moment { now: at(now), spare_capacity: false };
        self.shards.apply(hash, op, moment).map(|answered| answered.answer)
    }

    fn peek(&self, hash: u64, cost: u64, now: u64) -> Verdict {
        self.ask(hash, Op::Peek { cost }, now).unwrap().verdict
    }

    fn reserve(&self, hash: u64, cost: u64, id: u64, now: u64) -> Result<Answer, Refusal> {
        let ttl = Span::from_secs(60);
        self.ask(hash, Op::Reserve { cost, ttl, holder: Holder(id) }, now)
    }

    fn entries(&self) -> usize {
        self.store.budget.used()
    }

    /// Total usage, after checking that the counters match the contents.
    fn audit(&self) -> ShardUsage {
        let kept = self.shards.audit();
        assert_eq!(self.entries(), kept.used, "what is counted, and lanes in use");
        kept
    }
}

/// One operation on identities of several limiters.
fn together(all: &[(&World, u64)], op: Op, now: u64) -> Result<Answered, Refusal> {
    let targets: Vec<Target<'_>> = all
        .iter()
        .map(|(world, hash)| Target {
            shards: &world.shards,
            hash: *hash,
            spare_capacity: false,
            rule: None,
            cost: None,
        })
        .collect();
    apply_together(&targets, op, at(now))
}

impl Shards {
    fn audit(&self) -> ShardUsage {
        let mut all = ShardUsage::default();
        for index in 0..self.set.len() {
            let kept = self.set.lock(index).audit();
            all.used += kept.used;
            all.lanes += kept.lanes;
            all.whole += kept.whole;
        }
        all
    }

    fn live(&self, now: u64) -> usize {
        (0..self.set.len()).map(|index| self.set.lock(index).live(at(now))).sum()
    }

    /// Address of each shard's table, which changes when the table is rebuilt.
    fn indices(&self) -> Vec<(usize, usize)> {
        (0..self.set.len()).map(|index| self.set.lock(index).extent()).collect()
    }
}
