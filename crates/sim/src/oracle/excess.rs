//! How much passed above a limit, beside what is permitted.

use std::collections::BTreeMap;

use super::Case;
use super::allowance::Allowance;
use super::limits::Refill;
use crate::scenario::{LevelPlan, LimitPlan, Scenario};
use crate::world::{History, Hit};

/// Largest amount above a limit that certainly passed for one identity of a rule.
#[must_use]
pub fn excess_of(scenario: &Scenario, history: &History, rule: usize) -> u64 {
    let plan = &scenario.rules[rule];
    let limits = if scenario.fault_plan.reloads() { &plan.loosest } else { &plan.limits };
    let mut of: BTreeMap<usize, Vec<Hit>> = BTreeMap::new();
    for hit in history.hits.iter().filter(|hit| hit.rule == rule && hit.allowed) {
        of.entry(hit.identity).or_default().push(*hit);
    }
    let each = of.values().flat_map(|hits| limits.iter().map(|limit| excess(*limit, hits)));
    each.max().unwrap_or(0)
}

/// What the level and the faults permit above a limit of a rule, for one identity: `None` where no
/// bound is stated.
#[must_use]
pub fn bound_of(scenario: &Scenario, history: &History, rule: usize) -> Option<u64> {
    let plan = &scenario.rules[rule];
    if !plan.is_judged || plan.is_open(scenario) {
        return None;
    }
    let mut bound = 0;
    let mut of: BTreeMap<usize, Vec<Hit>> = BTreeMap::new();
    for hit in history.hits.iter().filter(|hit| hit.rule == rule) {
        of.entry(hit.identity).or_default().push(*hit);
    }
    for hits in of.into_values() {
        let case = Case { scenario, history, plan, hits };
        for limit in &plan.loosest {
            bound = bound.max(match plan.level {
                LevelPlan::Eventual { sync_ms } => eventual_bound(&case, *limit, sync_ms)?,
                _ => {
                    let allowance = Allowance::new(&case, *limit);
                    let capacity = limit.capacity();
                    allowance.count(capacity) - capacity + allowance.between(0, u64::MAX)
                }
            });
        }
    }
    Some(bound)
}

/// Hits of peers that a node may not know of: those since the last exchange.
fn eventual_bound(case: &Case<'_>, limit: LimitPlan, sync_ms: u64) -> Option<u64> {
    let per_us = limit.per_ms()? * 1_000;
    if !case.scenario.is_fault_free() {
        return None;
    }
    let span_us = super::eventual::news_us(case, sync_ms);
    let admitted = case.admitted();
    let unknown = |(index, hit): (usize, &Hit)| -> u64 {
        let from = hit.answered_us.saturating_sub(span_us).max(hit.answered_us / per_us * per_us);
        let first = admitted[..index].partition_point(|other| other.answered_us < from);
        let news = admitted[first..index].iter().filter(|other| other.process != hit.process);
        news.map(|other| other.cost).sum()
    };
    Some(admitted.iter().enumerate().map(unknown).max().unwrap_or(0))
}

/// Largest amount of admitted hits above a limit; `admitted` is in the order of the answers.
fn excess(limit: LimitPlan, admitted: &[Hit]) -> u64 {
    match limit {
        LimitPlan::Bucket { rate, per_ms, burst } => {
            bucket(Refill { rate, per_us: per_ms * 1_000 }, burst, admitted)
        }
        LimitPlan::Window { count, per_ms } | LimitPlan::Sliding { count, per_ms } => {
            let per_us = per_ms * 1_000;
            let mut of: BTreeMap<u64, u64> = BTreeMap::new();
            for hit in admitted {
                let window = hit.answered_us / per_us;
                // A hit at an edge may belong to either window.
                if hit.requested_us / per_us == window {
                    *of.entry(window).or_default() += hit.cost;
                }
            }
            of.values().map(|sum| sum.saturating_sub(count)).max().unwrap_or(0)
        }
    }
}

/// Any interval begins with the earliest request of its hits and ends with the last answer: longer
/// than the decisions are apart, so that only a certain excess counts.
fn bucket(refill: Refill, burst: u64, admitted: &[Hit]) -> u64 {
    let mut earliest = u64::MAX;
    let mut begins: Vec<u64> = admitted
        .iter()
        .rev()
        .map(|hit| {
            earliest = earliest.min(hit.requested_us);
            earliest
        })
        .collect();
    begins.reverse();
    // The fullest interval that ends with a hit extends the one of the hit before, or begins anew.
    let (mut sum, mut from, mut worst) = (0_u64, 0, 0);
    for (hit, begin) in admitted.iter().zip(begins) {
        if sum <= refill.within(begin.saturating_sub(from)) {
            (sum, from) = (0, begin);
        }
        sum += hit.cost;
        let refilled = refill.within(hit.answered_us.saturating_sub(from));
        worst = worst.max(sum.saturating_sub(burst + refilled));
    }
    worst
}
