//! The machine, and how much of it was ours while we measured.

use std::fs;
use std::thread;
use std::time::Instant;

use serde::Serialize;

/// Above this load at the start, somebody else is at work.
const LOAD_BUSY: f64 = 0.5;

/// The peers, whose versions are read from the lock file.
const PEERS: [&str; 3] = ["governor", "throttlecrab", "limitador"];

/// The machine's books at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    at: Instant,
    /// Load of the last minute; absent where there is no `/proc`.
    load: Option<f64>,
    /// Time the hypervisor gave to others, and all time, in ticks.
    stolen: Option<(u64, u64)>,
}

/// What is said about the machine beside the results.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) load_before: Option<f64>,
    pub(crate) load_after: Option<f64>,
    pub(crate) stolen_percent: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) huge_pages: String,
    pub(crate) peers: Vec<(&'static str, String)>,
}

// === impl Reading ===

impl Reading {
    /// Reads the books.
    pub(crate) fn take() -> Self {
        let load = first_word("/proc/loadavg").and_then(|word| word.parse().ok());
        Self { at: Instant::now(), load, stolen: stolen() }
    }

    /// A word to whoever measures on a busy machine.
    pub(crate) fn warning(&self) -> Option<String> {
        let load = self.load.filter(|&load| load > LOAD_BUSY)?;
        Some(format!(
            "warning: the load is {load:.2}: somebody else is at work here; \
             rounds in which a thread had to wait for a CPU are left out of the ratios"
        ))
    }

    /// The machine between this reading and a later one.
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

/// Steal time and all time, summed over the CPUs: the first line of `/proc/stat`.
fn stolen() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is already in the first two.
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

fn first_word(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.split_whitespace().next()?.to_owned())
}

/// The version that was really built, as the lock file has it.
fn version(peer: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once(&format!("name = \"{peer}\"\nversion = \"")).map(|(_, rest)| rest);
    entry.and_then(|rest| rest.split('"').next()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version() {
        for peer in PEERS {
            assert!(version(peer).starts_with('0'), "{peer} {}", version(peer));
        }
    }
}
