//! In any interval no more passes than fits into the bucket at once and comes back in that time.

use super::allowance::Allowance;
use crate::world::Hit;

/// The interval in which too much passed, if there is one. `admitted` is in the order of the answers.
pub(super) fn judge(
    admitted: &[Hit],
    rate: u64,
    burst: u64,
    allowance: &Allowance,
) -> Option<String> {
    let mut worst: Option<(u64, String)> = None;
    for first in admitted {
        let from = first.asked_us;
        let mut sum = 0;
        for hit in admitted.iter().filter(|hit| hit.asked_us >= from) {
            sum += hit.cost;
            let span = hit.answered_us - from;
            let most = burst + rate * span / 1_000_000 + allowance.between(from, hit.answered_us);
            if sum > most && worst.as_ref().is_none_or(|(by, _)| sum - most > *by) {
                let what = format!(
                    "{sum} passed within {} ms up to {}, where a bucket of {burst} and {rate}/s has {most}",
                    span / 1_000,
                    hit.answered_us
                );
                worst = Some((sum - most, what));
            }
        }
    }
    worst.map(|(_, what)| what)
}
