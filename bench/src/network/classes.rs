//! Classes of clients, each with an open loop of its own: one process, a thread for each class.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_load::{Amount, Arrivals, KeyOrder, KeySpace, Pace, Plan, Rate, RateStep, Timer};
use sluicegate_load::{Report, RequestSpec};

use super::load;
use super::servers::{LOAD_CORE, pinned};
use crate::child;

/// Clients that a header distinguishes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClassLoad {
    pub(super) address: SocketAddr,
    /// Name and value.
    pub(super) header: (String, String),
    /// Seconds, and requests per second.
    pub(super) steps: Vec<(u64, f64)>,
    pub(super) connections: usize,
}

/// The work of a load process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClassesJob {
    pub(super) classes: Vec<ClassLoad>,
    /// A client that waits for longer goes away.
    pub(super) request_timeout_ms: u64,
    pub(super) denied: Vec<u16>,
}

/// What a class got, by second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClassSeconds {
    pub(super) seconds: Vec<ClassSecond>,
    /// Latest start of a request after its scheduled time.
    pub(super) latest_start_ms: f64,
    pub(super) unsent: u64,
    pub(super) stolen: f64,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct ClassSecond {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// No response in time, or none at all.
    pub(super) failed: u64,
    /// Of allowed requests.
    pub(super) p99_ms: f64,
}

impl ClassLoad {
    fn seconds(&self) -> u64 {
        self.steps.iter().map(|(seconds, _)| seconds).sum()
    }

    fn plan(&self, job: &ClassesJob, seed: u64) -> anyhow::Result<Plan> {
        let step = |(seconds, rate): &(u64, f64)| {
            let rate = Rate::per_second(*rate).context("invalid rate")?;
            Ok(RateStep { time: Duration::from_secs(*seconds), rate })
        };
        let steps = self.steps.iter().map(step).collect::<anyhow::Result<_>>()?;
        let request =
            RequestSpec::Get { path: "/page".to_owned(), headers: vec![self.header.clone()] };
        Ok(Plan {
            keys: KeySpace { count: 1, order: KeyOrder::Sequential, seed },
            pace: Pace::Steps(steps, Arrivals::Poisson),
            amount: Amount::Time(Duration::from_secs(self.seconds())),
            request_timeout: Some(Duration::from_millis(job.request_timeout_ms)),
            // The load shares its core with the upstream.
            timer: Timer::Coarse,
            denied: job.denied.clone(),
            ..load::unfilled(load::plan(self.address, request, 1, (self.connections, 1)))
        })
    }
}

impl ClassesJob {
    /// The parent's side: runs the job in a process of its own.
    pub(super) fn run(&self) -> anyhow::Result<Vec<ClassSeconds>> {
        let mut command = pinned(LOAD_CORE, &child::this()?);
        child::decoded(command.arg("classes").arg(serde_json::to_string(self)?))
    }
}

/// The child's side: one line of JSON.
pub(crate) fn child(job: &str) -> anyhow::Result<()> {
    let job: ClassesJob = serde_json::from_str(job).context("invalid job")?;
    let all = thread::scope(|scope| {
        let run = |(seed, class): (u64, &ClassLoad)| {
            let (plan, seconds) = (class.plan(&job, seed), class.seconds());
            scope.spawn(move || class_seconds(&sluicegate_load::run(&plan?, |_| {})?, seconds))
        };
        let runs: Vec<_> = (1..).zip(&job.classes).map(run).collect();
        let end = |run: thread::ScopedJoinHandle<'_, _>| {
            run.join().map_err(|_| anyhow!("the load panicked"))?
        };
        runs.into_iter().map(end).collect::<anyhow::Result<Vec<ClassSeconds>>>()
    })?;
    child::print(&all)
}

fn class_seconds(report: &Report, count: u64) -> anyhow::Result<ClassSeconds> {
    ensure!(report.answered > 0, "no answer: {:?}", report.errors_by_text);
    let mut seconds = vec![ClassSecond::default(); count as usize];
    for point in &report.series {
        if let Some(second) = seconds.get_mut(point.second as usize) {
            *second = ClassSecond {
                allowed: point.answered - point.denied,
                denied: point.denied,
                failed: point.errors,
                p99_ms: point.allowed_p99_us / 1e3,
            };
        }
    }
    Ok(ClassSeconds {
        seconds,
        latest_start_ms: report.latest_start_us / 1e3,
        unsent: report.unsent,
        stolen: report.stolen.unwrap_or(0.0),
    })
}
