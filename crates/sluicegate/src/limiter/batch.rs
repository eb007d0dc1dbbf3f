//! Batches of hits at one time.

use sluicegate_core::verdict::Verdict;

use super::Limiter;
use crate::memory::{UNCOUNTED, prefetch};

/// Keys prefetched ahead: more would evict the first lines from the nearest cache.
const AHEAD: usize = 16;

impl Limiter {
    /// One hit for each key, all at the same time; `each` receives the index of the key and the
    /// verdict.
    ///
    /// Keys are decided in order, each independently. A batch is faster than single calls: it reads
    /// the clock once and prefetches memory.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = Limiter::new(FixedWindow::per_hour(2))?;
    /// let mut denied = Vec::new();
    /// limiter.hit_batch(&["alice", "bob", "alice", "alice"], |place, verdict| {
    ///     if !verdict.is_allowed() {
    ///         denied.push(place);
    ///     }
    /// });
    /// assert_eq!(denied, [3]);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn hit_batch<K: AsRef<[u8]>>(&self, keys: &[K], mut each: impl FnMut(usize, Verdict)) {
        let now = self.now();
        let mut hashes = [0; AHEAD];
        let mut bytes = [[].as_slice(); AHEAD];
        for (chunk, keys) in keys.chunks(AHEAD).enumerate() {
            // Each step runs for all keys before the next, so that prefetches overlap.
            for (bytes, key) in bytes.iter_mut().zip(keys) {
                *bytes = key.as_ref();
                prefetch(bytes);
            }
            let bytes = &bytes[..keys.len()];
            for (hash, key) in hashes.iter_mut().zip(bytes) {
                *hash = self.inner.shards.hash(key);
                self.inner.shards.prefetch(*hash);
            }
            for (index, (hash, key)) in hashes.iter().zip(bytes).enumerate() {
                let mut verdict = UNCOUNTED;
                self.inner.hit(*hash, key, 1, now, &mut verdict);
                each(chunk * AHEAD + index, verdict);
            }
        }
    }
}
