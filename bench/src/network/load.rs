//! The load: a process on its own core, with the load generator of `sluicegate bench`.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_load::{
    Amount, Answer, Arrivals, KeyOrder, KeySpace, Pace, Plan, Rate, Report, RequestSpec, Server,
    Timer,
};

use super::contestants::{self, Contestant};
use super::requests::{PROBE_LIMIT, PROBES};
use super::servers::{LOAD_CORE, SERVER_CORE, pinned};
use super::{Loaded, Phase, faults};
use crate::child;
use crate::machine::{ProcessTime, foreign_time, resident};

/// The work of a load process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// See [`Contestant::id`].
    pub(crate) contestant: String,
    pub(crate) address: SocketAddr,
    /// Processes of the server, with its store.
    pub(crate) processes: Vec<u32>,
    /// Those of them that must not wait for their core.
    pub(crate) alone: Vec<u32>,
    /// Processes of an upstream on the core of the load.
    pub(crate) upstream: Vec<u32>,
    pub(crate) keys: u64,
    pub(crate) seconds: u32,
    pub(crate) work: Work,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Probe, fill and closed loop; then an open loop at this rate.
    Measure { paced: Option<PacedRate> },
    /// An open loop at this rate, with a new key for every request.
    Soak { rate: u32 },
    /// See [`faults`].
    Faults,
}

/// Rate of the open loop.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum PacedRate {
    /// Requests per second.
    Fixed(u32),
    /// Share of the rate in the closed loop.
    Share(f64),
}

/// Keys of a soak repeat after this many: long after they expired.
const SOAK_KEYS: u64 = 9_000_000;

/// The parent's side: a process for the job.
pub(crate) fn command(job: &Job) -> anyhow::Result<Command> {
    let mut command = pinned(LOAD_CORE, &child::this()?);
    command.arg("load").arg(serde_json::to_string(job)?);
    Ok(command)
}

/// The child's side: one line of JSON.
pub(crate) fn child(job: &str) -> anyhow::Result<()> {
    let job: Job = serde_json::from_str(job).context("invalid job")?;
    if matches!(job.work, Work::Faults) {
        return faults::child(&job);
    }
    let all = contestants::all();
    let found = all.iter().find(|one| one.id() == job.contestant);
    let one = found.with_context(|| format!("there is no contestant `{}`", job.contestant))?;
    let closed = job.plan((one.request)(), one.endpoint.connections());
    let loaded = match job.work {
        Work::Measure { paced } => {
            if let Some(probe) = one.probe {
                job.probe(probe())?;
            }
            let full = job.phase(&closed, one)?;
            let open = |rate: PacedRate| -> anyhow::Result<Phase> {
                let rate = match rate {
                    PacedRate::Fixed(rate) => rate,
                    PacedRate::Share(share) => (share * full.rate).max(1.0) as u32,
                };
                job.phase(&Plan { pace: constant(rate)?, ..unfilled(closed.clone()) }, one)
            };
            let paced = paced.map(open).transpose()?;
            Loaded { full, paced, resident: job.resident()?, store: None }
        }
        Work::Soak { rate } => {
            let keys = KeySpace { count: SOAK_KEYS, order: KeyOrder::Sequential, seed: 1 };
            let plan = Plan { keys, pace: constant(rate)?, ..unfilled(closed) };
            let full = job.phase(&plan, one)?;
            Loaded { full, paced: None, resident: job.resident()?, store: None }
        }
        Work::Faults => unreachable!("handled above"),
    };
    child::print(&loaded)
}

/// Runs a plan; a failed request is an error.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let report = sluicegate_load::run(plan, |_| {})?;
    ensure!(report.is_clean(), "requests failed: {:?}", report.errors_by_text);
    Ok(report)
}

/// Without fill and warm-up.
pub(crate) fn unfilled(plan: Plan) -> Plan {
    Plan { warm_up: Duration::ZERO, fill: false, ..plan }
}

fn constant(rate: u32) -> anyhow::Result<Pace> {
    let rate = Rate::per_second(rate.into()).context("invalid rate")?;
    Ok(Pace::Open(rate, Arrivals::Constant))
}

