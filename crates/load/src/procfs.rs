//! CPU time and memory of processes and the machine from `/proc`. Linux only.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Resource usage of one or several processes up to now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProcessUsage {
    /// User and system time.
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
}

/// Ticks of all CPUs up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    stolen: u64,
    total: u64,
}

/// `USER_HZ`, the unit of CPU time in `/proc`, fixed by the kernel's ABI.
const TICKS_PER_SECOND: f64 = 100.0;

/// Sum over the processes; `None` if one of them is unreadable or the list is empty.
pub(crate) fn usage(processes: &[u32]) -> Option<ProcessUsage> {
    let mut sum = ProcessUsage { cpu_seconds: 0.0, resident_bytes: 0 };
    for process in processes {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        sum.cpu_seconds += cpu_seconds(&stat)?;
        sum.resident_bytes += resident_bytes(&status)?;
    }
    (!processes.is_empty()).then_some(sum)
}

/// Ticks of all CPUs.
pub(crate) fn cpu_ticks() -> Option<CpuTicks> {
    ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// Steal time: share that the hypervisor gave to other machines.
pub(crate) fn stolen(from: Option<CpuTicks>, to: Option<CpuTicks>) -> Option<f64> {
    let (from, to) = (from?, to?);
    Some(
        to.stolen.saturating_sub(from.stolen) as f64
            / to.total.saturating_sub(from.total).max(1) as f64,
    )
}

/// All processes that listen on an address, workers included.
pub(crate) fn listeners(address: SocketAddr) -> Vec<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text: String = tables.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let sockets = inodes(&text, address);
    if sockets.is_empty() {
        return Vec::new();
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = numbers.filter(|process| holds_one_of(*process, &sockets)).collect();
    found.sort_unstable();
    found
}

fn holds_one_of(process: u32, sockets: &HashSet<u64>) -> bool {
    // Processes of other users are unreadable.
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| inode_of(&file.path()).is_some_and(|inode| sockets.contains(&inode)))
}

fn inode_of(file: &Path) -> Option<u64> {
    let target = fs::read_link(file).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Inodes of the sockets that accept connections to an address.
fn inodes(table: &str, address: SocketAddr) -> HashSet<u64> {
    const LISTEN: &str = "0A";
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = local(fields.get(1)?)?;
        let is_local =
            local.ip().is_unspecified() || local.ip().to_canonical() == address.ip().to_canonical();
        let fits = *fields.get(3)? == LISTEN && local.port() == address.port() && is_local;
        fields.get(9)?.parse().ok().filter(|_| fits)
    };
    table.lines().filter_map(of_line).collect()
}

/// `0100007F:1F90`: the address as native-endian words, and the port.
fn local(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .filter_map(|at| {
            Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes())
        })
        .collect();
    let ip = match words.as_slice() {
        [v4] => IpAddr::from(*v4),
        [_, _, _, _] => IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name may contain blanks and brackets; user and system time are fields 14 and 15.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut numbers = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = numbers.next()?.ok()? + numbers.next()?.ok()?;
    Some(ticks as f64 / TICKS_PER_SECOND)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1_024)
}

fn ticks(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is already in the first
    // two.
    Some(CpuTicks { stolen: *ticks.get(7)?, total: ticks.iter().take(8).sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
            2: 0100007F:1F90 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
            3: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1\n\
            4: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 15 1\n\
            5: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 16 1\n\
            6: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1\n";
        let mut found: Vec<_> =
            inodes(table, "127.0.0.1:8080".parse().unwrap()).into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 15, 16]);
    }

    #[test]
    fn names_may_be_anything() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  12 kB\n"), Some(12_288));
        assert_eq!(cpu_seconds("nonsense"), None);
    }

    #[test]
    fn stolen_time_is_a_share_of_all() {
        let at = |text| ticks(text);
        let from = at("cpu  10 0 10 70 0 0 0 10 0 0\n");
        let to = at("cpu  20 0 20 140 0 0 0 20 0 0\n");
        assert_eq!(stolen(from, to), Some(0.1));
        assert_eq!(stolen(None, to), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listeners(listener.local_addr().unwrap());
        assert_eq!(found, [std::process::id()]);
        assert!(usage(&found).unwrap().resident_bytes > 0);
    }
}
