//! Resident memory of this process, from `/proc`.

use std::fs;

use anyhow::Context as _;

/// Bytes resident now.
pub(crate) fn now() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm").context("`/proc/self/statm`")?;
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.context("`/proc/self/statm` has no second number")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// The most bytes that were ever resident: a table that moves when it grows holds both for a while.
pub(crate) fn peak() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("`/proc/self/status`")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.context("`/proc/self/status` has no `VmHWM` in kB")? * 1024)
}
