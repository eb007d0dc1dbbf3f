//! What passed in a window, with the part of the window before that still counts, is never more than the number.

use super::allowance::Allowance;
use crate::world::Hit;

/// The hit that was one too many, if there is one. `admitted` is in the order of the answers.
pub(super) fn judge(
    admitted: &[Hit],
    count: u64,
    per_us: u64,
    allowance: &Allowance,
) -> Option<String> {
    for hit in admitted {
        let window = hit.answered_us / per_us;
        let (from, at) = (window * per_us, hit.answered_us);
        let sum = |from: u64, to: u64| -> u64 {
            let within = |hit: &&Hit| hit.asked_us >= from && hit.answered_us <= to;
            admitted.iter().filter(within).map(|hit| hit.cost).sum()
        };
        let current = sum(from, at);
        let before = sum(from.saturating_sub(per_us), from.saturating_sub(1));
        // How it weighs by the latest moment at which it can have been decided.
        let weighed = before * (from + per_us - at) / per_us;
        let most = count + allowance.between(from.saturating_sub(per_us), at);
        if current > 0 && hit.asked_us >= from && current + weighed > most {
            return Some(format!(
                "{current} passed in the window that began at {from} until {at}, and {before} in the one before, which weigh {weighed}: more than {most}"
            ));
        }
    }
    None
}
