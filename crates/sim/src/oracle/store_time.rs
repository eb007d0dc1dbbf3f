//! A history by the clock of the store, which decides windows and refills.
//!
//! Where it is stepped back it stands still until it has caught up: time that moves back never
//! admits more.

use crate::scenario::Fault;
use crate::world::History;

/// The history by the store's clock, if that was stepped.
pub(super) fn in_store_time(history: &History) -> Option<History> {
    let steps: Vec<(u64, i64)> = history
        .faults
        .iter()
        .filter_map(|(at, fault)| match fault {
            Fault::StoreStep(ms) => Some((*at, ms * 1_000)),
            _ => None,
        })
        .collect();
    if steps.is_empty() {
        return None;
    }
    let at = |us: u64| {
        let mut ahead = 0;
        let mut latest = 0;
        for (step, by) in steps.iter().filter(|(step, _)| *step <= us) {
            // The latest time before this step.
            latest = latest.max(step.saturating_add_signed(ahead));
            ahead += by;
        }
        latest.max(us.saturating_add_signed(ahead))
    };
    let mut mapped = history.clone();
    for hit in &mut mapped.hits {
        (hit.requested_us, hit.answered_us) = (at(hit.requested_us), at(hit.answered_us));
        hit.refunded_us = hit.refunded_us.map(at);
    }
    mapped.faults.iter_mut().for_each(|(us, _)| *us = at(*us));
    mapped.held.iter_mut().for_each(|(us, ..)| *us = at(*us));
    // State and exchanges are those of true time.
    mapped.samples.clear();
    Some(mapped)
}
