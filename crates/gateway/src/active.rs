//! The configuration in force, compiled: routes, upstreams, access lists, identities.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use sluicegate::LimitError;
use sluicegate::http::HeaderLines;
use sluicegate_config::gateway::upstream::UpstreamConfig;
use sluicegate_config::gateway::{ClientTimeouts, GatewayConfig};
use sluicegate_rules::mapping::Proxies;

use crate::access_log::AccessLog;
use crate::acme::Challenges;
use crate::client_body::BodyLimits;
use crate::error::ProxyError;
use crate::identity::{Identities, IdentityError};
use crate::listener::access::{Access, AccessError, AccessList};
use crate::listener::limits::ConnectionLimiter;
use crate::metrics::{self, RouteMetrics, UNMATCHED};
use crate::route::{RouteError, RouteTable};
use crate::route_state::RouteState;
use crate::upstream::{TlsOptionsError, Upstream};

/// The configuration in force, compiled.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) table: RouteTable,
    pub(crate) routes: Vec<RouteState>,
    metrics: BTreeMap<Box<str>, Arc<RouteMetrics>>,
    /// Of requests without a route.
    pub(crate) unmatched: Arc<RouteMetrics>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) request_id: Option<HeaderName>,
    pub(crate) limit_headers: bool,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) trusted_proxies: Proxies,
    /// Of clients: for new connections, bodies and tunnels.
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) header_bytes_max: usize,
    pub(crate) access: AccessList,
    pub(crate) connection_limits: Arc<ConnectionLimiter>,
    pub(crate) body_limits: BodyLimits,
    pub(crate) identities: Identities,
    /// Of automatic certificates.
    pub(crate) challenges: Arc<Challenges>,
}

/// Why a configuration cannot be used.
#[derive(Debug)]
pub(crate) enum CompileError {
    /// Routes cannot be used.
    Routes(Vec<RouteError>),
    /// Options of an upstream cannot be used.
    Upstream(TlsOptionsError),
    /// An access list is invalid.
    Access(AccessError),
    /// A limit of connections is invalid.
    Connections(LimitError),
    /// Identities cannot be verified.
    Identity(IdentityError),
    /// Another option cannot be used.
    Option(String),
}

impl Active {
    /// Compiles a configuration. Servers of `previous` that are unchanged keep their connections
    /// and their health. Must be called within a Tokio runtime.
    pub(crate) fn new(
        config: &GatewayConfig,
        workers: usize,
        previous: Option<&Self>,
    ) -> Result<Self, CompileError> {
        let upstream = |config: &UpstreamConfig| {
            let mut known = previous.iter().flat_map(|previous| &previous.upstreams);
            let known = known.find(|upstream| upstream.name() == config.name);
            Upstream::new(config, workers, known).map_err(CompileError::Upstream)
        };
        let connection_limits = match previous.map(|previous| &previous.connection_limits) {
            Some(known) if known.is_of(&config.connections) => known.clone(),
            _ => Arc::new(
                ConnectionLimiter::new(&config.connections).map_err(CompileError::Connections)?,
            ),
        };
        let identities = previous.map(|previous| &previous.identities);
        let identities = Identities::new(config, workers, identities);
        let names = config.routes.iter().map(|route| route.name.as_str());
        let none = BTreeMap::new();
        let metrics = metrics::of_names(names, previous.map_or(&none, |one| &one.metrics));
        let of_name = |name: &str| {
            let known = metrics.get(name).cloned();
            known.unwrap_or_else(|| RouteMetrics::new(name))
        };
        let (mut routes, mut errors) = (Vec::new(), Vec::new());
        for (index, route) in config.routes.iter().enumerate() {
            match RouteState::new(index, route, of_name(&route.name)) {
                Ok(route) => routes.push(route),
                Err(found) => errors.extend(found),
            }
        }
        let table = match RouteTable::new(&config.routes) {
            Ok(table) if errors.is_empty() => table,
            table => {
                errors.extend(table.err().into_iter().flatten());
                return Err(CompileError::Routes(errors));
            }
        };
        let access_log = match &config.access_log {
            None => None,
            Some(log) => {
                let known = previous.and_then(|previous| previous.access_log.as_ref());
                Some(match known.filter(|known| known.is_of(log)) {
                    Some(known) => known.clone(),
                    None => AccessLog::open(log).map_err(CompileError::Option)?,
                })
            }
        };
        let request_id = config.request_id.as_ref().map(|name| {
            let name = HeaderName::from_bytes(name.as_bytes());
            name.map_err(|_| CompileError::Option("request_id: not the name of a header".into()))
        });
        Ok(Self {
            table,
            routes,
            unmatched: of_name(UNMATCHED),
            metrics,
            access_log,
            request_id: request_id.transpose()?,
            limit_headers: config.limit_headers,
            upstreams: config.upstreams.iter().map(upstream).collect::<Result<_, _>>()?,
            trusted_proxies: Proxies::new(config.trusted_proxies.clone()),
            timeouts: config.timeouts,
            header_bytes_max: config.header_bytes_max,
            access: AccessList::new(&config.access).map_err(CompileError::Access)?,
            connection_limits,
            body_limits: BodyLimits {
                bytes_max: config.body_bytes_max.unwrap_or(u64::MAX),
                timeout: config.timeouts.body,
            },
            identities: identities.map_err(CompileError::Identity)?,
            challenges: previous.map(|previous| previous.challenges.clone()).unwrap_or_default(),
        })
    }

    /// Metrics of the routes.
    pub(crate) fn route_metrics(&self) -> impl Iterator<Item = &RouteMetrics> {
        self.metrics.values().map(|metrics| &**metrics)
    }

    /// Whether the client behind a trusted proxy is exempt from limits.
    pub(crate) fn is_exempt(
        &self,
        peer: Option<IpAddr>,
        lines: &HeaderLines<'_>,
    ) -> Result<bool, ProxyError> {
        let Some(peer) = peer else { return Ok(false) };
        match self.access.find(self.trusted_proxies.client_ip(peer, lines)) {
            Some(Access::Denied) => Err(ProxyError::Forbidden),
            access => Ok(access == Some(Access::Allowed)),
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Routes(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Upstream(error) => error.fmt(f),
            Self::Option(message) => f.write_str(message),
            Self::Access(error) => write!(f, "access: {error}"),
            Self::Connections(error) => write!(f, "connections: {error}"),
            Self::Identity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompileError {}
