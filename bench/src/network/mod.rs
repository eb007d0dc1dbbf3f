//! Servers under load: `service`, `doors`, `gateway`, `overload` and `shaping`.
//!
//! Every reading starts a fresh server on one core and a fresh load on another: this program again,
//! with the load generator of `sluicegate bench`.

pub(crate) mod baselines;
pub(crate) mod classes;
mod connections;
mod contestants;
pub(crate) mod doors;
mod faults;
pub(crate) mod gateway;
pub(crate) mod load;
pub(crate) mod overload;
pub(crate) mod profile;
pub(crate) mod programs;
mod proxies;
mod redis_memory;
mod report;
pub(crate) mod requests;
mod samples;
pub(crate) mod servers;
pub(crate) mod service;
pub(crate) mod shaping;
mod soak;
mod store;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use crate::Common;
use crate::child;
use crate::frame::{self, Reading, Results, Row, Schedule};
use contestants::Contestant;
use load::{Job, PacedRate, Work};
use programs::Programs;
use servers::LOAD_CORE;
use store::StoreMetrics;

/// Attempts at an undisturbed reading.
const ATTEMPTS: u32 = 4;
/// Share of steal or waiting time above which a reading is disturbed.
const DISTURBED: f64 = 0.05;

/// A server under load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Closed loop.
    pub(crate) full: Phase,
    /// Open loop at the same rate for all servers.
    pub(crate) paced: Option<Phase>,
    /// Resident bytes at the end.
    pub(crate) resident: u64,
    /// Metrics of the service about its Redis.
    pub(crate) store: Option<StoreMetrics>,
}

/// A phase of load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) requests: u64,
    /// CPU time of the server's processes per request.
    pub(crate) cpu_us: f64,
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// CPU utilization of the server and of the load.
    pub(crate) busy: f64,
    pub(crate) load_busy: f64,
    /// Share of time that the hypervisor gave to other machines.
    pub(crate) stolen: f64,
    /// Share of time that the server or the load was runnable without a CPU.
    pub(crate) waited: f64,
    /// Share of the store or the limiter in the CPU time, fill and warm-up included.
    pub(crate) store_share: Option<f64>,
}

impl Reading for Loaded {
    fn is_disturbed(&self) -> bool {
        let disturbed = |phase: &Phase| phase.stolen > DISTURBED || phase.waited > DISTURBED;
        disturbed(&self.full) || self.paced.as_ref().is_some_and(disturbed)
    }
}

/// Measures the contestants that `--only` selects, in rounds.
fn measure(
    common: &Common,
    programs: &Programs,
    all: Vec<Contestant>,
    rounds: u32,
    rate: Option<PacedRate>,
) -> anyhow::Result<Results<Loaded>> {
    let selected: Vec<Contestant> = all.into_iter().filter(|one| one.is_selected(common)).collect();
    if selected.is_empty() {
        bail!("`--only` selects nothing; try `--only rls`, `--only http` or `--only 'resp 16'`");
    }
    let rows = selected
        .iter()
        .map(|one| Row::new(one.endpoint.name(), one.name).absent(programs.missing(one)));
    let attempts = if common.quick { 1 } else { ATTEMPTS };
    let schedule = Schedule { rounds: common.rounds.unwrap_or(rounds), attempts };
    Ok(frame::run(rows.collect(), schedule, |row| read(&selected[row], common, programs, rate)))
}

/// Duration of a reading.
fn seconds(common: &Common) -> u32 {
    common.seconds.unwrap_or(if common.quick { 1 } else { 3 })
}

/// A fresh server and its load.
fn read(
    one: &Contestant,
    common: &Common,
    programs: &Programs,
    rate: Option<PacedRate>,
) -> anyhow::Result<Loaded> {
    let server = one.server.start(programs, one.endpoint)?;
    let job = Job {
        contestant: one.id(),
        address: server.address,
        processes: server.processes(),
        alone: server.alone(),
        upstream: server.upstream_on(LOAD_CORE),
        keys: one.keys.unwrap_or(common.keys),
        seconds: seconds(common),
        work: Work::Measure { paced: rate },
    };
    let mut reading: Loaded = child::decoded(&mut load::command(&job)?)?;
    if let Some(admin) = server.admin {
        let metrics = StoreMetrics::read(admin)?;
        // Answers without the store are cheaper.
        ensure!(
            metrics.fallbacks == 0,
            "{} requests without an answer of Redis",
            metrics.fallbacks
        );
        reading.store = Some(metrics);
    }
    Ok(reading)
}
