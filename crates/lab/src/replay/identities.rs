//! Requests of a rule by identity: exact for the first ones, up to a bound; of those that come
//! later, the ones that are denied most, by SpaceSaving.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use sluicegate::{HeavyHitters, IdentityHits};
use sluicegate_core::time::Timestamp;

use super::verdict::ReplayVerdict;

/// Identities that are counted exactly, by default, of all rules together.
pub const IDENTITIES_MAX: usize = 1_000_000;

/// Identities of a rule.
#[derive(Debug, Default)]
pub struct IdentityTable {
    exact: HashMap<Box<[u8]>, IdentityTally, RandomState>,
    /// Denied requests of the others: a sketch of each shard, whose identities differ.
    others_denied: Vec<HeavyHitters>,
    others: OtherIdentities,
}

/// Requests of identities that are not counted exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OtherIdentities {
    /// Their requests.
    pub requests: u64,
    /// Those that are denied, or would be.
    pub denied: u64,
}

/// Requests of an identity under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdentityTally {
    /// All.
    pub requests: u64,
    /// Their cost.
    pub hits: u64,
    /// Denied ones.
    pub denied: u64,
    /// Those that the rule would deny, were it not in shadow mode.
    pub shadow_denied: u64,
    /// Those that wait.
    pub delayed: u64,
    /// The first that is denied, or would be.
    pub first_denied: Option<Timestamp>,
    /// The last one.
    pub last_denied: Option<Timestamp>,
    /// The most hits within one second of the clock.
    pub peak: u64,
    second: u64,
    in_second: u64,
}

impl IdentityTally {
    /// Counts a request.
    #[inline]
    pub(super) fn add(&mut self, at: Timestamp, cost: u64, verdict: ReplayVerdict) {
        self.requests += 1;
        self.hits = self.hits.saturating_add(cost);
        let second = at.as_micros() / 1_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second = self.in_second.saturating_add(cost);
        self.peak = self.peak.max(self.in_second);
        match verdict {
            ReplayVerdict::Allowed => return,
            ReplayVerdict::Delayed => {
                self.delayed += 1;
                return;
            }
            ReplayVerdict::ShadowDenied => self.shadow_denied += 1,
            ReplayVerdict::Denied => self.denied += 1,
        }
        self.first_denied.get_or_insert(at);
        self.last_denied = Some(at);
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.hits = self.hits.saturating_add(other.hits);
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
        self.delayed += other.delayed;
        self.first_denied = self.first_denied.into_iter().chain(other.first_denied).min();
        self.last_denied = self.last_denied.max(other.last_denied);
        self.peak = self.peak.max(other.peak);
    }

    /// Requests that are denied, or would be.
    #[must_use]
    pub const fn all_denied(&self) -> u64 {
        self.denied + self.shadow_denied
    }
}

impl IdentityTable {
    /// Counts a request; whether its identity is a new one that is counted exactly.
    #[inline]
    pub(super) fn add(
        &mut self,
        identity: &[u8],
        (at, cost): (Timestamp, u64),
        verdict: ReplayVerdict,
        has_room: bool,
    ) -> bool {
        if let Some(tally) = self.exact.get_mut(identity) {
            tally.add(at, cost, verdict);
            return false;
        }
        if has_room {
            let mut tally = IdentityTally::default();
            tally.add(at, cost, verdict);
            self.exact.insert(identity.into(), tally);
            return true;
        }
        self.others.requests += 1;
        if matches!(verdict, ReplayVerdict::Denied | ReplayVerdict::ShadowDenied) {
            self.others.denied += 1;
            if self.others_denied.is_empty() {
                self.others_denied.push(HeavyHitters::default());
            }
            let hash = self.exact.hasher().hash_one(identity);
            self.others_denied[0].add(hash, identity, 1);
        }
        false
    }

    /// Adds the identities of another shard, which has others.
    pub(super) fn merge(&mut self, other: Self) {
        for (identity, tally) in other.exact {
            self.exact.entry(identity).or_default().merge(tally);
        }
        self.others.requests += other.others.requests;
        self.others.denied += other.others.denied;
        self.others_denied.extend(other.others_denied);
    }

    /// Number of identities that are counted exactly.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
    }

    /// The exactly counted ones with a denial.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.exact.values().filter(|tally| tally.all_denied() > 0).count() as u64
    }

    /// The exactly counted ones that are worst off: by denied requests, then by those that wait,
    /// then by hits.
    #[must_use]
    pub fn worst(&self, count: usize) -> Vec<(&[u8], &IdentityTally)> {
        let rank = |(identity, tally): &(&[u8], &IdentityTally)| {
            let key = (tally.all_denied(), tally.delayed, tally.hits);
            (std::cmp::Reverse(key), identity.to_vec())
        };
        let mut all: Vec<_> = self.exact.iter().map(|(key, tally)| (&**key, tally)).collect();
        if all.len() > count && count > 0 {
            all.select_nth_unstable_by_key(count - 1, |one| rank(one));
        }
        all.truncate(count);
        all.sort_by_key(|one| rank(one));
        all
    }

    /// Requests of the others.
    #[must_use]
    pub const fn others(&self) -> OtherIdentities {
        self.others
    }

    /// The others with the most denied requests.
    #[must_use]
    pub fn others_denied(&self) -> Vec<IdentityHits> {
        let all = self.others_denied.iter().flat_map(HeavyHitters::top);
        let mut all: Vec<_> = all.map(|(_, hits)| hits).collect();
        all.sort_by_key(|one| std::cmp::Reverse((one.hits - one.over_estimate, one.hits)));
        all
    }
}
