//! Observed traffic of a rule, as it is read.

use std::sync::atomic::Ordering;

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::set::{RuleNo, write_readable};

use super::distinct::DistinctUnion;
use super::heavy_hitters::{HeavyHitters, Hitter, IDENTITY_BYTES_MAX};
use super::{
    DISTINCT_SLICE, DISTINCT_SLICES, Sketches, Slices, TOP_GENERATION, TrafficClock, TrafficState,
};
use crate::engine::Snapshot;

/// Traffic of a rule, observed since [`RuleTraffic::observed_since`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTraffic {
    /// When the engine began to observe.
    pub observed_since: Timestamp,
    /// The last hit, to the second; of a rule without hits, none.
    pub last_hit: Option<Timestamp>,
    /// The last denied hit, to the second.
    pub last_denied: Option<Timestamp>,
    /// The last hit that a rule in shadow mode would have denied, to the second.
    pub last_shadow_denied: Option<Timestamp>,
    /// Distinct identities of the last hour.
    pub distinct: DistinctIdentities,
    /// Identities with the most hits of the last minutes.
    pub top: TopIdentities,
}

/// Numbers of distinct identities, with a standard error of
/// [`DISTINCT_STANDARD_ERROR`](super::DISTINCT_STANDARD_ERROR).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DistinctIdentities {
    /// Start of the window: 50 to 60 minutes ago, or when the engine began to observe.
    pub since: Timestamp,
    /// Identities with a hit.
    pub identities: u64,
    /// Identities with a denied hit, also one that was denied in shadow mode.
    pub denied: u64,
}

/// Identities with the most hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopIdentities {
    /// Start of the window: 5 to 10 minutes ago, or when the engine began to observe.
    pub since: Timestamp,
    /// Those with the most hits, the most first.
    pub talkers: Vec<IdentityHits>,
    /// Those with the most denied hits, also denied in shadow mode.
    pub denied: Vec<IdentityHits>,
    /// Hits that the sketch has seen.
    pub hits: u64,
    /// Denied hits that the sketch has seen.
    pub denied_hits: u64,
    /// One request in so many was sampled, at most; 1 if all were.
    pub sample_interval: u32,
    /// Hits that were not seen since the engine began to observe: threads were at the same sketch.
    pub unsketched_hits: u64,
}

/// Hits of one identity. Of the requests that were sampled,
/// `hits - over_estimate <= true hits <= hits`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityHits {
    /// The entries of the identity: `user_id=42|path=/login`. Separators in values are
    /// percent-encoded; values that share a counter are named by their descriptor.
    pub descriptor: String,
    /// Whether the identity is longer than what is stored of it.
    pub is_truncated: bool,
    /// Estimated hits, never too few.
    pub hits: u64,
    /// The part of it that may belong to other identities.
    pub over_estimate: u64,
}

impl Snapshot<'_> {
    /// When the engine began to observe traffic, if it does.
    #[must_use]
    pub fn traffic_observed_since(&self) -> Option<Timestamp> {
        let monitor = self.engine.traffic.as_ref()?;
        Some(Timestamp::from_micros(monitor.clock.began.load(Ordering::Relaxed)))
    }

    /// Hash of an identity, keyed by a secret of the engine; none if it does not observe traffic.
    #[inline]
    #[must_use]
    pub fn traffic_hash(&self, identity: &[u8]) -> Option<u64> {
        Some(self.engine.traffic.as_ref()?.key.hash(identity))
    }

    /// Whether a rule may be observed: `false` if it has no place among
    /// [`RULES_OBSERVED_MAX`](super::RULES_OBSERVED_MAX) rules.
    #[must_use]
    pub fn has_traffic_room(&self, no: RuleNo) -> bool {
        self.rule_state(no).traffic_slot().is_none_or(|slot| slot.is_some())
    }

    /// Observed traffic of a rule; `None` without a hit, or if it is not observed.
    #[must_use]
    pub fn traffic(&self, no: RuleNo) -> Option<RuleTraffic> {
        let monitor = self.engine.traffic.as_ref()?;
        let state = self.rule_state(no).traffic_slot()?.as_deref()?;
        Some(state.read(&monitor.clock))
    }
}

