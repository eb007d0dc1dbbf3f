//! The rule of a limiter: as configured, and resolved at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::packed::IntegerBucket;
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::calendar::CalendarUnit;
use sluicegate_rules::limit::{LimitConfig, names};
use sluicegate_rules::rule::Consistency;

use crate::answer::Policy;
use crate::backend::Extension;
use crate::limit::LimitError;

/// Maximum number of limits of a limiter.
pub const LIMITS_MAX: usize = 32;

/// Limits and their mode, as configured.
#[derive(Debug)]
pub struct Rule {
    /// The limits.
    pub limits: Vec<LimitConfig>,
    /// Their mode.
    pub mode: Mode,
    /// The public description of each limit.
    pub policies: Arc<[Policy]>,
    /// Generation: states move to a later one, never back.
    pub(crate) generation: u64,
    /// Number of the rule: shadow limits are counted together per rule, apart from
    /// those of other rules.
    number: usize,
    /// The last resolved plan, shared by the shards.
    latest: Mutex<Weak<ResolvedRule>>,
    /// State of the backend.
    extension: Extension,
}

/// A rule resolved for a time range; unbounded without calendar limits.
#[derive(Debug)]
pub struct ResolvedRule {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Its limits at this time, each with its mode.
    pub steps: Box<[EnforcedLimit]>,
    /// The largest cost that the fast path serves; 0 if none.
    short_cost_max: u64,
    /// The only limit, if it is an integer bucket: the most common case has a dedicated path.
    pub(crate) bucket: Option<IntegerBucket>,
    from: Timestamp,
    until: Timestamp,
}

impl Rule {
    /// These limits under this mode.
    ///
    /// # Errors
    /// When one of the limits does not support the mode, or there are none or too many.
    pub fn new(limits: Vec<LimitConfig>, mode: Mode) -> Result<Self, QuotaError> {
        check_count(limits.len())?;
        let policies = policies_of(&limits, mode)?.into();
        Ok(Self::of(limits, mode, policies))
    }

    /// A rule that denies everything.
    #[must_use]
    pub fn closed() -> Self {
        let limits = vec![LimitConfig::fixed(None, Limit::Closed)];
        Self::of(limits, Mode::Hard, Arc::default())
    }

    fn of(limits: Vec<LimitConfig>, mode: Mode, policies: Arc<[Policy]>) -> Self {
        Self {
            limits,
            mode,
            policies,
            generation: 0,
            number: new_number(),
            latest: Mutex::default(),
            extension: Extension::default(),
        }
    }

    /// The same rule as the successor of a changed one.
    #[must_use]
    pub fn after(self, old: &Self) -> Self {
        self.with_number(old.number).with_generation(old.generation + 1)
    }

    /// The same with this generation.
    pub(crate) fn with_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// The same with this rule number.
    #[must_use]
    pub fn with_number(self, number: usize) -> Self {
        Self { number, ..self }
    }

    /// The plan at `now`.
    pub fn plan_at(self: &Arc<Self>, now: Timestamp) -> Arc<ResolvedRule> {
        let mut latest = self.latest.lock();
        if let Some(plan) = latest.upgrade().filter(|plan| plan.holds_at(now)) {
            return plan;
        }
        let plan = Arc::new(ResolvedRule::new(self.clone(), now));
        *latest = Arc::downgrade(&plan);
        plan
    }

    /// State that the backend attaches to these limits.
    pub fn extension(&self) -> &Extension {
        &self.extension
    }
}

/// The public description of limits under a mode, which each of them must support.
pub(crate) fn policies_of(limits: &[LimitConfig], mode: Mode) -> Result<Vec<Policy>, QuotaError> {
    let mut policies = Vec::with_capacity(limits.len());
    for (limit, name) in limits.iter().zip(names(limits)) {
        let at_first = limit.at(Timestamp::EPOCH);
        EnforcedLimit::new(at_first, mode)?;
        policies.push(Policy {
            name,
            algorithm: limit.algorithm(),
            quota: at_first.capacity(),
            window: window(&at_first).filter(|_| !has_varying_length(limit)),
            enforced: mode != Mode::Shadow,
        });
    }
    Ok(policies)
}

