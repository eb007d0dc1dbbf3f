//! What a contestant has to be able to do.

use crate::cell::Rule;
use crate::ids::Picks;

/// A rate limiter with a store of its own.
///
/// Everything is generic over it and nothing goes through a `dyn`: the compiler sees the peer's call
/// inside the loop, as it would in a user's program.
pub(crate) trait Contestant: Sync + Sized {
    /// Hits per id when memory is measured: one, except for what keeps every hit.
    const HITS_PER_ID: usize = 1;

    /// A fresh store. `ids` is how many will come, for those whose documentation asks to be told.
    fn new(rule: Rule, ids: usize) -> Self;

    /// One check at cost 1: whether it was admitted.
    ///
    /// `&String` and not `&str`, because governor looks up by reference to its key type.
    #[allow(clippy::ptr_arg)]
    fn check(&self, id: &String) -> bool;

    /// `checks` of them on random ids: how many were admitted. This is what is timed.
    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..checks {
            admitted += usize::from(self.check(picks.next()));
        }
        admitted
    }

    /// The hit of this number on an id, when memory is measured.
    #[allow(clippy::ptr_arg)]
    fn fill(&self, id: &String, _hit: usize) -> bool {
        self.check(id)
    }

    /// Says what is wrong, if the contestant can tell that it did not do what it was asked.
    fn audit(&self, _done: &Done) -> Result<(), String> {
        Ok(())
    }
}

/// What was asked of a contestant in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// Different ids.
    pub(crate) ids: usize,
    /// Checks, the untimed ones included; ours has a listener that counts them.
    #[cfg_attr(not(feature = "ours"), allow(dead_code))]
    pub(crate) checks: usize,
}
