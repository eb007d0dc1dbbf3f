//! Series of rules: hits by outcome in steps of 10 seconds, for the last hour.
//!
//! A rule is observed from when it is first seen, and anew when its limits change: figures of other
//! limits say nothing about these. Of [`TRACKED_MAX`] rules the totals are tracked, and of the
//! first [`SERIES_MAX`] with traffic also the series: at most 8 MB.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Snapshot, Span, Stats, Timestamp};

/// Maximum number of rules whose totals are tracked.
pub const TRACKED_MAX: usize = 10_000;
/// Maximum number of rules with a series.
pub const SERIES_MAX: usize = sluicegate::RULES_OBSERVED_MAX;
/// Length of a step.
pub const STEP: Span = Span::from_secs(10);
/// Steps of a series.
pub const STEPS_MAX: usize = 360;

/// Tracked rules.
#[derive(Debug, Default)]
pub struct RuleTable {
    hasher: RandomState,
    digest: Option<u64>,
    /// The keys of the active rules, by number.
    keys: Vec<u64>,
    rules: HashMap<u64, TrackedRule>,
    last_step: Option<Timestamp>,
    with_series: usize,
}

/// A rule, and its hits over time.
#[derive(Debug, Default)]
pub struct TrackedRule {
    /// When these limits were first seen.
    pub since: Timestamp,
    /// Hits before that.
    before: Stats,
    last: Stats,
    config: u64,
    /// The last hour; empty if it has no series.
    pub points: VecDeque<RulePoint>,
    has_series: bool,
}

/// Hits under a rule in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulePoint {
    /// Start of the step.
    pub from: Timestamp,
    /// End of the step.
    pub to: Timestamp,
    /// Its hits.
    pub hits: RuleHits,
}

/// Hits under a rule. A hit counts as often as it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleHits {
    /// All hits.
    pub hits: u64,
    /// Denied hits.
    pub denied: u64,
    /// Hits that a rule in shadow mode would have denied.
    pub shadow_denied: u64,
    /// Admitted hits near the limit.
    pub near_limit: u64,
}

impl RuleTable {
    /// Adds a step if one has ended.
    pub(crate) fn tick(&mut self, rules: &Snapshot<'_>, now: Timestamp) {
        self.follow(rules, now);
        let from = *self.last_step.get_or_insert(now);
        if now.since(from) < STEP {
            return;
        }
        self.last_step = Some(now);
        for (no, key) in rules.rules().rules().zip(&self.keys) {
            let Some(rule) = self.rules.get_mut(key) else { continue };
            let stats = rules.stats(no);
            let hits = RuleHits::between(&rule.last, &stats);
            rule.last = stats;
            if !rule.has_series && hits != RuleHits::default() && self.with_series < SERIES_MAX {
                rule.has_series = true;
                self.with_series += 1;
            }
            if rule.has_series {
                if rule.points.len() >= STEPS_MAX {
                    rule.points.pop_front();
                }
                rule.points.push_back(RulePoint { from: from.max(rule.since), to: now, hits });
            }
        }
    }

    /// Compares the active rules with the tracked ones, if they have changed.
    fn follow(&mut self, rules: &Snapshot<'_>, now: Timestamp) {
        let set = rules.rules();
        // Depends on the order of the domains, as the numbers of rules do.
        let mix = |digest: u64, (_, of): (&str, u64)| digest.rotate_left(7) ^ of;
        let digest = set.domain_digests().fold(0, mix);
        if self.digest.replace(digest) == Some(digest) && self.keys.len() == set.rules().len() {
            return;
        }
        let mut before = std::mem::take(&mut self.rules);
        self.keys = set.rules().map(|no| self.hasher.hash_one(set.stable_key(no))).collect();
        for (no, key) in set.rules().zip(&self.keys).take(TRACKED_MAX) {
            let config = self.hasher.hash_one(format!("{:?}", set.rule(no)));
            let tracked = before.remove(key).filter(|rule| rule.config == config);
            let tracked = tracked.unwrap_or_else(|| {
                let stats = rules.stats(no);
                TrackedRule { since: now, before: stats, last: stats, config, ..Default::default() }
            });
            self.rules.insert(*key, tracked);
        }
        self.with_series = self.rules.values().filter(|rule| rule.has_series).count();
    }

    /// A rule of the active set, if it is tracked.
    #[must_use]
    pub fn get(&self, rules: &RuleSet, no: RuleNo) -> Option<&TrackedRule> {
        // Not by number: a reload may be newer than the last tick.
        self.rules.get(&self.hasher.hash_one(rules.stable_key(no)))
    }

    /// Number of tracked rules.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.rules.len()
    }
}

impl TrackedRule {
    /// Hits since these limits were first seen.
    #[must_use]
    pub fn total(&self, stats: &Stats) -> RuleHits {
        RuleHits::between(&self.before, stats)
    }

