//! Measured excess of eventual rules, beside the documented bound.

use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};
use crate::world::{self, Hit};

/// Limit per second.
const COUNT: u64 = 400;
/// Demand as a multiple of the limit.
const TIMES: u64 = 4;
const PER_US: u64 = 1_000_000;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Number of nodes.
    pub nodes: usize,
    /// Sync interval in milliseconds.
    pub sync_ms: u64,
    /// Maximum measured excess in a window.
    pub over: u64,
    /// Bound: the peers' hits in an interval plus the time of a call, before one decision.
    pub bound: u64,
    /// Store calls per thousand hits.
    pub calls: u64,
}

/// Measures fleets of several sizes with several intervals.
///
/// # Errors
/// When the world cannot be set up.
pub fn measure() -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in [2, 4, 8] {
        for sync_ms in [20, 100, 500] {
            rows.push(one(nodes, sync_ms)?);
        }
    }
    Ok(rows)
}

fn one(nodes: usize, sync_ms: u64) -> anyhow::Result<Row> {
    let scenario = scenario(nodes, sync_ms);
    let history = world::run(&scenario, false)?;
    let admitted: Vec<Hit> = history.hits.iter().filter(|hit| hit.allowed).copied().collect();
    let span_us = sync_ms * 1_000 + (4 * scenario.fault_plan.conditions.delay_ms + 6) * 1_000;
    let windows = admitted.iter().map(|hit| hit.answered_us / PER_US);
    let over = windows.clone().min().into_iter().flat_map(|first| {
        let last = windows.clone().max().unwrap_or(first);
        first..=last
    });
    let in_window = |window: u64| -> u64 {
        let its = admitted.iter().filter(|hit| hit.answered_us / PER_US == window);
        its.map(|hit| hit.cost).sum()
    };
    let over = over.map(|window| in_window(window).saturating_sub(COUNT)).max().unwrap_or(0);
    let bound = admitted.iter().map(|hit| unknown_before(&admitted, hit, span_us)).max();
    let calls = history.calls * 1_000 / (history.hits.len() as u64).max(1);
    Ok(Row { nodes, sync_ms, over, bound: bound.unwrap_or(0), calls })
}

/// Hits of peers just before a hit, in its window.
fn unknown_before(admitted: &[Hit], hit: &Hit, span_us: u64) -> u64 {
    let from = (hit.answered_us - span_us).max(hit.answered_us / PER_US * PER_US);
    let is_unknown = |other: &&Hit| {
        other.process != hit.process && (from..=hit.answered_us).contains(&other.answered_us)
    };
    admitted.iter().filter(is_unknown).map(|other| other.cost).sum()
}

fn scenario(nodes: usize, sync_ms: u64) -> Scenario {
    let limits = vec![LimitPlan::Window { count: COUNT, per_ms: PER_US / 1_000 }];
    let rule = RulePlan::fixed(limits, LevelPlan::Eventual { sync_ms });
    Scenario::steady(nodes, rule, COUNT * TIMES / nodes as u64, 1, 4_000)
}
