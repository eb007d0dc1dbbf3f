//! Usage since the last write: a row for each hour, rule and identity, up to a maximum.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sluicegate::{MeteredUsage, UsageKind, descriptor_text};

use super::HOUR;

/// Parts with a lock each.
const SHARDS: usize = 16;

/// The rows of all identities.
#[derive(Debug)]
pub(super) struct UsageTable {
    shards: [Mutex<HashMap<(u64, usize), RuleUsage>>; SHARDS],
    hasher: RandomState,
    identities_max: usize,
    identities: AtomicUsize,
    others: AtomicU64,
}

/// Rows of one rule and hour.
#[derive(Debug)]
struct RuleUsage {
    rule: Arc<RuleName>,
    identities: HashMap<Box<[u8]>, Amounts>,
    /// Of the identities beyond the maximum.
    other: Option<Amounts>,
}

#[derive(Debug)]
struct RuleName {
    domain: String,
    rule: String,
    pool: Option<String>,
}

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Amounts {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) refunded: u64,
    /// Microseconds since 1970, of the first and the last record.
    #[serde(with = "super::file::time")]
    pub(crate) first: u64,
    #[serde(with = "super::file::time")]
    pub(crate) last: u64,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsageRow {
    /// Microseconds since 1970 at its begin.
    #[serde(with = "super::file::time")]
    pub(crate) hour: u64,
    pub(crate) domain: String,
    pub(crate) rule: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// The identity; none for those beyond the maximum.
    pub(crate) descriptor: Option<String>,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
}

impl UsageTable {
    pub(super) fn new(identities_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            identities_max,
            identities: AtomicUsize::new(0),
            others: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self, usage: &MeteredUsage<'_>) {
        let at = usage.at.as_micros();
        let amounts = Amounts::of(usage.kind, usage.cost, at);
        let shard = self.hasher.hash_one(usage.identity) as usize % SHARDS;
        let mut rules = self.shards[shard].lock();
        let rule = rules.entry((at / HOUR, usage.rule_serial)).or_insert_with(|| RuleUsage {
            rule: Arc::new(RuleName {
                domain: usage.domain().to_owned(),
                rule: usage.rule_id(),
                pool: usage.pool().map(str::to_owned),
            }),
            identities: HashMap::new(),
            other: None,
        });
        if let Some(known) = rule.identities.get_mut(usage.identity) {
            known.add(&amounts);
        } else if self.identities.fetch_add(1, Ordering::Relaxed) < self.identities_max {
            rule.identities.insert(usage.identity.into(), amounts);
        } else {
            self.identities.fetch_sub(1, Ordering::Relaxed);
            self.others.fetch_add(1, Ordering::Relaxed);
            rule.other
                .get_or_insert_with(|| Amounts { first: at, ..Amounts::default() })
                .add(&amounts);
        }
    }

    /// Takes all rows.
    pub(super) fn take(&self) -> Vec<UsageRow> {
        let mut rows = Vec::new();
        for shard in &self.shards {
            let taken = std::mem::take(&mut *shard.lock());
            let identities = taken.values().map(|rule| rule.identities.len()).sum();
            self.identities.fetch_sub(identities, Ordering::Relaxed);
            taken.iter().for_each(|(key, rule)| rule.each(*key, &mut |row| rows.push(row)));
        }
        rows.sort_by(|a, b| (a.hour, &a.rule).cmp(&(b.hour, &b.rule)));
        rows
    }

    /// Shows all rows.
    pub(super) fn each(&self, mut show: impl FnMut(UsageRow)) {
        for shard in &self.shards {
            shard.lock().iter().for_each(|(key, rule)| rule.each(*key, &mut show));
        }
    }

    pub(super) fn identities(&self) -> usize {
        self.identities.load(Ordering::Relaxed)
    }

    pub(super) fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }
}

impl RuleUsage {
    fn each(&self, (hour, _): (u64, usize), show: &mut dyn FnMut(UsageRow)) {
        let row = |descriptor, amounts: &Amounts| UsageRow {
            hour: hour * HOUR,
            domain: self.rule.domain.clone(),
            rule: self.rule.rule.clone(),
            pool: self.rule.pool.clone(),
            descriptor,
            amounts: *amounts,
        };
        for (identity, amounts) in &self.identities {
            show(row(Some(descriptor_text(identity)), amounts));
        }
        if let Some(other) = &self.other {
            show(row(None, other));
        }
    }
}

impl Amounts {
    fn of(kind: UsageKind, cost: u64, at: u64) -> Self {
        let none = Self { first: at, last: at, ..Self::default() };
        match kind {
            UsageKind::Admitted => Self { admitted: cost, ..none },
            UsageKind::Denied => Self { denied: cost, ..none },
            UsageKind::Refunded => Self { refunded: cost, ..none },
        }
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: &Self) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.denied = self.denied.saturating_add(other.denied);
        self.refunded = self.refunded.saturating_add(other.refunded);
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}
