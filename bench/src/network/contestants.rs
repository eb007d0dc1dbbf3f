//! The contestants: server, endpoint and request.

use sluicegate_load::{Answer, RequestSpec};

use super::proxies::{Feature, Proxy};
use super::requests;
use super::servers::ServerKind;
use super::store;
use crate::Common;

/// What is compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Endpoint {
    /// gRPC: Envoy's rate limit service, or what the peer has in its place.
    Rls,
    /// The same with counters in Redis.
    Redis,
    /// The same for a hundred hot keys, at each consistency level; beside the memory store.
    Levels,
    /// A check over HTTP/1.1.
    Http,
    /// RESP, one command at a time.
    Resp1,
    /// RESP, pipelines of sixteen.
    Resp16,
    /// A page behind a proxy with one limit per address, over HTTP/1.1.
    Gateway,
    /// The same with the counter in Redis.
    GatewayRedis,
}

/// A server and a request to one of its endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: ServerKind,
    /// For a key that is always allowed (or always denied).
    pub(crate) request: fn() -> RequestSpec,
    /// `None` for servers without limits.
    pub(crate) probe: Probe,
    /// The answer of every request after the fill.
    pub(crate) expected: Answer,
    /// Number of keys, unless the default.
    pub(crate) keys: Option<u64>,
}

/// A request for a key with a limit of three.
type Probe = Option<fn() -> RequestSpec>;

pub(crate) const OURS: &str = "sluicegate";
pub(crate) const OTHER: &str = "sluicegate, other build";
pub(crate) const STUB: &str = "stub";
pub(crate) const TONIC: &str = "tonic";
pub(crate) const HELLO: &str = "axum hello";
pub(crate) const THROTTLECRAB: &str = "throttlecrab-server";
pub(crate) const NGINX: &str = "nginx limit_req";
pub(crate) const HAPROXY: &str = "HAProxy, stick table";
pub(crate) const ENVOY_RLS: &str = "Envoy + sluicegate serve";
pub(crate) const GATEWAY: &str = "gateway";
pub(crate) const UNLIMITED: &str = "gateway, no limit";
pub(crate) const GATEWAY_REDIS: &str = "gateway + Redis";

/// Every contestant, for the load to find by its id.
pub(crate) fn all() -> Vec<Contestant> {
    [service(), doors(), gateway()].concat()
}

/// Contestants of `gateway`, in the order of the tables.
pub(crate) fn gateway() -> Vec<Contestant> {
    let page = |name, endpoint, proxy| Contestant {
        keys: Some(1),
        ..one(name, endpoint, ServerKind::Proxy(proxy), requests::page, None)
    };
    let with = Proxy::GatewayWith;
    let all = [
        (NGINX, Proxy::Nginx),
        (HAPROXY, Proxy::Haproxy),
        ("Envoy local_ratelimit", Proxy::EnvoyLocal),
        (ENVOY_RLS, Proxy::EnvoyRls),
        (GATEWAY, Proxy::Gateway),
        (UNLIMITED, Proxy::GatewayUnlimited),
        ("gateway, limit headers", with(Feature::LimitHeaders)),
        ("gateway, shape", with(Feature::Shape)),
        ("gateway, settled by status", with(Feature::SettleStatus)),
        ("gateway, settled by JSON field", with(Feature::SettleJson)),
        ("gateway, requests in flight of an address", with(Feature::Concurrency)),
        ("gateway, adaptive limit of the upstream", with(Feature::AdaptiveUpstream)),
    ];
    let on_redis = [
        (GATEWAY_REDIS, Proxy::GatewayRedis),
        ("Envoy + envoyproxy/ratelimit + Redis", Proxy::EnvoyRatelimit),
    ];
    let all = all.into_iter().map(|(name, proxy)| page(name, Endpoint::Gateway, proxy));
    all.chain(on_redis.map(|(name, proxy)| page(name, Endpoint::GatewayRedis, proxy))).collect()
}

