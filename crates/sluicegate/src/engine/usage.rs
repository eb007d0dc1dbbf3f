//! Thresholds of budgets: reports when the usage of an identity crosses one upwards.
//!
//! ```text
//!   fixed windows, tallies, cycles   each threshold once per window
//!   limits that refill               again once the usage has fallen below it
//! ```
//!
//! An engine judges by the answers that it gives, so each node of a shared store reports a crossing
//! that it sees. Reservations are judged when they are settled. An answer is observed later than it
//! was decided, so the end of a window is known with the error of that delay: two ends are those of
//! one window if they differ by less than half of it. Identities are remembered from their first
//! threshold until their limit is full, [`REMEMBERED_MAX`] of them; while there is no room,
//! crossings of further identities are counted and not reported.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::admission::{Checked, Status};
use super::{Engine, Snapshot, descriptor_text};

/// Length of a window whose length varies: months and years of a calendar.
const SHORTEST_MONTH: Span = Span::from_secs(28 * 86_400);

/// Maximum number of identities whose reported thresholds are remembered.
pub const REMEMBERED_MAX: usize = 65_536;

/// Receives the thresholds that are reached. Called by the request that reaches one, so it must
/// not block.
pub trait UsageListener: fmt::Debug + Send + Sync {
    /// An identity has reached a threshold of a budget.
    fn threshold_reached(&self, reached: &ThresholdReached<'_>);
}

/// A threshold of a budget that an identity has reached.
#[derive(Debug, Clone, Copy)]
pub struct ThresholdReached<'a> {
    rules: &'a RuleSet,
    /// The rule, or the further pool of a rule.
    pub rule: RuleNo,
    /// Its only limit.
    pub limit: &'a str,
    /// The threshold, in percent of the quota.
    pub threshold: u16,
    /// The used quota; more than the quota in debt.
    pub used: u64,
    /// The quota.
    pub quota: u64,
    /// The time of the answer.
    pub at: Timestamp,
    /// When the limit is full again, if nothing more is used.
    pub resets_at: Timestamp,
    identity: &'a [u8],
}

/// Which thresholds were reported, by identity.
#[derive(Debug, Default)]
pub(super) struct UsageMonitor {
    listener: OnceLock<Arc<dyn UsageListener>>,
    reported: Mutex<HashMap<(usize, u64), ReportedLevel>>,
    /// Size of `reported`.
    remembered: AtomicUsize,
    hasher: RandomState,
    unreported: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct ReportedLevel {
    /// The number of thresholds.
    level: usize,
    /// Until when they count.
    full_at: Timestamp,
    /// Whether `full_at` is the end of the current window, and of no later one that pays a debt.
    is_window_end: bool,
}

/// Usage of one identity.
#[derive(Debug, Clone, Copy)]
struct Usage {
    /// The number of thresholds that it reaches.
    level: usize,
    /// The window at whose end it falls; `None` if it falls at any time.
    window: Option<Span>,
    /// Whether later windows pay for it.
    in_debt: bool,
    full_at: Timestamp,
    now: Timestamp,
}

impl UsageMonitor {
    /// Records the usage of an identity; the thresholds to report.
    fn observe(&self, key: (usize, u64), usage: Usage) -> Range<usize> {
        let Usage { level, window, in_debt, full_at, now } = usage;
        let (is_windowed, is_full) = (window.is_some(), full_at <= now);
        let is_window_end = is_windowed && !in_debt;
        if level == 0 && ((is_windowed && !is_full) || self.remembered.load(Ordering::Relaxed) == 0)
        {
            return 0..0;
        }
        let mut reported = self.reported.lock();
        let is_same_window = |known: &ReportedLevel| match window {
            Some(window) if is_window_end && known.is_window_end => {
                full_at.since(known.full_at).as_micros() < window.as_micros() / 2
            }
            _ => true,
        };
        let known = reported.get(&key).filter(|known| now < known.full_at && is_same_window(known));
        let before = known.map_or(0, |known| known.level);
        let falls = level < before && (!is_windowed || is_full);
        if level == 0 && (falls || known.is_none()) {
            reported.remove(&key);
        } else if level > before || falls {
            if reported.len() >= REMEMBERED_MAX && !reported.contains_key(&key) {
                reported.retain(|_, known| now < known.full_at);
            }
            if reported.len() >= REMEMBERED_MAX && !reported.contains_key(&key) {
                self.unreported.fetch_add((level - before) as u64, Ordering::Relaxed);
                return 0..0;
            }
            reported.insert(key, ReportedLevel { level, full_at, is_window_end });
        } else if let Some(known) = reported.get_mut(&key) {
            let full_at = if is_window_end { full_at } else { known.full_at.max(full_at) };
            *known = ReportedLevel { full_at, is_window_end, ..*known };
        }
        self.remembered.store(reported.len(), Ordering::Relaxed);
        before..level.max(before)
    }
}

impl<B: ?Sized> Engine<B> {
    /// Reports reached thresholds to a listener. An engine has one: `false` if it has another.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use std::sync::{Arc, Mutex};
    ///
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, ThresholdReached, UsageListener, rules_of};
    ///
    /// #[derive(Debug, Default)]
    /// struct Reported(Mutex<Vec<String>>);
    ///
    /// impl UsageListener for Reported {
    ///     fn threshold_reached(&self, reached: &ThresholdReached<'_>) {
    ///         let ThresholdReached { threshold, used, quota, .. } = reached;
    ///         let text = format!("{}: {threshold}%, {used} of {quota}", reached.descriptor());
    ///         self.0.lock().unwrap().push(text);
    ///     }
    /// }
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: llm
    /// descriptors:
    ///   - key: team
    ///     limits: { algorithm: fixed_window, rate: 1000/year }
    ///     notify: [80%, 100%]
    /// ",
    /// )?)?;
    /// let reported = Arc::new(Reported::default());
    /// assert!(engine.set_usage_listener(reported.clone()));
    /// let entries = [Entry::new("team", "search")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// for _ in 0..3 {
    ///     engine.check(&Request { domain: "llm", descriptors: &descriptors, hits: 300 });
    /// }
    /// assert_eq!(*reported.0.lock().unwrap(), ["team=search: 80%, 900 of 1000"]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_usage_listener(&self, listener: Arc<dyn UsageListener>) -> bool {
        self.state.usage.listener.set(listener).is_ok()
    }

    /// Reached thresholds that were not reported, since too many identities were remembered.
    #[must_use]
    pub fn unreported_thresholds(&self) -> u64 {
        self.state.usage.unreported.load(Ordering::Relaxed)
    }
}

