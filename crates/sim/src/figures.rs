//! Figures of a run: what clients saw, how much of the quota was used, what the store had to do.
//!
//! What was possible is measured too: the same requests at the same times on one node with a memory
//! store. Above the limit counts only what certainly was: a hit is decided at an unknown time
//! between request and answer.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Level, Timestamp, rules_of};

use crate::Outcome;
use crate::node::with_request;
use crate::oracle::{bound_of, excess_of};
use crate::scenario::{Fault, Scenario};
use crate::world::{History, Hit};

/// Figures of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Requests that were answered.
    pub requests: u64,
    /// Admitted ones.
    pub allowed: u64,
    /// Calls that the store executed.
    pub calls: u64,
    /// What decided.
    pub origins: Origins,
    /// Latency of an answer in milliseconds: median, 99th percentile, maximum.
    pub latency_ms: (u64, u64, u64),
    /// Each rule.
    pub rules: Vec<RuleFigures>,
    /// Each client.
    pub clients: Vec<ClientFigures>,
    /// Admitted and denied requests of each node.
    pub nodes: Vec<(u64, u64)>,
    /// Each interval of the timeline.
    pub timeline: Vec<TimelineFigures>,
}

/// Decisions by what decided them; each descriptor of a request is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origins {
    /// The store.
    pub store: u64,
    /// A lease of the node.
    pub lease: u64,
    /// The counts of all nodes, as the node knows them.
    pub eventual: u64,
    /// A denial that the node remembers.
    pub cached_denial: u64,
    /// The node's share of the limit, without the store.
    pub local_share: u64,
    /// `on_store_failure`: allowed, denied, or an error.
    pub failure_policy: u64,
}

/// Figures of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFigures {
    /// Its name.
    pub name: String,
    /// Consistency level.
    pub level: &'static str,
    /// Admitted quota.
    pub admitted: u64,
    /// Denied quota.
    pub denied: u64,
    /// What one node admits of the same requests.
    pub possible: u64,
    /// Largest amount above a limit of one identity.
    pub over: u64,
    /// What the level and the faults permit; `None` where no bound is stated.
    pub bound: Option<u64>,
    /// The largest count that a limit admits at once.
    pub capacity: u64,
}

/// What a client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFigures {
    /// Its identity.
    pub name: String,
    /// Admitted requests.
    pub allowed: u64,
    /// Denied requests.
    pub denied: u64,
    /// Longest time without an admission, in milliseconds, while it sent requests.
    pub longest_denial_ms: u64,
}

/// An interval of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimelineFigures {
    /// Its begin in milliseconds.
    pub at_ms: u64,
    /// Admitted requests.
    pub allowed: u64,
    /// Denied requests.
    pub denied: u64,
    /// What one node admits.
    pub possible: u64,
}

/// Intervals of the timeline.
const INTERVALS: u64 = 120;

impl Figures {
    /// The figures of an outcome.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let Outcome { scenario, history, .. } = outcome;
        let first: Vec<&Hit> = history.hits.iter().filter(|hit| hit.is_first).collect();
        let reference = Reference::new(scenario, history);
        let count = |allowed: bool| first.iter().filter(|hit| hit.allowed == allowed).count();
        let mut nodes = vec![(0, 0); scenario.clocks.len()];
        for hit in &first {
            let (allowed, denied) = &mut nodes[hit.node];
            *(if hit.allowed { allowed } else { denied }) += 1;
        }
        let mut latencies: Vec<u64> =
            first.iter().map(|hit| (hit.answered_us - hit.requested_us) / 1_000).collect();
        latencies.sort_unstable();
        let at = |permille: usize| {
            let index = latencies.len().saturating_sub(1) * permille / 1_000;
            latencies.get(index).copied().unwrap_or(0)
        };
        Self {
            requests: first.len() as u64,
            allowed: count(true) as u64,
            calls: history.calls,
            origins: origins(history),
            latency_ms: (at(500), at(990), at(1_000)),
            rules: rules(outcome, &reference),
            clients: clients(scenario, &first),
            nodes,
            timeline: timeline(scenario, history, &first, &reference),
        }
    }

    /// Admitted quota in thousandths of the possible one, of all rules.
    #[must_use]
    pub fn utilization_permille(&self) -> u64 {
        let sum = |of: fn(&RuleFigures) -> u64| self.rules.iter().map(of).sum::<u64>();
        sum(|rule| rule.admitted) * 1_000 / sum(|rule| rule.possible).max(1)
    }

    /// Largest amount above a limit, in thousandths of it.
    #[must_use]
    pub fn over_permille(&self) -> u64 {
        let each = self.rules.iter().map(|rule| rule.over * 1_000 / rule.capacity.max(1));
        each.max().unwrap_or(0)
    }

    /// Store calls per thousand decisions.
    #[must_use]
    pub fn calls_permille(&self) -> u64 {
        self.calls * 1_000 / self.requests.max(1)
    }
}

fn origins(history: &History) -> Origins {
    let of = |level: Level| history.hits.iter().filter(|hit| hit.origin == level).count() as u64;
    let [local_share, policies @ ..] = history.totals.fallbacks;
    let failure_policy = policies.iter().sum();
    let cached_denial = history.totals.cached_denials;
    let elsewhere = cached_denial + local_share + failure_policy;
    Origins {
        store: of(Level::Strict).saturating_sub(elsewhere),
        lease: of(Level::Leased),
        eventual: of(Level::Eventual),
        cached_denial,
        local_share,
        failure_policy,
    }
}

