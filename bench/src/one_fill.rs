//! One contestant's memory: resident bytes before and after it has seen so many ids.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::cell::MANY;
use crate::contestant::{Contestant, Done};
use crate::{ids, resident};

/// What was measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// How many ids were inserted.
    pub(crate) ids: usize,
    /// How many hits each.
    pub(crate) hits_per_id: usize,
    /// Resident bytes more than before the store was made.
    pub(crate) bytes: u64,
    /// The same at the worst moment.
    pub(crate) peak_bytes: u64,
    /// Wall time per hit, the making of the id included.
    pub(crate) hit_ns: f64,
}

/// Shows `C` so many ids. No id is kept by the bench: each is written over the last.
pub(crate) fn run<C: Contestant>(ids: usize) -> Result<Growth, String> {
    let mut id = String::with_capacity(ids::LENGTH);
    let before = resident::now().map_err(|error| format!("{error:#}"))?;
    let began = Instant::now();
    let contestant = C::new(MANY, ids);
    let mut admitted = 0;
    // All ids once, then all once more: a log grows in everybody's turn, as it does in life.
    for hit in 0..C::HITS_PER_ID {
        for number in 0..ids {
            ids::write(&mut id, number);
            admitted += usize::from(contestant.fill(&id, hit));
        }
    }
    let took = began.elapsed();
    let after = resident::now().map_err(|error| format!("{error:#}"))?;
    let peak = resident::peak().map_err(|error| format!("{error:#}"))?;

    let hits = ids * C::HITS_PER_ID;
    if admitted != hits {
        return Err(format!("{admitted} of {hits} hits were admitted"));
    }
    contestant.audit(&Done { ids, checks: hits })?;
    Ok(Growth {
        ids,
        hits_per_id: C::HITS_PER_ID,
        bytes: after.saturating_sub(before),
        peak_bytes: peak.saturating_sub(before),
        hit_ns: took.as_nanos() as f64 / hits as f64,
    })
}
