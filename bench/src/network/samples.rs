//! Whose code runs when the real server is under load: samples by perf.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::args::Args;
use crate::built;
use crate::contestant::{self, Contestant, SLUICEGATE};
use crate::grid;
use crate::load::{self, Job, Work};
use crate::programs;
use crate::rounds::RULES;

/// By the beginning of a symbol's name; what is before it decides. Code that was inlined counts for whoever took it in.
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

/// The time that the load needs before it is at full speed, and the time that is sampled.
const BEFORE: Duration = Duration::from_secs(4);
const SAMPLED_S: u32 = 4;

/// A row for each owner, a column for each door; nothing without perf.
pub(super) fn table(args: &Args) -> anyhow::Result<Option<String>> {
    if Command::new("perf").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let (programs, _) = programs::find(args, RULES)?;
    let all = contestant::all(&programs);
    let ours: Vec<_> = all.iter().filter(|one| one.name == SLUICEGATE).collect();
    let mut columns = Vec::new();
    for one in &ours {
        columns.push(shares(&sampled(one, args)?));
    }
    let names = OWNERS.iter().map(|(name, _)| *name).chain(["kernel", "the rest"]);
    let rows: Vec<Vec<String>> = names
        .enumerate()
        .map(|(place, name)| {
            let cells = columns.iter().map(|column| format!("{:.1} %", column[place]));
            [name.to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    let head: Vec<&str> =
        ["whose code"].into_iter().chain(ours.iter().map(|one| one.case.name())).collect();
    Ok(Some(format!("The server under load, by samples:\n\n{}", grid::render(&head, 1, &rows))))
}

/// What perf says while a server is under load.
fn sampled(one: &Contestant, args: &Args) -> anyhow::Result<String> {
    let server = one.start.start()?;
    let (connections, streams) = one.case.connections();
    let seconds = BEFORE.as_secs() as u32 + SAMPLED_S + 2;
    let work = Work::Measure { keys: args.keys, seconds, rate: args.rate, probe: false };
    let (wire, address, pid) = (one.wire, server.address(one.case)?, server.pid());
    let job = Job { wire, address, pid, connections, streams, work };
    let mut load = load::command(&job)?.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    thread::sleep(BEFORE);
    let file = built::target()?.join("service-perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-F", "1999", "-p", &pid.to_string(), "-o"])
        .arg(&file)
        .args(["--", "sleep", &SAMPLED_S.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // It would go on for a while.
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

/// Per cent by owner, then of the kernel, then of the rest.
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
