//! The load: a process on a core of its own, with what `sluicegate bench` has inside.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_load::{Amount, Answer, Ask, KeyOrder, KeySpace, Pace, Plan, Server};

use crate::asks::{PROBED, PROBES};
use crate::contestant::{self, Contestant};
use crate::process;
use crate::rounds::Reading;
use crate::servers::{LOAD_CORE, pinned};

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Of whom: see [`Contestant::id`].
    pub(crate) contestant: String,
    pub(crate) address: SocketAddr,
    /// The server's processes, with the store behind it.
    pub(crate) processes: Vec<u32>,
    /// Those of them who should never wait for their core.
    pub(crate) alone: Vec<u32>,
    pub(crate) keys: u64,
    pub(crate) seconds: u32,
}

/// Has a job done by a process of its own; the parent's side.
pub(crate) fn command(job: &Job) -> anyhow::Result<Command> {
    let this = std::env::current_exe().context("this program's own path")?;
    let mut command = pinned(LOAD_CORE, &this);
    command.arg("load").arg(serde_json::to_string(job)?);
    Ok(command)
}

/// The child's side: one line of JSON.
pub(crate) fn child(job: &str) -> anyhow::Result<ExitCode> {
    let job: Job = serde_json::from_str(job).context("the job")?;
    let all = contestant::all();
    let found = all.iter().find(|one| one.id() == job.contestant);
    let one = found.with_context(|| format!("there is no `{}`", job.contestant))?;
    if let Some(probe) = one.probe {
        probed(&job, probe())?;
    }
    println!("{}", serde_json::to_string(&measured(&job, one)?)?);
    Ok(ExitCode::SUCCESS)
}

/// Whether it limits at all: a key with three a year is asked ten times.
fn probed(job: &Job, ask: Ask) -> anyhow::Result<()> {
    let plan = Plan {
        amount: Amount::Count(PROBES),
        warm_up: Duration::ZERO,
        fill: false,
        connections: 1,
        at_once: 1,
        ..plan(job, ask, (1, 1))
    };
    let report = sluicegate_load::run(&plan, |_| {})?;
    ensure!(report.is_clean(), "asking failed: {:?}", report.errors_by_text);
    let allowed = report.allowed;
    ensure!(allowed == PROBED, "of {PROBES} where {PROBED} may go, {allowed} went");
    Ok(())
}

/// Every key once, a second of warm-up, and then it counts. Everybody is answered as it is meant.
fn measured(job: &Job, one: &Contestant) -> anyhow::Result<Reading> {
    let plan = plan(job, (one.ask)(), one.door.connections());
    let began = Instant::now();
    let before = waited(&job.alone)?;
    let report = sluicegate_load::run(&plan, |_| {})?;
    let waited = (waited(&job.alone)? - before).max(0.0) / began.elapsed().as_secs_f64();
    ensure!(report.is_clean(), "asking failed: {:?}", report.errors_by_text);
    let (wrong, what) = match one.meant {
        Answer::Allowed => (report.denied, "denied"),
        Answer::Denied => (report.allowed, "allowed"),
    };
    ensure!(wrong == 0, "{wrong} of {} were {what}", report.requests);
    let server = report.server.as_ref().context("the server's process cannot be read")?;
    Ok(Reading {
        cpu_us: server.cpu_us_per_request,
        rate: report.per_second,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        resident: server.resident_bytes,
        busy: server.busy,
        load_busy: report.load_busy.unwrap_or(f64::NAN),
        stolen: report.stolen.unwrap_or(0.0),
        waited,
        store: None,
        store_share: None,
    })
}

/// How long the server, or the load, was ready and had no CPU: of the process that waited the longest.
fn waited(processes: &[u32]) -> anyhow::Result<f64> {
    let mut longest = process::times(std::process::id())?.waited;
    for process in processes {
        longest = longest.max(process::times(*process)?.waited);
    }
    Ok(longest)
}

pub(crate) fn plan(job: &Job, ask: Ask, (connections, at_once): (usize, usize)) -> Plan {
    Plan {
        address: job.address,
        ask,
        keys: KeySpace { count: job.keys, order: KeyOrder::Uniform, seed: 1 },
        pace: Pace::Closed,
        amount: Amount::Time(Duration::from_secs(job.seconds.into())),
        warm_up: Duration::from_secs(1),
        fill: true,
        connections,
        at_once,
        threads: 1,
        patience: Duration::from_secs(10),
        denied: vec![429],
        password: None,
        server: Server::Processes(job.processes.clone()),
    }
}
