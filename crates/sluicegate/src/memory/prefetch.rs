//! Prefetching of cache lines.
//!
//! A check among a million identities mostly waits for memory. In a batch all names are known
//! before the first decision, so their lines can be fetched together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::table::home;

/// The address of a shard's table, readable without its lock.
///
/// It may be stale: then the wrong line is fetched, and the decision finds the table under the
/// lock.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    base: AtomicUsize,
    buckets: AtomicUsize,
}

const BUCKET_BYTES: usize = 64;

impl Hint {
    /// Stores the address and number of a table's buckets.
    pub(crate) fn follow(&self, (base, buckets): (usize, usize)) {
        self.base.store(base, Ordering::Relaxed);
        self.buckets.store(buckets, Ordering::Relaxed);
    }

    /// Prefetches the bucket where the probe for `name` begins.
    #[inline]
    pub(crate) fn prefetch(&self, name: u64) {
        let buckets = self.buckets.load(Ordering::Relaxed);
        let base = self.base.load(Ordering::Relaxed);
        send_for(base.wrapping_add(home(name, buckets).wrapping_mul(BUCKET_BYTES)));
    }
}

/// Prefetches the first line of some bytes.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    send_for(bytes.as_ptr() as usize);
}

/// Prefetches the line at any address.
#[inline]
fn send_for(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // A prefetch is a hint: it does not fault for any address. There is no safe API for it.
        #[allow(unsafe_code, reason = "measured: see `docs/DESIGN.md`, why one line of `unsafe`")]
        // SAFETY: the pointer is never dereferenced.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance::<i8>(address));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
