//! `doors --only redis-faults`: latency of the service while its Redis is paused, killed or slow.
//!
//! An open loop runs throughout; the fault begins after a fifth of it, so that its detection is
//! included. Timeout and policy are the defaults (`on_store_failure: local`).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluicegate_load::{Arrivals, Pace, Plan, Rate};
use sluicegate_testkit::proxy::Slow;

use super::load::{self, Job, Work};
use super::programs::Programs;
use super::servers::{self, Running};
use super::store::{self, StoreMetrics};
use crate::frame::{self, Reading, Report, Row, Schedule};
use crate::{Common, child as children, table};

/// The name for `--only`.
pub(crate) const NAME: &str = "redis-faults";

const PER_SECOND: f64 = 2_000.0;
const KEYS_MAX: u64 = 10_000;
const SECONDS: u32 = 5;
const DELAY: Duration = Duration::from_millis(50);
/// Printed by the load when the fault is due.
const NOW: &str = "now";

/// State of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Paused,
    Killed,
    Slow,
}

/// Answers and latencies.
#[derive(Debug, Serialize, Deserialize)]
struct Answers {
    answered: u64,
    allowed: u64,
    denied: u64,
    errors: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// Requests that the load sent late.
    late: u64,
    /// Answers without Redis since the fault.
    fallbacks: u64,
}

impl Reading for Answers {}

pub(super) fn run(common: &Common) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let rows = Fault::ALL.map(|fault| Row::new(NAME, fault.name()));
    let schedule = Schedule { rounds: common.rounds.unwrap_or(1), attempts: 1 };
    let results = frame::run(rows.into(), schedule, |row| read(Fault::ALL[row], common, &programs));
    let mut text = results.heading(&format!(
        "; {PER_SECOND:.0} requests/s, latency from the scheduled time, `on_store_failure: local`"
    ));
    text.push_str(&format!("\n{}", table_of(&results)));
    Ok(results.report(text, json!({ "requests_per_second": PER_SECOND }), &[]))
}

/// The load's side: a line when the fault is due, and one of JSON at the end.
pub(super) fn child(job: &Job) -> anyhow::Result<()> {
    let rate = Rate::per_second(PER_SECOND).context("invalid rate")?;
    let pace = Pace::Open(rate, Arrivals::Poisson);
    let plan = Plan { pace, fill: false, ..job.plan(store::one(), (8, 32)) };
    let due = Duration::from_secs(job.seconds.into()) / 5;
    let mut announced = false;
    let report = sluicegate_load::run(&plan, |progress| {
        if !announced && progress.elapsed >= due {
            println!("{NOW}");
            announced = true;
        }
    })?;
    ensure!(report.errors_before == 0, "requests failed: {:?}", report.errors_by_text);
    children::print(&Answers {
        answered: report.answered,
        allowed: report.allowed,
        denied: report.denied,
        errors: report.errors,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        p999_us: report.latency_us.p999,
        max_us: report.latency_us.max,
        late: report.late_starts,
        fallbacks: 0,
    })
}

/// A fresh Redis and a fresh service.
fn read(fault: Fault, common: &Common, programs: &Programs) -> anyhow::Result<Answers> {
    let redis = servers::redis(programs, None)?;
    let proxy = (fault == Fault::Slow).then(|| Slow::before(redis.address.port()));
    let mut address = redis.address;
    if let Some(proxy) = &proxy {
        address.set_port(proxy.port());
    }
    let service = servers::connected(programs, &programs.redis_rules, address, |_| {})?;
    let job = Job {
        contestant: NAME.to_owned(),
        address: service.address,
        processes: service.processes(),
        alone: Vec::new(),
        upstream: Vec::new(),
        keys: common.keys.min(KEYS_MAX),
        seconds: common.seconds.unwrap_or(if common.quick { 2 } else { SECONDS }),
        work: Work::Faults,
    };
    let mut load = load::command(&job)?;
    let load = load.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut load = load.context("cannot start the load")?;
    let admin = service.admin.context("no admin endpoint")?;
    let (mut last, mut before) = (String::new(), 0);
    for line in BufReader::new(load.stdout.take().context("no standard output")?).lines() {
        last = line?;
        if last == NOW {
            before = StoreMetrics::read(admin)?.fallbacks;
            fault.begin(&redis, proxy.as_ref())?;
        }
    }
    let status = load.wait()?;
    let fallbacks = StoreMetrics::read(admin)?.fallbacks.saturating_sub(before);
    fault.end(&redis)?;
    ensure!(status.success(), "the load failed");
    let answers: Answers = serde_json::from_str(&last).context("invalid output of the load")?;
    Ok(Answers { fallbacks, ..answers })
}

fn table_of(results: &frame::Results<Answers>) -> String {
    let columns: [(&str, fn(&Answers) -> f64); 10] = [
        ("answers", |one| one.answered as f64),
        ("allowed", |one| one.allowed as f64),
        ("denied", |one| one.denied as f64),
        ("errors", |one| one.errors as f64),
        ("without Redis", |one| one.fallbacks as f64),
        ("p50 µs", |one| one.p50_us),
        ("p99 µs", |one| one.p99_us),
        ("p99.9 µs", |one| one.p999_us),
        ("max µs", |one| one.max_us),
        ("sent late", |one| one.late as f64),
    ];
    table::of_columns("Redis", &columns, &results.rows, 0)
}

// === impl Fault ===

impl Fault {
    const ALL: [Self; 4] = [Self::None, Self::Paused, Self::Killed, Self::Slow];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "fine",
            Self::Paused => "paused",
            Self::Killed => "killed",
            Self::Slow => "50 ms slow",
        }
    }

    fn begin(self, redis: &Running, proxy: Option<&Slow>) -> anyhow::Result<()> {
        match (self, proxy) {
            (Self::None, _) => Ok(()),
            (Self::Paused, _) => signal(redis, "-STOP"),
            (Self::Killed, _) => signal(redis, "-KILL"),
            (Self::Slow, Some(proxy)) => {
                proxy.delay(DELAY);
                Ok(())
            }
            (Self::Slow, None) => bail!("no proxy"),
        }
    }

    /// Lets a paused Redis end.
    fn end(self, redis: &Running) -> anyhow::Result<()> {
        if self == Self::Paused { signal(redis, "-CONT") } else { Ok(()) }
    }
}

fn signal(redis: &Running, name: &str) -> anyhow::Result<()> {
    for process in redis.processes() {
        let status = Command::new("kill").args([name, &process.to_string()]).status()?;
        ensure!(status.success(), "`kill {name} {process}` failed");
    }
    Ok(())
}
