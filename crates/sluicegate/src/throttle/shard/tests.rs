//! Test access to a shard.

use std::collections::BTreeMap;

use super::{ParamsIndex, Since, ThrottleShard, Word};

/// Usage of a shard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::throttle) struct ThrottleUsage {
    pub(in crate::throttle) lanes: usize,
    pub(in crate::throttle) params: usize,
    pub(in crate::throttle) wholes: usize,
}

impl ThrottleShard {
    /// Its usage, after checking that lanes refer to all parameters as often as the interner
    /// counts.
    pub(in crate::throttle) fn counted(&mut self) -> ThrottleUsage {
        let (mut named, mut wholes, mut lanes) = (BTreeMap::new(), 0, 0);
        self.lanes.table.replace(|entry| {
            lanes += 1;
            wholes += usize::from(entry.word.index().is_some());
            assert_eq!(entry.extra == ParamsIndex::NONE, entry.word == Word::GONE, "{entry:?}");
            if entry.extra != ParamsIndex::NONE {
                *named.entry(entry.extra).or_insert(0u32) += 1;
            }
            entry
        });
        assert_eq!(self.interner.references(), named.into_iter().collect::<Vec<_>>());
        assert_eq!(self.lanes.slab.len(), wholes);
        assert_eq!(self.lanes.table.used(), lanes);
        let live = self.lanes.table.live(Since::default()).count();
        assert!(live <= lanes);
        ThrottleUsage { lanes, params: self.interner.len(), wholes }
    }
}
