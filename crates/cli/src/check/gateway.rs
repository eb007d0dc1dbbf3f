//! The file of a gateway: found among the paths, checked with its rules, and summarised.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;
use serde_json::{Value, json};
use sluicegate::Timestamp;
use sluicegate::explain::rule::text::{counted, plainly};
use sluicegate_config::gateway::deferred::DeferredPlace;
use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_config::gateway::route::{Action, Credential, OnLimit, OnMissing, RouteConfig};
use sluicegate_config::gateway::tokens::{
    ModelApi, ModelTable, PriceSource, TokensConfig, read_prices,
};
use sluicegate_config::gateway::upstream::{Balance, UpstreamConfig};
use sluicegate_config::gateway::{Findings, GatewayConfig, is_gateway};
use sluicegate_config::rules::Source;
use sluicegate_gateway::config::{DEFAULT_LISTEN, checked};
use sluicegate_gateway::route::matching_order;

use crate::rules::{LoadResult, ReadArgs, rules};

/// Routes and upstreams that a summary shows.
const SHOWN_MAX: usize = 50;

/// The file of a gateway among the paths, and the other paths.
pub(crate) fn find(paths: &[PathBuf]) -> anyhow::Result<Option<(Source, Vec<PathBuf>)>> {
    let mut found: Option<Source> = None;
    let mut others = Vec::new();
    for path in paths {
        match source(path) {
            Some(second) if found.is_some() => {
                bail!("two files of gateways: check `{}` alone", second.name)
            }
            Some(source) => found = Some(source),
            None => others.push(path.clone()),
        }
    }
    Ok(found.map(|source| (source, others)))
}

fn source(path: &Path) -> Option<Source> {
    let text = path.is_file().then(|| fs::read_to_string(path).ok()).flatten()?;
    is_gateway(&text).then(|| Source { name: path.display().to_string(), text })
}

/// Checks a gateway's file with its rules: those of the paths, or those that it names.
pub(crate) fn load(
    source: Source,
    paths: &[PathBuf],
    reading: &ReadArgs,
    now: Timestamp,
) -> anyhow::Result<(LoadResult, Option<GatewayConfig>)> {
    let mut settings = reading.settings(paths)?;
    let loaded = match checked(&source, !settings.paths.is_empty(), None) {
        Ok(loaded) => loaded,
        Err(invalid) => {
            let problems = invalid.problems.iter().cloned().collect();
            let mut result = LoadResult::empty();
            (result.sources, result.warnings) = (vec![source], invalid.warnings);
            result.read = Err(problems);
            return Ok((result, None));
        }
    };
    if settings.paths.is_empty() {
        settings.paths.clone_from(&loaded.config.rules);
    }
    let mut result = match settings.paths.is_empty() {
        true => LoadResult::empty(),
        false => rules(&settings, now)?,
    };
    result.warnings.extend(loaded.warnings.iter().cloned());
    if let Ok(good) = &result.read {
        let Findings { problems, warnings } = loaded.check_rules(&good.loaded);
        result.warnings.extend(warnings);
        if !problems.is_empty() {
            result.read = Err(problems);
        }
    }
    result.sources.insert(0, source);
    Ok((result, Some(loaded.config)))
}

/// "2 listeners, 3 routes, 1 upstream".
pub(crate) fn totals(config: &GatewayConfig) -> String {
    let listeners = config.listeners.len().max(1);
    let upstreams = counted(config.upstreams.len(), "upstream");
    let (listeners, routes) =
        (counted(listeners, "listener"), counted(config.routes.len(), "route"));
    format!("{listeners}, {routes}, {upstreams}")
}

/// Listeners, upstreams, and routes in matching order.
pub(crate) fn summary(config: &GatewayConfig) -> String {
    let mut rows = Vec::new();
    let default = [ListenerConfig::new(DEFAULT_LISTEN)];
    let listeners = match config.listeners.as_slice() {
        [] => &default[..],
        listeners => listeners,
    };
    for one in listeners {
        rows.push(("listen", one.address.to_string(), listener(one)));
    }
    for one in config.upstreams.iter().take(SHOWN_MAX) {
        rows.push(("upstream", one.name.clone(), upstream(one)));
    }
    if let Some(one) = &config.deferred {
        let place = match &one.place {
            DeferredPlace::File(path) => path.display().to_string(),
            DeferredPlace::Redis => "Redis".to_owned(),
        };
        rows.push(("deferred", place, format!("tickets at {}/ID", one.tickets)));
    }
    for index in matching_order(&config.routes).into_iter().take(SHOWN_MAX) {
        if let Some(route) = config.routes.get(index) {
            rows.push(("route", matched(route), answered(config, route)));
        }
    }
    let width = rows.iter().map(|(_, name, _)| name.chars().count().min(40)).max().unwrap_or(0);
    let mut out = String::new();
    for (kind, name, text) in rows {
        let (name, text) = (plainly(&name), plainly(&text));
        out.push_str(format!("{kind:<8}  {name:width$}  {text}").trim_end());
        out.push('\n');
    }
    let hidden = config.routes.len().saturating_sub(SHOWN_MAX);
    if hidden > 0 {
        out.push_str(&format!("          and {} more\n", counted(hidden, "route")));
    }
    out
}

