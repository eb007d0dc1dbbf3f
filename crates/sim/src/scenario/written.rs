//! Written scenarios: from their YAML to what the world runs.

use std::fmt;
use std::path::{Path, PathBuf};

use sluicegate::config::problem::{Position, Problem, Problems};
use sluicegate::config::rules::{Options, Source, load};
use sluicegate::config::scenario::{
    ActionConfig, EventConfig, NetworkConfig, PatternConfig, RulesText, ScenarioConfig,
    StreamConfig, scenario,
};
use sluicegate::rules::set::RuleSet;

use super::compiled::MetRules;
use super::faults::{Fault, FaultPlan};
use super::traffic::{Pattern, RequestPlan, Stream, Usage};
use super::{Scenario, StorePlan};
use crate::conditions::Conditions;

/// Why a scenario cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScenarioError {
    /// Problems of the scenario or of its rules, with positions.
    Invalid(Problems),
    /// A file of rules that cannot be read.
    Unreadable(PathBuf, String),
}

/// When written worlds begin: on a whole minute, so that windows are where a reader expects them.
const START_US: u64 = 1_700_000_040_000_000;
/// Length of a reload of all nodes, unless the event has one.
const ROLLOUT_MS: u64 = 200;
/// Nodes connect to a new primary within this time.
const RECONNECT_MS: u64 = 30;

/// Reads a scenario; the files that it names are relative to `folder`.
///
/// ```
/// let text = "
/// duration: 2s
/// nodes: 2
/// rules:
///   domain: shop
///   descriptors:
///     - { key: user, limits: { algorithm: token_bucket, rate: 10/s, burst: 5 } }
/// traffic:
///   - { request: { user: ada }, rate: 40/s }
/// ";
/// let scenario = sluicegate_sim::read("shop.yaml", text, "".as_ref(), 1)?;
/// let outcome = sluicegate_sim::run(scenario, false)?;
/// let allowed = outcome.history.hits.iter().filter(|hit| hit.allowed).count();
/// assert!((20..=27).contains(&allowed), "{allowed}");
/// assert!(outcome.violations.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// All problems of the scenario, then those of its rules.
pub fn read(name: &str, text: &str, folder: &Path, seed: u64) -> Result<Scenario, ScenarioError> {
    let config = scenario(name, text).map_err(ScenarioError::Invalid)?;
    let mut texts = vec![rules_text(name, &config.rules, folder)?];
    let mut sets = vec![compiled(&texts[0])?];
    for event in &config.events {
        if let ActionConfig::Reload(rules) = &event.action {
            let source = rules_text(name, rules, folder)?;
            sets.push(compiled(&source)?);
            texts.push(source);
        }
    }
    let mut met = MetRules::new(&sets[0]);
    let (requests, streams) = traffic(name, &config, &sets[0], &mut met)?;
    sets[1..].iter().for_each(|later| met.follow(later));
    let (fault_plan, clocks) = faults(&config);
    Ok(Scenario {
        name: config.name.clone().unwrap_or_else(|| name.to_owned()),
        seed: config.seed.unwrap_or(seed),
        length_ms: config.duration_ms,
        start_us: START_US,
        initial: config.nodes.len(),
        clocks,
        rules: met.plans,
        revisions: texts.into_iter().map(|source| source.text).collect(),
        requests,
        streams,
        fault_plan,
        store: StorePlan {
            timeout_ms: config.store.timeout_ms,
            latency: config.store.latency.clone(),
            shards: usize::try_from(config.store.shards).unwrap_or(1),
            has_breaker: config.store.circuit_breaker,
        },
        judges_usage: false,
    })
}

fn rules_text(name: &str, rules: &RulesText, folder: &Path) -> Result<Source, ScenarioError> {
    match rules {
        RulesText::Inline(text) => Ok(Source { name: name.to_owned(), text: text.clone() }),
        RulesText::File(file, _) => {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path);
            let text =
                text.map_err(|error| ScenarioError::Unreadable(path.clone(), error.to_string()))?;
            Ok(Source { name: path.display().to_string(), text })
        }
    }
}

fn compiled(source: &Source) -> Result<RuleSet, ScenarioError> {
    let loaded = load(std::slice::from_ref(source), &Options::default());
    let domains = loaded.map_err(|invalid| ScenarioError::Invalid(invalid.problems))?.domains;
    let at = Position { line: 1, column: 1 };
    let unfit = |message: String| Problem::new(&source.name, at, "rules".to_owned(), message);
    RuleSet::new(domains)
        .map_err(|error| ScenarioError::Invalid(Problems::from(unfit(error.to_string()))))
}

