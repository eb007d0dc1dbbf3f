//! What a node knows of one identity: what it has counted, what it heard of the others, and what that says to a hit. No clock, no store: times are
//! ticks, and what is told and heard is handed in and out.

use std::sync::Arc;

use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Verdict};

use super::deciding::{self, Asked};
use super::series::Series;
use super::store_time::StoreTime;
use sluicegate::backend::{ResolvedRule, Rule};

use crate::script::RuleScripts;
use crate::sync::{SeriesCounts, SyncOp, SyncReply};

/// What was heard is good for at least so long: nobody is asked again while an answer is handed on.
const GOOD_MIN: Span = Span::from_millis(50);
/// Each node syncs twice an interval, so what it admits is known everywhere within one; until then others may admit what they would not have, and that is known here
/// within another.
const SYNCS: usize = 4;

/// What is known of one identity.
#[derive(Debug)]
pub(super) struct Book {
    rule: Arc<Rule>,
    plan: Option<Arc<ResolvedRule>>,
    series: Box<[Series]>,
    /// In which series each limit counts.
    of: Box<[Option<u8>]>,
    epoch: u64,
    time: Option<StoreTime>,
    last: Option<Last>,
    /// How often others are heard of, as was last said.
    interval: Span,
    /// What others have admitted from one answer to the next, in the last of them; and when the last of them was begun.
    lately: [u64; SYNCS],
    noted: Timestamp,
    /// For so many answers it matters what was not known.
    matters: usize,
    /// Windows that were begun under other limits are not judged by these.
    judged_from: Timestamp,
    /// How far a window was above its limit when that was last seen.
    above: u64,
    /// How often it has counted; and how much of that the store has heard.
    version: u64,
    pushed: u64,
    #[cfg(test)]
    moment: Timestamp,
}

/// The last answer.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Timestamp,
    heard: Timestamp,
}

/// What an answer showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// What others have admitted that was not known here when this node admitted something.
    pub(super) bound: u64,
    /// How far a window is above its limit.
    pub(super) over: u64,
}

/// What is to be told, and of which version.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) op: SyncOp,
    pub(super) epoch: u64,
    pub(super) counted: Vec<SeriesCounts>,
    pub(super) version: u64,
}

/// Whether limits can be counted like this: windows on the clock or of a calendar, and sliding ones.
#[inline]
pub(super) fn serves(rule: &Rule) -> bool {
    // Each request asks.
    *rule
        .extension()
        .get_or_init(RuleScripts::default)
        .is_exchangeable
        .get_or_init(|| rule.mode == Mode::Hard && rule.limits.iter().all(Series::serves))
}

// === impl Book ===

impl Book {
    /// Nothing is known yet.
    pub(super) fn new(rule: &Arc<Rule>) -> Self {
        let (series, of) = series_of(rule);
        Self {
            rule: rule.clone(),
            plan: None,
            series,
            of,
            epoch: 0,
            time: None,
            last: None,
            interval: Span::ZERO,
            lately: [0; SYNCS],
            noted: Timestamp::EPOCH,
            matters: 0,
            judged_from: Timestamp::EPOCH,
            above: 0,
            version: 0,
            pushed: 0,
            #[cfg(test)]
            moment: Timestamp::EPOCH,
        }
    }

    /// What it says to a hit, which is counted if it may go; `None` if too little is known.
    #[inline]
    pub(super) fn hit(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.begin(rule, tick)?;
        if !self.knows(interval, now, tick) {
            return None;
        }
        self.interval = interval;
        let verdict = self.says(Asked::Hit(cost), now);
        if verdict.is_allowed() && cost > 0 {
            self.charge(cost);
        }
        Some(verdict)
    }

    /// What it would say.
    pub(super) fn peek(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.begin(rule, tick)?;
        self.knows(interval, now, tick).then(|| self.says(Asked::Peek(cost), now))
    }

    /// Counts what was admitted without asking this: nobody could be heard.
    pub(super) fn count(&mut self, rule: &Arc<Rule>, cost: u64, tick: Timestamp) {
        if self.begin(rule, tick).is_some() && cost > 0 {
            self.charge(cost);
        }
    }

    #[inline]
    fn charge(&mut self, cost: u64) {
        self.series.iter_mut().for_each(|series| series.charge(cost));
        self.version += 1;
        self.matters = SYNCS;
    }

    /// What this node has counted in the windows of this moment: the most of any.
    pub(super) fn own(&mut self, rule: &Arc<Rule>, tick: Timestamp) -> u64 {
        if self.begin(rule, tick).is_none() {
            return 0;
        }
        self.series.iter().map(Series::own).max().unwrap_or(0)
    }

