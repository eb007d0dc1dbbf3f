//! `overload`: goodput, latency and refusals by priority while an upstream of known capacity is
//! offered twice that, behind the gateway with several limits and behind Envoy.
//!
//! ```text
//!   offered   |-- half --|-------- twice the capacity --------|-- half --|
//!   important    0.3        0.6                                  0.3
//!   others       0.2        1.4                                  0.2
//! ```

mod plot;
pub(crate) mod upstream;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;

use self::upstream::SlotServer;
use super::classes::{ClassLoad, ClassSecond, ClassSeconds, ClassesJob};
use super::programs::Programs;
use super::proxies;
use super::servers::{self, Folder, Running};
use crate::bars::{self, Bar, Goal};
use crate::frame::{self, Reading, Report, Results, Row, Schedule, Statistic};
use crate::{Common, child, table};

/// Options of `overload`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Draw the first round of the first group as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Limits of what is in flight at the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Unlimited,
    Fixed,
    Adaptive,
    Envoy,
}

/// What happened.
#[derive(Debug, Clone, Serialize)]
struct Overloaded {
    /// In time, as a share of the capacity, in the time of overload.
    goodput: f64,
    /// Share of the important requests that were served in time then, and of the others.
    important_served: f64,
    others_served: f64,
    /// Means of the seconds' 99th percentiles then, of responses in time.
    important_p99_ms: f64,
    others_p99_ms: f64,
    /// Seconds after the overload until at most 1 % of the requests of a second were refused.
    recovery_s: f64,
    /// Share refused before the overload.
    refused_before: f64,
    disturbed: bool,
    important: ClassSeconds,
    others: ClassSeconds,
}

impl Reading for Overloaded {
    fn is_disturbed(&self) -> bool {
        self.disturbed
    }
}

const GROUPS: [(&str, SlotServer); 2] = [
    ("slower", SlotServer { slots: 8, millis: 20, knee: Some(24) }),
    ("queue", SlotServer { slots: 8, millis: 20, knee: None }),
];
/// A fixed limit of somebody who knows the slots.
const FIXED: usize = 16;
const CLIENT_TIMEOUT_MS: u64 = 1_000;
/// Of each class: more than are in flight at twice the capacity.
const CONNECTIONS: usize = 800;
const PHASES: [u64; 3] = [10, 30, 10];
const PHASES_QUICK: [u64; 3] = [5, 15, 5];
/// Start of a request after its time above which the machine was busy.
const LATE_MS: f64 = 100.0;

const ADAPTIVE: (&str, &str) = (GROUPS[0].0, Contestant::Adaptive.name());
const ADAPTIVE_QUEUE: (&str, &str) = (GROUPS[1].0, Contestant::Adaptive.name());

const BARS: [Bar<Results<Overloaded>>; 5] = [
    Bar::new("goodput of the adaptive limit, of the capacity", Goal::AtLeast(0.9), "x", |all| {
        of(all, ADAPTIVE, |one| one.goodput)
    }),
    Bar::new("the same, if the upstream only queues", Goal::AtLeast(0.9), "x", |all| {
        of(all, ADAPTIVE_QUEUE, |one| one.goodput)
    }),
    Bar::new("important requests served", Goal::AtLeast(0.99), "", |all| {
        of(all, ADAPTIVE, |one| one.important_served)
    }),
    Bar::new("the same, if the upstream only queues", Goal::AtLeast(0.99), "", |all| {
        of(all, ADAPTIVE_QUEUE, |one| one.important_served)
    }),
    Bar::new("recovery after the overload", Goal::AtMost(2.0), " s", |all| {
        of(all, ADAPTIVE, |one| one.recovery_s)
    }),
];

fn of(
    all: &Results<Overloaded>,
    (group, name): (&str, &str),
    number: fn(&Overloaded) -> f64,
) -> Option<Statistic> {
    all.row(group, name)?.statistic(number)
}

/// Runs the benchmark, and draws it.
pub(crate) fn command(common: &Common, args: &Args) -> anyhow::Result<ExitCode> {
    crate::print(common, run(common, args)?)
}

