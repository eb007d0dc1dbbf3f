//! The throttle compared with a naive one, at the cap, and under hostile clients.

mod cap;
mod hostile;
mod model;
mod same;
mod years;

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::shard::tests::ThrottleUsage;
use super::{NoRoom, Throttle, ThrottleParams};
use crate::memory::Memory;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// A day in 2024, at noon UTC.
const NOON: u64 = 1_717_416_000 * SECOND;

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

fn params(max_burst: i64, count: i64, period_s: i64) -> ThrottleParams {
    ThrottleParams::new(max_burst, count, period_s).unwrap()
}

/// A throttle on a separate store with a deterministic hash.
struct World {
    throttle: Throttle,
    memory: Memory,
}

impl World {
    fn new(max: usize) -> Self {
        let memory = Memory::with_key(max, [1, 2]);
        Self { throttle: Throttle::new(&memory), memory }
    }

    fn roomy() -> Self {
        Self::new(1 << 40)
    }

    fn hit(
        &self,
        key: u64,
        params: &ThrottleParams,
        cost: u64,
        now: u64,
    ) -> Result<Verdict, NoRoom> {
        self.throttle.hit(&key.to_le_bytes(), params, cost, at(now))
    }

    /// Total usage of all shards, after checking the store's count.
    fn kept(&self) -> ThrottleUsage {
        let all = self.throttle.shards.inspect(|shard| shard.counted());
        let kept = all.into_iter().fold(ThrottleUsage::default(), |sum, one| ThrottleUsage {
            lanes: sum.lanes + one.lanes,
            params: sum.params + one.params,
            wholes: sum.wholes + one.wholes,
        });
        assert_eq!(self.throttle.entries(), kept.lanes);
        assert_eq!(self.memory.entries(), kept.lanes);
        kept
    }
}

/// `count` keys, each in a different shard, so that none reuses the expired lane of another.
fn apart(count: usize) -> Vec<u64> {
    let memory = Memory::with_key(1, [1, 2]);
    let mut shards = std::collections::HashSet::new();
    let own = |key: &u64| shards.insert(memory.store.hash(&key.to_le_bytes()) >> 56);
    (0..).filter(own).take(count).collect()
}
