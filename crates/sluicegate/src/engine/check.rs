//! A request, asked of all rules that it is under.
//!
//! ```text
//!   on a list?            deny: nothing passes · allow: everything passes, uncounted
//!   Envoy's form          each by itself, in order; charged whatever the others say
//!   the others            together, and only if the request may go so far: all or nothing
//!   the whole request     denied by any rule, but by rules in quota mode only if all of them deny
//! ```
//!
//! What is given back or reset is so by each rule on its own.

use std::sync::atomic::Ordering;

use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::{DomainStatus, List, ListMatch, Plan, Step, Target};
use sluicegate_rules::request::{Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::RuleNo;

use super::Snapshot;
use crate::level::{Level, Promise};
use crate::limiter::{Asked, Limiter, ask_each};
use crate::memory::UNCOUNTED;

/// What became of a request. It can be used again, and then needs no more memory.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// Whether it may go.
    pub allowed: bool,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
    /// The steps that it was matched to.
    pub plan: Plan,
    pub(super) each: Vec<Verdict>,
}

/// What was said of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// What it is under.
    pub target: Target,
    /// What its limits say; of one that is under nothing, that it may go.
    pub verdict: Verdict,
    /// How far that can be relied on, where nodes share a limit.
    pub promise: Promise,
}

/// What is wanted of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Check and charge.
    Hit,
    /// Check.
    Peek,
    /// Return a charge.
    Refund,
    /// Reset the limits.
    Reset,
}

/// Traffic looks after memory once in so many microseconds, if it comes just then.
const LOOK_AFTER_EVERY: u64 = 1_024;

// === impl Snapshot ===

