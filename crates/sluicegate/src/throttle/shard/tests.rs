//! What tests see of a shard.

use std::collections::BTreeMap;

use super::{NOWHERE, Shard, Since, Word};

/// What a shard keeps.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::throttle) struct Kept {
    pub(in crate::throttle) lanes: usize,
    pub(in crate::throttle) terms: usize,
    pub(in crate::throttle) wholes: usize,
}

impl Shard {
    /// What is kept; all of it is named by lanes, as often as the book says.
    pub(in crate::throttle) fn counted(&mut self) -> Kept {
        let (mut named, mut wholes, mut lanes) = (BTreeMap::new(), 0, 0);
        self.table.replace(|held| {
            lanes += 1;
            wholes += usize::from(held.word.place().is_some());
            assert_eq!(held.terms == NOWHERE, held.word == Word::GONE, "{held:?}");
            if held.terms != NOWHERE {
                *named.entry(held.terms).or_insert(0u32) += 1;
            }
            held
        });
        assert_eq!(self.book.named(), named.into_iter().collect::<Vec<_>>());
        assert_eq!(self.slab.len(), wholes);
        assert_eq!(self.table.used(), lanes);
        let live = self.table.live(Since::default()).count();
        assert!(live <= lanes);
        Kept { lanes, terms: self.book.len(), wholes }
    }
}
