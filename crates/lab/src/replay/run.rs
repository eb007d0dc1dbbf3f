//! Logs through one set of rules, or through two at once.

use std::io;

use sluicegate::rules::domain::Domain;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Snapshot};
use sluicegate_core::time::Span;

use super::Replay;
use super::comparison::{Comparison, Side};
use super::identities::IDENTITIES_MAX;
use super::json::ReplayOutput;
use super::shards::{self, Shard};
use super::tally::{Place, Tally};
use super::verdict::Decided;
use crate::log_input::batch::LoggedRequest;
use crate::log_input::counts::LineCounts;
use crate::log_input::mapping::LogMapping;
use crate::log_input::{LogError, LogInput, ReadProgress};

/// A replay of logs.
#[derive(Debug, Clone)]
pub struct LogReplay {
    /// The rules, and those that they are compared with.
    pub rules: ReplayedRules,
    /// The other rules, if they are to be compared.
    pub against: Option<ReplayedRules>,
    /// How long a request over a limit with `on_limit: shape` waits; zero denies it.
    pub max_wait: Span,
    /// Identities that are counted exactly.
    pub identities_max: usize,
    /// Threads that decide, where requests can be divided among them.
    pub shards: usize,
}

/// A set of rules, and how requests are mapped to it.
#[derive(Debug, Clone)]
pub struct ReplayedRules {
    /// The rules as they are written.
    pub domains: Vec<Domain>,
    /// From a logged request to descriptors.
    pub mapping: LogMapping,
}

/// Result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    /// Lines of the logs.
    pub lines: LineCounts,
    /// Under the rules.
    pub rules: SideResult,
    /// Under the other ones.
    pub against: Option<SideResult>,
    /// Where both differ.
    pub comparison: Option<Comparison>,
}

/// Result under one set of rules.
#[derive(Debug)]
pub struct SideResult {
    /// Requests by outcome, rule and identity.
    pub tally: Tally,
    /// Concurrency limits that were left out.
    pub slots_omitted: usize,
    /// Whether memory was full, so that identities shared counters.
    pub is_full: bool,
    /// Limits of rules with requests whose window is longer than the logs: they deny too little.
    pub long_windows: Vec<LongWindow>,
}

/// A limit whose window is longer than the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongWindow {
    /// The id of its rule.
    pub rule: String,
    /// The window.
    pub window: Span,
}

/// The rules of a replay, and what they have decided so far; of one shard.
#[derive(Debug)]
pub(super) struct ReplayState {
    before: SideState,
    after: Option<SideState>,
    comparison: Comparison,
}

#[derive(Debug)]
struct SideState {
    replay: Replay,
    tally: Tally,
    checked: Checked,
    /// Index of its mapping.
    mapping: usize,
}

impl LogReplay {
    /// Of these rules alone, with the defaults.
    #[must_use]
    pub const fn new(rules: ReplayedRules) -> Self {
        let (against, identities_max) = (None, IDENTITIES_MAX);
        Self { rules, against, max_wait: Span::ZERO, identities_max, shards: 1 }
    }

    /// Reads logs to their end. Each decision and each difference is written to `output`, where
    /// that wants them; then one thread decides.
    ///
    /// # Errors
    /// When a log cannot be read, the output cannot be written, or the rules cannot be enforced.
    pub fn run(
        &self,
        input: &LogInput,
        output: &mut ReplayOutput<'_>,
        progress: impl FnMut(ReadProgress),
    ) -> Result<ReplayResult, LogError> {
        let mut mappings = vec![self.rules.mapping.clone()];
        if let Some(against) = &self.against
            && against.mapping != self.rules.mapping
        {
            mappings.push(against.mapping.clone());
        }
        let shard_key = match self.shards {
            0 | 1 => None,
            _ if output.is_wanted() => None,
            _ => shards::shard_key(&self.rules, self.against.as_ref(), &mappings),
        };
        let new = || self.state(mappings.len() - 1);
        let (lines, state) = match shard_key {
            None => {
                let mut state = new().map_err(LogError::Rules)?;
                let lines = input.read(&mappings, None, progress, |requests| {
                    requests.iter().try_for_each(|one| state.decide(&mappings, &one, output))
                })?;
                (lines, state)
            }
            Some(key) => {
                let states = (0..self.shards).map(|_| new()).collect::<Result<Vec<_>, _>>();
                let shards = states.map_err(LogError::Rules)?.into_iter().map(Shard::new);
                shards::run(shards.collect(), input, (&mappings, &key), progress)?
            }
        };
        let ReplayState { before, after, comparison } = state;
        let span = lines.span();
        Ok(ReplayResult {
            lines,
            rules: before.finish(span),
            comparison: after.is_some().then_some(comparison),
            against: after.map(|after| after.finish(span)),
        })
    }

