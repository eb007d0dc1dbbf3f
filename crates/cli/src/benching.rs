//! `sluicegate bench`: load, and what it costs.

mod progress;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate_config::units::{span, span_or_zero};
use sluicegate_load::{
    Amount, Arrivals, Ask, KeyOrder, KeySpace, LoadError, Pace, Place, Plan, Rate, Reach, Server,
    count, picture, rate, words,
};

use crate::explaining::entries;
use crate::output::written;

/// What `sluicegate serve` has its password for RESP from. It is no flag: those are seen by everybody on the machine.
const PASSWORD: &str = "SLUICEGATE_RESP_PASSWORD";

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate bench rls                                 Envoy's protocol at 127.0.0.1:8081, as fast as it answers\n  \
    sluicegate bench http --rate 20k/s --plot run.svg    how long does a check over HTTP take at this load?\n  \
    sluicegate bench resp --pipeline 16 --command 'CL.THROTTLE {key} 99 100 60'\n\n\
    Closed loop, without --rate: every connection asks again as soon as it is answered. How much can the server do?\n\
    Open loop, with --rate: requests are due at times that the server cannot move, and what one took counts from when\n\
    it was due. How long do clients wait? See docs/guide/load.md.\n\n\
    A password for RESP is taken from SLUICEGATE_RESP_PASSWORD.\n\
    Exit codes: 0 every request was answered, 1 there were errors, 2 broken, such as an address where nobody listens.")]
pub(crate) struct BenchArgs {
    /// What to ask
    #[arg(value_enum, value_name = "TARGET")]
    target: Target,
    /// Whom: HOST:PORT or a URL [default: 127.0.0.1:8081 for rls, :8080 for http, :6380 for resp]
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Connections, of all threads together [default: 8 for rls, 32 for http, 50 for resp]
    #[arg(long, short, value_name = "N")]
    connections: Option<usize>,
    /// Calls at once on each connection (rls) [default: 32]
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Commands in a row on each connection (resp) [default: 1]
    #[arg(long, short = 'P', value_name = "N")]
    pipeline: Option<usize>,
    /// Open loop: so many requests per second, such as 20k/s or 600/m
    #[arg(long, short, value_name = "N/s", value_parser = rate)]
    rate: Option<Rate>,
    /// In an open loop, let requests come as strangers do and not at even distances
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// How long [default: 10s]
    #[arg(long, short, value_name = "TIME", conflicts_with = "requests")]
    duration: Option<String>,
    /// How many requests, such as 1M
    #[arg(long, short = 'n', value_name = "N", value_parser = count)]
    requests: Option<u64>,
    /// The same before it, which does not count
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warm_up: String,
    /// Ask for each key once before all else, so that all of them are live
    #[arg(long)]
    fill: bool,
    /// How many different keys, such as 100k
    #[arg(long, short, value_name = "N", value_parser = count, default_value = "100k")]
    keys: u64,
    /// Some keys come more often, by Zipf's law with this exponent, such as 1.1
    #[arg(long, value_name = "S", conflicts_with = "sequential")]
    zipf: Option<f64>,
    /// Keys come one after the other
    #[arg(long)]
    sequential: bool,
    /// Of keys and arrivals: the same seed brings the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Whose rules (rls, http)
    #[arg(long, value_name = "DOMAIN", default_value = "example")]
    domain: String,
    /// key=value,key=value with {key} for the key; give it again for more descriptors (rls, http) [default: user={key}]
    #[arg(long, value_name = "DESCRIPTOR")]
    descriptor: Vec<String>,
    /// The command, with {key} for the key (resp)
    #[arg(long, value_name = "COMMAND", default_value = "CL.THROTTLE {key} 99 100 60")]
    command: String,
    /// Post this JSON to the URL instead of a check (http); {key} stands for the key
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// A status of HTTP that is a no and not an error; give it again for more (http, http-get) [default: 429]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..600))]
    denied: Vec<u16>,
    /// Of the load, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Give up when nothing has been answered for so long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// Whose CPU time and memory to watch; again for more [default: whoever listens at the address]
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    /// Load a machine that is not this one. It must be yours to load
    #[arg(long)]
    anywhere: bool,
    /// Draw percentiles and the rate over time into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object with everything
    #[arg(long)]
    json: bool,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// Envoy's ShouldRateLimit, over gRPC
    Rls,
    /// POST /v1/check of `sluicegate serve`, or any POST with --body
    Http,
    /// GET any URL; {key} in it stands for the key
    HttpGet,
    /// A command of RESP, as Redis has them
    Resp,
}

/// Runs `bench`.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let mut line = progress::Line::new();
    let report = sluicegate_load::run(&plan, |progress| line.show(progress));
    line.clear();
    let report = report.map_err(|error| with_remedy(error, args.target))?;
    let out = if args.json { format!("{}\n", report.to_json()) } else { report.to_text() };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    if let Some(path) = &args.plot {
        let svg = picture(&report).map_err(anyhow::Error::msg).context("--plot")?;
        fs::write(path, svg)
            .with_context(|| format!("--plot: cannot write `{}`", path.display()))?;
    }
    if report.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    let (errors, asked) =
        (report.errors + report.errors_before, report.requests + report.errors_before);
    eprintln!(
        "sluicegate: {errors} errors in {asked} requests: this is not how a healthy server answers"
    );
    Ok(ExitCode::FAILURE)
}

