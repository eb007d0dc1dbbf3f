//! Proxies on one core, each with one limit per client address, before the same upstream: nginx
//! with a static response.
//!
//! Where there are but two cores, the upstream shares that of the load.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, ensure};
use sluicegate_load::{Amount, Plan};

use super::contestants::Endpoint;
use super::load::{self, unfilled};
use super::programs::Programs;
use super::requests::{self, PROBE_LIMIT, PROBES};
use super::servers::{self, Folder, LOAD_CORE, Running, SERVER_CORE, pinned};

/// How a proxy is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// `limit_req` by address.
    Nginx,
    /// A stick table by address.
    Haproxy,
    /// `local_ratelimit`: one bucket for all addresses.
    EnvoyLocal,
    /// With `sluicegate serve`.
    EnvoyRls,
    /// With envoyproxy/ratelimit and a Redis.
    EnvoyRatelimit,
    Gateway,
    GatewayUnlimited,
    /// With a feature in its file.
    GatewayWith(Feature),
    GatewayRedis,
}

/// A feature of the gateway beside the limit of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Rate limit headers in admitted responses.
    LimitHeaders,
    /// `on_limit: shape`; nothing waits, as the limit is not reached.
    Shape,
    /// `settle` by the status of the response.
    SettleStatus,
    /// `settle` by a field of the JSON response.
    SettleJson,
    /// A limit of the requests in flight of an address in place of the one of its rate.
    Concurrency,
    /// `concurrency: { adaptive: latency }` of the upstream, above the requests in flight.
    AdaptiveUpstream,
}

/// The limit of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Far above the load.
    High,
    /// [`PROBE_LIMIT`] in an hour.
    Probe,
}

/// Body of the upstream's response.
const BODY: &str = r#"{"text":"A small response of a hundred bytes, as an API may return it.","usage":{"total_tokens":1}} "#;

/// The core of the upstream.
pub(crate) fn upstream_core() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 { 2 } else { LOAD_CORE }
}

pub(super) fn upstream(programs: &Programs) -> anyhow::Result<Running> {
    servers::nginx(programs, upstream_core(), |_, address| {
        Ok(format!(
            "  server {{ listen {address} backlog=4096; default_type application/json; \
             location / {{ return 200 '{BODY}'; }} }}\n"
        ))
    })
}

// === impl Proxy ===

impl Proxy {
    /// Starts the proxy and its upstream, after a check that it limits at all.
    pub(super) fn start_probed(self, programs: &Programs) -> anyhow::Result<Running> {
        let upstream = upstream(programs)?;
        let probed = self.start(programs, upstream.address, Limit::Probe)?;
        let plan = load::plan(probed.address, requests::page(), 1, (1, 1));
        let plan = Plan { amount: Amount::Count(PROBES), ..unfilled(plan) };
        let allowed = load::run(&plan)?.allowed;
        let expected = match self {
            // The probe sends one request at a time.
            Self::GatewayUnlimited | Self::GatewayWith(Feature::Concurrency) => PROBES,
            _ => PROBE_LIMIT,
        };
        ensure!(allowed == expected, "{allowed} of {PROBES} requests passed, expected {expected}");
        drop(probed);
        let mut running = self.start(programs, upstream.address, Limit::High)?;
        running.upstream = Some(Box::new(upstream));
        Ok(running)
    }

    /// Starts the proxy.
    pub(super) fn start(
        self,
        programs: &Programs,
        upstream: SocketAddr,
        limit: Limit,
    ) -> anyhow::Result<Running> {
        match self {
            Self::Nginx => servers::nginx(programs, SERVER_CORE, |_, address| {
                Ok(nginx_directives(address, upstream, limit))
            }),
            Self::Haproxy => haproxy(programs, upstream, limit),
            Self::EnvoyLocal => {
                let (tokens, interval) = match limit {
                    Limit::High => (1_000_000, "1s"),
                    Limit::Probe => (PROBE_LIMIT, "3600s"),
                };
                let filter = envoy_local(tokens, interval);
                envoy(programs, upstream, &filter, "")
            }
            Self::EnvoyRls => {
                let folder = Folder::new(servers::free_address()?)?;
                let rules = folder.0.join("rules.yaml");
                fs::write(&rules, rls_rules(limit))?;
                let limiter = servers::sluicegate(&programs.sluicegate, &rules, Endpoint::Rls)?;
                Ok(envoy_rls(programs, upstream, limiter)?.within(folder))
            }
            Self::EnvoyRatelimit => {
                envoy_rls(programs, upstream, servers::ratelimit(programs, &rls_rules(limit))?)
            }
            Self::Gateway => announced(&mut limited(programs, upstream, limit)),
            Self::GatewayUnlimited => {
                let mut command = gateway(programs);
                announced(command.args(["--upstream", &format!("http://{upstream}")]))
            }
            Self::GatewayWith(feature) => {
                let folder = Folder::new(servers::free_address()?)?;
                let config = feature.config(&folder.0, upstream, limit)?;
                Ok(announced(gateway(programs).arg("--config").arg(config))?.within(folder))
            }
            Self::GatewayRedis => {
                let store = servers::redis(programs, None)?;
                let mut command = limited(programs, upstream, limit);
                command.args(["--store", &format!("redis://{}", store.address)]);
                command.env("SLUICEGATE_STORE_TIMEOUT", "1s");
                Ok(servers::ready_at(&mut command, "listen")?.with(store))
            }
        }
    }
}

