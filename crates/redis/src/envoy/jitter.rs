//! So that keys of one window do not all end at once.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number below `bound`, as chance has it; 0 below 0.
pub(super) fn below(bound: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    let keys = KEYS.get_or_init(RandomState::new);
    keys.hash_one(NEXT.fetch_add(1, Ordering::Relaxed)).checked_rem(bound).unwrap_or(0)
}
