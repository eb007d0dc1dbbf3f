//! `sluicegate bench`: the load generator on the command line.

use std::env;
use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate_config::units::{span, span_or_zero};
use sluicegate_load::{
    AllowedHosts, Amount, Arrivals, KeyOrder, KeySpace, LoadError, Pace, Plan, Progress, Rate,
    RequestSpec, Server, Target, Timer, count, plot, rate, words,
};

use crate::written;
use sluicegate_rules::typed::entries;

/// Not a flag: other users of the machine can read command lines.
const PASSWORD: &str = "SLUICEGATE_RESP_PASSWORD";

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate bench rls                                 Envoy's protocol at 127.0.0.1:8081, closed loop\n  \
    sluicegate bench http --rate 20k/s --plot run.svg    latency of HTTP checks at this load\n  \
    sluicegate bench resp --pipeline 16 --command 'CL.THROTTLE {key} 99 100 60'\n\n\
    Closed loop, without --rate: a connection sends again as soon as it is answered; measures throughput.\n\
    Open loop, with --rate: requests are sent at scheduled times, and latency counts from the scheduled time.\n\
    See docs/guide/load.md.\n\n\
    The RESP password is read from SLUICEGATE_RESP_PASSWORD.\n\
    Exit codes: 0 every request was answered, 1 some requests failed, 2 the run failed, such as a refused connection.")]
pub(crate) struct BenchArgs {
    /// Protocol and kind of request
    #[arg(value_enum, value_name = "TARGET")]
    target: BenchTarget,
    /// Server: HOST:PORT or a URL [default: 127.0.0.1:8081 for rls, :8080 for http, :6380 for resp]
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Connections of all threads together [default: 8 for rls, 32 for http, 50 for resp]
    #[arg(long, short, value_name = "N")]
    connections: Option<usize>,
    /// Concurrent streams per connection (rls) [default: 32]
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Pipelined commands per connection (resp) [default: 1]
    #[arg(long, short = 'P', value_name = "N")]
    pipeline: Option<usize>,
    /// Open loop with this rate, such as 20k/s or 600/m
    #[arg(long, short, value_name = "N/s", value_parser = rate)]
    rate: Option<Rate>,
    /// Poisson arrivals instead of constant intervals, in an open loop
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Duration of the measurement [default: 10s]
    #[arg(long, short, value_name = "TIME", conflicts_with = "requests")]
    duration: Option<String>,
    /// Number of requests instead of a duration, such as 1M
    #[arg(long, short = 'n', value_name = "N", value_parser = count)]
    requests: Option<u64>,
    /// Duration of the uncounted warm-up
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warm_up: String,
    /// Send each key once before the warm-up, so that all keys are live
    #[arg(long)]
    fill: bool,
    /// Number of distinct keys, such as 100k
    #[arg(long, short, value_name = "N", value_parser = count, default_value = "100k")]
    keys: u64,
    /// Zipf-distributed keys with this exponent, such as 1.1
    #[arg(long, value_name = "S", conflicts_with = "sequential")]
    zipf: Option<f64>,
    /// Keys in sequential order
    #[arg(long)]
    sequential: bool,
    /// Seed of keys and arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Domain of the rules (rls, http)
    #[arg(long, value_name = "DOMAIN", default_value = "example")]
    domain: String,
    /// key=value,key=value with {key} for the key; repeat for more descriptors (rls, http)
    /// [default: user={key}]
    #[arg(long, value_name = "DESCRIPTOR")]
    descriptor: Vec<String>,
    /// The command, with {key} for the key (resp)
    #[arg(long, value_name = "COMMAND", default_value = "CL.THROTTLE {key} 99 100 60")]
    command: String,
    /// Post this JSON to the URL instead of a check (http); {key} stands for the key
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// HTTP status that means denied; repeat for more (http, http-get) [default: 429]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..600))]
    denied: Vec<u16>,
    /// Load threads, each with its own connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Abort after this time without a response
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// Process to measure (CPU time, memory); repeat for more [default: those listening on the
    /// address]
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    /// Allow remote addresses; only for machines that you may load
    #[arg(long)]
    anywhere: bool,
    /// Plot latency percentiles and throughput into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Protocol and kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchTarget {
    /// Envoy's ShouldRateLimit, over gRPC
    Rls,
    /// POST /v1/check of `sluicegate serve`, or any POST with --body
    Http,
    /// GET any URL; {key} in it stands for the key
    HttpGet,
    /// A RESP command
    Resp,
}