/// `sluicegate gateway` on free ports.
pub(super) fn gateway(programs: &Programs) -> Command {
    let mut command = pinned(SERVER_CORE, &programs.sluicegate);
    command.args(["gateway", "--workers", "1", "--json"]).env("SLUICEGATE_LOG_LEVEL", "warn");
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command
}

fn limited(programs: &Programs, upstream: SocketAddr, limit: Limit) -> Command {
    let mut command = gateway(programs);
    command.args(["--upstream", &format!("http://{upstream}"), "--limit", rate(limit)]);
    command
}

pub(super) fn announced(command: &mut Command) -> anyhow::Result<Running> {
    Ok(servers::announced(command, ["listen"])?.0)
}

const fn rate(limit: Limit) -> &'static str {
    match limit {
        Limit::High => "1000000/s",
        Limit::Probe => "3/h",
    }
}

/// Rules of a rate limit service.
fn rls_rules(limit: Limit) -> String {
    let count = match limit {
        Limit::High => 1_000_000_000,
        Limit::Probe => PROBE_LIMIT,
    };
    format!(
        "domain: bench\ndescriptors:\n  - key: remote_address\n    \
         rate_limit: {{ unit: hour, requests_per_unit: {count} }}\n"
    )
}

/// The headers are those that the gateway sets.
fn nginx_directives(address: SocketAddr, upstream: SocketAddr, limit: Limit) -> String {
    let (rate, burst) = match limit {
        Limit::High => ("1000000r/s", 1_000_000),
        Limit::Probe => ("1r/m", PROBE_LIMIT - 1),
    };
    format!(
        "  limit_req_zone $binary_remote_addr zone=address:10m rate={rate};\n  \
         upstream page {{ server {upstream}; keepalive 512; keepalive_requests 1000000000; }}\n  \
         server {{\n    listen {address} backlog=4096;\n    location / {{\n      \
         limit_req zone=address burst={burst} nodelay;\n      proxy_pass http://page;\n      \
         proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      \
         proxy_set_header Host $host;\n      \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n      \
         proxy_set_header X-Forwarded-Proto $scheme;\n      \
         proxy_set_header X-Forwarded-Host $host;\n    }}\n  }}\n"
    )
}

fn haproxy(programs: &Programs, upstream: SocketAddr, limit: Limit) -> anyhow::Result<Running> {
    let path = programs.haproxy.as_deref().context("no haproxy")?;
    let address = servers::free_address()?;
    let folder = Folder::new(address)?;
    let (period, count) = match limit {
        Limit::High => ("1s", 1_000_000),
        Limit::Probe => ("1h", PROBE_LIMIT),
    };
    let config = format!(
        "global\n  nbthread 1\n  maxconn 8192\ndefaults\n  mode http\n  timeout connect 5s\n  \
         timeout client 75s\n  timeout server 75s\n\
         frontend front\n  bind {address} backlog 4096\n  option forwardfor\n  \
         stick-table type ip size 100k expire 1h store http_req_rate({period})\n  \
         http-request track-sc0 src\n  \
         http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {count} }}\n  \
         http-request set-header X-Forwarded-Proto http\n  \
         http-request set-header X-Forwarded-Host %[req.hdr(Host)]\n  default_backend page\n\
         backend page\n  http-reuse always\n  server page {upstream}\n"
    );
    let file = folder.0.join("haproxy.cfg");
    fs::write(&file, config)?;
    let mut command = pinned(SERVER_CORE, path);
    command.arg("-db").arg("-q").arg("-f").arg(file).stdout(Stdio::null());
    Running::new(servers::spawn(&mut command)?, address).within(folder).listening()
}

/// Envoy that asks a limiter, which is a part of the result.
fn envoy_rls(
    programs: &Programs,
    upstream: SocketAddr,
    limiter: Running,
) -> anyhow::Result<Running> {
    let filter = "          - name: envoy.filters.http.ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: bench
              failure_mode_deny: true
              timeout: 5s
              rate_limit_service:
                transport_api_version: V3
                grpc_service: { envoy_grpc: { cluster_name: limiter } }
";
    let cluster = format!(
        "  - name: limiter
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
{}",
        envoy_cluster("limiter", limiter.address)
    );
    Ok(envoy(programs, upstream, filter, &cluster)?.with(limiter))
}

