//! `service`: RLS and HTTP beside servers that show the cost of the protocol alone.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::contestants::{self, Endpoint, HELLO, OURS, STUB, THROTTLECRAB, TONIC};
use super::load::PacedRate;
use super::programs::Programs;
use super::{Loaded, measure, profile, report, seconds, soak};
use crate::Common;
use crate::bars::{self, Bar, Goal};
use crate::frame::{Report, Results};

/// Options of `service`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests per second of the open loop
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rate: u32,
    /// A second build of `sluicegate` to measure, as with another allocator
    #[arg(long, value_name = "PATH")]
    pub(super) other: Option<PathBuf>,
    /// Watch the memory of the service for this many seconds, under load with new keys
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(10..), conflicts_with = "profile")]
    soak: Option<u32>,
    /// Cost of the parts of a call
    #[arg(long)]
    profile: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self { rate: 20_000, other: None, soak: None, profile: false }
    }
}

const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 3;

const RLS: (&str, &str) = (Endpoint::Rls.name(), OURS);
const HTTP: (&str, &str) = (Endpoint::Http.name(), OURS);

const BARS: [Bar<Results<Loaded>>; 6] = [
    Bar::new("RLS: CPU per request, of the stub's", Goal::AtMost(1.3), "x", |all| {
        all.ratio(RLS, (RLS.0, STUB), cpu)
    }),
    Bar::new("RLS: requests/s, of the same on tonic", Goal::AtLeast(1.6), "x", |all| {
        all.ratio(RLS, (RLS.0, TONIC), rate)
    }),
    Bar::new("RLS: requests/s, of throttlecrab-server's gRPC", Goal::AtLeast(2.0), "x", |all| {
        all.ratio(RLS, (RLS.0, THROTTLECRAB), rate)
    }),
    Bar::new("HTTP: CPU per request", Goal::AtMost(9.0), " µs", |all| {
        all.row(HTTP.0, HTTP.1)?.statistic(cpu)
    }),
    // 9 µs on the machine on which axum's hello took 6.8.
    Bar::new("HTTP: CPU per request, of axum's hello", Goal::AtMost(1.32), "x", |all| {
        all.ratio(HTTP, (HTTP.0, HELLO), cpu)
    }),
    Bar::new("HTTP: p99 at equal load, of throttlecrab-server's", Goal::AtMost(1.0), "x", |all| {
        all.ratio(HTTP, (HTTP.0, THROTTLECRAB), |one| report::paced(one, |phase| phase.p99_us))
    }),
];

fn cpu(one: &Loaded) -> f64 {
    one.full.cpu_us
}

fn rate(one: &Loaded) -> f64 {
    one.full.rate
}

/// Runs the benchmark, the soak or the profile.
pub(crate) fn command(common: &Common, args: &Args) -> anyhow::Result<ExitCode> {
    match args.soak {
        Some(seconds) => soak::run(common, args.rate, seconds),
        None if args.profile => profile::run(common),
        None => crate::print(common, run(common, args)?),
    }
}

pub(crate) fn run(common: &Common, args: &Args) -> anyhow::Result<Report> {
    let mut programs = Programs::find(common)?;
    programs.other = args.other.clone();
    let mut all = contestants::service();
    all.retain(|one| args.other.is_some() || one.name != contestants::OTHER);
    let rounds = if common.quick { ROUNDS_QUICK } else { ROUNDS };
    let results = measure(common, &programs, all, rounds, Some(PacedRate::Fixed(args.rate)))?;
    let outcomes = bars::outcomes(&BARS, &results);
    let mut text =
        results.heading(&format!(" of {} s, {} live keys", seconds(common), common.keys));
    let about = |endpoint: Endpoint| {
        let (connections, streams) = endpoint.connections();
        let closed = match endpoint {
            Endpoint::Rls => {
                format!("**RLS over gRPC**: {connections} connections with {streams} streams each")
            }
            _ => format!("**A check over HTTP**: {connections} connections"),
        };
        format!("{closed}; then at {} requests/s", args.rate)
    };
    let base = |endpoint| if endpoint == Endpoint::Rls { STUB } else { HELLO };
    text.push_str(&report::tables(&results, base, about, |_, _| String::new()));
    let list = bars::list(&outcomes);
    if !list.is_empty() {
        text.push_str(&format!("\n{list}"));
    }
    let settings = json!({ "seconds": seconds(common), "keys": common.keys, "rate": args.rate });
    Ok(results.report(text, settings, &outcomes))
}