impl TrafficState {
    fn read(&self, clock: &TrafficClock) -> RuleTraffic {
        let time = |micros: u64| (micros > 0).then(|| Timestamp::from_micros(micros));
        let began = clock.began.load(Ordering::Relaxed);
        let slice = clock.slice.load(Ordering::Relaxed);
        let generation = clock.generation.load(Ordering::Relaxed);
        let since = |window: u64, unit: Span| {
            Timestamp::from_micros(window.saturating_mul(unit.as_micros()).max(began))
        };
        let slices_before = DISTINCT_SLICES as u64 - 1;
        RuleTraffic {
            observed_since: Timestamp::from_micros(began),
            last_hit: time(self.last_hit.load(Ordering::Relaxed)),
            last_denied: time(self.last_denied.load(Ordering::Relaxed)),
            last_shadow_denied: time(self.last_shadow_denied.load(Ordering::Relaxed)),
            distinct: DistinctIdentities {
                since: since(slice.saturating_sub(slices_before), DISTINCT_SLICE),
                identities: self.identities.estimate(slice),
                denied: self.denied_identities.estimate(slice),
            },
            top: self.read_top(generation, since(generation.saturating_sub(1), TOP_GENERATION)),
        }
    }

    fn read_top(&self, generation: u64, since: Timestamp) -> TopIdentities {
        let mut top = self.top.lock();
        top.move_to(generation);
        let (current, previous) = (&top.current, &top.previous);
        let merged = |of: fn(&Sketches) -> &HeavyHitters| of(current).merge(of(previous));
        let total = |of: fn(&Sketches) -> &HeavyHitters| {
            of(current).total().saturating_add(of(previous).total())
        };
        let (talkers, denied) = (merged(|one| &one.all), merged(|one| &one.denied));
        let (hits, denied_hits) = (total(|one| &one.all), total(|one| &one.denied));
        let sample_interval = current.interval.max(previous.interval).max(1);
        drop(top);
        TopIdentities {
            since,
            talkers: talkers.into_iter().map(IdentityHits::from).collect(),
            denied: denied.into_iter().map(IdentityHits::from).collect(),
            hits,
            denied_hits,
            sample_interval,
            unsketched_hits: self.unsketched.load(Ordering::Relaxed),
        }
    }
}

impl Slices {
    fn estimate(&self, slice: u64) -> u64 {
        let oldest = slice.saturating_sub(DISTINCT_SLICES as u64 - 1);
        let is_recent = |of: u64| oldest <= of && of <= slice;
        let recent = self.slices.iter().filter(|(of, _)| is_recent(of.load(Ordering::Relaxed)));
        DistinctUnion::of(recent.map(|(_, distinct)| distinct)).estimate()
    }
}

impl HeavyHitters {
    /// The entries with their domains, the heaviest first.
    #[must_use]
    pub fn top(&self) -> Vec<(String, IdentityHits)> {
        self.merge(&Self::default()).into_iter().map(Hitter::read).collect()
    }
}

impl From<Hitter> for IdentityHits {
    fn from(hitter: Hitter) -> Self {
        hitter.read().1
    }
}

impl Hitter {
    /// The domain, and the rest.
    fn read(self) -> (String, IdentityHits) {
        let Self { count, over_estimate, identity, .. } = self;
        let mut text = Vec::new();
        write_readable(&identity, &mut text);
        let text = String::from_utf8_lossy(&text);
        let (domain, entries) = text.split_once('|').unwrap_or((&text, ""));
        let (domain, descriptor) = (domain.to_owned(), entries.to_owned());
        let is_truncated = identity.len() >= IDENTITY_BYTES_MAX;
        (domain, IdentityHits { descriptor, is_truncated, hits: count, over_estimate })
    }
}