fn listener(listener: &ListenerConfig) -> String {
    let tls = listener.tls.as_ref().map(|tls| match (&tls.acme, &tls.client_ca) {
        (Some(_), None) => "TLS, automatic certificates",
        (Some(_), Some(_)) => "TLS, automatic certificates, client certificates",
        (None, Some(_)) => "TLS, client certificates",
        (None, None) => "TLS",
    });
    let mut parts = vec![tls.unwrap_or("plain text")];
    if listener.redirect_to_https {
        parts.push("redirects to HTTPS");
    }
    if !listener.proxy_protocol.is_empty() {
        parts.push("PROXY protocol");
    }
    parts.join(", ")
}

fn upstream(upstream: &UpstreamConfig) -> String {
    let servers: Vec<String> = upstream.servers.iter().map(ToString::to_string).collect();
    let balance = match &upstream.balance {
        _ if servers.len() < 2 => String::new(),
        Balance::RoundRobin => ", round robin".to_owned(),
        Balance::LeastConnections => ", least connections".to_owned(),
        Balance::Hash(part) => format!(", by hash of {part}"),
    };
    let health = match &upstream.health {
        Some(check) => format!(", checked at {}", check.path),
        None => String::new(),
    };
    format!("{}{balance}{health}", servers.join(", "))
}

/// The requests of a route.
fn matched(route: &RouteConfig) -> String {
    let methods = route.methods.join(",");
    let hosts = route.hosts.join(",");
    let text = format!("{methods} {hosts}{}", route.path);
    text.trim_start().to_owned()
}

/// What happens to them.
fn answered(config: &GatewayConfig, route: &RouteConfig) -> String {
    let mut parts = vec![match &route.action {
        Action::Forward { upstream, .. } => {
            let name = config.upstreams.get(*upstream).map_or("?", |one| &one.name);
            format!("to {name}")
        }
        Action::Redirect { to, status } => format!("{status} to {to}"),
        Action::Files { root, .. } => format!("files of {}", root.display()),
        Action::Respond { status, .. } => format!("answers {status}"),
    }];
    parts.extend(route.require.map(|one| format!("requires {}", credential(one))));
    parts.push(match &route.limit {
        Some(limit) => {
            let by: Vec<String> =
                limit.mapping.descriptors.iter().map(ToString::to_string).collect();
            let on_limit = match route.on_limit {
                OnLimit::Mark => ", marks only",
                OnLimit::Shape => ", waits",
                OnLimit::Queue => ", processed later",
                OnLimit::Rules | OnLimit::Deny => "",
            };
            let on_missing = match limit.on_missing {
                OnMissing::Reject => "",
                OnMissing::Pass => ", requests without a part pass",
            };
            let settled = match &limit.tokens {
                Some(tokens) => self::tokens(tokens),
                None if limit.settle.is_empty() => String::new(),
                None => ", settled by the response".to_owned(),
            };
            let by = by.join("; ");
            format!("limited in `{}` by {by}{settled}{on_missing}{on_limit}", limit.domain)
        }
        None => "no limit".to_owned(),
    });
    parts.join(", ")
}

/// How tokens are counted, and what models without a price get.
fn tokens(tokens: &TokensConfig) -> String {
    let api = match tokens.api {
        ModelApi::OpenAi => "openai",
        ModelApi::Anthropic => "anthropic",
    };
    let table = match &tokens.prices {
        Some(PriceSource::Table(table)) => Some(table.clone()),
        Some(PriceSource::File(path)) => fs::read_to_string(path)
            .ok()
            .and_then(|text| read_prices(&Source { name: path.display().to_string(), text }).ok()),
        None => None,
    };
    let others = |table: &ModelTable| match table.has_default() {
        true => String::new(),
        false => ", other models are refused".to_owned(),
    };
    let prices = table.map(|table| {
        let models = counted(table.len(), "price");
        format!(", {models}{}", others(&table))
    });
    let weights = tokens.weights.as_ref().map(|table| {
        let models = counted(table.len(), "weight");
        format!(", {models}{}", others(table))
    });
    let max_output = tokens.max_output;
    let (prices, weights) = (prices.unwrap_or_default(), weights.unwrap_or_default());
    format!(", tokens of {api}, {max_output} without a maximum{prices}{weights}")
}

const fn credential(credential: Credential) -> &'static str {
    match credential {
        Credential::ApiKey => "an API key",
        Credential::Jwt => "a token",
        Credential::ClientCertificate => "a client certificate",
    }
}

/// The same as JSON.
pub(crate) fn json(config: &GatewayConfig) -> Value {
    let route = |index: usize| {
        let route = config.routes.get(index)?;
        let limit = route.limit.as_ref().map(|limit| {
            let by: Vec<String> =
                limit.mapping.descriptors.iter().map(ToString::to_string).collect();
            json!({ "domain": limit.domain, "descriptors": by })
        });
        let upstream = match &route.action {
            Action::Forward { upstream, .. } => config.upstreams.get(*upstream),
            _ => None,
        };
        Some(json!({
            "name": route.name,
            "hosts": route.hosts,
            "path": route.path,
            "methods": route.methods,
            "upstream": upstream.map(|one| &one.name),
            "limit": limit,
        }))
    };
    let listener = |one: &ListenerConfig| json!({ "address": one.address.to_string(), "tls": one.tls.is_some() });
    let upstream = |one: &UpstreamConfig| {
        let servers: Vec<String> = one.servers.iter().map(ToString::to_string).collect();
        json!({ "name": one.name, "servers": servers })
    };
    json!({
        "listeners": config.listeners.iter().map(listener).collect::<Value>(),
        "upstreams": config.upstreams.iter().map(upstream).collect::<Value>(),
        "routes": matching_order(&config.routes).into_iter().filter_map(route).collect::<Value>(),
    })
}
