//! Eventual rules: a hit passes if it fits the counts known to its node.
//!
//! The counts known to a node follow from the history: its own admitted hits, and the pushes of
//! each peer before the last response that the node received. A hit that does not fit these is a
//! violation. Unknown to the node are only the peers' hits between two of their pushes and two of
//! its own pulls; the length of that interval is judged too.

use super::Case;
use super::allowance::{gone_before, synced_by};
use crate::net::Synced;
use crate::scenario::{Fault, LimitPlan, Policy};
use crate::world::Hit;

/// The judged window.
struct Window<'a> {
    count: u64,
    per_us: u64,
    /// Whether the previous window counts too, with decreasing weight.
    slides: bool,
    /// Uncertainty of the store's time: this close to its ends the window is ambiguous.
    edge_us: u64,
    syncs: Vec<&'a Synced>,
    forgot: Vec<Forgot>,
    admitted: Vec<Hit>,
    /// Time of the first push of each hit.
    synced_us: Vec<u64>,
}

/// Data loss: writes between two times are lost until the surviving nodes re-push them.
struct Forgot {
    since_us: u64,
    at_us: u64,
    synced_us: u64,
    gone: Vec<u64>,
}

/// Minimum time for which pulled counts are fresh.
const GOOD_MIN_MS: u64 = 50;

/// The first violation, if any.
pub(super) fn judge(case: &Case<'_>, limit: LimitPlan, sync_ms: u64) -> Option<String> {
    let (count, per_us, slides) = match limit {
        LimitPlan::Window { count, per_ms } => (count, per_ms * 1_000, false),
        LimitPlan::Sliding { count, per_ms } => (count, per_ms * 1_000, true),
        LimitPlan::Bucket { .. } => return None,
    };
    let first = case.hits.first()?;
    let key = format!("{{{}}}:e", case.history.keys[first.rule][first.identity]);
    let is_its = |sync: &&Synced| sync.keys.iter().any(|known| known.ends_with(&key));
    let forgot = case.history.faults.iter().filter_map(|(at, fault)| match fault {
        Fault::FailOver(lost_ms) => Some((at.saturating_sub(lost_ms * 1_000), *at)),
        Fault::LoseAll => Some((0, *at)),
        _ => None,
    });
    let forgot = forgot.map(|(since_us, at_us)| {
        let synced_us = synced_by(case, at_us) + sync_ms * 1_000;
        Forgot { since_us, at_us, synced_us, gone: gone_before(case, synced_us) }
    });
    let mut window = Window {
        count,
        per_us,
        slides,
        edge_us: case.scenario.store.timeout_ms * 1_000 + 3_000,
        syncs: case.history.syncs.iter().filter(is_its).collect(),
        forgot: forgot.collect(),
        admitted: case.admitted(),
        synced_us: Vec::new(),
    };
    window.synced_us = window.admitted.iter().map(|hit| window.first_synced(hit)).collect();
    // A partitioned node that admits its share does not know its peers' counts.
    if case.plan.policy == Policy::Local && !case.scenario.is_fault_free() {
        return None;
    }
    let apart_us = sync_ms.max(GOOD_MIN_MS) * 1_000 + window.edge_us + 2_000;
    let bound_us = case.scenario.is_fault_free().then_some(news_us(case, sync_ms));
    let judged = window.admitted.iter().enumerate();
    judged.into_iter().find_map(|(index, hit)| {
        window
            .is_too_many(index, hit)
            .or_else(|| window.is_too_late(hit, apart_us))
            .or_else(|| window.is_beyond(index, hit, bound_us?))
    })
}

/// Age from which a node knows its peers' hits: counts are pushed twice per interval and fresh for
/// one, plus the maximum time of the calls.
pub(super) fn news_us(case: &Case<'_>, sync_ms: u64) -> u64 {
    let latency = case.scenario.store.latency.last().map_or(0, |(_, ms)| *ms);
    let calls_ms = 4 * case.scenario.delay_max_ms() + 2 * latency + 6;
    (sync_ms.max(GOOD_MIN_MS) + sync_ms / 2 + calls_ms) * 1_000
}

