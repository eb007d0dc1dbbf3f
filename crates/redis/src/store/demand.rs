//! Demand of each node per rule, which splits limits between nodes while the store is down.
//!
//! With its heartbeat, each node reports the hit rates of its busiest rules and receives the sums.
//! The store collects reports in *rounds*: a report counts in the next round, which then no longer
//! changes, so that all nodes see the same numbers. Of the last two rounds a node takes the smaller
//! share. Nodes that are one round apart then have together at most what one of these rounds gave
//! them: at most the limit.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redis::Value;
use sluicegate_core::time::{Span, Timestamp};

use super::Store;
use super::key::rule_id;
use super::weight::{Carries, NodeDemand, Weight};
use crate::script::ScriptPart;

/// Rules in a report and in its reply: the busiest ones.
const RULES_MAX: usize = 64;
/// Demand of all nodes, in thousandths of a hit per second, below which the split is even.
const SUM_MIN: u64 = 10_000;
/// Upper bound of a reported demand: sums of it are exact in the store.
const DEMAND_MAX: u64 = 1 << 40;

/// Rules of this node with their demand, and the last rounds.
#[derive(Debug, Default)]
pub(super) struct Demands {
    known: Mutex<Known>,
    pub(super) carries: Carries,
}

#[derive(Debug, Default)]
struct Known {
    rules: Vec<Watched>,
    /// The last round, and the one before.
    rounds: [Option<DemandRound>; 2],
    live: u64,
    measured_at: Option<Timestamp>,
}

/// Weight of a hit under a rule on this node while the store is down.
#[derive(Debug)]
pub(crate) struct RuleWeight {
    /// Id of the rule on all nodes.
    id: u64,
    weight: AtomicU64,
}

/// A measured rule.
struct Watched {
    rule: Arc<RuleWeight>,
    /// Its hits so far; `None` once it is dropped.
    hits: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    seen: u64,
    /// Thousandths of a hit per second, smoothed.
    demand: Option<u64>,
}

/// Reports of all nodes in a round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DemandRound {
    number: u64,
    nodes: u64,
    /// The report of this node, if it sent one.
    own: Option<HashMap<u64, u64>>,
    /// Sums of the busiest rules.
    sums: HashMap<u64, u64>,
}

impl Store {
    /// Measures the demand of a rule on this node, which determines its share during outages.
    pub(crate) fn watch_demand(
        &self,
        stable_key: &str,
        hits: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) -> Arc<RuleWeight> {
        self.inner.demands.watch(rule_id(stable_key), hits)
    }

    /// The charge of an admitted part on this node; the rounding error is carried.
    pub(crate) fn charge(&self, part: &ScriptPart, weight: Weight) -> u64 {
        self.inner.demands.carries.charge(self.inner.hash(&part.key), part.cost, weight)
    }

    /// The charge if it were admitted now.
    pub(crate) fn would_charge(&self, part: &ScriptPart, weight: Weight) -> u64 {
        self.inner.demands.carries.would_charge(self.inner.hash(&part.key), part.cost, weight)
    }
}

impl Demands {
    /// Measures a rule for as long as `hits` returns a number.
    pub(super) fn watch(
        &self,
        id: u64,
        hits: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) -> Arc<RuleWeight> {
        let mut known = self.known.lock();
        let weight = AtomicU64::new(known.weight_of(id).bits());
        let rule = Arc::new(RuleWeight { id, weight });
        let seen = hits().unwrap_or(0);
        known.rules.push(Watched { rule: rule.clone(), hits: Box::new(hits), seen, demand: None });
        rule
    }

    /// Updates all demands, and returns those of the busiest rules.
    pub(super) fn measure(&self, now: Timestamp) -> Vec<(u64, u64)> {
        let mut known = self.known.lock();
        let elapsed = known.measured_at.map_or(Span::ZERO, |last| now.since(last));
        known.measured_at = Some(now);
        known.rules.retain_mut(|rule| rule.measure(elapsed).is_some());
        // Several engines may share a store, so an id may occur more than once.
        let mut all = BTreeMap::<u64, u64>::new();
        for rule in &known.rules {
            let demand = all.entry(rule.rule.id).or_default();
            *demand = demand.saturating_add(rule.demand.unwrap_or(0)).min(DEMAND_MAX);
        }
        drop(known);
        let mut all: Vec<(u64, u64)> = all.into_iter().filter(|(_, demand)| *demand > 0).collect();
        all.sort_by_key(|(id, demand)| (std::cmp::Reverse(*demand), *id));
        all.truncate(RULES_MAX);
        all
    }

