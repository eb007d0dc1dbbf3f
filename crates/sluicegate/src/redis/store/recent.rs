//! What was lately seen in the store, for the case that it forgets.
//!
//! A primary that is lost takes with it what it had not passed on, and one that is started anew may know nothing. Nodes know what they have seen, so they say it again:
//! no less is used of a limit than somebody knows. Whoever has seen less than others changes nothing, and what was given back meanwhile stays given back: each record has an
//! epoch that every gift raises.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_core::account::Account;
use sluicegate_core::time::Timestamp;

use crate::redis::script::Charter;

/// How many identities are remembered at least, if so many came; up to twice as many.
const SEEN_MIN: usize = 32_768;
const PARTS: usize = 16;

/// Those that one answer told of.
pub(super) type Sights = Box<[(Arc<[u8]>, Seen)]>;

/// What was lately seen.
#[derive(Debug, Default)]
pub(super) struct Recent {
    parts: [Mutex<Generations>; PARTS],
}

/// Whoever was not seen for a generation is forgotten with it.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Arc<[u8]>, Seen>,
    old: HashMap<Arc<[u8]>, Seen>,
}

/// An identity as it was last seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) charter: Arc<Charter>,
    pub(super) account: Account,
    pub(super) epoch: u64,
    /// When, by the store's clock.
    pub(super) at: Timestamp,
    /// Which primary it was seen at, as the link counts them.
    pub(super) primary: u64,
}

// === impl Seen ===

impl Seen {
    /// Answers are heard of in any order, and those of one call have one time. Another primary may know less than the one before: what was seen there counts
    /// until it has been told.
    fn update(&mut self, other: Self) {
        let is_same = Arc::ptr_eq(&self.charter, &other.charter);
        if !is_same || other.primary == self.primary && other.at > self.at {
            *self = other;
        } else if other.primary != self.primary || other.at == self.at {
            let at = self.at.max(other.at);
            self.account.reassert(self.charter.steps(), &other.account, at);
            self.epoch = self.epoch.max(other.epoch);
            (self.at, self.primary) = (at, self.primary.max(other.primary));
        }
    }
}

// === impl Recent ===

impl Recent {
    pub(super) fn note(&self, key: Arc<[u8]>, hash: u64, seen: Seen) {
        let mut part = self.parts[hash as usize % PARTS].lock();
        match part.young.get_mut(&key) {
            Some(known) => known.update(seen),
            None => {
                part.young.insert(key, seen);
            }
        }
        if part.young.len() >= SEEN_MIN / PARTS {
            part.old = std::mem::take(&mut part.young);
        }
    }

    /// Everything that is remembered, in the order of its keys.
    pub(super) fn all(&self) -> Vec<(Arc<[u8]>, Seen)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.lock();
            let old = part.old.iter().filter(|(key, _)| !part.young.contains_key(*key));
            all.extend(part.young.iter().chain(old).map(|(key, seen)| (key.clone(), seen.clone())));
        }
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}