/// A closed loop over all keys, after each was sent once and a second of warm-up.
pub(crate) fn plan(
    address: SocketAddr,
    request: RequestSpec,
    keys: u64,
    (connections, at_once): (usize, usize),
) -> Plan {
    Plan {
        address,
        request,
        keys: KeySpace { count: keys, order: KeyOrder::Uniform, seed: 1 },
        pace: Pace::Closed,
        amount: Amount::Time(Duration::from_secs(1)),
        warm_up: Duration::from_secs(1),
        fill: true,
        connections,
        at_once,
        threads: 1,
        timeout: Duration::from_secs(30),
        request_timeout: None,
        timer: Timer::Exact,
        denied: vec![429],
        password: None,
        server: Server::Processes(Vec::new()),
    }
}

/// The first process is the server, the others are its store or its limiter.
fn store_share(before: &[f64], after: &[f64]) -> Option<f64> {
    let times: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let store: f64 = times.get(1..)?.iter().sum();
    (times.len() > 1).then(|| store / times.iter().sum::<f64>())
}

// === impl Job ===

impl Job {
    pub(super) fn plan(&self, request: RequestSpec, connections: (usize, usize)) -> Plan {
        Plan {
            amount: Amount::Time(Duration::from_secs(self.seconds.into())),
            server: Server::Processes(self.processes.clone()),
            ..plan(self.address, request, self.keys, connections)
        }
    }

    /// Checks that the server limits at all.
    fn probe(&self, request: RequestSpec) -> anyhow::Result<()> {
        let plan = self.plan(request, (1, 1));
        let report = run(&Plan { amount: Amount::Count(PROBES), ..unfilled(plan) })?;
        let allowed = report.allowed;
        ensure!(
            allowed == PROBE_LIMIT,
            "{allowed} of {PROBES} requests passed a limit of {PROBE_LIMIT}"
        );
        Ok(())
    }

    /// Measures a phase in which every request has the expected answer.
    fn phase(&self, plan: &Plan, one: &Contestant) -> anyhow::Result<Phase> {
        let began = Instant::now();
        let before = self.waited()?;
        let times = self.times()?;
        let report = run(plan)?;
        let store_share = store_share(&times, &self.times()?).filter(|_| self.alone.is_empty());
        let seconds = began.elapsed().as_secs_f64();
        let longest = self.waited()?.into_iter().zip(before).map(|(after, before)| after - before);
        let waited = longest.fold(0.0, f64::max) / seconds;
        let (wrong, answer) = match one.expected {
            Answer::Allowed => (report.denied, "denied"),
            Answer::Denied => (report.allowed, "allowed"),
        };
        ensure!(wrong == 0, "{wrong} of {} requests were {answer}", report.requests);
        let server = report.server.as_ref().context("the server's process cannot be read")?;
        Ok(Phase {
            requests: report.requests,
            cpu_us: server.cpu_us_per_request,
            rate: report.per_second,
            p50_us: report.latency_us.p50,
            p99_us: report.latency_us.p99,
            p999_us: report.latency_us.p999,
            busy: server.busy,
            load_busy: report.load_busy.unwrap_or(f64::NAN),
            stolen: report.stolen.unwrap_or(0.0),
            waited,
            store_share,
        })
    }

    /// CPU time of each process.
    fn times(&self) -> anyhow::Result<Vec<f64>> {
        self.processes.iter().map(|one| Ok(ProcessTime::read(*one)?.on_cpu)).collect()
    }

    /// Waiting time of the load and of the server's processes. Processes that share a core wait
    /// for each other: there it is the time that others had the core.
    fn waited(&self) -> anyhow::Result<Vec<f64>> {
        let own = std::process::id();
        let mut alone = self.alone.clone();
        let mut waited = Vec::new();
        if self.alone.is_empty() {
            waited.push(foreign_time(SERVER_CORE, &self.processes)?);
        }
        if self.upstream.is_empty() {
            alone.push(own);
        } else {
            waited.push(foreign_time(LOAD_CORE, &[&[own], &*self.upstream].concat())?);
        }
        for process in alone {
            waited.push(ProcessTime::read(process)?.waited);
        }
        Ok(waited)
    }

    fn resident(&self) -> anyhow::Result<u64> {
        self.processes.iter().map(|process| resident(*process)).sum()
    }
}