// === traffic ===

fn traffic(
    name: &str,
    config: &ScenarioConfig,
    set: &RuleSet,
    met: &mut MetRules<'_>,
) -> Result<(Vec<RequestPlan>, Vec<Stream>), ScenarioError> {
    let (mut requests, mut streams) = (Vec::new(), Vec::new());
    for (index, stream) in config.traffic.iter().enumerate() {
        let refuse = |message: String| {
            let path = format!("traffic[{index}].request");
            ScenarioError::Invalid(Problem::new(name, stream.at, path, message).into())
        };
        let domain = match (&stream.domain, set.domains().collect::<Vec<_>>().as_slice()) {
            (Some(domain), _) => domain.clone(),
            (None, [only]) => (*only).to_owned(),
            (None, domains) => {
                let message =
                    format!("needs a `domain`: the rules have `{}`", domains.join("` and `"));
                return Err(refuse(message));
            }
        };
        let first = requests.len();
        for client in 0..stream.clients {
            let descriptors = descriptors(stream, client);
            let request = met.request(&domain, descriptors).ok_or_else(|| {
                let message = format!(
                    "no rule of domain `{domain}` limits this request; see `sluicegate explain`, \
                     or change it"
                );
                refuse(message)
            })?;
            requests.push(request);
        }
        streams.push(plan_of(stream, first));
    }
    Ok((requests, streams))
}

fn descriptors(stream: &StreamConfig, client: u64) -> Vec<Vec<(String, String)>> {
    let filled = |text: &str| text.replace("{client}", &client.to_string());
    let entry = |(key, value): &(String, String)| (key.clone(), filled(value));
    stream.descriptors.iter().map(|entries| entries.iter().map(entry).collect()).collect()
}

fn plan_of(stream: &StreamConfig, request: usize) -> Stream {
    let milli = stream.rate_milli.max(1);
    let pattern = match stream.pattern {
        PatternConfig::Steady => Pattern::Sparse(milli),
        PatternConfig::Bursts { every_ms } => {
            Pattern::Bursts((milli * every_ms / 1_000_000).max(1), every_ms)
        }
        PatternConfig::Phases { on_ms, off_ms } => {
            Pattern::Phases((milli / 1_000).max(1), on_ms, off_ms)
        }
    };
    let index = |number: &u64| usize::try_from(*number).unwrap_or(usize::MAX);
    Stream {
        nodes: stream.nodes.iter().map(index).collect(),
        request,
        clients: index(&stream.clients),
        cost: stream.cost,
        pattern,
        span_ms: stream.span_ms,
        usage: Usage { refunds: stream.refunds, is_reserved: stream.is_reserved },
    }
}

// === events ===

/// The faults of all events, and the clocks of all nodes, those that join later included.
fn faults(config: &ScenarioConfig) -> (FaultPlan, Vec<(i64, i64)>) {
    let clock = |node: &sluicegate::config::scenario::NodeConfig| {
        (node.clock_offset_ms * 1_000, node.clock_drift_ppm)
    };
    let mut clocks: Vec<_> = config.nodes.iter().map(clock).collect();
    let conditions = conditions(&config.network);
    let mut faults = Vec::new();
    for (index, node) in config.nodes.iter().enumerate() {
        if let Some(network) = &node.network {
            faults.push((0, Fault::Link(index, Some(self::conditions(network)))));
        }
    }
    let (mut running, mut revision) = (config.nodes.len(), 0);
    let mut events: Vec<&EventConfig> = config.events.iter().collect();
    // Revisions are numbered in the order of the file.
    let reloads: Vec<&EventConfig> =
        events.iter().copied().filter(|event| is_reload(event)).collect();
    events.sort_by_key(|event| event.at_ms);
    for event in events {
        if is_reload(event) {
            revision = reloads.iter().position(|one| std::ptr::eq(*one, event)).unwrap_or(0) + 1;
        }
        let joined = match event.action {
            ActionConfig::AddNodes(count) => usize::try_from(count).unwrap_or(0),
            _ => 0,
        };
        clocks.extend(std::iter::repeat_n((0, 0), joined));
        one(event, (running, clocks.len(), revision), conditions, &mut faults);
        running = match event.action {
            ActionConfig::AddNodes(_) => running + joined,
            ActionConfig::RemoveNodes(count) => {
                running.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)).max(1)
            }
            _ => running,
        };
    }
    faults.sort_by_key(|(at, _)| *at);
    let over_ms = faults.last().map_or(0, |(at, _)| *at);
    (FaultPlan { conditions, faults, over_ms }, clocks)
}