    fn state(&self, mapping_of_after: usize) -> Result<ReplayState, String> {
        let side = |rules: &ReplayedRules, mapping: usize| -> Result<SideState, String> {
            let replay = Replay::of_domains(rules.domains.clone())?.with_max_wait(self.max_wait);
            let tally = Tally::with_identities_max(self.identities_max);
            Ok(SideState { replay, tally, checked: Checked::default(), mapping })
        };
        let before = side(&self.rules, 0)?;
        let after = self.against.as_ref().map(|rules| side(rules, mapping_of_after)).transpose()?;
        Ok(ReplayState { before, after, comparison: Comparison::default() })
    }
}

impl ReplayState {
    /// Decides a request and counts it.
    pub(super) fn decide(
        &mut self,
        mappings: &[LogMapping],
        logged: &LoggedRequest<'_>,
        output: &mut ReplayOutput<'_>,
    ) -> io::Result<()> {
        let place = Place { at: logged.at, log: logged.log, line: logged.line };
        let Self { before, after, comparison } = self;
        before.replay.advance(place.at).map_err(io::Error::other)?;
        let SideState { replay, tally, checked, mapping } = before;
        logged.with_request(mappings, *mapping, |request| {
            let rules = replay.rules();
            let decided = decide(replay, &rules, place, request, checked, tally);
            output.decided(place, &rules, decided)?;
            let Some(after) = after else { return Ok(()) };
            let before = Side { rules: &rules, request, checked, decided };
            after.compare(mappings, logged, place, before, (comparison, output))
        })
    }

    /// Adds what another shard has counted.
    pub(super) fn merge(&mut self, other: Self) {
        self.before.tally.merge(other.before.tally);
        if let (Some(after), Some(other)) = (&mut self.after, other.after) {
            after.tally.merge(other.tally);
        }
        self.comparison.merge(other.comparison);
    }
}

fn decide(
    replay: &Replay,
    rules: &Snapshot<'_>,
    place: Place,
    request: &Request<'_>,
    checked: &mut Checked,
    tally: &mut Tally,
) -> Decided {
    replay.decide(rules, place.at, request, checked);
    let decided = Decided::of(rules, checked);
    tally.add((rules, replay.revision()), place, checked, decided);
    decided
}

impl SideState {
    fn compare(
        &mut self,
        mappings: &[LogMapping],
        logged: &LoggedRequest<'_>,
        place: Place,
        before: Side<'_>,
        (comparison, output): (&mut Comparison, &mut ReplayOutput<'_>),
    ) -> io::Result<()> {
        self.replay.advance(place.at).map_err(io::Error::other)?;
        let Self { replay, tally, checked, mapping } = self;
        logged.with_request(mappings, *mapping, |request| {
            let rules = replay.rules();
            let decided = decide(replay, &rules, place, request, checked, tally);
            let after = Side { rules: &rules, request, checked, decided };
            let difference = comparison.add(place, before, after, output.wants_differences());
            difference.map_or(Ok(()), |difference| output.differs(&difference))
        })
    }

    fn finish(self, span: Span) -> SideResult {
        let rules = self.replay.rules();
        let mut long_windows = Vec::new();
        for no in rules.rules().rules() {
            if !self.tally.rules.iter().any(|rule| rule.id == rules.rules().id(no)) {
                continue;
            }
            let longest = rules.policies(no).iter().filter_map(|policy| policy.window).max();
            if let Some(window) = longest.filter(|window| *window > span) {
                long_windows.push(LongWindow { rule: rules.rules().id(no), window });
            }
        }
        let (slots_omitted, is_full) = (self.replay.slots_omitted(), self.replay.is_full());
        drop(rules);
        SideResult { tally: self.tally, slots_omitted, is_full, long_windows }
    }
}
