//! What must be true of a shard at any time.

use std::collections::HashSet;

use super::{Shard, Since, Timestamp};

/// How much a shard keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    /// Lanes in use, live or not.
    pub(crate) used: usize,
    /// Lanes there are.
    pub(crate) lanes: usize,
    /// States and accounts kept whole.
    pub(crate) whole: usize,
}

impl Shard {
    /// How many lanes are live.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        self.table.live(self.epoch.since(now)).count()
    }

    /// How much it keeps, once it is sure that every whole state has one lane that leads to it, and every such lane
    /// leads to one.
    pub(crate) fn audit(&self) -> Kept {
        // Everything but what is gone, which leads nowhere.
        let words = self.table.live(Since::default()).map(|(_, word)| word);
        let places: Vec<u32> = words.filter_map(|word| word.place()).collect();
        let once: HashSet<u32> = places.iter().copied().collect();
        assert_eq!(once.len(), places.len(), "two lanes lead to one state");
        for place in &places {
            assert!(self.slab.get(*place).is_some(), "a lane leads to nothing");
        }
        assert_eq!(self.table.used(), self.table.counted(), "lanes counted as they were taken");
        assert_eq!(self.slab.len(), places.len(), "a state that no lane leads to");
        Kept { used: self.table.used(), lanes: self.table.lanes(), whole: self.slab.len() }
    }
}
