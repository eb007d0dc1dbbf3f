//! `sluicegate gateway`: the reverse proxy.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::upstream::ServerConfig;
use sluicegate_config::units;
use sluicegate_gateway::gateway::Gateway;
use sluicegate_server::settings::{Settings, Vars};
use tokio::sync::mpsc;

use crate::process::{self, Fatal, Signals, print_startup};

/// Arguments of `gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate gateway --upstream http://127.0.0.1:3000 --limit 10/s   each client address\n\n\
    SIGHUP reloads the rules. SIGTERM and Ctrl-C end the gateway after requests in progress are answered.")]
pub(crate) struct GatewayArgs {
    /// Server that requests are forwarded to, such as http://127.0.0.1:3000; repeat for more
    #[arg(long, value_name = "URL", required = true)]
    upstream: Vec<ServerConfig>,
    /// Requests of each client address, such as 10/s or 100/m
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Address of the gateway; port 0 picks a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000", hide_default_value = true)]
    listen: SocketAddr,
    /// Admin endpoint: metrics, readiness, configuration [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// File or directory of rules; repeat for more of the same configuration
    #[arg(long, value_name = "PATH", conflicts_with = "limit")]
    rules: Vec<PathBuf>,
    /// Store of the counters: memory, or redis://, rediss://, unix://, redis-sentinel:// or
    /// redis-cluster://… [default: memory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Print the addresses as one JSON object
    #[arg(long)]
    json: bool,
}

/// Domain of the rule that `--limit` makes.
const DOMAIN: &str = "gateway";

/// Runs `gateway`.
pub(crate) fn run(args: &GatewayArgs) -> anyhow::Result<ExitCode> {
    if let Some(limit) = &args.limit {
        units::rate(limit).context("--limit")?;
    }
    Ok(process::run(&args.vars()?, |settings| serve(args, settings)))
}

async fn serve(args: &GatewayArgs, mut settings: Settings) -> Result<(), Fatal> {
    let (rules, json, log) = (settings.rules.clone(), settings.json, settings.log.format);
    settings.rules.text = args.limit.as_deref().map(rule_of);
    let domain = args.limit.as_ref().map(|_| DOMAIN);
    let config = GatewayConfig::simple(args.listen, args.upstream.clone(), domain);
    let gateway = Gateway::start(settings, &config, args.workers).await;
    let gateway = gateway.map_err(|error| Fatal::of(error, &rules))?;
    let (reload, reloads) = mpsc::channel(1);
    let signals = Signals::new(reload).context("cannot handle signals")?;
    print_startup(log, json, &args.startup_message(&gateway, json));
    Ok(gateway.run(signals.terminated(), reloads).await.context("the gateway failed")?)
}

/// The rules of a limit by client address.
fn rule_of(rate: &str) -> String {
    format!(
        "domain: {DOMAIN}\ndescriptors:\n  - key: remote_address\n    prefix: {{ v6: 64 }}\n    \
         limits:\n      - {{ name: address, algorithm: token_bucket, rate: {rate} }}\n"
    )
}

impl GatewayArgs {
    fn vars(&self) -> anyhow::Result<Vars> {
        let mut vars = Vars::from_env();
        for (flag, text) in [("--admin", &self.admin), ("--store", &self.store)] {
            if let Some(text) = text {
                vars.set_flag(flag, text);
            }
        }
        if self.json {
            vars.set_flag("--json", "true");
        }
        if !self.rules.is_empty() {
            let paths = env::join_paths(&self.rules).context("--rules")?;
            let paths = paths.into_string().ok().context("--rules: a path must be UTF-8")?;
            vars.set_flag("--rules", paths);
        }
        Ok(vars)
    }

    fn startup_message(&self, gateway: &Gateway, json: bool) -> String {
        let (listen, admin) = (gateway.address(), gateway.admin_address());
        if json {
            return format!(
                "{}\n",
                json!({ "listen": listen.to_string(), "admin": admin.to_string() })
            );
        }
        let servers: Vec<_> = self.upstream.iter().map(ToString::to_string).collect();
        let limit = match &self.limit {
            Some(rate) => format!("{rate} for each client address"),
            None => "none".to_owned(),
        };
        format!(
            "listen    {listen}   forwards to {}\nlimit     {limit}\nadmin     {admin}   /metrics, \
             /ready\n",
            servers.join(", ")
        )
    }
}