    /// Updates the weights of all rules.
    pub(super) fn update(&self, live: u64, round: DemandRound) {
        let mut known = self.known.lock();
        known.live = live;
        let last = known.rounds[0].as_ref().map(|last| last.number);
        if last != Some(round.number) {
            let last = known.rounds[0].take();
            known.rounds = [Some(round), last];
        }
        for watched in &known.rules {
            let weight = known.weight_of(watched.rule.id);
            watched.rule.weight.store(weight.bits(), Ordering::Relaxed);
        }
    }
}

impl Known {
    fn weight_of(&self, id: u64) -> Weight {
        let [last, before] = &self.rounds;
        let Some(last) = last else { return Weight::even(self.live) };
        let before = before.as_ref().filter(|before| before.number + 1 == last.number);
        // Without the round before, this node may be unknown to nodes that still use that.
        let before = before.map_or(Weight::even(self.live), |one| one.weight_of(id, self.live));
        last.weight_of(id, self.live).max(before)
    }
}

impl Watched {
    /// Updates its demand; `None` if it is dropped.
    fn measure(&mut self, elapsed: Span) -> Option<()> {
        let hits = (self.hits)()?;
        if elapsed.is_zero() {
            return Some(());
        }
        let hits = u128::from(hits.wrapping_sub(std::mem::replace(&mut self.seen, hits)));
        let elapsed = u128::from(elapsed.as_micros());
        let now = u64::try_from(hits * 1_000_000_000 / elapsed).unwrap_or(u64::MAX);
        let now = now.min(DEMAND_MAX);
        // Smoothed by a quarter: a burst of a second is no demand yet.
        self.demand = Some(self.demand.map_or(now, |was| (3 * was + now) / 4));
        Some(())
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("rule", &self.rule)
            .field("demand", &self.demand)
            .finish_non_exhaustive()
    }
}

impl RuleWeight {
    #[inline]
    pub(crate) fn get(&self) -> Weight {
        Weight::from_bits(self.weight.load(Ordering::Relaxed))
    }
}

impl DemandRound {
    fn weight_of(&self, id: u64, live: u64) -> Weight {
        let Some(own) = &self.own else { return Weight::even(live) };
        let nodes = self.nodes;
        match self.sums.get(&id) {
            Some(sum) if *sum >= SUM_MIN => {
                let own = own.get(&id).copied().unwrap_or(0);
                Weight::by_demand(NodeDemand { own, sum: *sum, nodes, live })
            }
            _ => Weight::even(nodes.max(live)),
        }
    }

    /// Decodes the reply to a heartbeat.
    pub(super) fn decode(parts: &[Value]) -> Option<Self> {
        let [number, nodes, own, sums] = parts else { return None };
        let whole = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let own = match own {
            Value::BulkString(text) => parse_report(std::str::from_utf8(text).ok()?),
            _ => None,
        };
        let Value::Array(sums) = sums else { return None };
        let pairs = sums.as_chunks::<2>().0.iter().filter_map(parse_sum).take(RULES_MAX);
        let sums = pairs.collect();
        Some(Self { number: whole(number)?, nodes: whole(nodes)?, own, sums })
    }
}

/// Parses `round id demand id demand …`.
fn parse_report(text: &str) -> Option<HashMap<u64, u64>> {
    let mut words = text.split_ascii_whitespace();
    let _round = words.next()?;
    let mut own = HashMap::new();
    while let (Some(id), Some(demand)) = (words.next(), words.next()) {
        own.insert(u64::from_str_radix(id, 16).ok()?, demand.parse().ok()?);
    }
    Some(own)
}

/// Parses a rule and the sum of its demand, stored as a negative score.
fn parse_sum([id, sum]: &[Value; 2]) -> Option<(u64, u64)> {
    let (Value::BulkString(id), Value::BulkString(sum)) = (id, sum) else { return None };
    let (id, sum) = (std::str::from_utf8(id).ok()?, std::str::from_utf8(sum).ok()?);
    let is_id = id.len() == 16;
    let sum = sum.strip_prefix('-')?.parse().ok()?;
    Some((u64::from_str_radix(id, 16).ok().filter(|_| is_id)?, sum))
}

#[cfg(test)]
mod tests;