impl Snapshot<'_> {
    /// Observes the usage of a request that was charged, refunded or settled.
    #[inline]
    pub fn observe_usage(&self, checked: &Checked) {
        self.observe_statuses(&checked.plan, &checked.statuses);
    }

    #[inline]
    pub(super) fn observe_statuses(&self, plan: &Plan, statuses: &[Status]) {
        if self.active.has_notify {
            self.observe_all(plan, statuses);
        }
    }

    #[cold]
    fn observe_all(&self, plan: &Plan, statuses: &[Status]) {
        if self.engine.usage.listener.get().is_none() || plan.listed().is_some() {
            return;
        }
        let now = self.engine.store.clock.now();
        for (step, status) in plan.steps().iter().zip(statuses) {
            if let Target::Rule(no) = status.target
                && !self.rules().rule(no).notify().is_empty()
            {
                self.observe_one(no, plan.identity(step), &status.verdict, now);
            }
        }
    }

    fn observe_one(&self, no: RuleNo, identity: &[u8], verdict: &Verdict, now: Timestamp) {
        let monitor = &self.engine.usage;
        let policy = verdict.decided_by.and_then(|index| self.policies(no).get(index));
        let quota =
            policy.and_then(|policy| Some((policy, policy.quota.filter(|quota| *quota > 0)?)));
        let (Some((policy, quota)), Some(remaining)) = (quota, verdict.remaining) else { return };
        let used = i128::from(quota) - i128::from(remaining) + i128::from(verdict.beyond);
        let used = u64::try_from(used.max(0)).unwrap_or(u64::MAX);
        let thresholds = self.rules().rule(no).notify();
        let is_reached =
            |percent: u16| u128::from(used) * 100 >= u128::from(quota) * u128::from(percent);
        let level = thresholds.iter().take_while(|percent| is_reached(**percent)).count();
        let full_at = now.after(verdict.reset_after);
        let is_windowed = matches!(policy.algorithm, "fixed_window" | "tally" | "cycle");
        let window = is_windowed.then(|| policy.window.unwrap_or(SHORTEST_MONTH));
        // A commit finds the pool by its id, and names the identity of the request.
        let identity = self.rules().without_pool(no, identity);
        let key = (self.rule_state(no).number(), monitor.hasher.hash_one(identity));
        let usage = Usage { level, window, in_debt: remaining < 0, full_at, now };
        let crossed = monitor.observe(key, usage);
        let Some(listener) = monitor.listener.get() else { return };
        for threshold in thresholds.get(crossed).unwrap_or_default() {
            listener.threshold_reached(&ThresholdReached {
                rules: self.rules(),
                rule: no,
                limit: &policy.name,
                threshold: *threshold,
                used,
                quota,
                at: now,
                resets_at: full_at,
                identity,
            });
        }
    }
}

