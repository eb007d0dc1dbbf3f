//! The terms that the entries of a shard were made by, each once.
//!
//! A lane has no room for three numbers, so it has a place in this book. A place is kept as long as any lane
//! names it: there are never more terms than lanes, whatever clients send.
//!
//! ```text
//!   heads   places
//!   |2|     0: 5 at 10/60, named by 7 lanes, then nobody
//!   |1| --> 1: 0 at 1/1,   named by 1 lane,  then 0
//! ```

use super::params::Figures;
use crate::memory::Store;

/// No place: what an unused lane has, and where a chain ends.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Terms by their place. In this order, so that what every hit looks at lies in one line with the shard's lock.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Book {
    places: Vec<Place>,
    /// Where the chain of each hash begins. Hashes are keyed: nobody can send terms that all fall into one chain.
    heads: Box<[u32]>,
    /// Where the chain of unused places begins, and how long it is.
    free: u32,
    free_count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    figures: Figures,
    /// How many lanes name it.
    lanes: u32,
    /// The next in its chain.
    next: u32,
}

// === impl Book ===

impl Book {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), heads: Box::default(), free: NOWHERE, free_count: 0 }
    }

    /// Whether these are the terms at `place`.
    #[inline]
    pub(super) fn is(&self, place: u32, figures: &Figures) -> bool {
        self.places.get(place as usize).is_some_and(|at| at.figures == *figures)
    }

    pub(super) fn figures(&self, place: u32) -> Option<Figures> {
        let at = self.places.get(place as usize)?;
        (at.lanes > 0).then_some(at.figures)
    }

    /// The place of these terms, for one lane more.
    pub(super) fn enter(&mut self, store: &Store, figures: &Figures) -> u32 {
        let found = self.chain(self.head(store, figures)).find(|place| self.is(*place, figures));
        if let Some(place) = found
            && let Some(at) = self.places.get_mut(place as usize)
        {
            at.lanes = at.lanes.saturating_add(1);
            return place;
        }
        self.add(store, Place { figures: *figures, lanes: 1, next: NOWHERE })
    }

    /// One lane less names a place.
    pub(super) fn leave(&mut self, store: &Store, place: u32) {
        let Some(at) = self.places.get_mut(place as usize).filter(|at| at.lanes > 0) else {
            return;
        };
        at.lanes -= 1;
        if at.lanes > 0 {
            return;
        }
        let (figures, next) = (at.figures, at.next);
        let head = self.head(store, &figures);
        let before = self.chain(head).find(|other| self.next(*other) == place);
        match before.and_then(|before| self.places.get_mut(before as usize)) {
            Some(before) => before.next = next,
            None => self.set_head(head, next),
        }
        let free = std::mem::replace(&mut self.free, place);
        if let Some(at) = self.places.get_mut(place as usize) {
            at.next = free;
        }
        self.free_count += 1;
        if self.len() == 0 {
            *self = Self::new();
        }
    }

    /// How many terms there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free_count
    }

    /// Whether most places are unused, so that moving the rest together gives memory back.
    pub(super) fn is_sparse(&self) -> bool {
        self.places.len() > 16 && self.places.len() > 2 * self.len()
    }

    /// Every place in use, and how many lanes name it.
    #[cfg(test)]
    pub(super) fn named(&self) -> Vec<(u32, u32)> {
        let places = (0..).zip(&self.places).filter(|(_, at)| at.lanes > 0);
        places.map(|(place, at)| (place, at.lanes)).collect()
    }

    fn add(&mut self, store: &Store, at: Place) -> u32 {
        let place = match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let place = std::mem::replace(&mut self.free, free.next);
                self.free_count -= 1;
                *free = at;
                place
            }
            None => {
                if self.places.len() == self.places.capacity() {
                    // By a quarter: doubling would leave half of it unused.
                    self.places.reserve_exact((self.places.len() / 4).max(1));
                }
                self.places.push(at);
                // The cap on entries lies far below.
                u32::try_from(self.places.len() - 1).unwrap_or(NOWHERE)
            }
        };
        if self.places.len() > self.heads.len() {
            self.link_all(store);
        } else {
            self.link(store, place);
        }
        place
    }

    /// Makes the heads anew, twice as many as there are places.
    fn link_all(&mut self, store: &Store) {
        self.heads = vec![NOWHERE; (self.places.len() * 2).next_power_of_two()].into();
        for place in 0..self.places.len() as u32 {
            if self.figures(place).is_some() {
                self.link(store, place);
            }
        }
    }

    fn link(&mut self, store: &Store, place: u32) {
        let Some(figures) = self.figures(place) else { return };
        let head = self.head(store, &figures);
        let next = self.heads.get(head).copied().unwrap_or(NOWHERE);
        if let Some(at) = self.places.get_mut(place as usize) {
            at.next = next;
            self.set_head(head, place);
        }
    }

    fn set_head(&mut self, head: usize, place: u32) {
        if let Some(first) = self.heads.get_mut(head) {
            *first = place;
        }
    }

    /// Which chain terms belong to.
    fn head(&self, store: &Store, figures: &Figures) -> usize {
        // Their number is a power of two, or nothing.
        store.hash(&figures.bytes()) as usize & self.heads.len().saturating_sub(1)
    }

    fn next(&self, place: u32) -> u32 {
        self.places.get(place as usize).map_or(NOWHERE, |at| at.next)
    }

    /// The places of a chain.
    fn chain(&self, head: usize) -> impl Iterator<Item = u32> + '_ {
        let first = self.heads.get(head).copied().unwrap_or(NOWHERE);
        let some = |place: u32| (place != NOWHERE).then_some(place);
        std::iter::successors(some(first), move |place| some(self.next(*place)))
    }
}
