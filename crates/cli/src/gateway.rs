//! `sluicegate gateway`: the reverse proxy.

pub(crate) mod hash_key;
mod options;

use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use sluicegate::clock::SystemClock;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::route::{LimitConfig, OnMissing};
use sluicegate_config::problem::Problem;
use sluicegate_config::units;
use sluicegate_gateway::config::{ConfigError, ConfigFile, DEFAULT_LISTEN, check_rules};
use sluicegate_gateway::gateway::Gateway;
use sluicegate_server::logs::events;
use sluicegate_server::settings::{RulesSettings, Settings, Vars};
use tokio::sync::mpsc;

pub(crate) use self::options::GatewayArgs;
use self::options::{GatewayCommand, GatewayOptions, Target};
use crate::check::gateway::summary;
use crate::process::{self, Fatal, Signals, print_startup};
use crate::rules::{rules, set_rules};

/// Domain of the rule that `--limit` makes.
const DOMAIN: &str = "gateway";
/// Rules of a gateway without limits: none, in place of the examples.
const NO_RULES: &str = "domain: gateway\n";

/// What a gateway does.
struct Plan {
    config: GatewayConfig,
    /// The file that it comes from, which is followed.
    file: Option<ConfigFile>,
    /// Rules that are in no file.
    rules: Option<String>,
    /// A line of the start message, without a file.
    limit: String,
    warnings: Vec<Problem>,
}

/// Runs `gateway`.
pub(crate) fn run(args: &GatewayArgs) -> anyhow::Result<ExitCode> {
    if let Some(GatewayCommand::HashKey(args)) = &args.command {
        return hash_key::run(args);
    }
    let (options, mut vars) = args.read()?;
    let plan = match &options.target {
        Target::Servers { .. } => simple(&options, &vars).map_err(Fatal::from),
        Target::Config(_) => from_file(&options, &mut vars),
    };
    Ok(process::run(&vars, |settings| async { serve(plan?, &options, settings).await }))
}

/// All requests to some servers.
fn simple(options: &GatewayOptions, vars: &Vars) -> anyhow::Result<Plan> {
    let Target::Servers { servers, limit } = &options.target else {
        anyhow::bail!("no server is given")
    };
    let listen = options.listen.unwrap_or(DEFAULT_LISTEN);
    let config = |domain: Option<&str>| GatewayConfig::simple(listen, servers.clone(), domain);
    let plan =
        |config, rules, limit| Plan { config, file: None, rules, limit, warnings: Vec::new() };
    if let Some(rate) = limit {
        units::rate(rate).context("--limit")?;
        let text = format!("{rate} for each client address");
        return Ok(plan(config(Some(DOMAIN)), Some(rule_of(rate)), text));
    }
    let settings = RulesSettings::read(vars, &[])?;
    if settings.database.is_some() {
        anyhow::bail!(
            "--rules: rules of a database need a file that maps requests to them; give it with \
             `--config gateway.yaml`"
        );
    }
    if settings.paths.is_empty() {
        return Ok(plan(config(None), Some(NO_RULES.to_owned()), "none".to_owned()));
    }
    limited_by_rules(&settings, config).map(|(config, text)| plan(config, None, text))
}

/// Rules without a file that maps requests to them: their only domain is meant.
fn limited_by_rules(
    settings: &RulesSettings,
    config: impl Fn(Option<&str>) -> GatewayConfig,
) -> anyhow::Result<(GatewayConfig, String)> {
    // Invalid rules are reported by the start.
    let Ok(good) = rules(settings, SystemClock::get().read())?.read else {
        return Ok((config(None), String::new()));
    };
    let [domain] = good.loaded.domains.as_slice() else {
        let names: Vec<&str> = good.loaded.domains.iter().map(|one| one.name.as_str()).collect();
        anyhow::bail!(
            "--rules: must have one domain, got {} (`{}`); say in a file which route uses which, and \
             give it with `--config gateway.yaml`",
            names.len(),
            names.join("`, `")
        );
    };
    let mut config = config(Some(&domain.name));
    if let (Some(auth), Some(route)) = (&domain.forward_auth, config.routes.first_mut()) {
        let (domain, mapping) = (domain.name.clone(), auth.mapping.clone());
        // As the service does for the same rules.
        let on_missing = OnMissing::Pass;
        route.limit = Some(LimitConfig { on_missing, ..LimitConfig::new(domain, mapping) });
        config.trusted_proxies = auth.trusted_proxies.networks().to_vec();
    }
    const KEY: &str = "remote_address";
    let has_key = domain.descriptors.iter().any(|one| one.key == KEY);
    if domain.forward_auth.is_none() && !has_key {
        anyhow::bail!(
            "--rules: nothing would be limited, the domain `{}` has neither `forward_auth` nor a \
             descriptor with the key `{KEY}`; call the key of the client address `{KEY}`, or map \
             requests to descriptors in a file (`--config gateway.yaml`)",
            domain.name
        );
    }
    let text = match domain.forward_auth {
        Some(_) => format!("domain `{}` of the rules, by its `forward_auth`", domain.name),
        None => format!("domain `{}` of the rules, by client address (`{KEY}`)", domain.name),
    };
    Ok((config, text))
}

