//! One run of a candidate: its engine, and what it decided.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate::backend::Call;
use sluicegate::clock::TimeSource;
use sluicegate::config::rules::{Options, load};
use sluicegate::rules::request::Request;
use sluicegate::rules::resolve::TimedDomains;
use sluicegate::rules::set::RuleSet;
use sluicegate::rules::slots::omit_slots;
use sluicegate::striped::Striped;
use sluicegate::{Checked, Engine, Memory, RulesError, Snapshot, Timestamp};
use sluicegate_rulestore::{Revision, StoredRevision};

use super::differences::{Differences, DifferingIdentities, denied_identity};
use crate::app::App;
use crate::rls::Options as ServiceOptions;
use crate::traffic::rules::RuleTable;
use crate::unmatched::UnmatchedPolicy;

/// Identities that a run counts at most: some 30 MB for one limit each. Beyond, the rules'
/// `overflow` applies.
pub const IDENTITIES_MAX: usize = 1_000_000;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How rules are loaded.
    pub rules: Options,
    /// The share of a limit from which a hit is near it.
    pub near_limit_ratio: f32,
    /// Identities that are counted at most, up to [`IDENTITIES_MAX`].
    pub identities_max: usize,
}

/// Requests by their outcome under the enforced rules and the candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestPairs {
    /// Both allow them.
    pub both_allow: u64,
    /// Both deny them.
    pub both_deny: u64,
    /// Only the enforced rules deny them.
    pub only_enforced_denies: u64,
    /// Only the candidate denies them.
    pub only_candidate_denies: u64,
}

impl RequestPairs {
    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// The counts by name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("both_allow", self.both_allow),
            ("both_deny", self.both_deny),
            ("only_enforced_denies", self.only_enforced_denies),
            ("only_candidate_denies", self.only_candidate_denies),
        ]
    }
}

/// A candidate that is checked beside the enforced rules.
#[derive(Debug)]
pub struct CandidateRun {
    revision: Revision,
    since: Timestamp,
    engine: Engine,
    /// By whether the enforced rules deny, and whether the candidate does.
    outcomes: Striped<[AtomicU64; 4]>,
    newly_denied: Mutex<Differences>,
    newly_allowed: Mutex<Differences>,
    table: Mutex<RuleTable>,
    resolved: Mutex<ResolvedRules>,
}

/// What the rules are resolved from.
#[derive(Debug)]
struct ResolvedRules {
    timed: TimedDomains,
    /// Concurrency limits that were left out.
    slots_omitted: usize,
}

thread_local! {
    static CHECKED: RefCell<Checked> = RefCell::default();
}

impl CandidateRun {
    /// Begins a run, on the clock of the enforced rules.
    ///
    /// # Errors
    /// When the rules cannot be enforced.
    pub fn start(app: &App, stored: StoredRevision, options: &RunOptions) -> Result<Self, String> {
        let loaded = load(&stored.sources, &options.rules);
        let loaded = loaded.map_err(|invalid| RulesError::Invalid(invalid).to_string())?;
        let now = app.engine().now();
        let (rules, resolved) = ResolvedRules::at(&TimedDomains::new(loaded.domains), now)?;
        let memory = Memory::with_entries(options.identities_max.min(IDENTITIES_MAX));
        let ServiceOptions { unmatched, .. } = app.options();
        let engine = Engine::builder(rules)
            .memory(&memory)
            .near_limit_ratio(options.near_limit_ratio)
            .observe_traffic(true)
            .deny_unmatched(*unmatched != UnmatchedPolicy::Allow);
        let engine = match app.engine().clock() {
            TimeSource::System(clock) => engine.clock(*clock),
            TimeSource::Custom(clock) => engine.clock(clock.clone()),
        };
        let run = Self {
            revision: stored.revision,
            since: now,
            engine: engine.build().map_err(|error| error.to_string())?,
            outcomes: Striped::new(|| std::array::from_fn(|_| AtomicU64::new(0))),
            newly_denied: Mutex::default(),
            newly_allowed: Mutex::default(),
            table: Mutex::default(),
            resolved: Mutex::new(resolved),
        };
        // The table counts from its first tick.
        run.tick(app, now)?;
        Ok(run)
    }

