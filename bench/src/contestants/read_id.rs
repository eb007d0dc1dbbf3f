//! No limiter at all: what the bench itself costs, at the least and at the most.
//!
//! A processor reads many ids at once if nothing keeps it from doing so. A limiter with a lock or a clock
//! in its way does, more or less; how much of the reading it hides is between these two rows.

use std::hint::black_box;

use crate::cell::Rule;
use crate::contestant::Contestant;
use crate::ids::Picks;

/// Reads one id after the other, as many at once as the processor likes.
#[derive(Debug)]
pub(crate) struct Overlapping;

/// Reads an id before it knows which is the next.
#[derive(Debug)]
pub(crate) struct InTurn;

impl Contestant for Overlapping {
    fn new(_rule: Rule, _ids: usize) -> Self {
        Self
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        black_box(both_ends(id));
        true
    }
}

impl Contestant for InTurn {
    fn new(_rule: Rule, _ids: usize) -> Self {
        Self
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        Overlapping.check(id)
    }

    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        for _ in 0..checks {
            let read = both_ends(picks.next());
            // Nothing is added, but neither the compiler nor the processor can know before the read.
            picks.stir(black_box(u64::from(read)) >> 8);
        }
        checks
    }
}

/// First and last byte: seventeen of them may lie on two cache lines, and a hash reads both.
#[inline]
fn both_ends(id: &str) -> u8 {
    let bytes = id.as_bytes();
    bytes.first().copied().unwrap_or(0) ^ bytes.last().copied().unwrap_or(0)
}
