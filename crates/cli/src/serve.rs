//! `sluicegate serve`: the service.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sluicegate_server::server::{Addresses, Server};
use sluicegate_server::settings::{Settings, Vars};
use tokio::sync::mpsc;

use crate::process::{self, Fatal, Signals, print_startup, trim_memory};
use crate::rules::{ReadArgs, StoreArgs, set_rules};

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
    /// File or directory of rules; repeat for more of the same configuration; or
    /// postgres://USER@HOST/DB
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    rule_store: StoreArgs,
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
    /// File of further tokens, each with a name and a role; reloaded when it changes [default:
    /// none]
    #[arg(long, value_name = "PATH")]
    admin_tokens: Option<String>,
    /// File that changes through the admin endpoint are appended to [default: the log only]
    #[arg(long, value_name = "PATH")]
    audit_log: Option<String>,
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
    /// Directory of usage records, by rule, identity and hour [default: none]
    #[arg(long, value_name = "PATH")]
    usage: Option<String>,
    /// Domains and ids of the rules whose usage is recorded, such as shop,llm/team; * for all
    #[arg(long, value_name = "LIST")]
    usage_rules: Option<String>,
    /// Send events to this URL, such as thresholds of budgets that are reached (`notify`)
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    #[command(flatten)]
    reading: ReadArgs,
    /// Print the addresses as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    Ok(process::run(&args.vars()?, serve))
}

async fn serve(settings: Settings) -> Result<(), Fatal> {
    let (rules, json, log) = (settings.rules.clone(), settings.json, settings.log.format);
    let server = Server::start(settings).await.map_err(|error| Fatal::of(error, &rules))?;
    // Before the addresses are printed: their reader may send a signal.
    let (reload, reloads) = mpsc::channel(1);
    let signals = Signals::new(reload).context("cannot handle signals")?;
    print_startup(log, json, &startup_message(server.addresses(), rules.is_configured(), json));
    trim_memory(server.app().memory().clone());
    Ok(server.run(signals.terminated(), reloads).await.context("the service failed")?)
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
            ("--admin-tokens", &self.admin_tokens),
            ("--audit-log", &self.audit_log),
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
            ("--usage", &self.usage),
            ("--usage-rules", &self.usage_rules),
            ("--webhook-url", &self.webhook_url),
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
        self.rule_store.set_flags(&mut vars);
        if !self.rules.is_empty() {
            set_rules(&mut vars, &self.rules)?;
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
         admin  {admin}   console, /metrics, /ready, /config\n"
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
