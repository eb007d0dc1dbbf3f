//! Requests of a replay by outcome, by rule and by identity.
//!
//! A rule counts a request by its own verdict, as the service's metrics do: a request that it
//! admits and another rule denies is allowed here. Two descriptors under the same counter are one
//! request of it.

use std::collections::HashMap;

use sluicegate::backend::{first_same, largest_cost};
use sluicegate::rules::plan::{List, Target};
use sluicegate::{Checked, Snapshot, Status};
use sluicegate_core::time::{Span, Timestamp};

use super::identities::{IDENTITIES_MAX, IdentityTable};
use super::series::Series;
use super::verdict::{Decided, ReplayVerdict, is_limited};

/// Tally of a set of rules.
#[derive(Debug)]
pub struct Tally {
    /// Requests by outcome.
    pub requests: OutcomeCounts,
    /// Those over time.
    pub series: Series,
    /// The rules that had requests, in the order of their first ones.
    pub rules: Vec<RuleTally>,
    /// The index of a rule by its id.
    indices: HashMap<String, usize>,
    /// The index by the number of the rule, for the revision of the rules.
    numbers: Vec<Option<usize>>,
    revision: u64,
    identities_left: usize,
}

/// Requests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeCounts {
    /// All.
    pub requests: u64,
    /// Those that pass at once.
    pub allowed: u64,
    /// Those that pass after a wait.
    pub delayed: u64,
    /// Those that pass, but a rule in shadow mode would deny them.
    pub shadow_denied: u64,
    /// Denied ones.
    pub denied: u64,
    /// Those among them that a deny list denies.
    pub deny_listed: u64,
    /// Those that pass since they are on an allow list.
    pub allow_listed: u64,
    /// Those that no rule applies to.
    pub unmatched: u64,
}

/// Requests under a rule.
#[derive(Debug)]
pub struct RuleTally {
    /// Its id.
    pub id: String,
    /// Requests by the verdict of this rule. Lists are no rules.
    pub requests: OutcomeCounts,
    /// Their cost.
    pub hits: u64,
    /// The cost of denied ones.
    pub denied_hits: u64,
    /// The sum of all waits.
    pub delay: Span,
    /// The longest one.
    pub delay_max: Span,
    /// The first request that is denied, or would be.
    pub first_denied: Option<Place>,
    /// The last one.
    pub last_denied: Option<Place>,
    /// Requests over time.
    pub series: Series,
    /// Requests by identity.
    pub identities: IdentityTable,
}

/// A request in the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it was decided.
    pub at: Timestamp,
    /// Index of the log.
    pub log: usize,
    /// Its line, from 1.
    pub line: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: OutcomeCounts::default(),
            series: Series::default(),
            rules: Vec::new(),
            indices: HashMap::new(),
            numbers: Vec::new(),
            revision: u64::MAX,
            identities_left: IDENTITIES_MAX,
        }
    }
}

impl Tally {
    /// A tally that counts so many identities exactly.
    #[must_use]
    pub fn with_identities_max(identities_max: usize) -> Self {
        Self { identities_left: identities_max, ..Self::default() }
    }