/// Contestants of `service`, in the order of the tables.
pub(crate) fn service() -> Vec<Contestant> {
    let rls = |name, server, probe| one(name, Endpoint::Rls, server, requests::rls, probe);
    let http = |name, server, request, probe| one(name, Endpoint::Http, server, request, probe);
    let (rls_probe, check_probe): (Probe, Probe) =
        (Some(requests::rls_probe), Some(requests::check_probe));
    vec![
        rls(STUB, ServerKind::Baseline("stub"), None),
        rls(OURS, ServerKind::Sluicegate, rls_probe),
        rls(OTHER, ServerKind::OtherBuild, rls_probe),
        rls(TONIC, ServerKind::Baseline("tonic"), rls_probe),
        one(
            THROTTLECRAB,
            Endpoint::Rls,
            ServerKind::ThrottlecrabGrpc,
            requests::crab_grpc,
            Some(requests::crab_grpc_probe),
        ),
        http(HELLO, ServerKind::Baseline("hello"), requests::hello, None),
        http(OURS, ServerKind::Sluicegate, requests::check, check_probe),
        http(OTHER, ServerKind::OtherBuild, requests::check, check_probe),
        http(
            THROTTLECRAB,
            ServerKind::ThrottlecrabHttp,
            requests::crab_http,
            Some(requests::crab_http_probe),
        ),
    ]
}

/// Contestants of `doors`, in the order of the tables.
pub(crate) fn doors() -> Vec<Contestant> {
    let mut all = vec![
        one(OURS, Endpoint::Rls, ServerKind::Sluicegate, requests::rls, Some(requests::rls_probe)),
        one(
            "envoyproxy/ratelimit + Redis",
            Endpoint::Rls,
            ServerKind::Ratelimit,
            requests::rls,
            Some(requests::rls_probe),
        ),
        one(
            THROTTLECRAB,
            Endpoint::Rls,
            ServerKind::ThrottlecrabGrpc,
            requests::crab_grpc,
            Some(requests::crab_grpc_probe),
        ),
        one("Gubernator", Endpoint::Rls, ServerKind::Gubernator, requests::rls, None),
        one(
            OURS,
            Endpoint::Http,
            ServerKind::Sluicegate,
            requests::check,
            Some(requests::check_probe),
        ),
        one(
            THROTTLECRAB,
            Endpoint::Http,
            ServerKind::ThrottlecrabHttp,
            requests::crab_http,
            Some(requests::crab_http_probe),
        ),
        one(
            "nginx limit_req, a small file",
            Endpoint::Http,
            ServerKind::Nginx,
            requests::nginx,
            Some(requests::nginx_probe),
        ),
    ];
    for endpoint in [Endpoint::Resp1, Endpoint::Resp16] {
        all.extend([
            one(
                OURS,
                endpoint,
                ServerKind::Sluicegate,
                requests::cl_throttle,
                Some(requests::cl_throttle_probe),
            ),
            one(
                "sluicegate SG.CHECK",
                endpoint,
                ServerKind::Sluicegate,
                requests::sg_check,
                Some(requests::sg_check_probe),
            ),
            one("Redis INCR, no limit", endpoint, ServerKind::Redis, requests::incr, None),
            one(
                "redis-cell",
                endpoint,
                ServerKind::RedisCell,
                requests::cl_throttle,
                Some(requests::cl_throttle_probe),
            ),
            one(
                THROTTLECRAB,
                endpoint,
                ServerKind::ThrottlecrabResp,
                requests::crab_resp,
                Some(requests::crab_resp_probe),
            ),
        ]);
    }
    all.extend(on_redis());
    all.extend(levels());
    all
}

/// A hundred hot keys at each consistency level.
fn levels() -> Vec<Contestant> {
    let one = |name, kind, ask| Contestant {
        keys: Some(100),
        ..one(name, Endpoint::Levels, kind, ask, Some(store::probe))
    };
    vec![
        one(OURS, ServerKind::InMemory, store::hot_strict as fn() -> RequestSpec),
        one("sluicegate, Redis, strict", ServerKind::OnRedis, store::hot_strict),
        one("sluicegate, Redis, strict, hot keys leased", ServerKind::OnRedis, store::hot_promoted),
        one("sluicegate, Redis, leased", ServerKind::OnRedis, store::hot_leased),
        one("sluicegate, Redis, leased, two limits", ServerKind::OnRedis, store::hot_leased_two),
        one("sluicegate, Redis, eventual", ServerKind::OnRedis, store::hot_eventual),
    ]
}