pub(crate) fn run(common: &Common, args: &Args) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let all = GROUPS.iter().flat_map(|group| Contestant::ALL.map(|one| (*group, one)));
    let name = |group: &str, one: Contestant| format!("{group} {}", one.name());
    let all: Vec<_> = all.filter(|((group, _), one)| common.selects(&name(group, *one))).collect();
    let rows = all.iter().map(|((group, _), one)| {
        let missing = (*one == Contestant::Envoy && programs.envoy.is_none())
            .then(|| "no envoy; `--install-peers` installs it".to_owned());
        Row::new(*group, one.name()).absent(missing)
    });
    let phases = if common.quick { PHASES_QUICK } else { PHASES };
    let schedule = Schedule { rounds: common.rounds.unwrap_or(1), attempts: 1 };
    let results = frame::run(rows.collect(), schedule, |row| {
        let ((_, server), one) = all[row];
        one.read(&programs, server, phases)
    });
    if let Some(path) = &args.plot {
        let svg = plot::plot(&results, phases).map_err(anyhow::Error::msg)?;
        fs::write(path, svg).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let outcomes = bars::outcomes(&BARS, &results);
    let text = format!(
        "{}{}\n{}",
        results.heading(&format!(" of {phases:?} s")),
        tables(&results),
        bars::list(&outcomes)
    );
    let settings = json!({ "phases": phases, "client_timeout_ms": CLIENT_TIMEOUT_MS });
    Ok(results.report(text, settings, &outcomes))
}

fn tables(results: &Results<Overloaded>) -> String {
    let head = ["limit", "goodput", "important served", "p99 ms", "others served", "p99 ms"];
    let head: Vec<&str> = head.into_iter().chain(["recovery s", "refused before"]).collect();
    let mut text = String::new();
    for (group, server) in GROUPS {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.group == group).collect();
        if rows.is_empty() {
            continue;
        }
        let cells = |row: &&Row<Overloaded>| {
            if let Some(reason) = &row.absent {
                return vec![format!("{}: not measured: {reason}", row.name)];
            }
            let mark = if row.is_disturbed() { "~" } else { "" };
            let percent = |number: fn(&Overloaded) -> f64| {
                format!("{} %", row.shown(1, |one| 100.0 * number(one)))
            };
            vec![
                format!("{mark}{}", row.name),
                percent(|one| one.goodput),
                percent(|one| one.important_served),
                row.shown(0, |one| one.important_p99_ms),
                percent(|one| one.others_served),
                row.shown(0, |one| one.others_p99_ms),
                row.shown(0, |one| one.recovery_s),
                percent(|one| one.refused_before),
            ]
        };
        let mut rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        rows.iter_mut().for_each(|row| row.resize(head.len(), "-".to_owned()));
        let about = match server.knee {
            None => "that only queues".to_owned(),
            Some(knee) => format!("that gets slower beyond {knee} requests"),
        };
        let (slots, capacity) = (server.slots, server.capacity());
        text.push_str(&format!(
            "\n**{group}**: an upstream of {slots} slots, {capacity:.0} requests/s, {about}\n\n{}",
            table::render(&head, 1, &rows)
        ));
    }
    text
}

// === impl Contestant ===

impl Contestant {
    const ALL: [Self; 4] = [Self::Unlimited, Self::Fixed, Self::Adaptive, Self::Envoy];

    const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "gateway, no limit",
            Self::Fixed => "gateway, fixed limit",
            Self::Adaptive => "gateway, adaptive limit",
            Self::Envoy => "Envoy adaptive_concurrency",
        }
    }

    /// A fresh upstream and a fresh proxy.
    fn read(
        self,
        programs: &Programs,
        server: SlotServer,
        phases: [u64; 3],
    ) -> anyhow::Result<Overloaded> {
        let upstream = start_upstream(server)?;
        let proxy = self.start(programs, upstream.address)?;
        let class = |name: &str, shares: [f64; 3]| ClassLoad {
            address: proxy.address,
            header: ("x-class".to_owned(), name.to_owned()),
            steps: phases.into_iter().zip(shares.map(|one| one * server.capacity())).collect(),
            connections: CONNECTIONS,
        };
        let job = ClassesJob {
            classes: vec![class("high", [0.3, 0.6, 0.3]), class("low", [0.2, 1.4, 0.2])],
            request_timeout_ms: CLIENT_TIMEOUT_MS,
            denied: vec![429, 503],
        };
        let [important, others] = <[ClassSeconds; 2]>::try_from(job.run()?)
            .map_err(|_| anyhow::anyhow!("the load has two classes"))?;
        Ok(Overloaded::new(important, others, server.capacity(), phases))
    }

    fn start(self, programs: &Programs, upstream: SocketAddr) -> anyhow::Result<Running> {
        let concurrency = match self {
            Self::Envoy => return proxies::envoy(programs, upstream, ENVOY_FILTER, ""),
            Self::Unlimited => String::new(),
            Self::Fixed => format!(", concurrency: {FIXED}"),
            Self::Adaptive => ", concurrency: { adaptive: latency }".to_owned(),
        };
        let folder = Folder::new(servers::free_address()?)?;
        fs::write(folder.0.join("rules.yaml"), RULES)?;
        let config = format!(
            "rules: rules.yaml\nupstreams: {{ page: {{ servers: \"http://{upstream}\"{concurrency} }} }}\n\
             routes:\n  - path: /*\n    upstream: page\n    \
             limit: {{ domain: bench, descriptors: [{{ class: header X-Class }}] }}\n"
        );
        let path = folder.0.join("gateway.yaml");
        fs::write(&path, config)?;
        let mut command = proxies::gateway(programs);
        Ok(proxies::announced(command.arg("--config").arg(path))?.within(folder))
    }
}

