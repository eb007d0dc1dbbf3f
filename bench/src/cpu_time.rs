//! The CPU time of the calling thread: what is left of wall time once waiting and other people's turns
//! are taken away.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long this thread has been on a CPU.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