impl ThresholdReached<'_> {
    /// The domain of the rule.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.rules.domain_of(self.rule)
    }

    /// The id of the rule.
    #[must_use]
    pub fn rule_id(&self) -> String {
        self.rules.id(self.rule)
    }

    /// The further pool of the rule, if it is that of one.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        self.rules.pool_of(self.rule)
    }

    /// The entries of the identity: `team=search|model=large`. Separators in values are
    /// percent-encoded; values that share a counter are named by their descriptor.
    #[must_use]
    pub fn descriptor(&self) -> String {
        descriptor_text(self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn usage(level: usize, is_windowed: bool, now: u64, full_at: u64) -> Usage {
        let window = is_windowed.then_some(Span::from_secs(60));
        Usage { level, window, in_debt: false, full_at: at(full_at), now: at(now) }
    }

    #[test]
    fn a_window_reports_each_threshold_once() {
        let monitor = UsageMonitor::default();
        let observe =
            |level, now, full_at| monitor.observe((1, 1), usage(level, true, now, full_at));
        assert_eq!(observe(0, 0, 60), 0..0);
        assert_eq!(observe(1, 1, 60), 0..1);
        assert_eq!((observe(1, 2, 60), observe(0, 3, 60), observe(1, 4, 60)), (1..1, 0..0, 1..1));
        assert_eq!(observe(3, 5, 60), 1..3);
        assert_eq!(observe(2, 60, 120), 0..2, "the next window, although all of it at once");
        assert_eq!(observe(0, 61, 61), 2..2, "reset by an operator");
        assert_eq!(observe(1, 62, 120), 0..1);
    }

    #[test]
    fn a_window_is_known_by_its_end_however_late_it_is_observed() {
        let monitor = UsageMonitor::default();
        let observe =
            |level, now, full_at| monitor.observe((1, 1), usage(level, true, now, full_at));
        assert_eq!(observe(1, 1, 85), 0..1, "25 s after the decision");
        assert_eq!(observe(1, 70, 120), 0..1, "the next window");
        assert_eq!(observe(1, 80, 140), 1..1, "the same window, 20 s after the decision");
        assert_eq!(observe(1, 81, 120), 1..1);
    }

    #[test]
    fn a_debt_that_later_windows_pay_begins_no_window() {
        let monitor = UsageMonitor::default();
        let observe = |level, in_debt, now, full_at| {
            monitor.observe((1, 1), Usage { in_debt, ..usage(level, true, now, full_at) })
        };
        assert_eq!(observe(1, false, 1, 60), 0..1);
        assert_eq!(observe(2, true, 2, 180), 1..2);
        assert_eq!(observe(2, true, 61, 180), 2..2, "the debt is not paid");
        assert_eq!(observe(1, false, 62, 120), 2..2, "returned by a refund");
        assert_eq!(observe(1, false, 121, 180), 0..1);
    }

    #[test]
    fn a_refilling_limit_reports_again_after_a_fall() {
        let monitor = UsageMonitor::default();
        let observe = |level, now| monitor.observe((1, 1), usage(level, false, now, now + 100));
        assert_eq!((observe(2, 0), observe(2, 1)), (0..2, 2..2));
        assert_eq!((observe(1, 2), observe(2, 3)), (2..2, 1..2));
        assert_eq!((observe(0, 4), observe(1, 5)), (2..2, 0..1));
        assert_eq!(observe(1, 205), 0..1, "it was full meanwhile");
    }

    #[test]
    fn memory_is_bounded() {
        let monitor = UsageMonitor::default();
        for key in 0..REMEMBERED_MAX as u64 {
            assert_eq!(monitor.observe((1, key), usage(1, true, 0, 60)), 0..1);
        }
        assert_eq!(monitor.observe((2, 0), usage(2, true, 1, 60)), 0..0, "no room");
        assert_eq!(monitor.unreported.load(Ordering::Relaxed), 2);
        assert_eq!(monitor.observe((1, 0), usage(2, true, 1, 60)), 1..2, "a known one");
        assert_eq!(monitor.observe((2, 0), usage(2, true, 61, 120)), 0..2, "the others are full");
        assert_eq!(monitor.remembered.load(Ordering::Relaxed), 1);
    }
}
