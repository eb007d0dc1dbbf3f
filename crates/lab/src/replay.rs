//! Recorded requests through a set of rules, on virtual time in the engine's memory store.

use sluicegate::clock::ManualClock;
use sluicegate::rules::request::Request;
use sluicegate::rules::set::RuleSet;
use sluicegate::{Checked, Engine, LimitError, Snapshot};
use sluicegate_core::time::Timestamp;

/// Rules under trial. All counters start empty.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    clock: ManualClock,
}

impl Replay {
    /// A trial of these rules.
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency.
    pub fn new(rules: RuleSet) -> Result<Self, LimitError> {
        let clock = ManualClock::at(Timestamp::EPOCH);
        let engine = Engine::builder(rules).clock(clock.clone()).build()?;
        Ok(Self { engine, clock })
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
        self.clock.set(at);
        self.engine.check(request)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> Snapshot<'_> {
        self.engine.snapshot()
    }
}
