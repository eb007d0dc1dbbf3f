//! Telling the processor which cache line comes next.
//!
//! A check among a million identities waits for memory most of its time. In a batch all names are known
//! before the first decision, so their lines can be on the way together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::table::home;

/// Where a shard's table is, readable without its lock.
///
/// It may be out of date by the time it is read: then the wrong line is fetched, or none, and the
/// decision itself finds the table under the lock as always.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    base: AtomicUsize,
    buckets: AtomicUsize,
}

const BUCKET_BYTES: usize = 64;

// === impl Hint ===

impl Hint {
    /// Takes note of where a table's buckets are, and how many.
    pub(crate) fn follow(&self, (base, buckets): (usize, usize)) {
        self.base.store(base, Ordering::Relaxed);
        self.buckets.store(buckets, Ordering::Relaxed);
    }

    /// Sends for the bucket where the search for `name` begins.
    #[inline]
    pub(crate) fn prefetch(&self, name: u64) {
        let buckets = self.buckets.load(Ordering::Relaxed);
        let base = self.base.load(Ordering::Relaxed);
        send_for(base.wrapping_add(home(name, buckets).wrapping_mul(BUCKET_BYTES)));
    }
}

/// Sends for the first line of some bytes.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    send_for(bytes.as_ptr() as usize);
}

/// Asks for the line at an address; any number will do.
#[inline]
fn send_for(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // A prefetch is a hint: it reads nothing into the program and does not fault, whatever the address. There
        // is no safe way to ask for it.
        #[allow(unsafe_code, reason = "measured: see `docs/DESIGN.md`, why one line of `unsafe`")]
        // SAFETY: as said above; the pointer is never dereferenced.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance::<i8>(address));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