    /// What each limit says on its own to a cost; `None` if too little is known.
    pub(super) fn look(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        interval: Span,
        tick: Timestamp,
    ) -> Option<Vec<Decision>> {
        let now = self.begin(rule, tick)?;
        let plan = self.plan.as_ref().filter(|_| self.knows(interval, now, tick))?;
        Some(deciding::each(&plan.steps, &self.of, &self.series, cost, now))
    }

    /// Gives back, and says how it stands; `None` if the time is not known.
    pub(super) fn refund(
        &mut self,
        rule: &Arc<Rule>,
        cost: u64,
        tick: Timestamp,
    ) -> Option<Verdict> {
        let now = self.begin(rule, tick)?;
        let mut any = false;
        for series in &mut self.series {
            any |= series.give(cost);
        }
        self.version += u64::from(any);
        Some(self.says(Asked::Peek(0), now))
    }

    /// How much more than the limit may have passed, if the others go on as they did.
    #[inline]
    pub(super) fn over(&self) -> u64 {
        self.lately.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// Whether the store has not heard everything that is still of use.
    pub(super) fn is_untold(&self, tick: Timestamp) -> bool {
        self.version != self.pushed && !self.is_over(tick)
    }

    /// Whoever was told what was counted may know nothing of it any more.
    pub(super) fn forgotten(&mut self) {
        // A call that is under way may have been heard by the one who forgot.
        self.version += 1;
    }

    /// Whether nothing that was counted is of use any more.
    pub(super) fn is_over(&self, tick: Timestamp) -> bool {
        let Some(time) = self.time else { return true };
        let now = time.earliest(tick);
        self.series.iter().all(|series| series.over() <= now || !series.has_counted())
    }

    /// What is to be told now.
    pub(super) fn tells(&mut self, tick: Timestamp) -> Telling {
        let rule = self.rule.clone();
        let op = match self.begin(&rule, tick) {
            // Before anything is counted here it is heard where this node stood.
            None => SyncOp::PullAll,
            Some(_) if self.series.iter().any(Series::has_counted) => SyncOp::Push,
            Some(_) => SyncOp::Pull,
        };
        let counted = match op {
            SyncOp::PullAll => Vec::new(),
            _ => self.series.iter().map(Series::counted).collect(),
        };
        Telling { op, epoch: self.epoch, counted, version: self.version }
    }

    /// What is told to forget everything.
    pub(super) fn tells_to_forget(&self) -> Telling {
        let counted = self.series.iter().map(Series::nothing).collect();
        Telling { op: SyncOp::Reset, epoch: self.epoch, counted, version: self.version }
    }

    /// An answer to what was told.
    pub(super) fn hears(
        &mut self,
        heard: &SyncReply,
        version: u64,
        (sent, tick): (Timestamp, Timestamp),
    ) -> Seen {
        // What is older than the last answer was said before it, if it was asked for before that was heard.
        if self.last.is_some_and(|last| heard.at < last.at && sent < last.heard) {
            return Seen::default();
        }
        let told = StoreTime::told(heard.at, sent, tick);
        self.time = Some(self.time.map_or(told, |time| time.and(told)));
        let is_first = self.last.is_none();
        self.last = Some(Last { at: heard.at, heard: tick });
        if heard.epoch > self.epoch {
            self.epoch = heard.epoch;
            self.series.iter_mut().for_each(Series::forget);
            self.pushed = self.version;
        }
        if heard.epoch < self.epoch {
            return Seen::default();
        }
        self.pushed = self.pushed.max(version);
        if is_first {
            self.adopt(&heard.own);
        }
        let more = self.hear_others(heard);
        self.note(if is_first { 0 } else { more }, tick);
        let rule = self.rule.clone();
        let above = self.begin(&rule, tick).map_or(0, |_| self.above());
        let before = std::mem::replace(&mut self.above, above);
        // Only what is new: it is seen together with what was not known.
        Seen { bound: self.over(), over: if above > before { above } else { 0 } }
    }

    fn adopt(&mut self, own: &[SeriesCounts]) {
        for own in own {
            let same = self.series.iter_mut().find(|series| *series.name == *own.name);
            if let Some(series) = same {
                series.adopt(&self.rule.limits, own);
            }
        }
    }

    /// How much more the others have than was known, in the series and window where that is most.
    fn hear_others(&mut self, heard: &SyncReply) -> u64 {
        let mut most = 0;
        for series in &mut self.series {
            let (mut sum, mut each) = (0_u64, 0);
            for (name, start, net) in &heard.others {
                if **name != *series.name {
                    continue;
                }
                let more = series.hear(*start, *net);
                (sum, each) = (sum.saturating_add(more), each.max(more));
            }
            most = most.max(if series.slides { sum } else { each });
        }
        most
    }

    fn note(&mut self, more: u64, tick: Timestamp) {
        if self.matters == 0 {
            // Nothing was admitted that might not have been.
            self.lately = [0; SYNCS];
            return;
        }
        // Who was heard out of turn is heard again soon: it is one answer.
        let half = Span::from_micros(self.interval.as_micros() * 4 / 10);
        if tick.since(self.noted) >= half {
            self.matters -= 1;
            self.noted = tick;
            self.lately.rotate_right(1);
            self.lately[0] = 0;
        }
        self.lately[0] = self.lately[0].saturating_add(more);
    }

    /// How far a window is above its limit, as far as is known.
    fn above(&self) -> u64 {
        let Some(plan) = &self.plan else { return 0 };
        let counts = plan.steps.iter().zip(&self.of);
        let above = |(step, of): (&EnforcedLimit, &Option<u8>)| {
            let series = self.series.get(usize::from((*of)?))?;
            let most = step.limit().capacity()?;
            let of = |start, used: u64| match start >= self.judged_from {
                true => used.saturating_sub(most),
                false => 0,
            };
            let now = of(series.start(), series.used());
            Some(now.max(of(series.start_before(), series.used_before())))
        };
        counts.filter_map(above).max().unwrap_or(0)
    }

    /// Goes on to the windows of this moment, under these limits. The moment by the store's clock.
    #[inline]
    fn begin(&mut self, rule: &Arc<Rule>, tick: Timestamp) -> Option<Timestamp> {
        if !Arc::ptr_eq(rule, &self.rule) {
            self.change(rule, tick);
        }
        let mut now = self.time?.earliest(tick).min(NOW_MAX);
        for series in &mut self.series {
            series.roll(&self.rule.limits, now);
            // Where its clock stepped back a little, time stands still.
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

    /// Other limits: what was counted in windows that they have too goes on.
    #[cold]
    fn change(&mut self, rule: &Arc<Rule>, tick: Timestamp) {
        let (series, of) = series_of(rule);
        let old = std::mem::replace(&mut self.series, series);
        for old in old {
            if let Some(series) = self.series.iter_mut().find(|series| series.name == old.name) {
                series.go_on(old);
            }
        }
        (self.rule, self.plan, self.of) = (rule.clone(), None, of);
        self.judged_from = self.time.map_or(Timestamp::EPOCH, |time| time.latest(tick));
    }

    /// Whether what was heard is new enough: or the windows are so young that there was nothing to hear before.
    #[inline]
    fn knows(&self, interval: Span, now: Timestamp, tick: Timestamp) -> bool {
        let Some(last) = self.last else { return false };
        let good = interval.max(GOOD_MIN);
        if tick.since(last.heard) <= good {
            return true;
        }
        let latest = self.time.map_or(now, |time| time.latest(tick));
        self.series.iter().all(|series| !series.slides && latest.since(series.start()) <= good)
    }

    #[inline]
    fn says(&self, asked: Asked, now: Timestamp) -> Verdict {
        let Some(plan) = &self.plan else { return sluicegate::backend::UNCOUNTED };
        deciding::decide(&plan.steps, &self.of, &self.series, asked, now)
    }
}

/// For whoever compares.
#[cfg(test)]
impl Book {
    /// The store's time as it was decided by last.
    pub(super) fn moment(&self) -> Timestamp {
        self.moment
    }

    /// What everybody has used of the current window of a series, and of the one before.
    pub(super) fn used(&self, name: &str) -> Option<(u64, u64)> {
        let series = self.series.iter().find(|series| *series.name == *name)?;
        Some((series.used(), series.used_before()))
    }
}

/// The series that limits count in: those of equal windows count in one.
fn series_of(rule: &Rule) -> (Box<[Series]>, Box<[Option<u8>]>) {
    let mut all: Vec<Series> = Vec::new();
    let mut of = Vec::with_capacity(rule.limits.len());
    for (place, limit) in rule.limits.iter().enumerate() {
        let found = Series::of(limit, place).map(|series| {
            let same = all.iter().position(|known| known.name == series.name);
            match same {
                Some(known) => all[known].slides |= series.slides,
                None => all.push(series),
            }
            same.unwrap_or(all.len() - 1)
        });
        // There are at most 32 limits.
        of.push(found.and_then(|found| u8::try_from(found).ok()));
    }
    (all.into(), of.into())
}