const RULES: &str = "\
domain: bench
descriptors:
  - { key: class, value: high, priority: 9, limits: { algorithm: token_bucket, rate: 1000000/s } }
  - { key: class, value: low, priority: 1, limits: { algorithm: token_bucket, rate: 1000000/s } }
";

/// The values of Envoy's documentation.
const ENVOY_FILTER: &str = "          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { jitter: { value: 10 }, interval: 60s, request_count: 50 }
              enabled: { default_value: true, runtime_key: adaptive_concurrency.enabled }
";

fn start_upstream(server: SlotServer) -> anyhow::Result<Running> {
    let mut command = servers::pinned(proxies::upstream_core(), &child::this()?);
    command.args(["slots", &server.slots.to_string(), &server.millis.to_string()]);
    command.args(server.knee.map(|knee| knee.to_string()));
    Ok(servers::announced(&mut command, ["http"])?.0)
}

// === impl Overloaded ===

impl Overloaded {
    fn new(
        important: ClassSeconds,
        others: ClassSeconds,
        capacity: f64,
        [before, surge, _]: [u64; 3],
    ) -> Self {
        let (begins, ends) = (before as usize, (before + surge) as usize);
        let both = || important.seconds.iter().zip(&others.seconds);
        let goodput: u64 = both()
            .skip(begins)
            .take(ends - begins)
            .map(|(one, other)| one.allowed + other.allowed)
            .sum();
        let p99 = |class: &ClassSeconds| {
            let with_responses = |second: &&ClassSecond| second.allowed > 0;
            let seconds = class.seconds[begins..ends].iter().filter(with_responses);
            let (sum, count) =
                seconds.fold((0.0, 0), |(sum, count), second| (sum + second.p99_ms, count + 1));
            sum / f64::from(count.max(1))
        };
        let is_whole = |(one, other): (&ClassSecond, &ClassSecond)| {
            let refused = one.denied + one.failed + other.denied + other.failed;
            let allowed = one.allowed + other.allowed;
            allowed > 0 && refused * 100 <= allowed + refused
        };
        let recovery = both().skip(ends).position(is_whole);
        let refused = 1.0 - (served(&important.seconds[..begins], &others.seconds[..begins]));
        Self {
            goodput: goodput as f64 / surge as f64 / capacity,
            important_served: served(&important.seconds[begins..ends], &[]),
            others_served: served(&others.seconds[begins..ends], &[]),
            important_p99_ms: p99(&important),
            others_p99_ms: p99(&others),
            recovery_s: recovery.map_or(f64::INFINITY, |seconds| seconds as f64),
            refused_before: refused,
            disturbed: important.is_disturbed() || others.is_disturbed(),
            important,
            others,
        }
    }
}

/// Share of the requests that were served in time.
fn served(one: &[ClassSecond], other: &[ClassSecond]) -> f64 {
    let all = || one.iter().chain(other);
    let allowed: u64 = all().map(|second| second.allowed).sum();
    let refused: u64 = all().map(|second| second.denied + second.failed).sum();
    allowed as f64 / (allowed + refused).max(1) as f64
}

impl ClassSeconds {
    pub(super) fn is_disturbed(&self) -> bool {
        self.latest_start_ms > LATE_MS || self.stolen > super::DISTURBED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() {
        assert!(sluicegate::rules_of(RULES).is_ok());
    }

    #[test]
    fn a_recovery_is_a_second_without_refusals() {
        let class = |seconds: &[(u64, u64)]| ClassSeconds {
            seconds: seconds
                .iter()
                .map(|(allowed, denied)| ClassSecond {
                    allowed: *allowed,
                    denied: *denied,
                    ..ClassSecond::default()
                })
                .collect(),
            latest_start_ms: 1.0,
            unsent: 0,
            stolen: 0.0,
        };
        let seconds = [(50, 0), (90, 10), (80, 20), (50, 5), (50, 0)];
        let one = Overloaded::new(class(&seconds), class(&[(0, 0); 5]), 100.0, [1, 2, 2]);
        assert_eq!((one.goodput, one.important_served, one.recovery_s), (0.85, 0.85, 1.0));
        assert_eq!(one.refused_before, 0.0);
    }
}
