//! The parameters of a shard's lanes, each stored once.
//!
//! A lane has no room for three numbers, so it holds an index into this interner. Parameters live
//! as long as any lane refers to them, so there are never more of them than lanes.
//!
//! ```text
//!   heads   params
//!   |2|     0: 5 at 10/60, 7 lanes, end of chain
//!   |1| --> 1: 0 at 1/1,   1 lane,  next 0
//! ```

use super::params::RawParams;
use crate::memory::Store;
use crate::memory::table::LaneExtra;

/// The index of interned parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ParamsIndex(u32);

/// Reference-counted parameters with a hash index. The field of the hot path comes first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Interner {
    params: Vec<Interned>,
    /// The first of each hash chain. Hashes are keyed: clients cannot choose colliding parameters.
    heads: Box<[ParamsIndex]>,
    /// The first of the free chain, and its length.
    free: ParamsIndex,
    free_count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Interned {
    raw: RawParams,
    /// Number of lanes that refer to it.
    lanes: u32,
    /// The next in its chain.
    next: ParamsIndex,
}

impl ParamsIndex {
    /// The index in an unused lane, and the end of a chain.
    pub(super) const NONE: Self = Self(u32::MAX);

    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl LaneExtra for ParamsIndex {
    const UNUSED: Self = Self::NONE;
}

impl Interner {
    pub(super) fn new() -> Self {
        let free = ParamsIndex::NONE;
        Self { params: Vec::new(), heads: Box::default(), free, free_count: 0 }
    }

    /// Whether these are the parameters at `index`.
    #[inline]
    pub(super) fn is(&self, index: ParamsIndex, raw: &RawParams) -> bool {
        self.params.get(index.0 as usize).is_some_and(|interned| interned.raw == *raw)
    }

    pub(super) fn get(&self, index: ParamsIndex) -> Option<RawParams> {
        let interned = self.params.get(index.0 as usize)?;
        (interned.lanes > 0).then_some(interned.raw)
    }

    /// The index of these parameters, with one more reference.
    pub(super) fn intern(&mut self, store: &Store, raw: &RawParams) -> ParamsIndex {
        let found = self.chain(self.head(store, raw)).find(|index| self.is(*index, raw));
        if let Some(index) = found
            && let Some(interned) = self.at(index)
        {
            interned.lanes = interned.lanes.saturating_add(1);
            return index;
        }
        self.add(store, Interned { raw: *raw, lanes: 1, next: ParamsIndex::NONE })
    }

    /// Drops one reference.
    pub(super) fn release(&mut self, store: &Store, index: ParamsIndex) {
        let Some(interned) = self.at(index).filter(|interned| interned.lanes > 0) else { return };
        interned.lanes -= 1;
        if interned.lanes > 0 {
            return;
        }
        let (raw, next) = (interned.raw, interned.next);
        let head = self.head(store, &raw);
        let before = self.chain(head).find(|other| self.next(*other) == index);
        match before.and_then(|before| self.at(before)) {
            Some(before) => before.next = next,
            None => self.set_head(head, next),
        }
        let free = std::mem::replace(&mut self.free, index);
        if let Some(interned) = self.at(index) {
            interned.next = free;
        }
        self.free_count += 1;
        if self.len() == 0 {
            *self = Self::new();
        }
    }

    /// Number of distinct parameters.
    pub(super) fn len(&self) -> usize {
        self.params.len() - self.free_count
    }

    /// Whether most of it is free, so that compacting releases memory.
    pub(super) fn is_sparse(&self) -> bool {
        self.params.len() > 16 && self.params.len() > 2 * self.len()
    }

    /// Every index in use with its number of references.
    #[cfg(test)]
    pub(super) fn references(&self) -> Vec<(ParamsIndex, u32)> {
        let params = (0..).zip(&self.params).filter(|(_, interned)| interned.lanes > 0);
        params.map(|(index, interned)| (ParamsIndex(index), interned.lanes)).collect()
    }

    fn add(&mut self, store: &Store, interned: Interned) -> ParamsIndex {
        let index = match self.params.get_mut(self.free.0 as usize) {
            Some(free) => {
                let index = std::mem::replace(&mut self.free, free.next);
                self.free_count -= 1;
                *free = interned;
                index
            }
            None => {
                if self.params.len() == self.params.capacity() {
                    // By a quarter: doubling would leave half of it unused.
                    self.params.reserve_exact((self.params.len() / 4).max(1));
                }
                self.params.push(interned);
                // The cap on entries is far below `u32::MAX`.
                ParamsIndex(u32::try_from(self.params.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if self.params.len() > self.heads.len() {
            self.link_all(store);
        } else {
            self.link(store, index);
        }
        index
    }

    /// Rebuilds the hash index with twice as many heads as parameters.
    fn link_all(&mut self, store: &Store) {
        let heads = (self.params.len() * 2).next_power_of_two();
        self.heads = vec![ParamsIndex::NONE; heads].into();
        for index in 0..self.params.len() as u32 {
            self.link(store, ParamsIndex(index));
        }
    }

    fn link(&mut self, store: &Store, index: ParamsIndex) {
        let Some(raw) = self.get(index) else { return };
        let head = self.head(store, &raw);
        let next = self.heads.get(head).copied().unwrap_or(ParamsIndex::NONE);
        if let Some(interned) = self.at(index) {
            interned.next = next;
            self.set_head(head, index);
        }
    }

    fn set_head(&mut self, head: usize, index: ParamsIndex) {
        if let Some(first) = self.heads.get_mut(head) {
            *first = index;
        }
    }

    /// The chain of these parameters.
    fn head(&self, store: &Store, raw: &RawParams) -> usize {
        // The number of heads is 0 or a power of two.
        store.hash(&raw.bytes()) as usize & self.heads.len().saturating_sub(1)
    }

    fn at(&mut self, index: ParamsIndex) -> Option<&mut Interned> {
        self.params.get_mut(index.0 as usize)
    }

    fn next(&self, index: ParamsIndex) -> ParamsIndex {
        self.params.get(index.0 as usize).map_or(ParamsIndex::NONE, |interned| interned.next)
    }

    /// The indices of a chain.
    fn chain(&self, head: usize) -> impl Iterator<Item = ParamsIndex> + '_ {
        let first = self.heads.get(head).copied().and_then(ParamsIndex::some);
        std::iter::successors(first, move |index| self.next(*index).some())
    }
}