impl Snapshot<'_> {
    /// May this request go at `now`? If so, everything that it is under is charged.
    pub fn check(&self, request: &Request<'_>, now: Timestamp, checked: &mut Checked) {
        self.ask(Want::Hit, request, now, checked);
        self.look_after_memory(now);
    }

    /// Would it go at `now`? Nothing is charged.
    pub fn peek(&self, request: &Request<'_>, now: Timestamp, checked: &mut Checked) {
        self.ask(Want::Peek, request, now, checked);
    }

    /// Gives back the hits of a request that was charged and did not happen.
    pub fn refund(&self, request: &Request<'_>, now: Timestamp, checked: &mut Checked) {
        self.ask(Want::Refund, request, now, checked);
    }

    /// Makes every limit that it is under as new for who is described, also if a list has its say on requests. The statuses tell how they stand
    /// then.
    pub fn reset(&self, request: &Request<'_>, now: Timestamp, checked: &mut Checked) {
        self.ask(Want::Reset, request, now, checked);
    }

    fn ask(&self, want: Want, request: &Request<'_>, now: Timestamp, checked: &mut Checked) {
        if let Some(listed) = self.begin(request, checked)
            && want != Want::Reset
        {
            if listed.list == List::Deny && want != Want::Refund {
                checked.deny_listed(listed);
            }
            return;
        }
        let Checked { allowed, statuses, plan, each } = checked;
        let mut together = 0;
        for (place, step) in plan.steps().iter().enumerate() {
            statuses[place].verdict = match self.manner(want, step) {
                Manner::Free => continue,
                Manner::Together(_) => {
                    together += 1;
                    continue;
                }
                Manner::Override(limit) => {
                    self.ask_override(want, limit, plan.identity(step), step.cost, now)
                }
                Manner::Alone(no) => {
                    ask_alone(want, &self.asked(no, plan.identity(step)), step.cost, now)
                }
                Manner::Once(no) => match first_alike(plan, place) {
                    first if first < place => statuses[first].verdict,
                    _ => {
                        let cost = most_of(plan, place);
                        ask_alone(want, &self.asked(no, plan.identity(step)), cost, now)
                    }
                },
            };
        }
        *allowed = self.is_allowed(statuses);
        if together > 0 {
            let want = if *allowed { want } else { Want::Peek };
            self.ask_together(want, together, plan, statuses, each, now);
            *allowed = self.is_allowed(statuses);
        }
        if want == Want::Hit {
            self.count(plan, statuses);
        }
    }

    /// Finds what a request is under; nothing is asked yet. The list that has its say on it, if there is one.
    #[inline]
    pub fn begin(&self, request: &Request<'_>, checked: &mut Checked) -> Option<ListMatch> {
        let Checked { allowed, statuses, plan, .. } = checked;
        self.live.rules.plan(request, plan);
        statuses.clear();
        statuses.extend(plan.steps().iter().map(Status::free));
        *allowed = true;
        plan.listed()
    }

    /// Counter of an identity under a rule, in this node's memory.
    #[must_use]
    pub fn asked<'a>(&'a self, no: RuleNo, key: &'a [u8]) -> Asked<'a> {
        let (limiter, rule) = self.live.seat(no, self.engine);
        Asked { limiter, rule: Some(rule), key }
    }

    /// How a step is asked.
    #[inline]
    #[must_use]
    pub fn manner(&self, want: Want, step: &Step) -> Manner {
        match step.target {
            Target::None | Target::Replaced(_) => Manner::Free,
            Target::Override(limit) => Manner::Override(limit),
            Target::Rule(no) => match self.live.rules.rule(no) {
                RuleConfig { limits: Limits::Unlimited, .. } => Manner::Free,
                RuleConfig { limits: Limits::Envoy { .. }, .. } => Manner::Alone(no),
                // Whether it denies says nothing about the request as long as another of its kind does not.
                RuleConfig { quota_mode: true, .. } => Manner::Once(no),
                // Nobody has to agree to what is given back, and who cannot take it does not keep the others from theirs.
                _ if matches!(want, Want::Refund | Want::Reset) => Manner::Once(no),
                _ => Manner::Together(no),
            },
        }
    }

    /// Those that are charged only if all agree, each with its own cost; who is named more than once, once and with the largest.
    fn ask_together(
        &self,
        want: Want,
        count: usize,
        plan: &Plan,
        statuses: &mut [Status],
        each: &mut Vec<Verdict>,
        now: Timestamp,
    ) {
        let steps = || {
            let all = plan.steps().iter().enumerate();
            all.filter_map(|(place, step)| match self.manner(want, step) {
                Manner::Together(no) => Some((place, step, no)),
                _ => None,
            })
        };
        let mut all: Vec<(Asked<'_>, u64)> = Vec::new();
        if count > 1 {
            all.reserve(count);
            let firsts = steps().filter(|(place, ..)| first_alike(plan, *place) == *place);
            all.extend(firsts.map(|(place, step, no)| {
                (self.asked(no, plan.identity(step)), most_of(plan, place))
            }));
        }
        if all.len() > 1 {
            // A hit that brings its own id and a peek are not refused by any algorithm.
            let _ = ask_each(&all, &want.op(), now, each);
        } else {
            let Some((place, step, no)) = steps().next() else { return };
            each.clear();
            let asked = self.asked(no, plan.identity(step));
            each.push(ask_alone(want, &asked, most_of(plan, place), now));
        }
        let mut said = each.iter();
        for (place, ..) in steps() {
            let first = first_alike(plan, place);
            let again = (first < place).then(|| statuses[first].verdict);
            let verdict = again.or_else(|| said.next().copied());
            statuses[place].verdict = verdict.unwrap_or(UNCOUNTED);
        }
    }

    /// A limit that came with the request: the counter knows no limit, so the verdict is made here.
    pub(super) fn ask_override(
        &self,
        want: Want,
        limit: Override,
        key: &[u8],
        cost: u64,
        now: Timestamp,
    ) -> Verdict {
        let said = ask_alone(want, &self.asked_override(limit, key), cost, now);
        override_verdict(want, limit, cost, said)
    }

    /// The counter of a limit that came with the request.
    #[must_use]
    pub fn asked_override<'a>(&'a self, limit: Override, key: &'a [u8]) -> Asked<'a> {
        let limiter = self.engine.overrides.of(limit.unit, &self.engine.store);
        Asked { limiter, rule: None, key }
    }

    /// Whether the request may go, as far as it was asked: denied by any rule, but by rules in quota mode only if all of them
    /// deny.
    #[must_use]
    pub fn is_allowed(&self, statuses: &[Status]) -> bool {
        let (mut quotas, mut exhausted) = (0u32, 0u32);
        for status in statuses {
            let denied = !status.verdict.is_allowed();
            if self.is_quota(status) {
                quotas += 1;
                exhausted += u32::from(denied);
            } else if denied {
                return false;
            }
        }
        quotas == 0 || exhausted < quotas
    }

    fn is_quota(&self, status: &Status) -> bool {
        match status.target {
            Target::Rule(no) => self.live.rules.rule(no).quota_mode,
            Target::None | Target::Replaced(_) | Target::Override(_) => false,
        }
    }

    /// Now and then somebody gives back what a rule that nobody asks for any more has no use for.
    pub fn look_after_memory(&self, now: Timestamp) {
        // By chance, since a counter of all requests would be in everybody's way.
        if now.as_micros().is_multiple_of(LOOK_AFTER_EVERY) {
            let turn = self.engine.hand.fetch_add(1, Ordering::Relaxed);
            self.live.sweep_one(&self.engine.overrides, turn);
        }
    }
}

impl Snapshot<'_> {
    /// Whether there is a rule that nodes which share a store may decide by themselves.
    #[inline]
    #[must_use]
    pub fn has_local(&self) -> bool {
        self.live.has_local
    }

    /// Whether there is one whose counts they tell each other.
    #[must_use]
    pub fn has_eventual(&self) -> bool {
        self.live.has_eventual
    }

    /// What is kept under a rule.
    #[must_use]
    pub fn kept(&self, no: RuleNo) -> &std::sync::Arc<super::live::Kept> {
        &self.live.seats[no.index()].kept
    }

    /// Whether the step at a place is asked once, however often it is named.
    #[must_use]
    pub fn is_asked_once(&self, want: Want, place: usize, plan: &Plan) -> bool {
        let manner = self.manner(want, &plan.steps()[place]);
        matches!(manner, Manner::Once(_) | Manner::Together(_))
    }
}

