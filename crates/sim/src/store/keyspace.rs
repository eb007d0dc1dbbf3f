//! Keys, their values and expirations.
//!
//! Replaced values are kept for a while: a lost primary loses its newest writes, which are rolled
//! back here.

use std::collections::{BTreeMap, VecDeque};

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// A string.
    Text(Vec<u8>),
    /// Members with scores, in the order of both.
    Sorted(Vec<(f64, Vec<u8>)>),
    /// A hash; fields in insertion order.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
}

#[derive(Debug, Clone, PartialEq)]
struct Slot {
    item: Item,
    until_ms: Option<u64>,
}

/// All keys at a point in time.
#[derive(Debug, Default)]
pub(super) struct Keyspace {
    slots: BTreeMap<Vec<u8>, Slot>,
    now_us: u64,
    /// Undo log of the newest writes, with their times.
    before: VecDeque<(u64, Vec<u8>, Option<Slot>)>,
}

/// Retention of the undo log.
const UNDO_US: u64 = 2_000_000;

impl Keyspace {
    /// The time, in microseconds of the epoch.
    #[must_use]
    pub(super) const fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Advances the time and trims the undo log.
    pub(super) fn set_now(&mut self, now_us: u64) {
        self.now_us = now_us;
        let is_old = |at: u64| at.saturating_add(UNDO_US) < now_us;
        while self.before.front().is_some_and(|(at, ..)| is_old(*at)) {
            self.before.pop_front();
        }
    }

    /// The value, unless expired.
    #[must_use]
    pub(super) fn get(&self, key: &[u8]) -> Option<&Item> {
        self.slot(key).map(|slot| &slot.item)
    }

    /// Remaining time to live in milliseconds, if any.
    #[must_use]
    pub(super) fn left_ms(&self, key: &[u8]) -> Option<u64> {
        self.slot(key)?.until_ms.map(|until| until.saturating_sub(self.now_us / 1_000))
    }

    /// Sets a value without expiration.
    pub(super) fn put(&mut self, key: &[u8], item: Item) {
        self.remember(key);
        self.slots.insert(key.to_vec(), Slot { item, until_ms: None });
    }

    /// Updates a value; its expiration stays.
    pub(super) fn change(&mut self, key: &[u8], item: Item) {
        let until_ms = self.slot(key).and_then(|slot| slot.until_ms);
        self.remember(key);
        self.slots.insert(key.to_vec(), Slot { item, until_ms });
    }

    /// Sets the expiration in milliseconds. Returns whether the key exists.
    pub(super) fn expire(&mut self, key: &[u8], ms: u64) -> bool {
        if self.slot(key).is_none() {
            return false;
        }
        self.remember(key);
        let until = (self.now_us / 1_000).saturating_add(ms);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.until_ms = Some(until);
        }
        true
    }

    /// Deletes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let was = self.slot(key).is_some();
        self.remember(key);
        self.slots.remove(key);
        was
    }

    /// Deletes all keys.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.before.clear();
    }

    /// Rolls back all writes since a time.
    pub(super) fn roll_back(&mut self, since_us: u64) {
        while let Some((at, key, slot)) = self.before.pop_back() {
            if at < since_us {
                self.before.push_back((at, key, slot));
                return;
            }
            match slot {
                Some(slot) => self.slots.insert(key, slot),
                None => self.slots.remove(&key),
            };
        }
    }

    /// All values as text, ordered by key.
    #[must_use]
    pub(super) fn text(&self) -> Vec<String> {
        let live = self.slots.iter().filter(|(_, slot)| self.is_live(slot));
        live.map(|(key, slot)| format!("{} {}", lossy(key), slot.item.text())).collect()
    }

    fn slot(&self, key: &[u8]) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| self.is_live(slot))
    }

    fn is_live(&self, slot: &Slot) -> bool {
        slot.until_ms.is_none_or(|until| self.now_us / 1_000 < until)
    }

    fn remember(&mut self, key: &[u8]) {
        let slot = self.slots.get(key).cloned();
        self.before.push_back((self.now_us, key.to_vec(), slot));
    }
}

impl Item {
    /// As text, for display and comparison.
    #[must_use]
    pub(super) fn text(&self) -> String {
        let pairs = |pairs: Vec<(String, String)>| {
            let each: Vec<String> = pairs.iter().map(|(one, two)| format!("{one}={two}")).collect();
            each.join(" ")
        };
        match self {
            Self::Text(text) => lossy(text),
            Self::Sorted(members) => pairs(
                members.iter().map(|(score, name)| (lossy(name), score_text(*score))).collect(),
            ),
            Self::Hash(fields) => {
                let mut fields: Vec<_> =
                    fields.iter().map(|(name, value)| (lossy(name), lossy(value))).collect();
                fields.sort();
                pairs(fields)
            }
        }
    }
}

/// A score in Redis' format: whole numbers without a point.
#[must_use]
pub(super) fn score_text(score: f64) -> String {
    format!("{score}")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Item {
        Item::Text(text.into())
    }

    #[test]
    fn everything_ends() {
        let mut keys = Keyspace::default();
        keys.set_now(5_000_000);
        keys.put(b"a", text("1"));
        assert!(keys.expire(b"a", 10));
        keys.change(b"a", text("2"));
        keys.set_now(5_009_999);
        assert_eq!(keys.text(), ["a 2"]);
        keys.set_now(5_010_000);
        assert_eq!(keys.get(b"a"), None);
        assert!(!keys.expire(b"a", 10));
    }

    #[test]
    fn the_newest_writes_are_taken_back() {
        let mut keys = Keyspace::default();
        keys.set_now(1_000);
        keys.put(b"a", text("1"));
        keys.set_now(2_000);
        keys.put(b"a", text("2"));
        keys.put(b"b", text("2"));
        keys.set_now(3_000);
        keys.remove(b"a");
        keys.roll_back(2_000);
        assert_eq!(keys.text(), ["a 1"]);
        keys.roll_back(0);
        assert!(keys.text().is_empty());
    }
}
