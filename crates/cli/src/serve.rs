//! `sluicegate serve`: the service.

mod trim;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sluicegate::RulesError;
use sluicegate::clock::{Clock, SystemClock};
use sluicegate_server::logs::{self, Format};
use sluicegate_server::server::{Addresses, Server, StartError};
use sluicegate_server::settings::{Settings, Vars};
use tokio::sync::mpsc;

use crate::rules::ReadArgs;
use crate::{error_lines, written};

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate serve                             with example rules; prints a command to try\n  \
    sluicegate serve --rules /etc/sluicegate     with your rules, reloaded when they change\n  \
    sluicegate serve --grpc 0.0.0.0:8081         for an Envoy on another machine\n  \
    sluicegate serve --snapshot counts.snapshot  counters survive a restart\n\n\
    Each option is also a variable: `--http` is SLUICEGATE_HTTP. Variables of envoyproxy/ratelimit are supported;\n\
    those without effect are logged at the start: see docs/guide/service.md.\n\n\
    SIGHUP reloads the rules. SIGTERM and Ctrl-C end the service after requests in progress are answered.\n\
    Exit codes: 0 ended, 1 the rules are invalid, 2 failed, such as an address in use.")]
pub(crate) struct ServeArgs {
    /// File or directory of rules; repeat for more of the same configuration
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// gRPC endpoint (Envoy), ADDR:PORT or unix:PATH; port 0 picks a free one [default:
    /// 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    grpc: Option<String>,
    /// HTTP endpoint; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Admin endpoint: metrics, readiness, configuration [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// File with the token that the admin endpoint requires; read at startup only, so restart to
    /// change it [default: none]
    #[arg(long, value_name = "PATH")]
    admin_token_file: Option<String>,
    /// Endpoint of metrics alone, without a token, such as 0.0.0.0:9090 [default: none]
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// RESP endpoint (Redis clients), such as 127.0.0.1:6380 [default: none]
    #[arg(long, value_name = "ADDR")]
    resp: Option<String>,
    /// Allow all requests, but count denials
    #[arg(long)]
    shadow: bool,
    /// HTTP rate-limit headers: both, x-ratelimit, ietf or none [default: both]
    #[arg(long, value_name = "DIALECT")]
    headers: Option<String>,
    /// Unit of X-RateLimit-Reset: unix-seconds, unix-millis or seconds-to-go [default:
    /// unix-seconds]
    #[arg(long, value_name = "HOW")]
    reset: Option<String>,
    /// HTTP error format: envelope or problem (application/problem+json) [default: envelope]
    #[arg(long, value_name = "FORM")]
    errors: Option<String>,
    /// Refund policy: proven, operators or open [default: proven]
    #[arg(long, value_name = "POLICY")]
    refunds: Option<String>,
    /// Requests that no rule matches: allow, deny or error [default: allow]
    #[arg(long, value_name = "POLICY")]
    unmatched: Option<String>,
    /// Store of the counters: memory, or redis://, rediss://, unix://, redis-sentinel:// or
    /// redis-cluster://… [default: memory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// On Redis, key compatibility of Envoy-form limits: envoy or none [default: none]
    #[arg(long, value_name = "WHOSE")]
    compat: Option<String>,
    /// File that preserves counters over a restart
    #[arg(long, value_name = "PATH")]
    snapshot: Option<String>,
    /// Interval of snapshots, such as 5m [default: at the end only]
    #[arg(long, value_name = "TIME")]
    snapshot_every: Option<String>,
    /// Maximum number of identities [default: 16000000]
    #[arg(long, value_name = "N")]
    max_identities: Option<String>,
    /// Memory bound of all client connections, such as 64MiB or 1GiB [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    memory_budget: Option<String>,
    /// Certificate chain of the gRPC endpoint, in PEM; reloaded when it changes
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<String>,
    /// Private key of the certificate
    #[arg(long, value_name = "PATH")]
    tls_key: Option<String>,
    /// Certificate authorities of client certificates, which are then required
    #[arg(long, value_name = "PATH")]
    client_ca: Option<String>,
    /// Required subject alternative name of client certificates
    #[arg(long, value_name = "NAME")]
    client_san: Option<String>,
    /// Start without valid rules, not ready
    #[arg(long)]
    start_without_rules: bool,
    /// Grace period before a domain that disappeared from the files is removed; 0 for none
    /// [default: 10m]
    #[arg(long, value_name = "TIME")]
    rules_removal_grace: Option<String>,
    /// Time between the signal and the drain, not ready, for load balancers to notice [default: 0]
    #[arg(long, value_name = "TIME")]
    drain_delay: Option<String>,
    /// Log level: trace, debug, info, warn or error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log format: text or json [default: text]
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

/// Reason why the service ended, with the exit code.
struct Fatal {
    code: u8,
    message: String,
}

/// Runs `serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let vars = args.vars()?;
    let Err(Fatal { code, message }) = start(&vars) else { return Ok(ExitCode::SUCCESS) };
    // Also for programs that read the log: before it starts and after its end.
    let format = Settings::read_log(&vars).format;
    let lines = match (format, code) {
        (Format::Json, _) => fatal_lines(&message, format),
        (Format::Text, 1) => format!("{message}\n"),
        (Format::Text, _) => error_lines(&message),
    };
    eprint!("{lines}");
    Ok(ExitCode::from(code))
}