const fn is_reload(event: &EventConfig) -> bool {
    matches!(event.action, ActionConfig::Reload(_))
}

fn one(
    event: &EventConfig,
    (running, nodes, revision): (usize, usize, usize),
    fair: Conditions,
    faults: &mut Vec<(u64, Fault)>,
) {
    let EventConfig { at_ms: at, for_ms, action } = event;
    let (at, end) = (*at, for_ms.map(|length| at + length));
    let index = |number: &u64| usize::try_from(*number).unwrap_or(usize::MAX);
    let listed = |list: &[u64]| -> Vec<usize> {
        if list.is_empty() { (0..nodes).collect() } else { list.iter().map(index).collect() }
    };
    let mut then = |at: u64, fault| faults.push((at, fault));
    match action {
        ActionConfig::StoreDown(shard) => {
            then(at, Fault::Down(shard.as_ref().map(index)));
            end.into_iter().for_each(|end| then(end, Fault::Back));
        }
        ActionConfig::StoreUp => then(at, Fault::Back),
        ActionConfig::Stall(ms) => then(at, Fault::Stall(*ms)),
        ActionConfig::Failover { down_ms, .. } | ActionConfig::DataLoss { down_ms } => {
            then(
                at,
                match action {
                    ActionConfig::Failover { lost_ms, .. } => Fault::FailOver(*lost_ms),
                    _ => Fault::LoseAll,
                },
            );
            then(at + down_ms, Fault::Back);
            for node in 0..nodes {
                // Spread, as their health checks are.
                let after = RECONNECT_MS * node as u64 / nodes.max(1) as u64;
                then(at + down_ms + after, Fault::Reconnect(node));
            }
        }
        ActionConfig::StoreClock(ms) => then(at, Fault::StoreStep(*ms)),
        ActionConfig::Partition(list) => {
            listed(list).into_iter().for_each(|node| then(at, Fault::Cut(node)));
            if let Some(end) = end {
                listed(list).into_iter().for_each(|node| then(end, Fault::Heal(node)));
            }
        }
        ActionConfig::Heal(list) => {
            listed(list).into_iter().for_each(|node| then(at, Fault::Heal(node)));
        }
        ActionConfig::Network(None, network) => {
            then(at, Fault::Conditions(conditions(network)));
            end.into_iter().for_each(|end| then(end, Fault::Conditions(fair)));
        }
        ActionConfig::Network(Some(node), network) => {
            then(at, Fault::Link(index(node), Some(conditions(network))));
            end.into_iter().for_each(|end| then(end, Fault::Link(index(node), None)));
        }
        ActionConfig::Crash(node) => {
            then(at, Fault::Crash(index(node)));
            end.into_iter().for_each(|end| then(end, Fault::Start(index(node))));
        }
        ActionConfig::Stop(node) => {
            then(at, Fault::Stop(index(node)));
            end.into_iter().for_each(|end| then(end, Fault::Start(index(node))));
        }
        ActionConfig::Start(node) => then(at, Fault::Start(index(node))),
        ActionConfig::Clock(node, ms) => then(at, Fault::Step(index(node), *ms)),
        ActionConfig::AddNodes(count) => {
            (nodes - index(count).min(nodes)..nodes).for_each(|node| then(at, Fault::Start(node)));
        }
        ActionConfig::RemoveNodes(count) => {
            let first = running.saturating_sub(index(count)).max(1);
            (first..running).for_each(|node| then(at, Fault::Stop(node)));
        }
        ActionConfig::Reload(_) => {
            let length = for_ms.unwrap_or(ROLLOUT_MS);
            for node in 0..nodes {
                let after = length * node as u64 / nodes.max(1) as u64;
                then(at + after, Fault::Reload(node, revision));
            }
        }
    }
}

const fn conditions(network: &NetworkConfig) -> Conditions {
    let NetworkConfig { delay_ms, jitter_ms, late, loss, lost_replies, duplicates } = *network;
    Conditions {
        least_ms: delay_ms,
        delay_ms: delay_ms + jitter_ms,
        late,
        lost: loss,
        unanswered: lost_replies,
        twice: duplicates,
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(problems) => problems.fmt(f),
            Self::Unreadable(path, error) => {
                write!(f, "cannot read the rules `{}`: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ScenarioError {}