fn rules(outcome: &Outcome, reference: &Reference) -> Vec<RuleFigures> {
    let Outcome { scenario, history, .. } = outcome;
    let each = scenario.rules.iter().enumerate().map(|(rule, plan)| {
        let cost = |allowed: bool| -> u64 {
            let its = history.hits.iter().filter(|hit| hit.rule == rule && hit.allowed == allowed);
            its.map(|hit| hit.cost).sum()
        };
        let capacities = plan.limits.iter().map(|limit| limit.capacity());
        RuleFigures {
            name: plan.name.clone(),
            level: plan.level.name(),
            admitted: cost(true),
            denied: cost(false),
            possible: reference.by_rule.get(rule).copied().unwrap_or(0),
            over: excess_of(scenario, history, rule),
            bound: bound_of(scenario, history, rule),
            capacity: capacities.min().unwrap_or(0),
        }
    });
    each.collect()
}

fn clients(scenario: &Scenario, first: &[&Hit]) -> Vec<ClientFigures> {
    let mut of = BTreeMap::<Vec<(usize, usize)>, (ClientFigures, Option<u64>)>::new();
    for hit in first {
        let steps = &scenario.requests[hit.request].steps;
        let key = steps.iter().map(|step| (step.rule, step.identity)).collect();
        let (client, since) = of.entry(key).or_insert_with(|| {
            let names = steps.iter().map(|step| {
                let rule = &scenario.rules[step.rule];
                format!("{}: {}", rule.name, rule.identities[step.identity])
            });
            let name = names.collect::<Vec<_>>().join(", ");
            (ClientFigures { name, allowed: 0, denied: 0, longest_denial_ms: 0 }, None)
        });
        if hit.allowed {
            client.allowed += 1;
            *since = None;
        } else {
            client.denied += 1;
            let denied_ms = hit.answered_us.saturating_sub(*since.get_or_insert(hit.requested_us));
            client.longest_denial_ms = client.longest_denial_ms.max(denied_ms / 1_000);
        }
    }
    of.into_values().map(|(client, _)| client).collect()
}

fn timeline(
    scenario: &Scenario,
    history: &History,
    first: &[&Hit],
    reference: &Reference,
) -> Vec<TimelineFigures> {
    let step = scenario.length_ms.div_ceil(INTERVALS).max(1);
    let count = scenario.length_ms.div_ceil(step).max(1);
    let mut intervals: Vec<TimelineFigures> =
        (0..count).map(|at| TimelineFigures { at_ms: at * step, ..Default::default() }).collect();
    let index = |at_us: u64| {
        let at = (at_us.saturating_sub(history.span_us.0) / 1_000 / step).min(count - 1);
        usize::try_from(at).unwrap_or(0)
    };
    for hit in first {
        let interval = &mut intervals[index(hit.requested_us)];
        *(if hit.allowed { &mut interval.allowed } else { &mut interval.denied }) += 1;
    }
    for at in &reference.admitted_us {
        intervals[index(*at)].possible += 1;
    }
    intervals
}

/// The same requests on one node with a memory store.
struct Reference {
    by_rule: Vec<u64>,
    /// Times of the admitted requests.
    admitted_us: Vec<u64>,
}

/// What the reference does at a time.
enum ReferenceEvent {
    Load(usize),
    Request(usize),
    Refund(usize),
}

impl Reference {
    fn new(scenario: &Scenario, history: &History) -> Self {
        let mut reference =
            Self { by_rule: vec![0; scenario.rules.len()], admitted_us: Vec::new() };
        let clock = ManualClock::new();
        let engine = rules_of(&scenario.revisions[0])
            .ok()
            .and_then(|rules| Engine::builder(rules).clock(clock.clone()).build().ok());
        let Some(engine) = engine else { return reference };
        let mut events: Vec<(u64, ReferenceEvent)> = Vec::new();
        for (index, hit) in history.hits.iter().enumerate().filter(|(_, hit)| hit.is_first) {
            events.push((hit.requested_us, ReferenceEvent::Request(index)));
            events.extend(hit.refunded_us.map(|at| (at, ReferenceEvent::Refund(index))));
        }
        let mut loaded = 0;
        for (at, fault) in &history.faults {
            if let Fault::Reload(_, revision) = fault
                && *revision > loaded
            {
                loaded = *revision;
                events.push((*at, ReferenceEvent::Load(loaded)));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        let mut is_admitted = vec![false; history.hits.len()];
        for (at, event) in events {
            clock.set(Timestamp::from_micros(at));
            match event {
                ReferenceEvent::Load(revision) => {
                    if let Ok(rules) = rules_of(&scenario.revisions[revision]) {
                        // A revision that the nodes could load.
                        let _ = engine.reload(rules);
                    }
                }
                ReferenceEvent::Request(index) => {
                    let hit = &history.hits[index];
                    let plan = &scenario.requests[hit.request];
                    let hits = hit.cost / plan.steps[0].weight.max(1);
                    let checked =
                        with_request(plan, hits, async |request| engine.check(request).allowed);
                    if checked.now_or_never() == Some(true) {
                        is_admitted[index] = true;
                        reference.admitted_us.push(at);
                        for step in &plan.steps {
                            reference.by_rule[step.rule] += hits * step.weight;
                        }
                    }
                }
                ReferenceEvent::Refund(index) if is_admitted[index] => {
                    let hit = &history.hits[index];
                    let plan = &scenario.requests[hit.request];
                    let hits = hit.cost / plan.steps[0].weight.max(1);
                    let refunded =
                        with_request(plan, hits, async |request| engine.refund(request).allowed);
                    let _ = refunded.now_or_never();
                }
                ReferenceEvent::Refund(_) => {}
            }
        }
        reference
    }
}