/// Log lines of an error, each with the current time; empty lines are left out.
pub(crate) fn fatal_lines(message: &str, format: Format) -> String {
    let lines: Vec<&str> = message.lines().filter(|line| !line.trim().is_empty()).collect();
    logs::fatal_lines(&lines.join("\n"), SystemClock::get().now(), format)
}

/// Whether a command line that cannot be parsed is one of `serve` with a log in JSON.
pub(crate) fn logs_json(args: impl Iterator<Item = String>) -> bool {
    const FLAG: &str = "--log-format";
    let args: Vec<String> = args.collect();
    let mut vars = Vars::from_env();
    let separate = args.windows(2).find(|pair| pair[0] == FLAG).map(|pair| pair[1].as_str());
    let joined = || args.iter().find_map(|arg| arg.strip_prefix(FLAG)?.strip_prefix('='));
    if let Some(format) = separate.or_else(joined) {
        vars.set_flag(FLAG, format);
    }
    let is_serve = args.get(1).is_some_and(|command| command == "serve");
    is_serve && Settings::read_log(&vars).format == Format::Json
}

/// Panics as log lines. They are written directly: the panic may be one of the logging.
fn log_panics(format: Format) {
    if format == Format::Json {
        std::panic::set_hook(Box::new(move |panic| {
            eprint!("{}", fatal_lines(&panic.to_string(), format));
        }));
    }
}

fn start(vars: &Vars) -> Result<(), Fatal> {
    let (settings, warnings) = Settings::read(vars).map_err(anyhow::Error::from)?;
    // Dropped at the end, it writes the last lines.
    let _guard = logs::start(settings.log).context("cannot log")?;
    log_panics(settings.log.format);
    warnings.iter().for_each(|warning| logs::events::setting_warning(warning));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(trim::on_thread_park)
        .build();
    runtime.context("cannot start")?.block_on(serve(settings))
}

async fn serve(settings: Settings) -> Result<(), Fatal> {
    let (rules, json) = (settings.rules.clone(), settings.json);
    // Text for people would be no line of a JSON log, which has the addresses.
    let is_silent = settings.log.format == Format::Json && !json;
    let server = match Server::start(settings).await {
        Ok(server) => server,
        Err(StartError::Rules(error)) if !matches!(error, RulesError::Unreadable(_)) => {
            let message = format!("{error}\ninvalid rules: see `sluicegate check`");
            return Err(Fatal { code: 1, message });
        }
        Err(StartError::Rules(error)) => {
            return Err(Fatal { code: 2, message: rules.describe(&error) });
        }
        Err(error) => return Err(anyhow::Error::from(error).into()),
    };
    // Before the addresses are printed: their reader may send a signal.
    let (reload, reloads) = mpsc::channel(1);
    let signals = Signals::new(reload).context("cannot handle signals")?;
    if !is_silent {
        let message = startup_message(server.addresses(), !rules.paths.is_empty(), json);
        // A closed standard output is not an error.
        let _ = written(io::stdout().lock().write_all(message.as_bytes()));
    }
    tokio::spawn(trim::run(server.app().memory().clone()));
    Ok(server.run(signals.terminated(), reloads).await.context("the service failed")?)
}

impl From<anyhow::Error> for Fatal {
    fn from(error: anyhow::Error) -> Self {
        Self { code: 2, message: format!("{error:#}") }
    }
}

