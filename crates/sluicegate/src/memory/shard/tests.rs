//! Invariants of a shard.

use std::collections::HashSet;

use super::{Shard, Since, Timestamp};

/// Usage of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShardUsage {
    /// Lanes in use, live or not.
    pub(crate) used: usize,
    /// Lanes there are.
    pub(crate) lanes: usize,
    /// States and accounts stored whole.
    pub(crate) whole: usize,
}

impl Shard {
    /// How many lanes are live.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        self.lanes.table.live(self.lanes.epoch.since(now)).count()
    }

    /// Its usage, after checking that lanes and whole states refer to each other one to one.
    pub(crate) fn audit(&self) -> ShardUsage {
        // All words except expired ones, which refer to no state.
        let words = self.lanes.table.live(Since::default()).map(|entry| entry.word);
        let indices: Vec<u32> = words.filter_map(|word| word.index()).collect();
        let once: HashSet<u32> = indices.iter().copied().collect();
        assert_eq!(once.len(), indices.len(), "two lanes lead to one state");
        for index in &indices {
            assert!(self.lanes.slab.get(*index).is_some(), "a lane leads to nothing");
        }
        assert_eq!(
            self.lanes.table.used(),
            self.lanes.table.counted(),
            "lanes counted as they were taken"
        );
        assert_eq!(self.lanes.slab.len(), indices.len(), "a state that no lane leads to");
        ShardUsage {
            used: self.lanes.table.used(),
            lanes: self.lanes.table.lanes(),
            whole: self.lanes.slab.len(),
        }
    }
}