    /// Checks a request that the enforced rules have decided.
    pub(crate) fn observe(
        &self,
        app: &App,
        enforced: &Snapshot<'_>,
        request: &Request<'_>,
        decided: &Checked,
    ) {
        CHECKED.with(|checked| {
            // Nothing below observes another request on this thread.
            if let Ok(mut checked) = checked.try_borrow_mut() {
                self.compare(app, enforced, request, decided, &mut checked);
            }
        });
    }

    fn compare(
        &self,
        app: &App,
        enforced: &Snapshot<'_>,
        request: &Request<'_>,
        decided: &Checked,
        checked: &mut Checked,
    ) {
        let rules = self.engine.snapshot();
        let call = Call::new(&rules, request, self.engine.now());
        // In memory, it never has to wait.
        self.engine.check_now(&call, checked);
        // By the rules alone: the shadow mode of the service applies to both.
        let denies = [!app.would_allow(enforced, decided), !app.would_allow(&rules, checked)];
        let [enforced_denies, candidate_denies] = denies;
        let outcome = usize::from(enforced_denies) * 2 + usize::from(candidate_denies);
        self.outcomes.mine()[outcome].fetch_add(1, Ordering::Relaxed);
        let (differences, denied, rule) = match denies {
            [false, true] => (&self.newly_denied, &*checked, app.denied_by(&rules, checked)),
            [true, false] => (&self.newly_allowed, decided, None),
            _ => return,
        };
        if let Some((hash, identity)) = denied_identity(&rules, request, denied) {
            differences.lock().add(hash, &identity, rule);
        }
    }

    /// Moves the statistics on to this moment, and resolves schedules and overrides if it is time.
    ///
    /// # Errors
    /// When the rules cannot be enforced any more.
    pub fn tick(&self, app: &App, now: Timestamp) -> Result<(), String> {
        if let Some(load) = app.engine().load() {
            self.engine.set_load(load);
        }
        let mut resolved = self.resolved.lock();
        if resolved.timed.is_due(now) {
            let (rules, next) = ResolvedRules::at(&resolved.timed, now)?;
            self.engine.reload(rules).map_err(|error| error.to_string())?;
            *resolved = next;
        }
        drop(resolved);
        self.engine.tick_traffic();
        self.table.lock().tick(&self.engine.snapshot(), now);
        Ok(())
    }

    /// The revision.
    #[must_use]
    pub const fn revision(&self) -> &Revision {
        &self.revision
    }

    /// When it began.
    #[must_use]
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> RequestPairs {
        let count = |outcome: usize| self.outcomes.sum(|counters| &counters[outcome]);
        RequestPairs {
            both_allow: count(0),
            only_candidate_denies: count(1),
            only_enforced_denies: count(2),
            both_deny: count(3),
        }
    }

    /// Its rules, with statistics.
    pub(crate) fn rules(&self) -> Snapshot<'_> {
        self.engine.snapshot()
    }

    /// The series of its rules.
    pub(crate) fn read_table<T>(&self, read: impl FnOnce(&RuleTable) -> T) -> T {
        read(&self.table.lock())
    }

    /// Identities that only the candidate denies, with the most such requests.
    pub(crate) fn newly_denied(&self) -> DifferingIdentities {
        self.newly_denied.lock().identities()
    }

    /// Identities that only the enforced rules deny.
    pub(crate) fn newly_allowed(&self) -> DifferingIdentities {
        self.newly_allowed.lock().identities()
    }

    /// Requests that only the candidate denies, by the id of its rule.
    pub(crate) fn newly_denied_by_rule(&self) -> BTreeMap<String, u64> {
        self.newly_denied.lock().by_rule()
    }

    /// Concurrency limits that were left out.
    pub(crate) fn slots_omitted(&self) -> usize {
        self.resolved.lock().slots_omitted
    }

    /// Whether no further identity fits into its memory.
    pub(crate) fn is_full(&self) -> bool {
        self.engine.memory().entries() >= self.engine.memory().entries_max()
    }
}

impl ResolvedRules {
    /// The rules of a moment, without concurrency limits.
    fn at(timed: &TimedDomains, now: Timestamp) -> Result<(RuleSet, Self), String> {
        let (mut domains, timed) = timed.resolve(now).map_err(|error| error.to_string())?;
        let omitted = domains.iter_mut().map(|domain| omit_slots(&mut domain.descriptors));
        let slots_omitted = omitted.sum();
        let rules = RuleSet::new(domains).map_err(|error| error.to_string())?;
        Ok((rules, Self { timed, slots_omitted }))
    }
}
