//! Replica of one key's counts: those of this node, and the peers' as last pulled. No clock and no
//! I/O: times are ticks; payloads and replies are handed in and out.

use std::sync::Arc;

use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Verdict};

use super::decide::{self, LocalOp};
use super::overshoot::Overshoot;
use super::series::Series;
use super::store_time::StoreTime;
use sluicegate::backend::{ResolvedRule, Rule};

use crate::script::RuleScripts;
use crate::script::{SeriesCounts, SyncOp, SyncReply};

/// Shortest time for which a pull stays fresh, regardless of the interval.
const FRESH_MIN: Span = Span::from_millis(50);
/// Syncs for which an admission is exposed: each node syncs twice per interval. Peers receive the
/// admission within one interval, and this node receives their concurrent admissions within
/// another.
const SYNCS: usize = 4;

/// Counts of one identity, and the rule that decides by them.
#[derive(Debug)]
pub(super) struct KeyReplica {
    rule: Arc<Rule>,
    plan: Option<Arc<ResolvedRule>>,
    series: Box<[Series]>,
    /// Index of the series in which each limit counts.
    series_index: Box<[Option<u8>]>,
    epoch: u64,
    time: Option<StoreTime>,
    last: Option<LastReply>,
    /// Sync interval of the last hit.
    interval: Span,
    /// Increase of the peers' counts in each of the last syncs, and the tick of the newest.
    peer_increases: [u64; SYNCS],
    last_sync: Timestamp,
    /// Syncs left in which an increase of the peers matters, after an own admission.
    exposed_syncs: usize,
    /// Windows that began before this time had other limits.
    limits_since: Timestamp,
    /// Last observed excess of a window over its limit.
    excess: u64,
    /// Number of changes of the own counts, and how many of them the store has.
    version: u64,
    pushed_version: u64,
    #[cfg(test)]
    moment: Timestamp,
}

/// The last reply: the store's time, and the tick of its arrival.
#[derive(Debug, Clone, Copy)]
struct LastReply {
    at: Timestamp,
    received: Timestamp,
}

/// What to send to the store, and the version of the counts.
#[derive(Debug)]
pub(super) struct SyncPayload {
    pub(super) op: SyncOp,
    pub(super) epoch: u64,
    pub(super) counted: Vec<SeriesCounts>,
    pub(super) version: u64,
}

/// Whether all limits can be counted per window: clock-aligned, calendar or sliding windows.
#[inline]
pub(super) fn supports(rule: &Rule) -> bool {
    // Cached, as every request needs it.
    *rule
        .extension()
        .get_or_init(RuleScripts::default)
        .is_exchangeable
        .get_or_init(|| rule.mode == Mode::Hard && rule.limits.iter().all(Series::supports))
}

impl KeyReplica {
    /// A replica without counts.
    pub(super) fn new(rule: &Arc<Rule>) -> Self {
        let (series, series_index) = build_series(rule);
        Self {
            rule: rule.clone(),
            plan: None,
            series,
            series_index,
            epoch: 0,
            time: None,
            last: None,
            interval: Span::ZERO,
            peer_increases: [0; SYNCS],
            last_sync: Timestamp::EPOCH,
            exposed_syncs: 0,
            limits_since: Timestamp::EPOCH,
            excess: 0,
            version: 0,
            pushed_version: 0,
            #[cfg(test)]
            moment: Timestamp::EPOCH,
        }
    }

    /// Decides a hit and counts it if it is admitted; `None` if the view is stale.
    #[inline]
    pub(super) fn hit(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.advance(rule, tick)?;
        if !self.is_fresh(interval, now, tick) {
            return None;
        }
        self.interval = interval;
        let verdict = self.decide(LocalOp::Hit(cost), now);
        if verdict.is_allowed() && cost > 0 {
            self.charge(cost);
        }
        Some(verdict)
    }

    /// Decides without counting.
    pub(super) fn peek(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.advance(rule, tick)?;
        self.is_fresh(interval, now, tick).then(|| self.decide(LocalOp::Peek(cost), now))
    }

    /// Counts a hit that was admitted without a decision here, while peers were unreachable.
    pub(super) fn record(&mut self, rule: &Arc<Rule>, cost: u64, tick: Timestamp) {
        if self.advance(rule, tick).is_some() && cost > 0 {
            self.charge(cost);
        }
    }

    #[inline]
    fn charge(&mut self, cost: u64) {
        self.series.iter_mut().for_each(|series| series.charge(cost));
        self.version += 1;
        self.exposed_syncs = SYNCS;
    }

    /// Largest own count in the current windows.
    pub(super) fn own_count(&mut self, rule: &Arc<Rule>, tick: Timestamp) -> u64 {
        if self.advance(rule, tick).is_none() {
            return 0;
        }
        self.series.iter().map(Series::own).max().unwrap_or(0)
    }