fn envoy_local(tokens: u64, interval: &str) -> String {
    format!(
        "          - name: envoy.filters.http.local_ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket: {{ max_tokens: {tokens}, tokens_per_fill: {tokens}, fill_interval: {interval} }}
              filter_enabled: {{ default_value: {{ numerator: 100 }} }}
              filter_enforced: {{ default_value: {{ numerator: 100 }} }}
"
    )
}

/// The rest of a cluster, without Envoy's bound of 1024 connections and requests.
fn envoy_cluster(name: &str, address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!(
        "    circuit_breakers: {{ thresholds: [{{ max_connections: 100000, max_pending_requests: 100000, max_requests: 100000 }}] }}
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}
"
    )
}

/// Without statistics of its own making: no access log, request ids or Envoy's own headers.
pub(super) fn envoy(
    programs: &Programs,
    upstream: SocketAddr,
    filter: &str,
    clusters: &str,
) -> anyhow::Result<Running> {
    let path = programs.envoy.as_deref().context("no envoy")?;
    let address = servers::free_address()?;
    let folder = Folder::new(address)?;
    let (host, port) = (address.ip(), address.port());
    let page = envoy_cluster("page", upstream);
    let config = format!(
        "\
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: {host}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          use_remote_address: true
          generate_request_id: false
          server_header_transformation: PASS_THROUGH
          route_config:
            virtual_hosts:
            - name: page
              domains: [\"*\"]
              routes:
              - match: {{ prefix: / }}
                route:
                  cluster: page
                  timeout: 0s
                  rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}]
          http_filters:
{filter}          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              suppress_envoy_headers: true
  clusters:
  - name: page
    type: STATIC
{page}{clusters}"
    );
    let file = folder.0.join("envoy.yaml");
    fs::write(&file, config)?;
    let mut command = pinned(SERVER_CORE, path);
    command.arg("-c").arg(file).args(["--concurrency", "1", "--disable-hot-restart"]);
    command.args(["--log-level", "error"]).stdout(Stdio::null());
    Running::new(servers::spawn(&mut command)?, address).within(folder).listening()
}

// === impl Feature ===

impl Feature {
    /// The rule of `--limit` in a file, with the feature.
    fn config(self, home: &Path, upstream: SocketAddr, limit: Limit) -> anyhow::Result<PathBuf> {
        fs::write(home.join("rules.yaml"), self.rules(limit))?;
        let headers = if self == Self::LimitHeaders { "limit_headers: true\n" } else { "" };
        let concurrency = match self {
            Self::AdaptiveUpstream => ", concurrency: { adaptive: latency, min: 64, start: 100 }",
            _ => "",
        };
        let settle = match self {
            Self::SettleStatus => ", settle: [{ status: 200, cost: 1 }]",
            Self::SettleJson => ", settle: [{ cost: json usage.total_tokens }]",
            _ => "",
        };
        let config = format!(
            "rules: rules.yaml\n{headers}\
             upstreams: {{ page: {{ servers: \"http://{upstream}\"{concurrency} }} }}\n\
             routes:\n  - path: /*\n    upstream: page\n    \
             limit: {{ domain: bench, descriptors: [{{ remote_address: client_ip }}]{settle} }}\n"
        );
        let path = home.join("gateway.yaml");
        fs::write(&path, config)?;
        Ok(path)
    }

    fn rules(self, limit: Limit) -> String {
        let on_limit = if self == Self::Shape { "    on_limit: shape\n" } else { "" };
        let limits = match self {
            Self::Concurrency => "algorithm: concurrency, max: 1000, lease: 1m".to_owned(),
            _ => format!("algorithm: token_bucket, rate: {}", rate(limit)),
        };
        format!(
            "domain: bench\ndescriptors:\n  - key: remote_address\n    prefix: {{ v6: 64 }}\n\
             {on_limit}    limits: {{ {limits} }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() {
        for limit in [Limit::High, Limit::Probe] {
            let rules = rls_rules(limit);
            assert!(sluicegate::rules_of(&rules).is_ok(), "{rules}");
            for feature in [Feature::Shape, Feature::SettleJson, Feature::Concurrency] {
                let rules = feature.rules(limit);
                assert!(sluicegate::rules_of(&rules).is_ok(), "{rules}");
            }
        }
    }

    #[test]
    fn the_page_has_a_hundred_bytes_of_json() {
        assert_eq!(BODY.len(), 100);
        assert!(serde_json::from_str::<serde_json::Value>(BODY).is_ok());
    }
}