/// Runs `bench`.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let mut line = ProgressLine::new();
    let report = sluicegate_load::run(&plan, |progress| line.show(progress));
    line.clear();
    let report = report.map_err(|error| with_remedy(error, args.target))?;
    let out = if args.json { format!("{}\n", report.to_json()) } else { report.to_text() };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    if let Some(path) = &args.plot {
        let svg = plot(&report).map_err(anyhow::Error::msg).context("--plot")?;
        fs::write(path, svg)
            .with_context(|| format!("--plot: cannot write `{}`", path.display()))?;
    }
    if report.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    let (errors, requests) =
        (report.errors + report.errors_before, report.requests + report.errors_before);
    eprintln!("sluicegate: {errors} of {requests} requests failed");
    Ok(ExitCode::FAILURE)
}

fn with_remedy(error: LoadError, target: BenchTarget) -> anyhow::Error {
    let remedy = match (&error, target) {
        (LoadError::Connect(_), BenchTarget::HttpGet) => {
            "is the server running, and the port right?"
        }
        (LoadError::Connect(_), BenchTarget::Resp) => {
            "is the service running? `sluicegate serve --resp 127.0.0.1:6380` starts one"
        }
        (LoadError::Connect(_), _) => "is the service running? `sluicegate serve` starts one",
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {remedy}")
}

impl BenchArgs {
    /// The plan of the arguments.
    fn plan(&self) -> anyhow::Result<Plan> {
        self.reject_unused_flags()?;
        let allowed = if self.anywhere { AllowedHosts::Any } else { AllowedHosts::Loopback };
        let address = self.address.as_deref().or(self.target.address());
        let Some(address) = address else {
            bail!("no URL given: write it behind `http-get`, as `http://127.0.0.1:8000/{{key}}`");
        };
        let target = Target::parse(address, allowed)?;
        let request = self.request(target.path)?;
        // A request without `{key}` has one key.
        let keys = if request.has_key() { self.keys } else { 1 };
        let order = match (self.zipf, self.sequential) {
            (Some(exponent), _) => KeyOrder::Zipf(exponent),
            (None, true) => KeyOrder::Sequential,
            (None, false) => KeyOrder::Uniform,
        };
        let arrivals = if self.poisson { Arrivals::Poisson } else { Arrivals::Constant };
        let time = self.duration.as_deref().unwrap_or("10s");
        let time = span(time).map_err(|error| anyhow::anyhow!("--duration: {error}"))?;
        let warm_up =
            span_or_zero(&self.warm_up).map_err(|error| anyhow::anyhow!("--warm-up: {error}"))?;
        let timeout = span(&self.timeout).map_err(|error| anyhow::anyhow!("--timeout: {error}"))?;
        let (connections, at_once) = self.target.connections();
        Ok(Plan {
            address: target.address,
            request,
            keys: KeySpace { count: keys, order, seed: self.seed },
            pace: self.rate.map_or(Pace::Closed, |rate| Pace::Open(rate, arrivals)),
            amount: self.requests.map_or(Amount::Time(time.to_duration()), Amount::Count),
            warm_up: warm_up.to_duration(),
            fill: self.fill,
            connections: self.connections.unwrap_or(connections),
            at_once: self.streams.or(self.pipeline).unwrap_or(at_once),
            threads: self.threads,
            timeout: timeout.to_duration(),
            request_timeout: None,
            timer: Timer::Exact,
            denied: if self.denied.is_empty() { vec![429] } else { self.denied.clone() },
            password: env::var(PASSWORD).ok().filter(|text| !text.is_empty()),
            server: match self.server_pid.as_slice() {
                [] => Server::Listening,
                processes => Server::Processes(processes.to_vec()),
            },
        })
    }

    /// Rejects options that have no effect on the target.
    fn reject_unused_flags(&self) -> anyhow::Result<()> {
        let flags = [
            ("--streams", self.streams.is_some(), [BenchTarget::Rls].as_slice()),
            ("--pipeline", self.pipeline.is_some(), &[BenchTarget::Resp]),
            ("--descriptor", !self.descriptor.is_empty(), &[BenchTarget::Rls, BenchTarget::Http]),
            ("--body", self.body.is_some(), &[BenchTarget::Http]),
            ("--denied", !self.denied.is_empty(), &[BenchTarget::Http, BenchTarget::HttpGet]),
        ];
        for (flag, given, targets) in flags {
            if given && !targets.contains(&self.target) {
                let names: Vec<_> =
                    targets.iter().map(|target| format!("`{}`", target.name())).collect();
                bail!(
                    "{flag} has no effect on `{}`, only on {}",
                    self.target.name(),
                    names.join(" and ")
                );
            }
        }
        Ok(())
    }

    fn request(&self, path: Option<String>) -> anyhow::Result<RequestSpec> {
        let domain = self.domain.clone();
        match (self.target, &self.body) {
            (BenchTarget::Rls, _) => {
                Ok(RequestSpec::Rls { domain, descriptors: self.descriptors()? })
            }
            (BenchTarget::Http, Some(body)) => {
                let path = path.unwrap_or_else(|| "/".to_owned());
                Ok(RequestSpec::Post { path, body: body.clone() })
            }
            (BenchTarget::Http, None) => {
                if let Some(path) = path.filter(|path| path != "/" && path != "/v1/check") {
                    bail!(
                        "`{path}`: `http` posts to /v1/check; for another path give the JSON with --body, or use `http-get`"
                    );
                }
                Ok(RequestSpec::Check { domain, descriptors: self.descriptors()? })
            }
            (BenchTarget::HttpGet, _) => {
                Ok(RequestSpec::get(&path.unwrap_or_else(|| "/".to_owned())))
            }
            (BenchTarget::Resp, _) => {
                let words =
                    words(&self.command).map_err(|error| anyhow::anyhow!("--command: {error}"))?;
                Ok(RequestSpec::Command { words })
            }
        }
    }

    fn descriptors(&self) -> anyhow::Result<Vec<Vec<(String, String)>>> {
        let default = ["user={key}".to_owned()];
        let typed = if self.descriptor.is_empty() { &default[..] } else { &self.descriptor };
        let read = |text: &String| {
            let entries = entries(text).map_err(anyhow::Error::msg).context("--descriptor")?;
            Ok(entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
        };
        typed.iter().map(read).collect()
    }
}

impl BenchTarget {
    const fn name(self) -> &'static str {
        match self {
            Self::Rls => "rls",
            Self::Http => "http",
            Self::HttpGet => "http-get",
            Self::Resp => "resp",
        }
    }

    /// Default address of `sluicegate serve`.
    const fn address(self) -> Option<&'static str> {
        match self {
            Self::Rls => Some("127.0.0.1:8081"),
            Self::Http => Some("127.0.0.1:8080"),
            Self::HttpGet => None,
            Self::Resp => Some("127.0.0.1:6380"),
        }
    }

    /// Default connections, and requests in flight on each.
    const fn connections(self) -> (usize, usize) {
        match self {
            Self::Rls => (8, 32),
            Self::Http | Self::HttpGet => (32, 1),
            Self::Resp => (50, 1),
        }
    }
}

/// A status line on standard error, if that is a terminal.
struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        if is_terminal {
            let _ = write!(io::stderr(), "warming up");
        }
        Self { is_terminal }
    }

    fn show(&mut self, progress: &Progress) {
        self.replace(&progress.to_line());
    }

    fn clear(&mut self) {
        self.replace("");
    }

    fn replace(&mut self, text: &str) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[2K{text}");
        }
    }
}