impl ServeArgs {
    /// The environment, overridden by flags.
    fn vars(&self) -> anyhow::Result<Vars> {
        let mut vars = Vars::from_env();
        let texts = [
            ("--grpc", &self.grpc),
            ("--http", &self.http),
            ("--admin", &self.admin),
            ("--admin-token-file", &self.admin_token_file),
            ("--metrics", &self.metrics),
            ("--resp", &self.resp),
            ("--headers", &self.headers),
            ("--reset", &self.reset),
            ("--errors", &self.errors),
            ("--refunds", &self.refunds),
            ("--unmatched", &self.unmatched),
            ("--store", &self.store),
            ("--compat", &self.compat),
            ("--snapshot", &self.snapshot),
            ("--snapshot-every", &self.snapshot_every),
            ("--max-identities", &self.max_identities),
            ("--memory-budget", &self.memory_budget),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
            ("--client-ca", &self.client_ca),
            ("--client-san", &self.client_san),
            ("--rules-removal-grace", &self.rules_removal_grace),
            ("--drain-delay", &self.drain_delay),
            ("--log-level", &self.log_level),
            ("--log-format", &self.log_format),
            ("--traces", &self.traces),
        ];
        for (flag, text) in texts {
            if let Some(text) = text {
                vars.set_flag(flag, text);
            }
        }
        let switches = [
            ("--shadow", self.shadow),
            ("--start-without-rules", self.start_without_rules),
            ("--json", self.json),
        ];
        for (flag, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
            vars.set_flag(flag, "true");
        }
        self.reading.set_flags(&mut vars);
        if !self.rules.is_empty() {
            let paths: OsString = env::join_paths(&self.rules).context("--rules")?;
            let paths = paths.into_string().ok().context("--rules: a path must be UTF-8")?;
            vars.set_flag("--rules", paths);
        }
        Ok(vars)
    }
}

/// A request under the example rules.
const EXAMPLE: &str = r#"{"domain":"example","descriptors":[{"user":"me"}]}"#;

fn startup_message(addresses: &Addresses, has_rules: bool, json: bool) -> String {
    if json {
        return format!("{}\n", addresses.to_json());
    }
    let Addresses { grpc, http, admin, resp, metrics } = addresses;
    let mut listening = format!(
        "grpc   {grpc}   Envoy's rate limit service\n\
         http   {http}   /v1/check, /json, /openapi.json\n\
         admin  {admin}   /metrics, /ready, /rlconfig, /config\n"
    );
    if let Some(resp) = resp {
        listening += &format!("resp   {resp}   CL.THROTTLE, SG.CHECK: for clients of Redis\n");
    }
    if let Some(metrics) = metrics {
        listening += &format!("metrics  {metrics}   for Prometheus\n");
    }
    if has_rules {
        return listening;
    }
    format!(
        "{listening}rules  an example; `--rules PATH` for your own\n\n\
         A user has three requests a minute. Paste this four times:\n\n  \
         curl -i http://{http}/v1/check -d '{EXAMPLE}'\n"
    )
}

/// Signal handlers, installed on creation.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// SIGHUP sends to `reload`.
    #[cfg(unix)]
    fn new(reload: mpsc::Sender<()>) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                // A full channel already requests a reload.
                let _ = reload.try_send(());
            }
        });
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    #[cfg(not(unix))]
    fn new(_reload: mpsc::Sender<()>) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Completes on SIGTERM or SIGINT.
    #[cfg(unix)]
    async fn terminated(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn terminated(self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn args_of(line: &[&str]) -> ServeArgs {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let matches = command.try_get_matches_from([&["serve"], line].concat());
        ServeArgs::from_arg_matches(&matches.unwrap()).unwrap()
    }

    #[test]
    fn usage_errors_of_a_json_log_are_found_on_the_command_line() {
        let is_json =
            |line: &str| logs_json(format!("sluicegate {line}").split(' ').map(str::to_owned));
        assert!(is_json("serve --log-format json --htp x"));
        assert!(is_json("serve --htp x --log-format=json"));
        assert!(!is_json("serve --htp x --log-format text"));
        assert!(!is_json("serve --log-format"));
        assert!(!is_json("check --log-format json"));
        let panic = "thread 'main' panicked at a.rs:1:\n\nno more";
        let lines = fatal_lines(panic, Format::Json);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.lines().all(|line| line.contains(r#""level":"fatal""#)), "{lines}");
    }

    #[test]
    fn each_option_is_also_a_variable() {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let options: Vec<_> = command.get_arguments().collect();
        assert!(options.len() > 25, "only {} options were found", options.len());
        for option in options {
            let flag = format!("--{}", option.get_long().unwrap());
            let name = format!("SLUICEGATE_{}", flag[2..].replace('-', "_").to_uppercase());
            let takes_value = option.get_action().takes_values();
            let line = if takes_value { vec![flag.as_str(), "x"] } else { vec![flag.as_str()] };
            let vars = args_of(&line).vars().unwrap();
            let set = if takes_value { "x" } else { "true" };
            assert_eq!(vars.get(&name), Some(set), "{flag} does not set {name}");
            // Whatever is wrong with such a value, the variable is known.
            let read = Settings::read(&Vars::new([(&*name, set)]));
            let error = read.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(!error.contains("unknown setting"), "{name}: {error}");
        }
    }
}