/// Checks the number of limits.
pub(crate) fn check_count(limits: usize) -> Result<(), QuotaError> {
    if (1..=LIMITS_MAX).contains(&limits) {
        return Ok(());
    }
    let (what, given, max) = ("the number of limits", limits as u64, LIMITS_MAX as u64);
    Err(QuotaError::OutOfRange { what, given, min: 1, max })
}

/// Checks that no two limits have the same given name.
pub(crate) fn check_names(limits: &[LimitConfig]) -> Result<(), LimitError> {
    for (index, name) in limits.iter().enumerate().map(|(index, limit)| (index, limit.name())) {
        if let Some(name) = name.filter(|_| limits[..index].iter().any(|one| one.name() == name)) {
            return Err(LimitError::LimitNamedTwice { name: name.to_owned() });
        }
    }
    Ok(())
}

/// Checks that processes can share limits with this consistency.
pub(crate) fn check_shared(
    consistency: Consistency,
    limits: &[LimitConfig],
) -> Result<(), LimitError> {
    for limit in limits {
        let got = limit.algorithm();
        if let Some(needs) = consistency.unsupported(&limit.at(Timestamp::EPOCH), got) {
            return Err(LimitError::Unshared { consistency: consistency.name(), needs, got });
        }
    }
    Ok(())
}

/// A number that is unique among the rules of this process.
pub(crate) fn new_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl ResolvedRule {
    fn new(rule: Arc<Rule>, now: Timestamp) -> Self {
        let mut from = Timestamp::EPOCH;
        let mut until = Timestamp::MAX;
        let mut steps = Vec::with_capacity(rule.limits.len());
        for limit in &rule.limits {
            let stands = limit.at(now);
            if let Some((start, end)) = limit.window_at(now) {
                from = from.max(start);
                until = until.min(end);
            }
            // The mode was validated with the rule, and calendar boundaries do not affect it.
            steps.extend(
                EnforcedLimit::new(stands, rule.mode).map(|step| step.of_rule(rule.number)),
            );
        }
        let short = steps.iter().map(|step| step.fast_cost_max().unwrap_or(0)).min();
        let short_cost_max = short.unwrap_or(0);
        let bucket = match steps.as_slice() {
            [only] => only.integer_bucket(),
            _ => None,
        };
        Self { rule, steps: steps.into(), short_cost_max, bucket, from, until }
    }

    /// Whether the fast path serves a hit of this cost.
    #[inline]
    pub(crate) const fn serves(&self, cost: u64) -> bool {
        cost > 0 && cost <= self.short_cost_max
    }

    /// Whether the plan is valid at this time.
    #[inline]
    #[must_use]
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// Whether its windows are months or years of a calendar, which have no one length.
fn has_varying_length(limit: &LimitConfig) -> bool {
    limit
        .followed_calendar()
        .is_some_and(|calendar| matches!(calendar.unit(), CalendarUnit::Month | CalendarUnit::Year))
}

/// The time in which a whole quota refills.
fn window(limit: &Limit) -> Option<Span> {
    match limit {
        Limit::FixedWindow(window) => return Some(window.rate().period()),
        Limit::SlidingWindow(window) => return Some(window.rate().period()),
        Limit::SlidingSlices(window) => return Some(window.rate().period()),
        Limit::Tally(tally) => return Some(tally.period()),
        Limit::SlidingLog(log) => {
            let tightest = log.rates().min_by_key(|(most, _)| *most);
            return tightest.map(|(_, length)| length);
        }
        Limit::Concurrency(_) | Limit::Unlimited | Limit::Closed => return None,
        Limit::WarmUp(warm_up) => return Some(warm_up.rate().period()),
        _ => {}
    }
    let now = Timestamp::EPOCH;
    let mut state = State::New;
    limit.open(&mut state, now);
    let left = limit.left(&state, now)?;
    limit.spend(&mut state, left, now, now);
    Some(limit.full_after(&state, now)).filter(|span| !span.is_zero())
}
