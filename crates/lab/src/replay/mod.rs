//! Recorded requests through a set of rules, on virtual time in the engine's memory store.
//!
//! - [`verdict`]: what a request got, and from which rule.
//! - [`tally`]: requests by outcome, by rule and by identity.
//! - [`identities`] and [`series`]: the two dimensions of a tally, both bounded.
//! - [`comparison`]: where two sets of rules decide differently.
//! - [`run`]: logs through one or two sets of rules.
//! - [`shards`]: the same in several threads, by key.
//! - [`findings`], [`text`], [`json`](mod@json), [`html`](mod@html): the result for people and
//!   programs.

pub mod comparison;
pub mod findings;
pub mod html;
pub mod identities;
pub mod json;
mod plot;
pub mod run;
pub mod series;
pub mod shards;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod text;
pub mod verdict;

use sluicegate::backend::{Call, ready};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::rules::domain::Domain;
use sluicegate::rules::request::Request;
use sluicegate::rules::resolve::TimedDomains;
use sluicegate::rules::rule::OnLimit;
use sluicegate::rules::set::RuleSet;
use sluicegate::rules::slots::omit_slots;
use sluicegate::{Checked, Engine, LimitError, Snapshot, new_holder};
use sluicegate_core::time::{Span, Timestamp};

/// Rules under trial. All counters start empty.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    clock: ManualClock,
    timed: Option<TimedDomains>,
    /// How often the rules were resolved.
    revision: u64,
    slots_omitted: usize,
    /// How long a request over a limit that shapes waits.
    max_wait: Span,
}

impl Replay {
    /// A trial of these rules.
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency.
    pub fn new(rules: RuleSet) -> Result<Self, LimitError> {
        let clock = ManualClock::at(Timestamp::EPOCH);
        let engine = Engine::builder(rules).clock(clock.clone()).build()?;
        let (timed, max_wait) = (None, Span::ZERO);
        Ok(Self { engine, clock, timed, revision: 0, slots_omitted: 0, max_wait })
    }

    /// A trial of rules whose schedules and overrides follow the time of the requests. Concurrency
    /// limits are left out: a log does not have the end of each request.
    ///
    /// # Errors
    /// When the rules cannot be enforced together.
    pub fn of_domains(domains: Vec<Domain>) -> Result<Self, String> {
        let timed = TimedDomains::new(domains);
        let (rules, timed, slots_omitted) = resolved(&timed, Timestamp::EPOCH)?;
        let replay = Self::new(rules).map_err(|error| error.to_string())?;
        Ok(Self { timed: Some(timed), slots_omitted, ..replay })
    }

    /// How long a request over a limit with `on_limit: shape` waits for its turn, as it would in
    /// the gateway; by default it is denied, as the service denies it.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Span) -> Self {
        Self { max_wait, ..self }
    }

    /// Decides a request at its time, which is not before that of the last one.
    ///
    /// ```
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate_core::time::Timestamp;
    /// use sluicegate_lab::replay::Replay;
    ///
    /// let rules = "{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }] }";
    /// let replay = Replay::new(sluicegate::rules_of(rules)?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    /// let allowed = |second: u64| {
    ///     replay.run(Timestamp::from_micros(second * 1_000_000), &request).allowed
    /// };
    /// assert_eq!([allowed(0), allowed(59), allowed(60)], [true, false, true]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, at: Timestamp, request: &Request<'_>) -> Checked {
        let mut checked = Checked::default();
        self.decide(&self.engine.snapshot(), at, request, &mut checked);
        checked
    }

    /// The same by a snapshot of the rules, into a result that is used again.
    pub fn decide(
        &self,
        rules: &Snapshot<'_>,
        at: Timestamp,
        request: &Request<'_>,
        checked: &mut Checked,
    ) {
        // Sweeping of memory reads the clock. Many requests have the same time.
        if self.clock.now() != at {
            self.clock.set(at);
        }
        let call = Call::new(rules, request, at);
        // In memory, it never has to wait.
        self.engine.check_now(&call, checked);
        if !checked.allowed && !self.max_wait.is_zero() && waits_for_turn(rules, checked) {
            let mut booked = Checked::default();
            let booking = self.engine.book(call, new_holder(), self.max_wait, &mut booked);
            // Limits in Envoy's form cannot be booked: the denial stands.
            if let Some(Ok(())) = ready(booking) {
                *checked = booked;
            }
        }
    }

    /// Applies schedules and overrides as of a time.
    ///
    /// # Errors
    /// When the rules cannot be enforced together at this time.
    #[inline]
    pub fn advance(&mut self, to: Timestamp) -> Result<(), String> {
        match &self.timed {
            Some(timed) if timed.is_due(to) => self.switch(to),
            _ => Ok(()),
        }
    }

    #[cold]
    fn switch(&mut self, to: Timestamp) -> Result<(), String> {
        let Some(timed) = &self.timed else { return Ok(()) };
        let (rules, timed, slots_omitted) = resolved(timed, to)?;
        self.clock.set(to);
        self.engine.reload(rules).map_err(|error| error.to_string())?;
        (self.timed, self.slots_omitted) = (Some(timed), slots_omitted);
        self.revision += 1;
        Ok(())
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> Snapshot<'_> {
        self.engine.snapshot()
    }

    /// Changes whenever schedules or overrides have changed the rules.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Concurrency limits that are left out.
    #[must_use]
    pub const fn slots_omitted(&self) -> usize {
        self.slots_omitted
    }

    /// Whether no further identity fits into its memory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.engine.memory().entries() >= self.engine.memory().entries_max()
    }
}

/// Whether all rules that deny a request let it wait for its turn.
fn waits_for_turn(rules: &Snapshot<'_>, checked: &Checked) -> bool {
    let mut denials = checked.statuses.iter().filter(|status| !status.verdict.is_allowed());
    checked.listed().is_none()
        && denials.all(|status| {
            let rule = status.rule().map(|no| rules.rules().rule(no));
            rule.is_some_and(|rule| rule.on_limit == OnLimit::Shape)
        })
}

/// The rules of a moment, without concurrency limits, whose number is the last.
fn resolved(
    timed: &TimedDomains,
    now: Timestamp,
) -> Result<(RuleSet, TimedDomains, usize), String> {
    let (mut domains, timed) = timed.resolve(now).map_err(|error| error.to_string())?;
    let omitted = domains.iter_mut().map(|domain| omit_slots(&mut domain.descriptors)).sum();
    let rules = RuleSet::new(domains).map_err(|error| error.to_string())?;
    Ok((rules, timed, omitted))
}
