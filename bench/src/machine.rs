//! The machine, processes and threads, as `/proc` shows them. Linux only.

use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Load above which other processes are considered active.
const LOAD_BUSY: f64 = 0.5;

/// Peers whose versions are read from the lock file.
const PEERS: [&str; 3] = ["governor", "throttlecrab", "limitador"];

/// Counters of the machine at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    at: Instant,
    /// Load average of the last minute.
    load: Option<f64>,
    /// Steal time and total time, in ticks.
    stolen: Option<(u64, u64)>,
}

/// The machine during a run.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    load_before: Option<f64>,
    load_after: Option<f64>,
    stolen_percent: Option<f64>,
    seconds: f64,
    huge_pages: String,
    peers: Vec<(&'static str, String)>,
}

/// CPU and waiting time of a process, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessTime {
    /// On a CPU, all threads together.
    pub(crate) on_cpu: f64,
    /// Runnable without a CPU: maximum over the threads.
    pub(crate) waited: f64,
}

/// CPU and waiting time of the calling thread.
///
/// A thread that waited had to share its CPU; its wall time says more about the machine than about
/// the contestant. Waiting for a lock counts as neither.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadTime {
    pub(crate) on_cpu: Duration,
    /// Runnable without a CPU.
    pub(crate) waited: Duration,
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) fn take() -> Self {
        let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = text.split_whitespace().next().and_then(|word| word.parse().ok());
        Self { at: Instant::now(), load, stolen: stolen() }
    }

    /// A warning if the machine is busy.
    pub(crate) fn warning(&self) -> Option<String> {
        let load = self.load.filter(|&load| load > LOAD_BUSY)?;
        Some(format!(
            "warning: the load average is {load:.2}: other processes are running; disturbed readings are left out"
        ))
    }

    /// The machine between two snapshots.
    pub(crate) fn until(&self, later: &Self) -> Machine {
        let stolen = self.stolen.zip(later.stolen).map(|((stolen, all), (stolen_2, all_2))| {
            100.0 * (stolen_2 - stolen) as f64 / (all_2 - all).max(1) as f64
        });
        Machine {
            cpu: cpu(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            load_before: self.load,
            load_after: later.load,
            stolen_percent: stolen,
            seconds: later.at.duration_since(self.at).as_secs_f64(),
            huge_pages: huge_pages(),
            peers: PEERS.iter().map(|&peer| (peer, version(peer))).collect(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<f64>| number.map_or("?".to_owned(), |n| format!("{n:.2}"));
        write!(
            f,
            "{} x {}; load {} before, {} after; steal time {} %; huge pages: {}; {:.0} s",
            self.cpus,
            self.cpu,
            number(self.load_before),
            number(self.load_after),
            number(self.stolen_percent),
            self.huge_pages,
            self.seconds,
        )
    }
}

// === impl Machine ===

impl Machine {
    /// Name and version of each peer.
    pub(crate) fn peers(&self) -> String {
        let peers = self.peers.iter().map(|(name, version)| format!("{name} {version}"));
        peers.collect::<Vec<_>>().join(", ")
    }
}

// === impl ProcessTime ===

impl ProcessTime {
    pub(crate) fn read(pid: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        let stat = stat.with_context(|| format!("process {pid} has ended"))?;
        // The name may contain blanks and brackets; user and system time are fields 14 and 15.
        let (_, rest) = stat.rsplit_once(')').context("`/proc/PID/stat` has no name")?;
        let numbers = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
        let mut waited = 0;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            // A thread may have ended meanwhile.
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            waited = waited.max(run_queue_nanos(&text));
        }
        Ok(Self {
            on_cpu: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            waited: waited as f64 / 1e9,
        })
    }
}

// === impl ThreadTime ===

impl ThreadTime {
    pub(crate) fn read() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Self {
            on_cpu: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
            waited: Duration::from_nanos(run_queue_nanos(&text)),
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            on_cpu: self.on_cpu.saturating_sub(earlier.on_cpu),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// Time of a core that processes other than these had, up to a constant. Interrupts are left out:
/// kernels differ in whether they are a part of a process's time.
pub(crate) fn foreign_time(core: usize, processes: &[u32]) -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("`/proc/stat`")?;
    let ticks = core_ticks(&text, core).with_context(|| format!("there is no core {core}"))?;
    let mut seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    for process in processes {
        seconds -= ProcessTime::read(*process)?.on_cpu;
    }
    Ok(seconds)
}

/// User, nice and system time of a core.
fn core_ticks(stat: &str, core: usize) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} ")))?;
    Some(line.split_whitespace().take(3).filter_map(|number| number.parse::<u64>().ok()).sum())
}

/// Resident bytes of a process.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"));
    let text = text.with_context(|| format!("process {pid} has ended"))?;
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.context("`/proc/PID/statm` has no second number")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Maximum of resident bytes of this process so far.
pub(crate) fn resident_peak() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("`/proc/self/status`")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.context("`/proc/self/status` has no `VmHWM` in kB")? * 1024)
}

/// The second field of `schedstat`: time in the run queue.
fn run_queue_nanos(schedstat: &str) -> u64 {
    schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Steal time and total time of all CPUs: the first line of `/proc/stat`.
fn stolen() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of the first two.
    Some((*ticks.get(7)?, ticks.iter().take(8).sum()))
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": ")).map(|(_, name)| name.trim());
    name.unwrap_or("an unknown CPU").to_owned()
}

/// The choice in brackets.
fn huge_pages() -> String {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("unknown", |(chosen, _)| chosen).to_owned()
}

/// The version in the lock file.
fn version(peer: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once(&format!("name = \"{peer}\"\nversion = \"")).map(|(_, rest)| rest);
    entry.and_then(|rest| rest.split('"').next()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_core_is_without_idle_time_and_interrupts() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 9 9 9 9 9 0 0\ncpu1 4 5 6 9 9 9 9 9 0 0\n";
        assert_eq!((core_ticks(stat, 1), core_ticks(stat, 2)), (Some(15), None));
    }

    #[test]
    fn every_peer_has_a_version() {
        for peer in PEERS {
            assert!(version(peer).starts_with('0'), "{peer} {}", version(peer));
        }
    }
}
