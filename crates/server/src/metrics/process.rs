//! Metrics of the process, with the names of every Prometheus client. Linux only.

use std::fs;

use super::page::{Page, Seconds};

/// `USER_HZ` is 100 on every supported architecture.
const MICROS_PER_TICK: u64 = 10_000;

/// Writes the metrics of this process.
pub(super) fn put(page: &mut Page) {
    if let Some(micros) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu(&stat)) {
        let help = "User and system CPU time.";
        page.counter("process_cpu_seconds_total", help).value(Seconds(micros));
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory.";
        page.gauge("process_resident_memory_bytes", help).value(bytes);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors.").value(files.count());
    }
}

/// Resident memory.
pub(crate) fn resident_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status))
}

/// User and system time in microseconds: fields 14 and 15. Field 2 is a name in parentheses and may
/// contain anything.
fn cpu(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) * MICROS_PER_TICK)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 12345";
        assert_eq!(cpu(stat), Some(1_750_000));
        assert_eq!(cpu("42 (a) S 1"), None);
        assert_eq!(resident("Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(resident("VmRSS:\tmuch\n"), None);
    }
}
