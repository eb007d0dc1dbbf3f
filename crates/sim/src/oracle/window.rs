//! In each window no more passes than its number.
//!
//! Windows are filled in their order: first with the hits that can have been in no later one, then with those that must be decided first. If some do not
//! fit anywhere, too much has passed.

use std::collections::BTreeMap;

use super::allowance::Allowance;
use crate::world::Hit;

/// The window in which too much passed, if there is one.
pub(super) fn judge(
    admitted: &[Hit],
    count: u64,
    per_us: u64,
    allowance: &Allowance,
) -> Option<String> {
    let (first, last) = (
        admitted.iter().map(|hit| hit.asked_us / per_us).min()?,
        admitted.iter().map(|hit| hit.answered_us / per_us).max()?,
    );
    // What is still to be placed, by the last window that it can be in.
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for window in first..=last {
        for hit in admitted.iter().filter(|hit| hit.asked_us / per_us == window) {
            *open.entry(hit.answered_us / per_us).or_default() += hit.cost;
        }
        let (from, to) = (window * per_us, (window + 1) * per_us - 1);
        let mut room = count + allowance.between(from, to);
        for (_, cost) in open.range_mut(window..) {
            let placed = room.min(*cost);
            (room, *cost) = (room - placed, *cost - placed);
        }
        let left = open.remove(&window).unwrap_or(0);
        if left > 0 {
            let had = count + allowance.between(from, to);
            return Some(format!(
                "{} passed in the window that began at {from}, which has {had}",
                had + left
            ));
        }
    }
    None
}
