//! How long our answers take while Redis is away, and what they say.
//!
//! A load that cannot be held up asks all the time. After a fifth of it something happens to the Redis behind the service, so that what it
//! costs to find out is in the numbers too. The time-out is that of the service, 10 ms, and its rule is answered by this node alone meanwhile
//! (`on_store_failure: local`).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_testkit::proxy::Slow;
use sluicegate_load::{Arrivals, Pace, Plan, Rate};

use crate::args::Args;
use crate::grid;
use crate::load::{self, Job};
use crate::peers::Programs;
use crate::redis::{self, Told};
use crate::servers::{self, LOAD_CORE, Running, pinned};

/// How it is asked for.
pub(crate) const NAME: &str = "redis-faults";

const PER_SECOND: f64 = 2_000.0;
const KEYS_MAX: u64 = 10_000;
const SECONDS: u32 = 5;
const HELD_BACK: Duration = Duration::from_millis(50);
/// What the load says when it is time.
const NOW: &str = "now";

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fine,
    Paused,
    Killed,
    Slow,
}

/// What clients saw.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    answered: u64,
    allowed: u64,
    denied: u64,
    errors: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// Requests that the load itself sent too late.
    late: u64,
    /// Answers without Redis since it happened, which the service counts.
    #[serde(default)]
    without: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let programs = Programs::find(args)?;
    let mut all = Vec::new();
    for fault in Fault::ALL {
        eprintln!("{NAME}: {}", fault.name());
        let seen = read(fault, args, &programs);
        all.push((fault, seen.with_context(|| format!("while Redis is {}", fault.name()))?));
    }
    if args.json {
        let rows: Vec<_> = all
            .iter()
            .map(|(fault, seen)| serde_json::json!({ "redis": fault.name(), "seen": seen }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!(
            "Answers of the service at {PER_SECOND:.0} requests/s, from when each was due; time-out 10 ms, `on_store_failure: local`\n"
        );
        print!("{}", table(&all));
    }
    Ok(ExitCode::SUCCESS)
}

/// The load's side: a line when it is time, and one of JSON at the end.
pub(crate) fn child(job: &str) -> anyhow::Result<ExitCode> {
    let job: Job = serde_json::from_str(job).context("the job")?;
    let rate = Rate::per_second(PER_SECOND).context("the rate")?;
    let pace = Pace::Open(rate, Arrivals::Poisson);
    let plan = Plan { pace, fill: false, ..load::plan(&job, redis::one(), (8, 32)) };
    let due = Duration::from_secs(job.seconds.into()) / 5;
    let mut told = false;
    let report = sluicegate_load::run(&plan, |progress| {
        if !told && progress.elapsed >= due {
            println!("{NOW}");
            told = true;
        }
    })?;
    ensure!(report.errors_before == 0, "asking failed: {:?}", report.errors_by_text);
    let seen = Seen {
        answered: report.answered,
        allowed: report.allowed,
        denied: report.denied,
        errors: report.errors,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        p999_us: report.latency_us.p999,
        max_us: report.latency_us.max,
        late: report.late_starts,
        without: 0,
    };
    println!("{}", serde_json::to_string(&seen)?);
    Ok(ExitCode::SUCCESS)
}

/// A fresh Redis and a fresh service.
fn read(fault: Fault, args: &Args, programs: &Programs) -> anyhow::Result<Seen> {
    let store = servers::redis(programs, None)?;
    // Only who is slow has somebody in between.
    let proxy = (fault == Fault::Slow).then(|| Slow::before(store.address.port()));
    let mut at = store.address;
    if let Some(proxy) = &proxy {
        at.set_port(proxy.port());
    }
    let service = servers::asking(programs, &programs.redis_rules, at, |_| {})?;
    let seconds = args.seconds.unwrap_or(if args.quick { 2 } else { SECONDS });
    let job = Job {
        contestant: NAME.to_owned(),
        address: service.address,
        processes: service.processes(),
        alone: Vec::new(),
        keys: args.keys.min(KEYS_MAX),
        seconds,
    };
    let mut load = pinned(LOAD_CORE, &std::env::current_exe().context("this program's own path")?);
    load.args(["faults", &serde_json::to_string(&job)?]).stdin(Stdio::null());
    let mut load = load.stdout(Stdio::piped()).spawn().context("cannot start the load")?;
    let mut last = String::new();
    let admin = service.admin.context("no metrics")?;
    let mut before = 0;
    for line in BufReader::new(load.stdout.take().context("a load without an output")?).lines() {
        last = line?;
        if last == NOW {
            before = Told::by(admin)?.fallbacks;
            fault.begin(&store, proxy.as_ref())?;
        }
    }
    let status = load.wait()?;
    let told = Told::by(admin)?;
    fault.end(&store)?;
    ensure!(status.success(), "the load failed");
    let seen: Seen = serde_json::from_str(&last).context("what the load says")?;
    Ok(Seen { without: told.fallbacks.saturating_sub(before), ..seen })
}

fn table(all: &[(Fault, Seen)]) -> String {
    let head = [
        "Redis",
        "answers",
        "allowed",
        "denied",
        "errors",
        "without Redis",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "sent late",
    ];
    let row = |(fault, seen): &(Fault, Seen)| {
        let mut row = vec![fault.name().to_owned()];
        let counts = [seen.answered, seen.allowed, seen.denied, seen.errors, seen.without];
        row.extend(counts.map(|count| count.to_string()));
        let times = [seen.p50_us, seen.p99_us, seen.p999_us, seen.max_us];
        row.extend(times.map(|time| format!("{time:.0}")));
        row.push(seen.late.to_string());
        row
    };
    grid::render(&head, 1, &all.iter().map(row).collect::<Vec<_>>())
}

// === impl Fault ===

impl Fault {
    const ALL: [Self; 4] = [Self::Fine, Self::Paused, Self::Killed, Self::Slow];

    const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Paused => "paused",
            Self::Killed => "killed",
            Self::Slow => "50 ms slow",
        }
    }

    fn begin(self, store: &Running, proxy: Option<&Slow>) -> anyhow::Result<()> {
        match (self, proxy) {
            (Self::Fine, _) => Ok(()),
            (Self::Paused, _) => signalled(store, "-STOP"),
            (Self::Killed, _) => signalled(store, "-KILL"),
            (Self::Slow, Some(proxy)) => {
                proxy.delay(HELD_BACK);
                Ok(())
            }
            (Self::Slow, None) => bail!("nobody is in between"),
        }
    }

    /// So that it can be told to end.
    fn end(self, store: &Running) -> anyhow::Result<()> {
        if self == Self::Paused { signalled(store, "-CONT") } else { Ok(()) }
    }
}

fn signalled(store: &Running, signal: &str) -> anyhow::Result<()> {
    for process in store.processes() {
        let status = Command::new("kill").args([signal, &process.to_string()]).status()?;
        ensure!(status.success(), "`kill {signal} {process}` failed");
    }
    Ok(())
}