/// Counters in Redis.
fn on_redis() -> Vec<Contestant> {
    let ours = |name, ask| one(name, Endpoint::Redis, ServerKind::OnRedis, ask, Some(store::probe));
    let denied = |name| Contestant {
        expected: Answer::Denied,
        ..ours(name, store::denied as fn() -> RequestSpec)
    };
    let anchor =
        |name, kind| one(name, Endpoint::Redis, kind, requests::rls, Some(requests::rls_probe));
    vec![
        ours(OURS, store::one),
        ours("sluicegate, three buckets", store::three),
        ours("sluicegate, three algorithms", store::mixed),
        denied("sluicegate, all denied"),
        Contestant { keys: Some(100), ..denied("sluicegate, all denied, 100 keys") },
        anchor("sluicegate --compat envoy", ServerKind::OnEnvoysKeys),
        anchor("envoyproxy/ratelimit", ServerKind::Ratelimit),
        anchor("Limitador", ServerKind::Limitador),
    ]
}

fn one(
    name: &'static str,
    endpoint: Endpoint,
    server: ServerKind,
    request: fn() -> RequestSpec,
    probe: Probe,
) -> Contestant {
    Contestant { name, endpoint, server, request, probe, expected: Answer::Allowed, keys: None }
}

// === impl Contestant ===

impl Contestant {
    /// The name for `--only` and for the load.
    pub(crate) fn id(&self) -> String {
        format!("{} {}", self.endpoint.name(), self.name)
    }

    /// Whether `--only` selects it, by endpoint or by a part of its id.
    pub(crate) fn is_selected(&self, common: &Common) -> bool {
        let selects = |text: &String| match Endpoint::ALL.iter().find(|one| one.name() == text) {
            Some(endpoint) => self.endpoint == *endpoint,
            None => self.id().contains(text.as_str()),
        };
        common.only.is_empty() || common.only.iter().any(selects)
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) const ALL: [Self; 8] = [
        Self::Rls,
        Self::Redis,
        Self::Levels,
        Self::Http,
        Self::Resp1,
        Self::Resp16,
        Self::Gateway,
        Self::GatewayRedis,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rls => "rls",
            Self::Redis => "redis",
            Self::Levels => "levels",
            Self::Http => "http",
            Self::Resp1 => "resp 1",
            Self::Resp16 => "resp 16",
            Self::Gateway => "gateway",
            Self::GatewayRedis => "gateway redis",
        }
    }

    /// The name of its address in the output of `sluicegate serve --json`.
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self::Rls | Self::Redis | Self::Levels => "grpc",
            Self::Http => "http",
            Self::Resp1 | Self::Resp16 => "resp",
            Self::Gateway | Self::GatewayRedis => "listen",
        }
    }

    /// Connections, and requests in flight on each.
    pub(crate) const fn connections(self) -> (usize, usize) {
        match self {
            Self::Rls | Self::Redis | Self::Levels => (8, 32),
            Self::Http | Self::Gateway | Self::GatewayRedis => (32, 1),
            Self::Resp1 => (50, 1),
            Self::Resp16 => (50, 16),
        }
    }

    /// Heading of the table.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Rls => {
                "**gRPC** (Envoy's protocol; throttlecrab-server and Gubernator have their own): 8 connections with 32 streams each"
            }
            Self::Redis => {
                "**gRPC, counters in Redis**: Envoy's protocol, 8 connections with 32 streams each; CPU and memory include Redis"
            }
            Self::Levels => {
                "**gRPC, a hundred hot keys at each level**: Envoy's protocol, 8 connections with 32 streams each; the first has its counters in memory; for the others CPU and memory include Redis"
            }
            Self::Http => "**HTTP/1.1**: 32 connections",
            Self::Resp1 => {
                "**RESP, one command at a time**: 50 connections; `CL.THROTTLE` unless named otherwise"
            }
            Self::Resp16 => {
                "**RESP, pipelines of sixteen commands**: 50 connections; `CL.THROTTLE` unless named otherwise"
            }
            Self::Gateway => {
                "**A page of 100 bytes behind a proxy**, one limit per client address: 32 connections; then at half of its own rate"
            }
            Self::GatewayRedis => {
                "**The same, counted in Redis**: CPU and memory of the proxy, the limiter and Redis"
            }
        }
    }
}