impl Window<'_> {
    /// Whether a hit does not fit the counts known to its node.
    fn is_too_many(&self, index: usize, hit: &Hit) -> Option<String> {
        let window = self.of(hit)?;
        // A response in the same millisecond may be processed after the decision.
        let received = self.received(hit, hit.requested_us - 1_000).map_or(0, |sync| sync.done_us);
        let knew = |at: usize, other: &Hit| {
            let is_synced = self.synced_us[at] <= received;
            other.process == hit.process
                || is_synced
                    && (self.forgot.is_empty() || self.was_synced(other, received, hit.answered_us))
        };
        // Hits before the previous window do not matter.
        let from = hit.answered_us.saturating_sub(2 * self.per_us + self.edge_us);
        let recent = self.admitted.partition_point(|other| other.answered_us < from);
        let sum = |window: u64| -> u64 {
            let each = self.admitted[..=index].iter().enumerate().skip(recent);
            let in_it =
                each.filter(|(at, other)| self.of(other) == Some(window) && knew(*at, other));
            in_it.map(|(_, other)| other.cost).sum()
        };
        let (current, before) = (sum(window), if self.slides { sum(window - 1) } else { 0 });
        let left_us = ((window + 1) * self.per_us).saturating_sub(hit.answered_us + self.edge_us);
        let weighed = before * left_us / self.per_us;
        (current + weighed > self.count).then(|| {
            format!(
                "{current} were known to have passed in the window of {}, and {weighed} to count of the one before, when one more passed at {}: it has {}",
                window * self.per_us,
                hit.answered_us,
                self.count
            )
        })
    }

    /// Whether a hit passed on stale counts.
    fn is_too_late(&self, hit: &Hit, apart_us: u64) -> Option<String> {
        let begin = hit.answered_us / self.per_us * self.per_us;
        if hit.answered_us < begin + apart_us {
            return None;
        }
        // A pull before the decision is included.
        let received = self.received(hit, hit.answered_us).map_or(0, |sync| sync.done_us);
        (received + apart_us < hit.answered_us).then(|| {
            let at = hit.answered_us;
            format!("a hit passed at {at}, when its node knew how things stood at {received}")
        })
    }

    /// Whether a hit does not fit the peers' hits older than one and a half intervals plus the time
    /// of a call: the documented bound.
    fn is_beyond(&self, index: usize, hit: &Hit, bound_us: u64) -> Option<String> {
        let window = self.of(hit).filter(|_| !self.slides)?;
        let counts = |other: &&Hit| {
            let is_old = other.answered_us + bound_us < hit.requested_us;
            self.of(other) == Some(window) && (is_old || other.process == hit.process)
        };
        let sum: u64 = self.admitted[..=index].iter().filter(counts).map(|hit| hit.cost).sum();
        (sum > self.count).then(|| {
            let (at, count) = (hit.answered_us, self.count);
            format!("with the hit at {at}, {sum} had passed in its window that were no news: it has {count}")
        })
    }

    /// The window of a hit, unless ambiguous.
    fn of(&self, hit: &Hit) -> Option<u64> {
        let (from, to) = (hit.requested_us - self.edge_us, hit.answered_us + self.edge_us);
        (from / self.per_us == to / self.per_us).then_some(to / self.per_us)
    }

    /// The last sync call whose response the hit's node had received by a time.
    fn received(&self, hit: &Hit, by_us: u64) -> Option<&Synced> {
        let its = self.syncs.iter().filter(|sync| sync.process == hit.process);
        let received = its.filter(|sync| sync.received_us.is_some_and(|at| at <= by_us));
        received.max_by_key(|sync| sync.done_us).copied()
    }

    /// Time of the first push of a hit.
    fn first_synced(&self, hit: &Hit) -> u64 {
        let its = self.syncs.iter().filter(|sync| sync.process == hit.process);
        let synced = its.filter(|sync| sync.sent_us >= hit.answered_us).map(|sync| sync.done_us);
        synced.min().unwrap_or(u64::MAX)
    }

    /// Whether a hit had been pushed by one time and not lost by another.
    fn was_synced(&self, hit: &Hit, by_us: u64, now_us: u64) -> bool {
        self.syncs.iter().any(|sync| {
            sync.process == hit.process
                && sync.sent_us >= hit.answered_us
                && sync.done_us <= by_us
                && !self.forgot.iter().any(|forgot| forgot.has(sync, by_us, now_us))
        })
    }
}

impl Forgot {
    /// Whether a sync call was lost by `now_us`, and not re-pushed by `by_us`.
    fn has(&self, sync: &Synced, by_us: u64, now_us: u64) -> bool {
        let was_lost = (self.since_us..self.at_us).contains(&sync.done_us) && self.at_us <= now_us;
        was_lost && (by_us < self.synced_us || self.gone.contains(&sync.process))
    }
}
