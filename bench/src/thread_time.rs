//! Where the calling thread's time went: on a CPU, or ready and kept waiting for one.
//!
//! CPU time is what is left of wall time once waiting and other people's turns are taken away. A thread that
//! was kept waiting had to share its CPU: then wall time says more about the machine than about the
//! contestant. Waiting for a lock is neither.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Both, since the thread began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadTime {
    /// On a CPU.
    pub(crate) on_cpu: Duration,
    /// Ready to run, and not let; nothing where the kernel does not say.
    pub(crate) kept_waiting: Duration,
}

// === impl ThreadTime ===

impl ThreadTime {
    /// Of the calling thread.
    pub(crate) fn read() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let on_cpu = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        // Time on a CPU, time in the run queue, turns; in nanoseconds.
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let queued = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Self { on_cpu, kept_waiting: Duration::from_nanos(queued.unwrap_or(0)) }
    }

    /// What has passed since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            on_cpu: self.on_cpu.saturating_sub(earlier.on_cpu),
            kept_waiting: self.kept_waiting.saturating_sub(earlier.kept_waiting),
        }
    }
}
