//! Permitted excess above a limit, given the faults.
//!
//! Without data loss the excess is zero: a call without a response may have been charged, but its
//! hit did not pass. After data loss, nodes re-push their observations; hits that no node observed,
//! or that pass before the re-push, are excess. Under a local failure policy nodes admit their
//! share while the store is unavailable: the limit once more per window of their own clocks, two of
//! which may overlap one of the store's.

use super::Case;
use crate::scenario::{Fault, LimitPlan, Policy};
use crate::world::Hit;

/// Time until nodes have re-pushed lost data without other faults: a few calls.
const SYNCED_AFTER_US: u64 = 150_000;

/// Time until an open circuit breaker is probed.
const PROBED_AFTER_US: u64 = 2_000_000;
/// A refund has reached the store after this time, however late and duplicated.
const REFUNDED_AFTER_US: u64 = 3_000_000;
/// Longest life of a lease.
const LEASE_US: u64 = 5_000_000;

/// Permitted excess above a limit.
pub(super) struct Allowance {
    /// Excess between two times: the data loss and the end of the re-push.
    gifts: Vec<(u64, u64, u64)>,
    /// Cost bound of local shares, if nodes may have admitted them.
    shares: Option<u64>,
}

impl Allowance {
    pub(super) fn new(case: &Case<'_>, limit: LimitPlan) -> Self {
        let (scenario, faults) = (case.scenario, &case.history.faults);
        let mut gifts = Vec::new();
        for (at, fault) in faults {
            let lost_us = match fault {
                Fault::FailOver(lost_ms) => lost_ms * 1_000,
                Fault::LoseAll => 0,
                _ => continue,
            };
            let synced_by = synced_by(case, *at);
            let unseen = |hit: &&Hit| {
                hit.allowed && hit.answered_us + lost_us >= *at && hit.requested_us <= synced_by
            };
            let mut beyond: u64 = case.hits.iter().filter(unseen).map(|hit| hit.cost).sum();
            // Observations of an ended node may be lost with it.
            let gone = gone_before(case, synced_by);
            let theirs = |hit: &&Hit| hit.allowed && gone.contains(&hit.process);
            beyond += case.hits.iter().filter(theirs).map(|hit| hit.cost).sum::<u64>();
            beyond += held_at(case, *at);
            gifts.push((*at, synced_by, beyond.min(limit.capacity())));
        }
        let fails = !scenario.is_fault_free() && case.plan.policy == Policy::Local;
        // A refund gives its quota again.
        let refunds = case.hits.iter().filter_map(|hit| Some((hit.refunded_us?, hit.cost)));
        gifts.extend(refunds.map(|(at, cost)| (at, at + REFUNDED_AFTER_US, cost)));
        // What an ended lease gave back is granted again, while its holder still spends it.
        let steps = faults.iter().filter(|(_, fault)| matches!(fault, Fault::StoreStep(1..)));
        gifts.extend(steps.map(|(at, _)| (*at, at + LEASE_US, held_at(case, *at))));
        let max_cost = case.hits.iter().map(|hit| hit.cost).max().unwrap_or(1);
        let shares = fails.then(|| max_cost * scenario.clocks.len() as u64);
        Self { gifts, shares }
    }

    /// Permitted excess between two times, without local shares.
    pub(super) fn between(&self, from_us: u64, to_us: u64) -> u64 {
        let meets = |from: u64, to: u64| from <= to_us && to >= from_us;
        self.gifts.iter().filter(|(from, to, _)| meets(*from, *to)).map(|(_, _, gift)| gift).sum()
    }

    /// A count, with local shares.
    pub(super) fn count(&self, count: u64) -> u64 {
        self.shares.map_or(count, |nodes| count * 3 + nodes)
    }

    /// A refill rate, with local shares.
    pub(super) fn rate(&self, rate: u64) -> u64 {
        self.shares.map_or(rate, |_| rate * 2)
    }
}

/// Leases that the store lost: it grants their quota again before the holders stop spending it.
fn held_at(case: &Case<'_>, at_us: u64) -> u64 {
    let Some(first) = case.hits.first() else { return 0 };
    let is_it = |(_, rule, identity, _): &&(u64, usize, usize, u64)| {
        (*rule, *identity) == (first.rule, first.identity)
    };
    let held = case.history.held.iter().filter(is_it);
    // Recorded just after the fault.
    held.filter(|(at, ..)| at.abs_diff(at_us) <= 1).map(|(_, _, _, held)| held).sum()
}

/// End of the re-push after data loss: soon after all nodes have reconnected, or after all other
/// faults have ended.
pub(super) fn synced_by(case: &Case<'_>, at_us: u64) -> u64 {
    let faults = &case.history.faults;
    let others = faults.iter().filter(|(_, fault)| {
        !matches!(fault, Fault::Back | Fault::Reconnect(_) | Fault::FailOver(_) | Fault::LoseAll)
    });
    let is_alone = others.count() == 0;
    let found = |(at, fault): &&(u64, Fault)| matches!(fault, Fault::Reconnect(_)) && *at >= at_us;
    let last = if is_alone {
        faults.iter().filter(found).map(|(at, _)| *at).max()
    } else {
        faults.last().map(|(at, _)| at.saturating_add(1_000_000))
    };
    let probed = if case.scenario.store.has_breaker { PROBED_AFTER_US } else { 0 };
    last.unwrap_or(at_us).saturating_add(SYNCED_AFTER_US + probed)
}

/// Processes that had ended by this time.
pub(super) fn gone_before(case: &Case<'_>, at_us: u64) -> Vec<u64> {
    let mut gone = Vec::new();
    for (at, fault) in case.history.faults.iter().filter(|(at, _)| *at <= at_us) {
        if let Fault::Crash(index) | Fault::Stop(index) = fault {
            let was = |hit: &&Hit| hit.node == *index && hit.requested_us < *at;
            gone.extend(case.hits.iter().filter(was).map(|hit| hit.process));
        }
    }
    gone
}
