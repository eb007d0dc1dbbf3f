//! Who is measured, and at which door.

use crate::asks;
use crate::redis;
use crate::servers::Kind;
use sluicegate_load::{Answer, Ask};

/// What is compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// gRPC: Envoy's rate limit service, or what the peer has in its place.
    Rls,
    /// The same with counters in Redis, where others may count on them too.
    Redis,
    /// The same for a hundred keys that everybody wants, at each level of consistency; beside the embedded store.
    Levels,
    /// A check over HTTP/1.1.
    Http,
    /// RESP, one command at a time.
    Resp1,
    /// RESP, sixteen in a row.
    Resp16,
}

/// One of them at one door.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    /// In the table.
    pub(crate) name: &'static str,
    pub(crate) door: Door,
    pub(crate) kind: Kind,
    /// What is asked for a key that may always go.
    pub(crate) ask: fn() -> Ask,
    /// What is asked for one that may three times and no more; who limits nothing has none.
    pub(crate) probe: Option<fn() -> Ask>,
    /// What everybody is answered once each key was seen.
    pub(crate) meant: Answer,
    /// So many keys, if not as many as for all others.
    pub(crate) keys: Option<u64>,
}

/// Ours at a door, to which the others of that door are compared.
pub(crate) const OURS: &str = "sluicegate";

/// Everybody, in the order of the tables.
pub(crate) fn all() -> Vec<Contestant> {
    let mut all = vec![
        one(OURS, Door::Rls, Kind::Sluicegate, asks::rls, Some(asks::rls_probe)),
        one(
            "envoyproxy/ratelimit + Redis",
            Door::Rls,
            Kind::Ratelimit,
            asks::rls,
            Some(asks::rls_probe),
        ),
        one(
            "throttlecrab-server",
            Door::Rls,
            Kind::ThrottlecrabGrpc,
            asks::crab_grpc,
            Some(asks::crab_grpc_probe),
        ),
        one("Gubernator", Door::Rls, Kind::Gubernator, asks::rls, None),
        one(OURS, Door::Http, Kind::Sluicegate, asks::check, Some(asks::check_probe)),
        one(
            "throttlecrab-server",
            Door::Http,
            Kind::ThrottlecrabHttp,
            asks::crab_http,
            Some(asks::crab_http_probe),
        ),
        one(
            "nginx limit_req, a small file",
            Door::Http,
            Kind::Nginx,
            asks::nginx,
            Some(asks::nginx_probe),
        ),
    ];
    for door in [Door::Resp1, Door::Resp16] {
        all.extend([
            one(OURS, door, Kind::Sluicegate, asks::cl_throttle, Some(asks::cl_throttle_probe)),
            one(
                "sluicegate SG.CHECK",
                door,
                Kind::Sluicegate,
                asks::sg_check,
                Some(asks::sg_check_probe),
            ),
            one("Redis INCR, no limit", door, Kind::Redis, asks::incr, None),
            one(
                "redis-cell",
                door,
                Kind::RedisCell,
                asks::cl_throttle,
                Some(asks::cl_throttle_probe),
            ),
            one(
                "throttlecrab-server",
                door,
                Kind::ThrottlecrabResp,
                asks::crab_resp,
                Some(asks::crab_resp_probe),
            ),
        ]);
    }
    all.extend(on_redis());
    all.extend(levels());
    all
}

/// A hundred hot keys: what each level costs, and what it asks of Redis.
fn levels() -> Vec<Contestant> {
    let one = |name, kind, ask| Contestant {
        keys: Some(100),
        ..one(name, Door::Levels, kind, ask, Some(redis::probe))
    };
    vec![
        one(OURS, Kind::InMemory, redis::hot_strict as fn() -> Ask),
        one("sluicegate, Redis, strict", Kind::OnRedis, redis::hot_strict),
        one("sluicegate, Redis, strict, hot keys leased", Kind::OnRedis, redis::hot_promoted),
        one("sluicegate, Redis, leased", Kind::OnRedis, redis::hot_leased),
        one("sluicegate, Redis, leased, two limits", Kind::OnRedis, redis::hot_leased_two),
        one("sluicegate, Redis, eventual", Kind::OnRedis, redis::hot_eventual),
    ]
}

/// All with counters in Redis.
fn on_redis() -> Vec<Contestant> {
    let ours = |name, ask| one(name, Door::Redis, Kind::OnRedis, ask, Some(redis::probe));
    let denied =
        |name| Contestant { meant: Answer::Denied, ..ours(name, redis::denied as fn() -> Ask) };
    let anchor = |name, kind| one(name, Door::Redis, kind, asks::rls, Some(asks::rls_probe));
    vec![
        ours(OURS, redis::one),
        ours("sluicegate, three buckets", redis::three),
        ours("sluicegate, three algorithms", redis::mixed),
        denied("sluicegate, all denied"),
        Contestant { keys: Some(100), ..denied("sluicegate, all denied, 100 keys") },
        anchor("sluicegate --compat envoy", Kind::OnEnvoysKeys),
        anchor("envoyproxy/ratelimit", Kind::Ratelimit),
        anchor("Limitador", Kind::Limitador),
    ]
}

fn one(
    name: &'static str,
    door: Door,
    kind: Kind,
    ask: fn() -> Ask,
    probe: Option<fn() -> Ask>,
) -> Contestant {
    Contestant { name, door, kind, ask, probe, meant: Answer::Allowed, keys: None }
}

// === impl Contestant ===

impl Contestant {
    /// For `--only`, and for the load to be told by.
    pub(crate) fn id(&self) -> String {
        format!("{} {}", self.door.name(), self.name)
    }
}

// === impl Door ===

impl Door {
    pub(crate) const ALL: [Self; 6] =
        [Self::Rls, Self::Redis, Self::Levels, Self::Http, Self::Resp1, Self::Resp16];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rls => "rls",
            Self::Redis => "redis",
            Self::Levels => "levels",
            Self::Http => "http",
            Self::Resp1 => "resp 1",
            Self::Resp16 => "resp 16",
        }
    }

    /// How many connections, and how many requests at once on each.
    pub(crate) const fn connections(self) -> (usize, usize) {
        match self {
            Self::Rls | Self::Redis | Self::Levels => (8, 32),
            Self::Http => (32, 1),
            Self::Resp1 => (50, 1),
            Self::Resp16 => (50, 16),
        }
    }

    /// What its table is headed by.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Rls => {
                "**gRPC** (Envoy's protocol; throttlecrab-server and Gubernator have their own): 8 connections with 32 calls each"
            }
            Self::Redis => {
                "**gRPC, counters in Redis**: Envoy's protocol, 8 connections with 32 calls each; CPU and memory of the service and its Redis together"
            }
            Self::Levels => {
                "**gRPC, a hundred hot keys at each level**: Envoy's protocol, 8 connections with 32 calls each; the first has its counters in its own memory; of the others CPU and memory of the service and its Redis together"
            }
            Self::Http => "**HTTP/1.1**: 32 connections",
            Self::Resp1 => {
                "**RESP, one command at a time**: 50 connections; `CL.THROTTLE` where nothing else is said"
            }
            Self::Resp16 => {
                "**RESP, sixteen commands in a row**: 50 connections; `CL.THROTTLE` where nothing else is said"
            }
        }
    }
}