    /// Hits of the last hour up to this moment, under these limits, and the start of that time.
    /// Without a series they are known only if there were none.
    #[must_use]
    pub fn last_hour(&self, stats: &Stats, now: Timestamp) -> Option<(RuleHits, Timestamp)> {
        let hour = Span::from_secs(STEPS_MAX as u64 * 10);
        let start = now.before(hour).max(self.since);
        if !self.has_series {
            let total = self.total(stats);
            return (total == RuleHits::default() || start == self.since).then_some((total, start));
        }
        let mut sum = RuleHits::between(&self.last, stats);
        for point in self.points.iter().filter(|point| point.from >= start) {
            sum.add(point.hits);
        }
        Some((sum, start))
    }
}

impl RuleHits {
    fn between(before: &Stats, after: &Stats) -> Self {
        // A rule that was removed and is there again counts from zero.
        let is_new = after.total_hits < before.total_hits;
        let before = if is_new { Stats::default() } else { *before };
        let since = |of: fn(&Stats) -> u64| of(after).saturating_sub(of(&before));
        let (over, shadow_denied) = (since(|one| one.over_limit), since(|one| one.shadow_mode));
        Self {
            hits: since(|one| one.total_hits),
            denied: over.saturating_sub(shadow_denied),
            shadow_denied,
            near_limit: since(|one| one.near_limit),
        }
    }

    fn add(&mut self, other: Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow_denied = self.shadow_denied.saturating_add(other.shadow_denied);
        self.near_limit = self.near_limit.saturating_add(other.near_limit);
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::clock::ManualClock;
    use sluicegate::rules::request::{Descriptor, Entry, Request};
    use sluicegate::{Engine, rules_of};

    use super::*;

    const NOON: u64 = 1_794_744_000;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros((NOON + second) * 1_000_000)
    }

    fn rules(per_year: u32) -> RuleSet {
        let user =
            format!("{{ key: user, rate_limit: {{ unit: year, requests_per_unit: {per_year} }} }}");
        let path = "{ key: path, rate_limit: { unit: year, requests_per_unit: 5 } }";
        rules_of(&format!("{{ domain: shop, descriptors: [{user}, {path}] }}")).unwrap()
    }

    fn hit(engine: &Engine, times: u32) {
        let entries = [Entry::new("user", "alice")];
        let descriptors = [Descriptor::of(&entries)];
        for _ in 0..times {
            let _ = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
        }
    }

    /// Figures of the last hour: hits, denied hits, and the seconds after noon that it began.
    fn last_hour(table: &RuleTable, engine: &Engine, key: &str) -> (u64, u64, u64) {
        let rules = engine.snapshot();
        let no = rules.rules().rules().find(|no| rules.rules().id(*no) == key).unwrap();
        let rule = table.get(rules.rules(), no).unwrap();
        let (hits, since) = rule.last_hour(&rules.stats(no), engine.now()).unwrap();
        (hits.hits, hits.denied, since.since(at(0)).as_micros() / 1_000_000)
    }

    #[test]
    fn the_last_hour_is_shown_and_the_hits_since_the_last_step() {
        let clock = ManualClock::at(at(0));
        let engine = Engine::builder(rules(4)).clock(clock.clone()).build().unwrap();
        let mut table = RuleTable::default();
        for second in 0..7_200 {
            clock.set(at(second));
            table.tick(&engine.snapshot(), at(second));
            if matches!(second, 5 | 3_600) {
                hit(&engine, 3);
            }
            let user = last_hour(&table, &engine, "shop/user");
            match second {
                0..5 => assert_eq!(user, (0, 0, 0)),
                5..3_600 => assert_eq!(user, (3, 0, 0), "at {second}"),
                3_600 => assert_eq!(user, (6, 2, 0)),
                3_611..7_200 => assert_eq!(user, (3, 2, second - 3_600), "at {second}"),
                _ => {}
            }
            assert_eq!(last_hour(&table, &engine, "shop/path").0, 0);
        }
        let rules = engine.snapshot();
        let no = rules.rules().rules().next().unwrap();
        assert_eq!(table.get(rules.rules(), no).unwrap().points.len(), STEPS_MAX);
    }

    #[test]
    fn a_rule_with_other_limits_is_observed_anew() {
        let clock = ManualClock::at(at(0));
        let engine = Engine::builder(rules(4)).clock(clock.clone()).build().unwrap();
        let mut table = RuleTable::default();
        table.tick(&engine.snapshot(), at(0));
        hit(&engine, 6);
        clock.set(at(20));
        table.tick(&engine.snapshot(), at(20));
        engine.reload(rules(9)).unwrap();
        clock.set(at(40));
        table.tick(&engine.snapshot(), at(40));
        assert_eq!(last_hour(&table, &engine, "shop/user"), (0, 0, 40));
        assert_eq!(last_hour(&table, &engine, "shop/path"), (0, 0, 0), "the same rule");
        hit(&engine, 4);
        assert_eq!(last_hour(&table, &engine, "shop/user"), (4, 1, 40));
        assert_eq!(table.tracked(), 2);
    }
}
