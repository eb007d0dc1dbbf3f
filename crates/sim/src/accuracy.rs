//! Accuracy of the consistency levels on several nodes, through the production Redis backend.
//!
//! A fleet is offered more than its limit of 500 per second, evenly on all nodes, for half a
//! minute. Measured are the mean rate that was admitted, the most in a window, and the decisions
//! that differ from those of an exact log of everything that the fleet had admitted by then.

use std::collections::VecDeque;

use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};
use crate::world::{self, Hit};

/// Limit per second.
pub const LIMIT: u64 = 500;
/// Demand per second.
pub const OFFERED: u64 = 800;
/// Duration in milliseconds.
const LENGTH_MS: u64 = 30_000;
/// Until then the fleet starts: leases are small and counts unknown.
const FIRST_US: u64 = 2_000_000;
const WINDOW_US: u64 = 1_000_000;

/// What was measured of one fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetFigures {
    /// Algorithm of the rule.
    pub algorithm: &'static str,
    /// Its consistency level.
    pub level: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Requests.
    pub requests: u64,
    /// Mean deviation of the admitted rate from the limit, in thousandths of the limit.
    pub deviation: i64,
    /// The most admitted in a window of the clock.
    pub window_peak: u64,
    /// The most admitted in a rolling window.
    pub rolling_peak: u64,
    /// Admitted although the rolling window held the limit.
    pub wrongly_admitted: u64,
    /// Denied although it had room.
    pub wrongly_denied: u64,
    /// Store calls per thousand requests.
    pub calls: u64,
}

/// Measures fleets of 2, 4 and 8 nodes with both windows and all levels.
///
/// # Errors
/// When the world cannot be set up.
pub fn measure(seed: u64) -> anyhow::Result<Vec<FleetFigures>> {
    let mut all = Vec::new();
    for limit in [
        LimitPlan::Window { count: LIMIT, per_ms: WINDOW_US / 1_000 },
        LimitPlan::Sliding { count: LIMIT, per_ms: WINDOW_US / 1_000 },
    ] {
        for nodes in [2, 4, 8] {
            for level in [
                LevelPlan::Strict,
                LevelPlan::Leased,
                LevelPlan::Eventual { sync_ms: 20 },
                LevelPlan::Eventual { sync_ms: 100 },
                LevelPlan::Eventual { sync_ms: 200 },
                LevelPlan::Eventual { sync_ms: 500 },
            ] {
                all.push(measure_fleet(seed, limit, level, nodes)?);
            }
        }
    }
    Ok(all)
}

/// Measures one fleet.
///
/// # Errors
/// When the world cannot be set up.
pub fn measure_fleet(
    seed: u64,
    limit: LimitPlan,
    level: LevelPlan,
    nodes: usize,
) -> anyhow::Result<FleetFigures> {
    let scenario = scenario(seed, limit, level, nodes);
    let history = world::run(&scenario, false)?;
    let start = scenario.start_us;
    let admitted: Vec<u64> = admitted_times(&history.hits);
    let (wrongly_admitted, wrongly_denied, rolling_peak) = judge(&history.hits);
    // Whole windows after the first ones.
    let (from, to) = (start + FIRST_US, start + LENGTH_MS * 1_000);
    let counted = admitted.iter().filter(|at| (from..to).contains(*at)).count() as u64;
    let due = LIMIT * (to - from) / WINDOW_US;
    let deviation = (counted as i64 - due as i64) * 1_000 / due as i64;
    Ok(FleetFigures {
        algorithm: match limit {
            LimitPlan::Window { .. } => "fixed_window",
            LimitPlan::Sliding { .. } => "sliding_window",
            LimitPlan::Bucket { .. } => "token_bucket",
        },
        level: match level {
            LevelPlan::Strict => "strict".to_owned(),
            LevelPlan::Hot => "strict, hot keys leased".to_owned(),
            LevelPlan::Leased => "leased".to_owned(),
            LevelPlan::Eventual { sync_ms } => format!("eventual, {sync_ms} ms"),
        },
        nodes,
        requests: history.hits.len() as u64,
        deviation,
        window_peak: window_peak(&admitted),
        rolling_peak,
        wrongly_admitted,
        wrongly_denied,
        calls: history.calls * 1_000 / (history.hits.len() as u64).max(1),
    })
}

fn admitted_times(hits: &[Hit]) -> Vec<u64> {
    hits.iter().filter(|hit| hit.allowed).map(|hit| hit.answered_us).collect()
}

fn window_peak(admitted: &[u64]) -> u64 {
    let mut counts = std::collections::HashMap::new();
    for at in admitted {
        *counts.entry(at / WINDOW_US).or_insert(0u64) += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

/// Compares each decision, in the order of the answers, with an exact log of those before it:
/// wrongly admitted, wrongly denied, and the most in a rolling window.
fn judge(hits: &[Hit]) -> (u64, u64, u64) {
    let mut window: VecDeque<u64> = VecDeque::new();
    let (mut wrongly_admitted, mut wrongly_denied, mut peak) = (0, 0, 0);
    for hit in hits {
        while window.front().is_some_and(|first| first + WINDOW_US <= hit.answered_us) {
            window.pop_front();
        }
        let has_room = (window.len() as u64) < LIMIT;
        wrongly_admitted += u64::from(hit.allowed && !has_room);
        wrongly_denied += u64::from(!hit.allowed && has_room);
        if hit.allowed {
            window.push_back(hit.answered_us);
            peak = peak.max(window.len() as u64);
        }
    }
    (wrongly_admitted, wrongly_denied, peak)
}

fn scenario(seed: u64, limit: LimitPlan, level: LevelPlan, nodes: usize) -> Scenario {
    let rule = RulePlan::fixed(vec![limit], level);
    let steady = Scenario::steady(nodes, rule, OFFERED / nodes as u64, 1, LENGTH_MS);
    Scenario { seed, ..steady }
}

#[cfg(test)]
mod tests {
    use sluicegate::Level;

    use super::*;

    fn hit(answered_us: u64, allowed: bool) -> Hit {
        Hit {
            request: 0,
            is_first: true,
            rule: 0,
            identity: 0,
            node: 0,
            process: 0,
            cost: 1,
            requested_us: answered_us,
            answered_us,
            allowed,
            origin: Level::Strict,
            refunded_us: None,
        }
    }

    #[test]
    fn decisions_are_compared_with_a_log_of_those_before() {
        let mut hits: Vec<Hit> = (0..LIMIT).map(|at| hit(at, true)).collect();
        assert_eq!(judge(&hits), (0, 0, LIMIT));
        hits.push(hit(LIMIT, false));
        hits.push(hit(LIMIT, true));
        hits.push(hit(WINDOW_US, false));
        // The first one has left, and so has the one above the limit its room.
        assert_eq!(judge(&hits), (1, 0, LIMIT + 1));
        hits.push(hit(WINDOW_US + 1, false));
        assert_eq!(judge(&hits), (1, 1, LIMIT + 1));
        assert_eq!(window_peak(&admitted_times(&hits)), LIMIT + 1);
    }

    #[test]
    fn leased_windows_are_never_exceeded_and_less_than_five_percent_short() {
        let limit = LimitPlan::Window { count: LIMIT, per_ms: WINDOW_US / 1_000 };
        let fleet = measure_fleet(1, limit, LevelPlan::Leased, 2).unwrap();
        assert!(fleet.window_peak <= LIMIT, "{fleet:?}");
        assert!(fleet.deviation > -50, "{fleet:?}");
    }
}
