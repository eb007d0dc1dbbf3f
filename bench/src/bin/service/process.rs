//! What the kernel writes down about a process, and about the machine.

use std::fs;

use anyhow::Context as _;

/// Where time went, up to a moment; in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// On a CPU, in all threads.
    pub(crate) on_cpu: f64,
    /// Ready to run, and not let: of the thread that waited the longest.
    pub(crate) waited: f64,
}

/// Of a process.
pub(crate) fn times(pid: u32) -> anyhow::Result<Times> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let stat = stat.with_context(|| format!("the server, process {pid}, has ended"))?;
    // Its name may have blanks and brackets; after it come the state, then numbers: user and system time are the 12th and 13th of them.
    let (_, rest) = stat.rsplit_once(')').context("`/proc/PID/stat` has no name")?;
    let numbers = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
    let mut waited = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // Time on a CPU, time in the run queue, turns; in nanoseconds. A thread may have ended meanwhile.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let queued = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        waited = waited.max(queued.unwrap_or(0u64));
    }
    Ok(Times {
        on_cpu: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        waited: waited as f64 / 1e9,
    })
}

/// Bytes of a process that are resident.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"));
    let text = text.with_context(|| format!("the server, process {pid}, has ended"))?;
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.context("`/proc/PID/statm` has no second number")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Time that the hypervisor gave to others, and all time, in ticks of all CPUs.
pub(crate) fn stolen() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is already in the first two.
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().take(8).sum())
}

/// The load of the last minute.
pub(crate) fn machine_load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// What the CPU calls itself.
pub(crate) fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": ")).map(|(_, name)| name.trim());
    name.unwrap_or("an unknown CPU").to_owned()
}
