//! Hits by the values of descriptors, for rules whose metrics name them.
//!
//! A rule lists its most frequent values, with their hits since they were listed. Hits of all other
//! values are the difference to the total of the rule. While there is room, a new value is listed
//! at once. After that, it competes in a small table of candidates, one per hash (majority vote:
//! hits of other values with the same slot reduce its weight), and replaces the listed value with
//! the least hits once it has more. So a flood of values that occur once replaces nothing, and the
//! hits that are needed for a place only grow.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_rules::set::RuleNo;

use super::stats::{HitCounts, Stats};
use super::{EngineState, Snapshot};

/// Maximum number of listed values of all rules together.
const LISTED_MAX: usize = 10_000;

/// Longest name of a listed value, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Slots for values that are not listed.
const CANDIDATES: usize = 128;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

/// Hits of one rule by value: see [`Snapshot::value_stats`].
///
/// The values and `other` add up to `total`, in every field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValueStats {
    /// Hits of the rule.
    pub total: Stats,
    /// The listed values, ordered by name.
    pub values: Vec<ListedValue>,
    /// Hits of values that are not listed, and of listed ones before they were.
    pub other: Stats,
}

/// Hits of a listed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedValue {
    /// The name of the rule and the value in envoyproxy/ratelimit's metrics: `shop.user_id_42`.
    pub key: String,
    /// Distinguishes the times that a value was listed. Within one, no count decreases.
    pub serial: u64,
    /// Hits since it was listed.
    pub stats: Stats,
}

/// How many values may be listed.
#[derive(Debug, Clone)]
pub(super) struct ValueBudget {
    per_rule: usize,
    /// Values that all rules together may still list.
    room: Arc<AtomicUsize>,
}

/// Hits of one rule by value.
#[derive(Debug)]
pub(super) struct ValueCounters {
    table: Mutex<ValueTable>,
}

#[derive(Debug)]
struct ValueTable {
    budget: ValueBudget,
    listed: HashMap<Box<str>, ValueEntry>,
    candidates: Candidates,
    total: HitCounts,
    /// Lower bound of the weights of listed values.
    weight_min: u64,
}

#[derive(Debug)]
struct ValueEntry {
    counts: HitCounts,
    /// Hits, including those as a candidate.
    weight: u64,
    serial: u64,
}

/// Weights of values that are not listed, by their hashes; empty until one is needed.
#[derive(Debug, Default)]
struct Candidates(Vec<(u64, u64)>);

impl ValueBudget {
    /// So many values for each rule; none if it is zero.
    pub(super) fn new(per_rule: usize) -> Self {
        Self { per_rule, room: Arc::new(AtomicUsize::new(LISTED_MAX)) }
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.per_rule > 0
    }

    fn take_room(&self) -> bool {
        let take = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl ValueCounters {
    pub(super) fn new(budget: &ValueBudget) -> Self {
        Self { table: Mutex::new(ValueTable::new(budget)) }
    }

    /// All hits.
    pub(super) fn total(&self) -> HitCounts {
        self.table.lock().total
    }
}

impl Snapshot<'_> {
    /// Hits under a rule by value, if its metrics name values and
    /// [`EngineBuilder::metric_values`](crate::EngineBuilder::metric_values) enables that.
    ///
    /// # Panics
    /// When the number belongs to another set of rules.
    #[must_use]
    pub fn value_stats(&self, no: RuleNo) -> Option<ValueStats> {
        let slot = &self.active.slots[no.index()];
        slot.counts_values.then(|| slot.state.value_stats())
    }

    /// Counts a hit under a rule whose metrics name values.
    #[cold]
    pub(super) fn count_value(&self, no: RuleNo, identity: &[u8], counts: HitCounts) {
        if counts == HitCounts::default() {
            return;
        }
        let mut key = String::new();
        self.active.rules.write_stat_key(no, identity, &mut key);
        let EngineState { values, .. } = self.engine;
        self.rule_state(no).values(values).table.lock().add(&key, counts);
    }
}

impl ValueStats {
    /// The hits by value, and those that were counted without values.
    pub(super) fn new(counters: Option<&ValueCounters>, before: HitCounts) -> Self {
        let Some(table) = counters.map(|counters| counters.table.lock()) else {
            return Self { total: before.into(), other: before.into(), values: Vec::new() };
        };
        let total = table.total.plus(before);
        let mut other = total;
        let mut values = Vec::with_capacity(table.listed.len());
        for (key, ValueEntry { counts, serial, .. }) in &table.listed {
            other = other.minus(*counts);
            let (key, stats) = (key.to_string(), Stats::from(*counts));
            values.push(ListedValue { key, serial: *serial, stats });
        }
        drop(table);
        values.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Self { total: total.into(), values, other: other.into() }
    }
}

impl ValueTable {
    fn new(budget: &ValueBudget) -> Self {
        Self {
            budget: budget.clone(),
            listed: HashMap::new(),
            candidates: Candidates::default(),
            total: HitCounts::default(),
            weight_min: 0,
        }
    }

    fn add(&mut self, key: &str, counts: HitCounts) {
        self.total = self.total.plus(counts);
        let hits = counts.hits();
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        if let Some(entry) = self.listed.get_mut(key) {
            entry.counts = entry.counts.plus(counts);
            entry.weight = entry.weight.saturating_add(hits);
        } else if self.listed.len() < self.budget.per_rule && self.budget.take_room() {
            self.weight_min = self.weight_min.min(hits);
            self.list(key, counts, hits);
        } else {
            self.compete(key, counts, hits);
        }
    }

    /// Replaces the listed value with the least hits if this one has more.
    fn compete(&mut self, key: &str, counts: HitCounts, hits: u64) {
        let hash = self.listed.hasher().hash_one(key);
        let weight = self.candidates.add(hash, hits);
        if weight <= self.weight_min {
            return;
        }
        let least = self.listed.iter().min_by_key(|(_, entry)| (entry.weight, entry.serial));
        let Some((last, entry)) = least else { return };
        self.weight_min = entry.weight;
        if weight > entry.weight {
            let last = last.clone();
            self.listed.remove(&last);
            self.candidates.remove(hash);
            self.list(key, counts, weight);
        }
    }

    fn list(&mut self, key: &str, counts: HitCounts, weight: u64) {
        let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed);
        self.listed.insert(key.into(), ValueEntry { counts, weight, serial });
    }
}

impl Drop for ValueTable {
    fn drop(&mut self) {
        self.budget.room.fetch_add(self.listed.len(), Ordering::Relaxed);
    }
}

impl Candidates {
    /// Adds hits of a value. Returns its weight: at most its hits since it became a candidate.
    fn add(&mut self, hash: u64, hits: u64) -> u64 {
        self.0.resize(CANDIDATES, (0, 0));
        let slot = self.slot(hash);
        match slot {
            (known, weight) if *known == hash => *weight = weight.saturating_add(hits),
            (_, weight) if *weight >= hits => {
                *weight -= hits;
                return 0;
            }
            (_, weight) => *slot = (hash, hits - *weight),
        }
        slot.1
    }

    fn remove(&mut self, hash: u64) {
        *self.slot(hash) = (0, 0);
    }

    fn slot(&mut self, hash: u64) -> &mut (u64, u64) {
        &mut self.0[hash as usize % CANDIDATES]
    }
}

#[cfg(test)]
mod tests;