/// How a step is asked.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    /// Not at all.
    Free,
    /// By the counter of its unit.
    Override(Override),
    /// By itself, and charged whatever the others say; as often as it is named.
    Alone(RuleNo),
    /// By itself, and whatever the others say; however often it is named.
    Once(RuleNo),
    /// With the others: all or nothing.
    Together(RuleNo),
}

/// What a limit that came with the request says, where its counter said this.
pub(super) fn override_verdict(want: Want, limit: Override, cost: u64, said: Verdict) -> Verdict {
    // A look at a cost would say how it stands before it.
    let ahead = if want == Want::Peek { cost } else { 0 };
    let left = u64::try_from(said.remaining.unwrap_or(0)).unwrap_or(0);
    let came = EXACT_MAX.saturating_sub(left);
    let most = u64::from(limit.requests_per_unit);
    let gives = matches!(want, Want::Refund | Want::Reset);
    let outcome = match came.saturating_add(ahead) <= most || gives {
        true => Outcome::Allow { wait: Default::default() },
        false if cost > most => Outcome::Never { max_cost: most },
        false => Outcome::Deny { retry_after: said.reset_after },
    };
    let remaining = i64::try_from(most.saturating_sub(came)).ok();
    Verdict { outcome, remaining, beyond: came.saturating_sub(most), ..said }
}

/// The first step that is about the same counter of the same rule.
#[must_use]
pub fn first_alike(plan: &Plan, place: usize) -> usize {
    let (all, step) = (plan.steps(), &plan.steps()[place]);
    all[..place].iter().position(|other| is_alike(plan, other, step)).unwrap_or(place)
}

/// The largest cost of a step and those behind it that are about the same.
#[must_use]
pub fn most_of(plan: &Plan, place: usize) -> u64 {
    let (all, step) = (plan.steps(), &plan.steps()[place]);
    let later = all[place + 1..].iter().filter(|other| is_alike(plan, other, step));
    later.map(|other| other.cost).max().unwrap_or(0).max(step.cost)
}

fn is_alike(plan: &Plan, one: &Step, other: &Step) -> bool {
    one.target == other.target && plan.identity(one) == plan.identity(other)
}

fn ask_alone(want: Want, asked: &Asked<'_>, cost: u64, now: Timestamp) -> Verdict {
    match want {
        Want::Hit => asked.hit(cost, now),
        Want::Peek => asked.ask(Op::Peek { cost }, now),
        Want::Refund => asked.ask(Op::Refund { cost }, now),
        Want::Reset => asked.reset(now),
    }
}

impl Want {
    fn op(self) -> fn(u64) -> Op {
        match self {
            Self::Hit => |cost| Op::Hit { cost, holder: Some(Limiter::new_holder()) },
            Self::Peek => |cost| Op::Peek { cost },
            Self::Refund => |cost| Op::Refund { cost },
            Self::Reset => |_| Op::Reset,
        }
    }
}

// === impl Checked ===

impl Checked {
    /// Whether anything is known of the domain that was asked for.
    #[must_use]
    pub const fn domain(&self) -> DomainStatus {
        self.plan.domain()
    }

    /// The entry that is on one of the domain's lists, if there is one.
    #[must_use]
    pub const fn listed(&self) -> Option<ListMatch> {
        self.plan.listed()
    }

    /// How long an admitted request has to wait for its turn: as long as the last of its limits says.
    #[must_use]
    pub fn wait(&self) -> Span {
        self.statuses.iter().map(|status| status.verdict.wait()).max().unwrap_or_default()
    }

    /// Whether a request that goes holds a slot.
    #[must_use]
    pub fn holds_slot(&self, rules: &Snapshot<'_>) -> bool {
        let has_slots = |status: &Status| match status.target {
            Target::Rule(no) => rules.policies(no).iter().any(crate::policy::Policy::has_slots),
            Target::None | Target::Replaced(_) | Target::Override(_) => false,
        };
        self.allowed && self.statuses.iter().any(has_slots)
    }

    /// A list says that it may never go.
    #[cold]
    pub fn deny_listed(&mut self, listed: ListMatch) {
        self.allowed = false;
        if let Some(status) = self.statuses.get_mut(listed.at.0) {
            status.verdict.outcome = Outcome::Never { max_cost: 0 };
        }
    }
}

// === impl Status ===

impl Status {
    const fn free(step: &Step) -> Self {
        Self {
            target: step.target,
            verdict: UNCOUNTED,
            promise: Promise { level: Level::Strict, over: 0 },
        }
    }
}
