//! Traffic: rate, pattern and node of each stream of hits.

use super::rules::{LevelPlan, RulePlan};
use crate::rng::SimRng;

/// Requests of clients.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The nodes that it calls; all that run, if empty.
    pub nodes: Vec<usize>,
    /// Its first request in the scenario's list.
    pub request: usize,
    /// Number of requests from there on, one for each client.
    pub clients: usize,
    /// Cost of a request.
    pub cost: u64,
    /// Arrival pattern.
    pub pattern: Pattern,
    /// Begin and end in milliseconds.
    pub span_ms: (u64, u64),
    /// What happens to admitted requests.
    pub usage: Usage,
}

/// What happens to an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Requests per thousand that are refunded, or canceled if they were reserved.
    pub refunds: u64,
    /// Whether the quota is reserved first, and committed or canceled later.
    pub is_reserved: bool,
}

/// A request and the rules that it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlan {
    /// Domain.
    pub domain: String,
    /// Descriptors, each of entries.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// What it is charged to.
    pub steps: Vec<StepPlan>,
}

/// A step of a request: a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPlan {
    /// Rule.
    pub rule: usize,
    /// Identity of the rule.
    pub identity: usize,
    /// Cost of a hit.
    pub weight: u64,
}

/// Arrival pattern of hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Roughly even, at this many per second.
    Steady(u64),
    /// The same in thousandths per second.
    Sparse(u64),
    /// Bursts of this many, at an interval in milliseconds.
    Bursts(u64, u64),
    /// This many per second, on and off for these times in milliseconds.
    Phases(u64, u64, u64),
}

/// One hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Time in milliseconds.
    pub at_ms: u64,
    /// Node; any that runs, if none.
    pub node: Option<usize>,
    /// Request, an index of the scenario's list.
    pub request: usize,
    /// Cost.
    pub cost: u64,
    /// What happens to it once it is admitted.
    pub usage: Usage,
}

/// The requests of generated rules: one for each identity.
pub(super) fn requests(rules: &[RulePlan]) -> Vec<RequestPlan> {
    let each = rules.iter().enumerate().flat_map(|(rule, plan)| {
        plan.identities.iter().enumerate().map(move |(identity, name)| RequestPlan {
            domain: "sim".to_owned(),
            descriptors: vec![vec![(plan.name.clone(), name.clone())]],
            steps: vec![StepPlan { rule, identity, weight: 1 }],
        })
    });
    each.collect()
}

/// Generates the traffic of a world.
pub(super) fn streams(
    rng: &mut SimRng,
    rules: &[RulePlan],
    nodes: usize,
    length_ms: u64,
) -> Vec<Stream> {
    let mut streams = Vec::new();
    let mut requests = 0..;
    for rule in rules {
        for request in requests.by_ref().take(rule.identities.len()) {
            let tenths = match rule.level {
                // Frequent enough to be hot.
                LevelPlan::Hot => {
                    rng.choose(&[20, 2_500 / rule.per_second(), 5_000 / rule.per_second()])
                }
                _ => rng.choose(&[5, 12, 20, 20, 40]),
            };
            let wanted = (rule.per_second() * tenths / 10).max(2);
            let capacity = rule.limits.iter().map(|limit| limit.capacity()).min().unwrap_or(1);
            let max = if rng.permille(300) { capacity.min(4) } else { 1 };
            let cost = rng.within(1, max);
            let is_even = rng.permille(500);
            let of_all = rng.within(0, 9);
            let is_alike = rng.permille(500);
            for node in 0..nodes {
                let even = (wanted / nodes as u64).max(1);
                let rate = match (is_even, node) {
                    (true, _) => even,
                    // One node has nearly all of the demand.
                    (false, 0) => (wanted * 9 / 10).max(1),
                    (false, _) => (wanted / 10 / nodes as u64).max(1),
                };
                let kind = if is_alike { of_all } else { rng.within(0, 9) };
                let pattern = match kind {
                    0..=5 => Pattern::Steady(rate),
                    6 | 7 => {
                        let every = rng.choose(&[100, 300, 700]);
                        Pattern::Bursts((rate * every / 1_000).max(1), every)
                    }
                    _ => Pattern::Phases(rate * 2, rng.within(100, 1_000), rng.within(300, 1_500)),
                };
                streams.push(Stream {
                    nodes: vec![node],
                    request,
                    clients: 1,
                    cost,
                    pattern,
                    span_ms: (0, length_ms),
                    usage: Usage::default(),
                });
            }
        }
    }
    streams
}

impl Stream {
    /// A steady stream of one client on one node.
    #[must_use]
    pub fn steady(node: usize, request: usize, cost: u64, rate: u64, length_ms: u64) -> Self {
        Self {
            nodes: vec![node],
            request,
            clients: 1,
            cost,
            pattern: Pattern::Steady(rate),
            span_ms: (0, length_ms),
            usage: Usage::default(),
        }
    }

    /// All requests of the stream.
    #[must_use]
    pub fn arrivals(&self, rng: &mut SimRng) -> Vec<Arrival> {
        let Self { pattern, cost, usage, .. } = *self;
        let mut arrivals = Vec::new();
        // Choices between one need no random number.
        let mut pick = SimRng::new(rng.clone().number(), "client");
        let mut arrive = |at_us: u64| {
            let node = match &*self.nodes {
                [] => None,
                [only] => Some(*only),
                nodes => Some(pick.choose(nodes)),
            };
            let client = match self.clients {
                0 | 1 => 0,
                clients => pick.within(0, clients as u64 - 1) as usize,
            };
            let request = self.request + client;
            arrivals.push(Arrival { at_ms: at_us / 1_000, node, request, cost, usage });
        };
        let (begin, end) = (self.span_ms.0 * 1_000, self.span_ms.1 * 1_000);
        let mut at = begin + rng.within(0, 20_000);
        while at < end {
            match pattern {
                Pattern::Steady(rate) => {
                    arrive(at);
                    at += rng.within(0, 2_000_000 / rate);
                }
                Pattern::Sparse(milli) => {
                    arrive(at);
                    at += rng.within(0, 2_000_000_000 / milli.max(1));
                }
                Pattern::Bursts(size, every_ms) => {
                    (0..size).for_each(|_| arrive(at));
                    at += every_ms * 1_000;
                }
                Pattern::Phases(rate, on_ms, off_ms) => {
                    if (at - begin) / 1_000 % (on_ms + off_ms) < on_ms {
                        arrive(at);
                    }
                    at += rng.within(0, 2_000_000 / rate);
                }
            }
        }
        arrivals
    }
}