    /// Decision of each limit on its own; `None` if the view is stale.
    pub(super) fn decide_each(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Vec<Decision>> {
        let now = self.advance(rule, tick)?;
        let plan = self.plan.as_ref().filter(|_| self.is_fresh(interval, now, tick))?;
        Some(decide::decide_each(&plan.steps, &self.series_index, &self.series, cost, now))
    }

    /// Refunds a cost. Returns the verdict after it; `None` if the store's time is unknown.
    pub(super) fn refund(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.advance(rule, tick)?;
        let mut any = false;
        for series in &mut self.series {
            any |= series.refund(cost);
        }
        self.version += u64::from(any);
        Some(self.decide(LocalOp::Peek(0), now))
    }

    /// Upper bound of the hits above the limit, if the peers continue as in the last syncs.
    #[inline]
    pub(super) fn overshoot_bound(&self) -> u64 {
        self.peer_increases.iter().fold(0, |sum, increase| sum.saturating_add(*increase))
    }

    /// Whether the store lacks counts that still matter.
    pub(super) fn has_unpushed(&self, tick: Timestamp) -> bool {
        self.version != self.pushed_version && !self.is_expired(tick)
    }

    /// Marks everything as not pushed, after the store may have lost data.
    pub(super) fn mark_unpushed(&mut self) {
        // Also a call in flight may have reached the server that lost it.
        self.version += 1;
    }

    /// Whether all counts have expired.
    pub(super) fn is_expired(&self, tick: Timestamp) -> bool {
        let Some(time) = self.time else { return true };
        let now = time.earliest(tick);
        self.series.iter().all(|series| series.expires_at() <= now || !series.has_counts())
    }

    /// The next push, or a pull if there is nothing to push.
    pub(super) fn sync_payload(&mut self, tick: Timestamp) -> SyncPayload {
        let rule = self.rule.clone();
        let op = match self.advance(&rule, tick) {
            // The own counts are restored before anything is counted.
            None => SyncOp::PullAll,
            Some(_) if self.series.iter().any(Series::has_counts) => SyncOp::Push,
            Some(_) => SyncOp::Pull,
        };
        let counted = match op {
            SyncOp::PullAll => Vec::new(),
            _ => self.series.iter().map(Series::counts).collect(),
        };
        SyncPayload { op, epoch: self.epoch, counted, version: self.version }
    }

    /// The payload that resets the counts of all nodes.
    pub(super) fn reset_payload(&self) -> SyncPayload {
        let counted = self.series.iter().map(Series::zero_counts).collect();
        SyncPayload { op: SyncOp::Reset, epoch: self.epoch, counted, version: self.version }
    }

    /// Merges a reply. Returns the overshoot that it reveals.
    pub(super) fn merge(
        &mut self,
        reply: &SyncReply,
        version: u64,
        (sent, tick): (Timestamp, Timestamp),
    ) -> Overshoot {
        // Ignores a reply older than the last one, if it was requested before that arrived.
        if self.last.is_some_and(|last| reply.at < last.at && sent < last.received) {
            return Overshoot::default();
        }
        let observed = StoreTime::from_reply(reply.at, sent, tick);
        self.time = Some(self.time.map_or(observed, |time| time.narrow(observed)));
        let is_first = self.last.is_none();
        self.last = Some(LastReply { at: reply.at, received: tick });
        if reply.epoch > self.epoch {
            self.epoch = reply.epoch;
            self.series.iter_mut().for_each(Series::clear);
            self.pushed_version = self.version;
        }
        if reply.epoch < self.epoch {
            return Overshoot::default();
        }
        self.pushed_version = self.pushed_version.max(version);
        if is_first {
            self.restore_own(&reply.own);
        }
        let increase = self.merge_peers(reply);
        self.record_increase(if is_first { 0 } else { increase }, tick);
        let rule = self.rule.clone();
        let excess = self.advance(&rule, tick).map_or(0, |_| self.excess());
        let before = std::mem::replace(&mut self.excess, excess);
        // An excess is reported once, together with the bound.
        Overshoot {
            bound: self.overshoot_bound(),
            observed: if excess > before { excess } else { 0 },
        }
    }

    fn restore_own(&mut self, own: &[SeriesCounts]) {
        for own in own {
            let same = self.series.iter_mut().find(|series| *series.name == *own.name);
            if let Some(series) = same {
                series.restore(&self.rule.limits, own);
            }
        }
    }

    /// Merges the peers' counts. Returns their largest increase over all series and windows.
    fn merge_peers(&mut self, reply: &SyncReply) -> u64 {
        let mut max = 0;
        for series in &mut self.series {
            let (mut sum, mut each) = (0_u64, 0);
            for (name, start, net) in &reply.others {
                if **name != *series.name {
                    continue;
                }
                let increase = series.merge_peers(*start, *net);
                (sum, each) = (sum.saturating_add(increase), each.max(increase));
            }
            max = max.max(if series.is_sliding { sum } else { each });
        }
        max
    }

    fn record_increase(&mut self, increase: u64, tick: Timestamp) {
        if self.exposed_syncs == 0 {
            // Without own admissions the increase of the peers is no overshoot.
            self.peer_increases = [0; SYNCS];
            return;
        }
        // A pull out of turn is followed by the regular one: both count as one sync.
        let half = Span::from_micros(self.interval.as_micros() * 4 / 10);
        if tick.since(self.last_sync) >= half {
            self.exposed_syncs -= 1;
            self.last_sync = tick;
            self.peer_increases.rotate_right(1);
            self.peer_increases[0] = 0;
        }
        self.peer_increases[0] = self.peer_increases[0].saturating_add(increase);
    }

    /// Largest known excess of a window over its limit.
    fn excess(&self) -> u64 {
        let Some(plan) = &self.plan else { return 0 };
        let counts = plan.steps.iter().zip(&self.series_index);
        let excess = |(step, index): (&EnforcedLimit, &Option<u8>)| {
            let series = self.series.get(usize::from((*index)?))?;
            let capacity = step.limit().capacity()?;
            let above = |start, used: u64| match start >= self.limits_since {
                true => used.saturating_sub(capacity),
                false => 0,
            };
            let now = above(series.start(), series.used());
            Some(now.max(above(series.previous_start(), series.previous_used())))
        };
        counts.filter_map(excess).max().unwrap_or(0)
    }

    /// Advances to the current windows, under these limits. Returns the store's time.
    #[inline]
    fn advance(&mut self, rule: &Arc<Rule>, tick: Timestamp) -> Option<Timestamp> {
        if !Arc::ptr_eq(rule, &self.rule) {
            self.replace_rule(rule, tick);
        }
        let mut now = self.time?.earliest(tick).min(NOW_MAX);
        for series in &mut self.series {
            series.advance(&self.rule.limits, now);
            // Time does not advance while the store's clock is slightly behind.
            now = now.max(series.start());
        }
        if !self.plan.as_ref().is_some_and(|plan| plan.holds_at(now)) {
            self.plan = Some(self.rule.plan_at(now));
        }
        #[cfg(test)]
        {
            self.moment = now;
        }
        Some(now)
    }

    /// Replaces the limits; counts of equal windows continue.
    #[cold]
    fn replace_rule(&mut self, rule: &Arc<Rule>, tick: Timestamp) {
        let (series, series_index) = build_series(rule);
        let old = std::mem::replace(&mut self.series, series);
        for old in old {
            if let Some(series) = self.series.iter_mut().find(|series| series.name == old.name) {
                series.carry_over(old);
            }
        }
        (self.rule, self.plan, self.series_index) = (rule.clone(), None, series_index);
        self.limits_since = self.time.map_or(Timestamp::EPOCH, |time| time.latest(tick));
    }

    /// Whether the last pull is recent enough, or the windows younger than that.
    #[inline]
    fn is_fresh(&self, interval: Span, now: Timestamp, tick: Timestamp) -> bool {
        let Some(last) = self.last else { return false };
        let max_age = interval.max(FRESH_MIN);
        if tick.since(last.received) <= max_age {
            return true;
        }
        let latest = self.time.map_or(now, |time| time.latest(tick));
        self.series
            .iter()
            .all(|series| !series.is_sliding && latest.since(series.start()) <= max_age)
    }

    #[inline]
    fn decide(&self, op: LocalOp, now: Timestamp) -> Verdict {
        let Some(plan) = &self.plan else { return sluicegate::backend::UNCOUNTED };
        decide::decide(&plan.steps, &self.series_index, &self.series, op, now)
    }
}

/// For comparison in tests.
#[cfg(test)]
impl KeyReplica {
    /// The store's time of the last decision.
    pub(super) fn moment(&self) -> Timestamp {
        self.moment
    }

    /// Total of all nodes in the current and the previous window of a series.
    pub(super) fn used(&self, name: &str) -> Option<(u64, u64)> {
        let series = self.series.iter().find(|series| *series.name == *name)?;
        Some((series.used(), series.previous_used()))
    }
}

/// The series of the limits; limits of equal windows share one.
fn build_series(rule: &Rule) -> (Box<[Series]>, Box<[Option<u8>]>) {
    let mut all: Vec<Series> = Vec::new();
    let mut series_index = Vec::with_capacity(rule.limits.len());
    for (index, limit) in rule.limits.iter().enumerate() {
        let found = Series::new(limit, index).map(|series| {
            let same = all.iter().position(|known| known.name == series.name);
            match same {
                Some(known) => all[known].is_sliding |= series.is_sliding,
                None => all.push(series),
            }
            same.unwrap_or(all.len() - 1)
        });
        // There are at most 32 limits.
        series_index.push(found.and_then(|found| u8::try_from(found).ok()));
    }
    (all.into(), series_index.into())
}
