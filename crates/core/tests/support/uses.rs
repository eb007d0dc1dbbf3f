//! When admitted costs are used, and the bounds on how much that may be.
//!
//! A hit is used when it is admitted, a booking at its turn (`now + wait`), a cancelled booking not at all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::Fraction;

/// Moments of use, and how much.
pub(crate) type Uses = Vec<(u64, u64)>;

/// Calls `check` with every span that begins and ends with a use, and what is used in it.
pub(crate) fn in_every_span(
    uses: &Uses,
    mut check: impl FnMut(u64, u64, u64) -> bool,
) -> Result<(), TestCaseError> {
    let mut sorted = uses.clone();
    sorted.sort_unstable();
    for (i, &(from, _)) in sorted.iter().enumerate() {
        let mut used = 0;
        for &(to, cost) in &sorted[i..] {
            used += cost;
            prop_assert!(
                check(from, to, used),
                "{} used from {} to {} of {:?}",
                used,
                from,
                to,
                sorted
            );
        }
    }
    Ok(())
}

/// Whether this much is no more than a burst and what drips in the time.
pub(crate) fn dripped(n: u64, p: u64, burst: u64, time: u64, used: u64) -> bool {
    let drips = Fraction::new(i128::from(time) * i128::from(n), p.into());
    Fraction::whole(used.into()).at_most(drips.plus(Fraction::whole(burst.into())))
}

pub(crate) fn per_period(uses: &Uses, period: u64) -> BTreeMap<u64, u64> {
    let mut per = BTreeMap::new();
    for (moment, cost) in uses {
        *per.entry(moment / period).or_insert(0) += cost;
    }
    per
}