fn with_remedy(error: LoadError, target: Target) -> anyhow::Error {
    let remedy = match (&error, target) {
        (LoadError::Connect(_), Target::HttpGet) => "is the server running, and the port right?",
        (LoadError::Connect(_), Target::Resp) => {
            "is the service running? `sluicegate serve --resp 127.0.0.1:6380` starts one"
        }
        (LoadError::Connect(_), _) => "is the service running? `sluicegate serve` starts one",
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {remedy}")
}

// === impl BenchArgs ===

impl BenchArgs {
    /// What was typed, as what is meant.
    fn plan(&self) -> anyhow::Result<Plan> {
        self.refuse_strangers()?;
        let reach = if self.anywhere { Reach::Anywhere } else { Reach::Loopback };
        let address = self.address.as_deref().or(self.target.address());
        let Some(address) = address else {
            bail!("no URL given: write it behind `http-get`, as `http://127.0.0.1:8000/{{key}}`");
        };
        let place = Place::read(address, reach)?;
        let ask = self.ask(place.path)?;
        // Without a key in it all requests are the same, and there is one key.
        let keys = if ask.has_key() { self.keys } else { 1 };
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
        let patience =
            span(&self.timeout).map_err(|error| anyhow::anyhow!("--timeout: {error}"))?;
        let (connections, at_once) = self.target.connections();
        Ok(Plan {
            address: place.address,
            ask,
            keys: KeySpace { count: keys, order, seed: self.seed },
            pace: self.rate.map_or(Pace::Closed, |rate| Pace::Open(rate, arrivals)),
            amount: self.requests.map_or(Amount::Time(time.to_duration()), Amount::Count),
            warm_up: warm_up.to_duration(),
            fill: self.fill,
            connections: self.connections.unwrap_or(connections),
            at_once: self.streams.or(self.pipeline).unwrap_or(at_once),
            threads: self.threads,
            patience: patience.to_duration(),
            denied: if self.denied.is_empty() { vec![429] } else { self.denied.clone() },
            password: env::var(PASSWORD).ok().filter(|text| !text.is_empty()),
            server: match self.server_pid.as_slice() {
                [] => Server::Listening,
                processes => Server::Processes(processes.to_vec()),
            },
        })
    }

    /// An option of another target would be left aside in silence.
    fn refuse_strangers(&self) -> anyhow::Result<()> {
        let strangers = [
            ("--streams", self.streams.is_some(), [Target::Rls].as_slice()),
            ("--pipeline", self.pipeline.is_some(), &[Target::Resp]),
            ("--descriptor", !self.descriptor.is_empty(), &[Target::Rls, Target::Http]),
            ("--body", self.body.is_some(), &[Target::Http]),
            ("--denied", !self.denied.is_empty(), &[Target::Http, Target::HttpGet]),
        ];
        for (flag, given, targets) in strangers {
            if given && !targets.contains(&self.target) {
                let names: Vec<_> =
                    targets.iter().map(|target| format!("`{}`", target.name())).collect();
                bail!(
                    "{flag} has no meaning for `{}`, only for {}",
                    self.target.name(),
                    names.join(" and ")
                );
            }
        }
        Ok(())
    }

    fn ask(&self, path: Option<String>) -> anyhow::Result<Ask> {
        let domain = self.domain.clone();
        match (self.target, &self.body) {
            (Target::Rls, _) => Ok(Ask::Rls { domain, descriptors: self.descriptors()? }),
            (Target::Http, Some(body)) => {
                let path = path.unwrap_or_else(|| "/".to_owned());
                Ok(Ask::Post { path, body: body.clone() })
            }
            (Target::Http, None) => {
                if let Some(path) = path.filter(|path| path != "/" && path != "/v1/check") {
                    bail!(
                        "`{path}`: `http` asks /v1/check; for another path give the JSON to post with --body, or use `http-get`"
                    );
                }
                Ok(Ask::Check { domain, descriptors: self.descriptors()? })
            }
            (Target::HttpGet, _) => Ok(Ask::Get { path: path.unwrap_or_else(|| "/".to_owned()) }),
            (Target::Resp, _) => {
                let words =
                    words(&self.command).map_err(|error| anyhow::anyhow!("--command: {error}"))?;
                Ok(Ask::Command { words })
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

// === impl Target ===

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Self::Rls => "rls",
            Self::Http => "http",
            Self::HttpGet => "http-get",
            Self::Resp => "resp",
        }
    }

    /// Where `sluicegate serve` listens.
    const fn address(self) -> Option<&'static str> {
        match self {
            Self::Rls => Some("127.0.0.1:8081"),
            Self::Http => Some("127.0.0.1:8080"),
            Self::HttpGet => None,
            Self::Resp => Some("127.0.0.1:6380"),
        }
    }

    /// Connections, and requests at once on each.
    const fn connections(self) -> (usize, usize) {
        match self {
            Self::Rls => (8, 32),
            Self::Http | Self::HttpGet => (32, 1),
            Self::Resp => (50, 1),
        }
    }
}
