//! What limiters that police have set aside for a request that is not yet sure to go.

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, RESERVE_TTL};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::super::layer::WAIT_MAX;
use super::{Part, together};
use crate::limiter::new_holder;
use crate::{Denied, Limiter, Together};

/// A reservation with several limiters, all or nothing. Dropped without [`Reserved::commit`], it is given back.
pub(super) struct Reserved {
    parts: Vec<(Limiter, Vec<u8>)>,
    cost: u64,
    holder: Holder,
    verdict: Verdict,
    settled: bool,
}

// It lasts longer than anybody waits who has one. Whoever is woken later still is charged when it goes. (With a patience of its own
// a layer books everything and reserves nothing.)
const _: () = assert!(WAIT_MAX.as_micros() < RESERVE_TTL.as_micros() as u128);

// === impl Reserved ===

impl Reserved {
    /// For a request that goes within [`WAIT_MAX`], or not at all.
    pub(super) fn new(parts: &[Part<'_>], cost: u64, now: Timestamp) -> Result<Self, Denied> {
        let holder = new_holder();
        let op = Op::Reserve { cost, ttl: RESERVE_TTL, holder };
        let verdict = together(parts).cost(cost).at(now).ask(op)?.verdict;
        Denied::unless_allowed(verdict)?;
        let owned = |part: &Part<'_>| (part.limiter.clone(), part.key.to_vec());
        let parts = parts.iter().map(owned).collect();
        Ok(Self { parts, cost, holder, verdict, settled: false })
    }

    pub(super) const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// All of it is used.
    pub(super) fn commit(mut self) {
        self.settle(Op::Commit { cost: self.cost, holder: self.holder });
    }

    fn settle(&mut self, op: Op) {
        if !std::mem::replace(&mut self.settled, true) {
            let parts = self.parts.iter();
            let all = parts.fold(Together::new(), |all, (limiter, key)| all.and(limiter, key));
            // Refused only if its identity was forgotten meanwhile: then there is nothing to settle.
            let _ = all.cost(self.cost).ask(op);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settle(Op::Cancel { holder: self.holder });
    }
}
