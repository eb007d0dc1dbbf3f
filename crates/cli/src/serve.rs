//! `sluicegate serve`: the service.

mod greeting;
mod signals;
mod trim;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sluicegate::RulesError;
use sluicegate_server::logs;
use sluicegate_server::server::{Server, StartError};
use sluicegate_server::settings::{Settings, Vars};
use tokio::sync::mpsc;

use crate::output::written;
use crate::rules::ReadArgs;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate serve                             with example rules; prints a line to try it with\n  \
    sluicegate serve --rules /etc/sluicegate     with rules of your own, followed while they change\n  \
    sluicegate serve --grpc 0.0.0.0:8081         for an Envoy on another machine\n  \
    sluicegate serve --snapshot counts.snapshot  counts outlive the process\n\n\
    Each option is also a variable: `--http` is SLUICEGATE_HTTP. Those of envoyproxy/ratelimit mean what they mean\n\
    there, and one that has no effect here is named at the start: see docs/guide/service.md.\n\n\
    SIGHUP reads the rules again. It ends on SIGTERM or Ctrl-C, when what has begun has been answered.\n\
    Exit codes: 0 ended, 1 the rules are invalid, 2 broken, such as an address that is taken.")]
pub(crate) struct ServeArgs {
    /// A file or directory of rules; give it again for more of the same configuration
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Where Envoy asks, ADDR:PORT or unix:PATH; port 0 picks a free one [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    grpc: Option<String>,
    /// Where people and scripts ask; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Where operators ask: metrics, readiness, configuration [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Where clients of Redis ask, such as 127.0.0.1:6380; without it nowhere
    #[arg(long, value_name = "ADDR")]
    resp: Option<String>,
    /// Deny nobody, count who would have been denied
    #[arg(long)]
    shadow: bool,
    /// Headers of answers over HTTP: both, x-ratelimit, ietf or none [default: both]
    #[arg(long, value_name = "DIALECT")]
    headers: Option<String>,
    /// How X-RateLimit-Reset counts: unix-seconds, unix-millis or seconds-to-go [default: unix-seconds]
    #[arg(long, value_name = "HOW")]
    reset: Option<String>,
    /// Errors over HTTP: envelope or problem (application/problem+json) [default: envelope]
    #[arg(long, value_name = "FORM")]
    errors: Option<String>,
    /// Refund policy: proven, operators or open [default: proven]
    #[arg(long, value_name = "POLICY")]
    refunds: Option<String>,
    /// Where counters are kept: memory, or redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://… [default: memory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// On Redis, count limits of Envoy's form on the keys of another service: envoy or none [default: none]
    #[arg(long, value_name = "WHOSE")]
    compat: Option<String>,
    /// CarryOver what is counted in this file, over a restart
    #[arg(long, value_name = "PATH")]
    snapshot: Option<String>,
    /// Write it this often too, such as 5m; without it at the end only
    #[arg(long, value_name = "TIME")]
    snapshot_every: Option<String>,
    /// CarryOver at most so many identities [default: 16000000]
    #[arg(long, value_name = "N")]
    max_identities: Option<String>,
    /// Memory that all clients together may take, such as 64MiB or 1GiB [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    memory_budget: Option<String>,
    /// The certificate of the gRPC address, with its chain, in PEM; read again when it changes
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<String>,
    /// Its key
    #[arg(long, value_name = "PATH")]
    tls_key: Option<String>,
    /// Clients need a certificate that one of these has signed
    #[arg(long, value_name = "PATH")]
    client_ca: Option<String>,
    /// and that has this name
    #[arg(long, value_name = "NAME")]
    client_san: Option<String>,
    /// Start, unready, while there are no valid rules
    #[arg(long)]
    start_without_rules: bool,
    /// Remove a domain that vanishes from the files after this time; 0 for at once [default: 10m]
    #[arg(long, value_name = "TIME")]
    rules_removal_grace: Option<String>,
    /// Go on for so long after the signal to end, unready, so that load balancers notice [default: 0]
    #[arg(long, value_name = "TIME")]
    drain_delay: Option<String>,
    /// trace, debug, info, warn or error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORM")]
    log_format: Option<String>,
    /// Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    traces: Option<String>,
    #[command(flatten)]
    reading: ReadArgs,
    /// Print the addresses as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let (settings, warnings) = Settings::read(&args.vars()?)?;
    // Dropped at the end, it writes the last lines.
    let _guard = logs::start(settings.log).context("cannot log")?;
    warnings.iter().for_each(|warning| logs::events::setting_warning(warning));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(trim::on_thread_park)
        .build();
    runtime.context("cannot start")?.block_on(serve(settings, args.json))
}

async fn serve(settings: Settings, json: bool) -> anyhow::Result<ExitCode> {
    let has_rules = !settings.rules.is_empty();
    let server = match Server::start(settings).await {
        Ok(server) => server,
        Err(StartError::Rules(RulesError::Unreadable(error))) => return Err(error.into()),
        Err(StartError::Rules(error)) => {
            eprintln!("{error}\ninvalid rules: see `sluicegate check`");
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    // Before the first words: whoever has read them may have had enough.
    let (reread, rereading) = mpsc::channel(1);
    let signals = signals::Signals::new(reread)?;
    let greeting = greeting::greeting(server.addresses(), has_rules, json);
    // Whoever starts us may have closed its ears; that is no reason to end.
    let _ = written(io::stdout().lock().write_all(greeting.as_bytes()));
    tokio::spawn(trim::run(server.app().memory().clone()));
    server.run(signals.told_to_stop(), rereading).await.context("cannot go on")?;
    Ok(ExitCode::SUCCESS)
}

impl ServeArgs {
    /// The environment, with the flags above it.
    fn vars(&self) -> anyhow::Result<Vars> {
        let mut vars = Vars::of_process();
        let texts = [
            ("--grpc", "SLUICEGATE_GRPC", &self.grpc),
            ("--http", "SLUICEGATE_HTTP", &self.http),
            ("--admin", "SLUICEGATE_ADMIN", &self.admin),
            ("--resp", "SLUICEGATE_RESP", &self.resp),
            ("--headers", "SLUICEGATE_HEADERS", &self.headers),
            ("--reset", "SLUICEGATE_RESET", &self.reset),
            ("--errors", "SLUICEGATE_ERRORS", &self.errors),
            ("--refunds", "SLUICEGATE_REFUNDS", &self.refunds),
            ("--store", "SLUICEGATE_STORE", &self.store),
            ("--compat", "SLUICEGATE_COMPAT", &self.compat),
            ("--snapshot", "SLUICEGATE_SNAPSHOT", &self.snapshot),
            ("--snapshot-every", "SLUICEGATE_SNAPSHOT_EVERY", &self.snapshot_every),
            ("--max-identities", "SLUICEGATE_MAX_IDENTITIES", &self.max_identities),
            ("--memory-budget", "SLUICEGATE_MEMORY_BUDGET", &self.memory_budget),
            ("--tls-cert", "SLUICEGATE_TLS_CERT", &self.tls_cert),
            ("--tls-key", "SLUICEGATE_TLS_KEY", &self.tls_key),
            ("--client-ca", "SLUICEGATE_CLIENT_CA", &self.client_ca),
            ("--client-san", "SLUICEGATE_CLIENT_SAN", &self.client_san),
            ("--rules-removal-grace", "SLUICEGATE_RULES_REMOVAL_GRACE", &self.rules_removal_grace),
            ("--drain-delay", "SLUICEGATE_DRAIN_DELAY", &self.drain_delay),
            ("--log-level", "SLUICEGATE_LOG_LEVEL", &self.log_level),
            ("--log-format", "SLUICEGATE_LOG_FORMAT", &self.log_format),
            ("--traces", "SLUICEGATE_TRACES", &self.traces),
        ];
        for (flag, name, text) in texts {
            if let Some(text) = text {
                vars.set_flag(flag, name, text);
            }
        }
        let switches = [
            ("--shadow", "SLUICEGATE_SHADOW", self.shadow, "true"),
            (
                "--start-without-rules",
                "SLUICEGATE_START_WITHOUT_RULES",
                self.start_without_rules,
                "true",
            ),
            ("--merge-domains", "MERGE_DOMAIN_CONFIG", self.reading.merge_domains, "true"),
            (
                "--include-dot-files",
                "RUNTIME_IGNOREDOTFILES",
                self.reading.include_dot_files,
                "false",
            ),
        ];
        for (flag, name, _, text) in switches.into_iter().filter(|(_, _, on, _)| *on) {
            vars.set_flag(flag, name, text);
        }
        if !self.rules.is_empty() {
            let paths: OsString = env::join_paths(&self.rules).context("--rules")?;
            let paths = paths.into_string().ok().context("--rules: a path must be UTF-8")?;
            vars.set_flag("--rules", "SLUICEGATE_RULES", paths);
        }
        Ok(vars)
    }
}