    /// Counts a decided request. The revision is that of the rules.
    pub fn add(
        &mut self,
        (rules, revision): (&Snapshot<'_>, u64),
        place: Place,
        checked: &Checked,
        decided: Decided,
    ) {
        self.requests.add(decided.verdict);
        self.series.add(place.at, decided.verdict);
        match checked.listed() {
            Some(listed) if listed.list == List::Deny => self.requests.deny_listed += 1,
            Some(_) => self.requests.allow_listed += 1,
            None => {}
        }
        if self.revision != revision {
            self.numbers = vec![None; rules.rules().rules().len()];
            self.revision = revision;
        }
        let mut is_matched = false;
        for (index, status) in checked.statuses.iter().enumerate() {
            is_matched |= matches!(status.target, Target::Rule(_) | Target::Override(_));
            if checked.listed().is_none() {
                self.add_status(rules, place, checked, (index, status));
            }
        }
        self.requests.unmatched += u64::from(!is_matched && checked.listed().is_none());
    }

    fn add_status(
        &mut self,
        rules: &Snapshot<'_>,
        place: Place,
        checked: &Checked,
        (index, status): (usize, &Status),
    ) {
        let Some(no) = status.rule() else { return };
        if !is_limited(rules, no) || first_same(&checked.plan, index) < index {
            return;
        }
        let at = match self.numbers.get(no.index()) {
            Some(Some(at)) => *at,
            _ => self.register(no.index(), rules.rules().id(no)),
        };
        let tally = &mut self.rules[at];
        let verdict = match status {
            _ if !status.verdict.is_allowed() => ReplayVerdict::Denied,
            _ if status.is_shadow_denied() => ReplayVerdict::ShadowDenied,
            _ if !status.verdict.wait().is_zero() => ReplayVerdict::Delayed,
            _ => ReplayVerdict::Allowed,
        };
        let cost = largest_cost(&checked.plan, index);
        tally.add(place, cost, verdict, status.verdict.wait());
        let identity = checked.plan.identity(&checked.plan.steps()[index]);
        let has_room = self.identities_left > 0;
        if tally.identities.add(identity, (place.at, cost), verdict, has_room) {
            self.identities_left -= 1;
        }
    }

    #[cold]
    fn register(&mut self, number: usize, id: String) -> usize {
        let next = self.rules.len();
        let at = *self.indices.entry(id.clone()).or_insert(next);
        if at == next {
            self.rules.push(RuleTally::new(id));
        }
        if let Some(known) = self.numbers.get_mut(number) {
            *known = Some(at);
        }
        at
    }

    /// Adds the tally of another shard of the same replay.
    pub fn merge(&mut self, other: Self) {
        self.requests.merge(other.requests);
        self.series.merge(&other.series);
        for rule in other.rules {
            match self.indices.get(&rule.id) {
                Some(at) => self.rules[*at].merge(rule),
                None => {
                    self.indices.insert(rule.id.clone(), self.rules.len());
                    self.rules.push(rule);
                }
            }
        }
    }

    /// The rules with denied requests first: the most denied ones, then the most that wait.
    #[must_use]
    pub fn ranked(&self) -> Vec<&RuleTally> {
        let mut all: Vec<&RuleTally> = self.rules.iter().collect();
        all.sort_by_key(|rule| {
            let counts = &rule.requests;
            let worst = (counts.denied, counts.shadow_denied, counts.delayed, counts.requests);
            (std::cmp::Reverse(worst), rule.id.clone())
        });
        all
    }
}

impl OutcomeCounts {
    fn add(&mut self, verdict: ReplayVerdict) {
        self.requests += 1;
        *match verdict {
            ReplayVerdict::Allowed => &mut self.allowed,
            ReplayVerdict::Delayed => &mut self.delayed,
            ReplayVerdict::ShadowDenied => &mut self.shadow_denied,
            ReplayVerdict::Denied => &mut self.denied,
        } += 1;
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.allowed += other.allowed;
        self.delayed += other.delayed;
        self.shadow_denied += other.shadow_denied;
        self.denied += other.denied;
        self.deny_listed += other.deny_listed;
        self.allow_listed += other.allow_listed;
        self.unmatched += other.unmatched;
    }

    /// Requests that are denied, or would be.
    #[must_use]
    pub const fn all_denied(&self) -> u64 {
        self.denied + self.shadow_denied
    }
}

impl RuleTally {
    fn new(id: String) -> Self {
        Self {
            id,
            requests: OutcomeCounts::default(),
            hits: 0,
            denied_hits: 0,
            delay: Span::ZERO,
            delay_max: Span::ZERO,
            first_denied: None,
            last_denied: None,
            series: Series::default(),
            identities: IdentityTable::default(),
        }
    }

    fn add(&mut self, place: Place, cost: u64, verdict: ReplayVerdict, wait: Span) {
        self.requests.add(verdict);
        self.series.add(place.at, verdict);
        self.hits = self.hits.saturating_add(cost);
        match verdict {
            ReplayVerdict::Allowed => {}
            ReplayVerdict::Delayed => {
                let sum = self.delay.as_micros().saturating_add(wait.as_micros());
                self.delay = Span::from_micros(sum);
                self.delay_max = self.delay_max.max(wait);
            }
            ReplayVerdict::Denied | ReplayVerdict::ShadowDenied => {
                self.denied_hits = self.denied_hits.saturating_add(cost);
                self.first_denied.get_or_insert(place);
                self.last_denied = Some(place);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.requests.merge(other.requests);
        self.series.merge(&other.series);
        self.hits = self.hits.saturating_add(other.hits);
        self.denied_hits = self.denied_hits.saturating_add(other.denied_hits);
        let sum = self.delay.as_micros().saturating_add(other.delay.as_micros());
        self.delay = Span::from_micros(sum);
        self.delay_max = self.delay_max.max(other.delay_max);
        let firsts = self.first_denied.into_iter().chain(other.first_denied);
        self.first_denied = firsts.min();
        self.last_denied = self.last_denied.max(other.last_denied);
        self.identities.merge(other.identities);
    }

    /// The mean wait of requests that wait.
    #[must_use]
    pub fn mean_delay(&self) -> Span {
        Span::from_micros(self.delay.as_micros().checked_div(self.requests.delayed).unwrap_or(0))
    }
}
