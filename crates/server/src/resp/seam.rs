//! Stands in for `sluicegate::throttle` until that is there.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluicegate::limit::TokenBucket;
use sluicegate::{Limiter, Memory, Timestamp, Together, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    max_burst: i64,
    count: i64,
    period_s: i64,
}

#[derive(Debug)]
pub(super) struct NoRoom;

#[derive(Debug)]
pub(super) struct Throttle {
    memory: Memory,
    all: Mutex<HashMap<Terms, Limiter>>,
}

impl Terms {
    pub(super) fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Self, String> {
        if max_burst < 0 || count < 1 || period_s < 1 {
            return Err(format!("out of bounds: {max_burst} {count} {period_s}"));
        }
        Ok(Self { max_burst, count, period_s })
    }

    pub(super) fn limit(&self) -> u64 {
        self.max_burst.unsigned_abs() + 1
    }
}

impl Throttle {
    pub(super) fn new(memory: &Memory) -> Self {
        Self { memory: memory.clone(), all: Mutex::default() }
    }

    pub(super) fn hit(
        &self,
        key: &[u8],
        terms: &Terms,
        quantity: u64,
        now: Timestamp,
    ) -> Result<Verdict, NoRoom> {
        let mut all = self.all.lock();
        let limiter = all.entry(*terms).or_insert_with(|| {
            let period = std::time::Duration::from_secs(terms.period_s.unsigned_abs());
            let bucket = TokenBucket::per(terms.count.unsigned_abs(), period).burst(terms.limit());
            Limiter::builder().limit(bucket).memory(&self.memory).build().expect("a limit")
        });
        Ok(Together::new().and(limiter, key).cost(quantity).at(now).hit())
    }
}
