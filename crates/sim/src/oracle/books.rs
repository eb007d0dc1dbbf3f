//! What has passed and what is held was charged before, at every moment.
//!
//! This is stronger than what can be seen from outside: a node that holds what nobody has charged is wrong before anything too much has passed.

use super::Case;
use crate::scenario::{Fault, LevelPlan, Policy};

/// The moment at which the books were wrong, if there was one.
pub(super) fn judge(case: &Case<'_>) -> Option<String> {
    let first = case.hits.first()?;
    let is_eventual = matches!(case.plan.level, LevelPlan::Eventual { .. });
    // Shares are charged later, and limits that change are another number.
    let is_other = case.plan.policy == Policy::Local && !case.scenario.is_calm();
    if is_eventual || is_other || case.scenario.trouble.reloads() {
        return None;
    }
    let forgot = case.history.faults.iter().find_map(|(at, fault)| match fault {
        Fault::FailOver(_) | Fault::LoseAll => Some(*at),
        _ => None,
    });
    let until_us = forgot.unwrap_or(u64::MAX);
    let looks = case.history.looks.iter().filter(|look| {
        (look.rule, look.identity) == (first.rule, first.identity) && look.at_us < until_us
    });
    looks.into_iter().find(|look| look.charged < look.passed + look.held).map(|look| {
        format!(
            "at {} {} had passed in this window and {} were held, but {} charged",
            look.at_us, look.passed, look.held, look.charged
        )
    })
}
