//! Nodes that tell each other afterwards: a hit passes if it fits with what its node knew.
//!
//! What a node knew can be seen from outside: everything that it admitted itself, and of each other
//! node what that had told before the last answer that this one heard. So a hit that does not fit
//! with that is a mistake; and what a node did not know is what the others admitted between two of
//! their calls and two of its own. How far that is apart is judged too.

use super::Case;
use super::allowance::{gone_before, synced_by};
use crate::net::Synced;
use crate::scenario::{Fault, LimitPlan, Policy};
use crate::world::Hit;

/// What is judged.
struct Window<'a> {
    count: u64,
    per_us: u64,
    /// Whether the window before counts too, less and less.
    slides: bool,
    /// Nobody knows the store's time better than this: within it of its ends, nobody can tell which
    /// window it is.
    edge_us: u64,
    syncs: Vec<&'a Synced>,
    forgot: Vec<Forgot>,
    admitted: Vec<Hit>,
    /// When the store was first told of each.
    synced_us: Vec<u64>,
}

/// What a store has forgotten: what was written from a moment to another, until it was told again
/// by those who are still there.
struct Forgot {
    since_us: u64,
    at_us: u64,
    synced_us: u64,
    gone: Vec<u64>,
}

/// What was heard is believed for so long at least.
const GOOD_MIN_MS: u64 = 50;

/// What is wrong, if anything is.
pub(super) fn judge(case: &Case<'_>, limit: LimitPlan, sync_ms: u64) -> Option<String> {
    let (count, per_us, slides) = match limit {
        LimitPlan::Window { count, per_ms } => (count, per_ms * 1_000, false),
        LimitPlan::Sliding { count, per_ms } => (count, per_ms * 1_000, true),
        LimitPlan::Bucket { .. } => return None,
    };
    let first = case.hits.first()?;
    let key = format!("{{sim|rule{}=who{}}}:e", first.rule, first.identity);
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
        edge_us: case.scenario.timeout_ms * 1_000 + 3_000,
        syncs: case.history.syncs.iter().filter(is_its).collect(),
        forgot: forgot.collect(),
        admitted: case.admitted(),
        synced_us: Vec::new(),
    };
    window.synced_us = window.admitted.iter().map(|hit| window.first_synced(hit)).collect();
    // A node that cannot ask and admits its share knows nothing of others.
    if case.plan.policy == Policy::Local && !case.scenario.is_calm() {
        return None;
    }
    let apart_us = sync_ms.max(GOOD_MIN_MS) * 1_000 + window.edge_us + 2_000;
    // Told twice in an interval, and believed for one, by calls that take so long at most.
    let calls_us = (4 * case.scenario.trouble.conditions.delay_ms + 6) * 1_000;
    let bound_us = case
        .scenario
        .is_calm()
        .then_some((sync_ms.max(GOOD_MIN_MS) + sync_ms / 2) * 1_000 + calls_us);
    let judged = window.admitted.iter().enumerate();
    judged.into_iter().find_map(|(index, hit)| {
        window
            .is_too_many(index, hit)
            .or_else(|| window.is_too_late(hit, apart_us))
            .or_else(|| window.is_beyond(index, hit, bound_us?))
    })
}

impl Window<'_> {
    /// Whether a hit does not fit with what its node knew.
    fn is_too_many(&self, index: usize, hit: &Hit) -> Option<String> {
        let window = self.of(hit)?;
        // What arrives in the same millisecond may be read after it.
        let received = self.received(hit, hit.requested_us - 1_000).map_or(0, |sync| sync.done_us);
        let knew = |at: usize, other: &Hit| {
            let is_synced = self.synced_us[at] <= received;
            other.process == hit.process
                || is_synced
                    && (self.forgot.is_empty() || self.was_synced(other, received, hit.answered_us))
        };
        // What was answered before the last window but one does not matter.
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

    /// Whether a hit passed although its node had not heard anything for long.
    fn is_too_late(&self, hit: &Hit, apart_us: u64) -> Option<String> {
        let begin = hit.answered_us / self.per_us * self.per_us;
        if hit.answered_us < begin + apart_us {
            return None;
        }
        // If it had to ask first, it knows that.
        let received = self.received(hit, hit.answered_us).map_or(0, |sync| sync.done_us);
        (received + apart_us < hit.answered_us).then(|| {
            let at = hit.answered_us;
            format!("a hit passed at {at}, when its node knew how things stood at {received}")
        })
    }

    /// Whether a hit does not fit with what others admitted longer ago than an interval and a half
    /// and the time of a call: what is promised.
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

    /// In which window a hit was for certain.
    fn of(&self, hit: &Hit) -> Option<u64> {
        let (from, to) = (hit.requested_us - self.edge_us, hit.answered_us + self.edge_us);
        (from / self.per_us == to / self.per_us).then_some(to / self.per_us)
    }

    /// The last call that the hit's node had heard the answer of at a moment.
    fn received(&self, hit: &Hit, by_us: u64) -> Option<&Synced> {
        let its = self.syncs.iter().filter(|sync| sync.process == hit.process);
        let received = its.filter(|sync| sync.received_us.is_some_and(|at| at <= by_us));
        received.max_by_key(|sync| sync.done_us).copied()
    }

    /// When the store was first told of a hit.
    fn first_synced(&self, hit: &Hit) -> u64 {
        let its = self.syncs.iter().filter(|sync| sync.process == hit.process);
        let synced = its.filter(|sync| sync.sent_us >= hit.answered_us).map(|sync| sync.done_us);
        synced.min().unwrap_or(u64::MAX)
    }

    /// Whether the store had been told of a hit at a moment, and had not forgotten it by another.
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
    /// Whether a call that was carried out was forgotten by a moment, and was not yet told again
    /// when it was last asked.
    fn has(&self, sync: &Synced, by_us: u64, now_us: u64) -> bool {
        let was_lost = (self.since_us..self.at_us).contains(&sync.done_us) && self.at_us <= now_us;
        was_lost && (by_us < self.synced_us || self.gone.contains(&sync.process))
    }
}
