//! What the process takes, by the names that every Prometheus client has for it. Only Linux tells.

use std::fs;

use super::page::{Page, Seconds};

/// Linux tells programs of time in hundredths of a second, whatever its own clock does.
const MICROS_PER_TICK: u64 = 10_000;

/// Writes what the system tells of this process.
pub(super) fn put(page: &mut Page) {
    if let Some(micros) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu(&stat)) {
        let help = "Processor time of the process.";
        page.counter("process_cpu_seconds_total", help).one(Seconds(micros));
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Memory that the process has in use.";
        page.gauge("process_resident_memory_bytes", help).one(bytes);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Files and connections that are open.").one(files.count());
    }
}

/// Memory that the process has in use, if the system tells.
pub(crate) fn resident_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status))
}

/// Microseconds in the program and in the system for it: the 14th and 15th field. The second is a name in brackets, and may hold anything.
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
    fn the_systems_words_are_read() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 12345";
        assert_eq!(cpu(stat), Some(1_750_000));
        assert_eq!(cpu("42 (a) S 1"), None);
        assert_eq!(resident("Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(resident("VmRSS:\tmuch\n"), None);
    }
}