/// The routes of a file.
fn from_file(options: &GatewayOptions, vars: &mut Vars) -> Result<Plan, Fatal> {
    let Target::Config(path) = &options.target else {
        return Err(anyhow::anyhow!("no file is given").into());
    };
    let mut settings = RulesSettings::read(vars, &[]).map_err(anyhow::Error::from)?;
    let file = ConfigFile {
        path: path.clone(),
        listen: options.listen,
        has_own_admin: vars.get("SLUICEGATE_ADMIN").is_some(),
        has_own_webhook: vars.get("SLUICEGATE_WEBHOOK_URL").is_some(),
        has_own_rules: settings.is_configured(),
    };
    let refused = |error: ConfigError| match error {
        ConfigError::Invalid(_) | ConfigError::Rules(_) => Fatal::invalid(format!(
            "{error}\ninvalid configuration: see `sluicegate check {}`",
            path.display()
        )),
        error => anyhow::Error::from(error).into(),
    };
    let loaded = file.load().map_err(refused)?;
    let config = loaded.config.clone();
    if let Some(admin) = config.admin {
        vars.set_flag("--admin", admin.to_string());
    }
    if let Some(webhook) = &config.webhook {
        vars.set_flag("--webhook-url", webhook.clone());
    }
    if !config.rules.is_empty() {
        set_rules(vars, &config.rules)?;
        settings.paths.clone_from(&config.rules);
    }
    let rules = (!settings.is_configured()).then(|| NO_RULES.to_owned());
    let mut warnings = loaded.warnings.clone();
    let findings = check_rules(&loaded, &settings);
    if !findings.problems.is_empty() {
        return Err(refused(ConfigError::Rules(findings.problems)));
    }
    warnings.extend(findings.warnings);
    Ok(Plan { config, file: Some(file), rules, limit: String::new(), warnings })
}

async fn serve(plan: Plan, options: &GatewayOptions, mut settings: Settings) -> Result<(), Fatal> {
    let Plan { config, file, rules: text, limit, warnings } = plan;
    let (rules, json, log) = (settings.rules.clone(), settings.json, settings.log.format);
    settings.rules.text = text;
    warnings.iter().for_each(|warning| events::rules_warning(warning));
    let gateway = Gateway::start(settings, &config, options.workers).await;
    let mut gateway = gateway.map_err(|error| Fatal::of(error, &rules))?;
    let message = startup_message(&gateway, &config, file.as_ref(), &limit, json);
    if let Some(file) = file {
        gateway = gateway.following(file, config);
    }
    let (reload, reloads) = mpsc::channel(1);
    let signals = Signals::new(reload).context("cannot handle signals")?;
    print_startup(log, json, &message);
    Ok(gateway.run(signals.terminated(), reloads).await.context("the gateway failed")?)
}

/// The rules of a limit by client address.
fn rule_of(rate: &str) -> String {
    format!(
        "domain: {DOMAIN}\ndescriptors:\n  - key: remote_address\n    prefix: {{ v6: 64 }}\n    \
         limits:\n      - {{ name: address, algorithm: token_bucket, rate: {rate} }}\n"
    )
}

fn startup_message(
    gateway: &Gateway,
    config: &GatewayConfig,
    file: Option<&ConfigFile>,
    limit: &str,
    json: bool,
) -> String {
    let (bound_to, admin) = (gateway.addresses(), gateway.admin_address());
    let listeners: Vec<_> = bound_to.iter().map(ToString::to_string).collect();
    if json {
        let admin = admin.to_string();
        let addresses =
            json!({ "listen": listeners.first(), "listeners": listeners, "admin": admin });
        return format!("{addresses}\n");
    }
    let admin = format!("admin     {admin}   /metrics, /ready\n");
    match file {
        Some(_) => {
            let mut bound = config.clone();
            for (listener, address) in bound.listeners.iter_mut().zip(bound_to) {
                listener.address = address;
            }
            format!("{}{admin}", summary(&bound))
        }
        None => {
            let servers = config.upstreams.iter().flat_map(|one| &one.servers);
            let servers: Vec<_> = servers.map(ToString::to_string).collect();
            let servers = servers.join(", ");
            let listen = listeners.join(", ");
            format!("listen    {listen}   forwards to {servers}\nlimit     {limit}\n{admin}")
        }
    }
}
