//! Samples of the server under load by `perf`, grouped by the crate of the running code.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::contestants::{self, Contestant, OURS};
use super::load::{self, Job, Work};
use super::programs::{self, Programs};
use crate::{Common, table as tables};

/// Owners by prefix of the symbol; the first match decides. Inlined code counts for the caller.
const OWNERS: [(&str, &[&str]); 8] = [
    ("ours", &["sluicegate"]),
    ("h2", &["h2::"]),
    ("hyper, axum, tower", &["hyper", "axum", "tower", "http_body", "httparse", "matchit"]),
    ("http (headers)", &["http::", "fnv"]),
    ("tokio, mio", &["tokio", "mio::", "slab"]),
    ("bytes", &["bytes::", "<bytes"]),
    (
        "memory: malloc, free",
        &[
            "malloc",
            "_int_",
            "cfree",
            "free",
            "realloc",
            "calloc",
            "unlink_chunk",
            "__rustc::__rust",
            "__rdl",
            "alloc::",
        ],
    ),
    ("copying and comparing", &["__mem", "mem"]),
];

/// Time until the load is at full speed, and the sampled time.
const BEFORE: Duration = Duration::from_secs(4);
const SAMPLED_S: u32 = 4;

/// A row per owner, a column per endpoint; `None` without perf.
pub(super) fn table(common: &Common) -> anyhow::Result<Option<String>> {
    if Command::new("perf").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let programs = Programs::find(common)?;
    let all = contestants::service();
    let ours: Vec<_> = all.iter().filter(|one| one.name == OURS).collect();
    let mut columns = Vec::new();
    for one in &ours {
        columns.push(shares(&sample(one, common, &programs)?));
    }
    let names = OWNERS.iter().map(|(name, _)| *name).chain(["kernel", "the rest"]);
    let rows: Vec<Vec<String>> = names
        .enumerate()
        .map(|(index, name)| {
            let cells = columns.iter().map(|column| format!("{:.1} %", column[index]));
            [name.to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    let head: Vec<&str> =
        ["crate"].into_iter().chain(ours.iter().map(|one| one.endpoint.name())).collect();
    Ok(Some(format!("The server under load, by samples:\n\n{}", tables::render(&head, 1, &rows))))
}

/// The report of perf for a server under load.
fn sample(one: &Contestant, common: &Common, programs: &Programs) -> anyhow::Result<String> {
    let server = one.server.start(programs, one.endpoint)?;
    let seconds = BEFORE.as_secs() as u32 + SAMPLED_S + 2;
    let processes = server.processes();
    let pid = processes[0];
    let job = Job {
        contestant: one.id(),
        address: server.address,
        processes,
        alone: Vec::new(),
        upstream: Vec::new(),
        keys: common.keys,
        seconds,
        work: Work::Measure { paced: None },
    };
    let mut load = load::command(&job)?.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    thread::sleep(BEFORE);
    let file = programs::target()?.join("service-perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-F", "1999", "-p", &pid.to_string(), "-o"])
        .arg(&file)
        .args(["--", "sleep", &SAMPLED_S.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = load.kill();
    let _ = load.wait();
    ensure!(recorded.context("cannot start perf")?.success(), "perf record failed; is it allowed?");
    let report = Command::new("perf")
        .args(["report", "--stdio", "--no-children", "-g", "none", "-s", "sym", "-t", ";", "-i"])
        .arg(&file)
        .output()
        .context("cannot start perf")?;
    let _ = std::fs::remove_file(&file);
    Ok(String::from_utf8_lossy(&report.stdout).into_owned())
}

/// Percent by owner, then of the kernel, then of the rest.
fn shares(report: &str) -> [f64; OWNERS.len() + 2] {
    let mut shares = [0.0; OWNERS.len() + 2];
    for line in report.lines() {
        let Some((share, symbol)) = line.split_once(';') else { continue };
        let Ok(share) = share.trim().trim_end_matches('%').parse::<f64>() else { continue };
        shares[owner(symbol.trim())] += share;
    }
    shares
}

fn owner(symbol: &str) -> usize {
    // `[k] tcp_sendmsg`, `[.] <h2::client::Connection as …>::poll`.
    let Some(name) = symbol.strip_prefix("[.] ") else { return OWNERS.len() };
    let name = name.trim_start_matches(['<', '&', '_']);
    let begins = |texts: &[&str]| {
        texts.iter().any(|text| name.starts_with(text.trim_start_matches(['<', '_'])))
    };
    OWNERS.iter().position(|(_, texts)| begins(texts)).unwrap_or(OWNERS.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_owners() {
        let report = "# Overhead;Symbol\n  40.5%;[k] tcp_sendmsg\n 30.00%;[.] <h2::x as y>::z\n\
                      20%;[.] __memmove_avx\n 5%;[.] strlen\n";
        let shares = shares(report);
        assert_eq!((shares[1], shares[7], shares[8], shares[9]), (30.0, 20.0, 40.5, 5.0));
    }
}
