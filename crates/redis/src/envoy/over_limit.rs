//! Cache of keys that are over their limit.
//!
//! Two generations of half the size each: new keys enter the young one, and when that is full, the
//! old one is dropped. A key contains the start of its window, so keys of past windows are never
//! read and are dropped with their generation.

use std::collections::HashMap;

use parking_lot::RwLock;

/// Bytes of an entry beyond its key: pointer, length and count in a table that may be half empty.
const OVERHEAD: usize = 64;

#[derive(Debug)]
pub(super) struct OverLimitCache {
    /// Size of a generation.
    bytes_max: usize,
    generations: RwLock<KeyGenerations>,
}

#[derive(Debug, Default)]
struct KeyGenerations {
    young: HashMap<Box<[u8]>, u64>,
    old: HashMap<Box<[u8]>, u64>,
    bytes: usize,
}

impl OverLimitCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max: bytes_max / 2, generations: RwLock::default() }
    }

    /// The last known count of a key, if it is above `limit`.
    pub(super) fn count(&self, key: &[u8], limit: u64) -> Option<u64> {
        let generations = self.generations.read();
        let known = generations.young.get(key).or_else(|| generations.old.get(key));
        known.copied().filter(|count| *count > limit)
    }

    pub(super) fn insert(&self, key: &[u8], count: u64) {
        let cost = key.len().saturating_add(OVERHEAD);
        if cost > self.bytes_max {
            return;
        }
        let mut generations = self.generations.write();
        if let Some(known) = generations.young.get_mut(key) {
            *known = count;
            return;
        }
        if generations.bytes.saturating_add(cost) > self.bytes_max {
            generations.old = std::mem::take(&mut generations.young);
            generations.bytes = 0;
        }
        generations.bytes += cost;
        generations.young.insert(key.into(), count);
    }

    /// After a refund or reset.
    pub(super) fn remove(&self, key: &[u8]) {
        let mut generations = self.generations.write();
        generations.old.remove(key);
        if generations.young.remove(key).is_some() {
            generations.bytes = generations.bytes.saturating_sub(key.len() + OVERHEAD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_compared_with_the_limit_at_hand() {
        let over = OverLimitCache::new(10_000);
        over.insert(b"a", 11);
        assert_eq!(over.count(b"a", 10), Some(11));
        assert_eq!(over.count(b"a", 11), None, "the limit was raised");
        assert_eq!(over.count(b"b", 0), None);
        over.insert(b"a", 12);
        assert_eq!(over.count(b"a", 11), Some(12));
        over.remove(b"a");
        assert_eq!(over.count(b"a", 0), None);
    }

    #[test]
    fn never_takes_more_than_its_room_and_forgets_the_oldest() {
        let over = OverLimitCache::new(100 * (OVERHEAD + 8));
        let key = |number: u64| number.to_be_bytes();
        for number in 0..10_000 {
            over.insert(&key(number), 1);
            let generations = over.generations.read();
            assert!(generations.young.len() + generations.old.len() <= 100);
            assert_eq!(generations.bytes, generations.young.len() * (OVERHEAD + 8));
        }
        assert_eq!(over.count(&key(9_999), 0), Some(1));
        assert_eq!(over.count(&key(9_950), 0), Some(1));
        assert_eq!(over.count(&key(9_899), 0), None);
        over.remove(&key(9_999));
        assert_eq!(over.count(&key(9_999), 0), None);
        over.insert(&[0; 10_000], 1);
        assert_eq!(over.count(&[0; 10_000], 0), None, "more than all the room");
    }
}
