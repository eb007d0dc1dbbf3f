//! Answers a request: route, limits, upstream.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use sluicegate::LimitError;
use sluicegate::http::{HeaderLines, Style};
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::route::{Action, RouteConfig};
use sluicegate_config::gateway::upstream::UpstreamConfig;
use sluicegate_rules::mapping::Proxies;
use sluicegate_server::app::App;
use sluicegate_server::http::{Connection, Handler, InFlight};

use crate::body::{RequestBody, ResponseBody};
use crate::client_body::BodyLimits;
use crate::error::ProxyError;
use crate::forward::{Forwarding, forward, host_of, normalize};
use crate::identity::{Identities, IdentityError};
use crate::limit::{Decision, attributes, decide};
use crate::listener::access::{Access, AccessError, AccessList};
use crate::listener::certificate::ClientCertificate;
use crate::listener::limits::ConnectionLimiter;
use crate::listener::redirect::{HttpsPort, redirect_to_https};
use crate::route::{Found, RouteError, RouteTable};
use crate::upstream::{TlsOptionsError, Upstream, stable_hash};

/// What is known of a connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionContext {
    /// Address of the client, or of the proxy in front of it.
    pub(crate) peer: Option<IpAddr>,
    /// Whether an access list exempts it from limits.
    pub(crate) is_exempt: bool,
    /// Whether it is encrypted.
    pub(crate) is_tls: bool,
    /// Redirects every request to `https`.
    pub(crate) redirect: Option<HttpsPort>,
    /// The verified certificate of the client.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// JA4 of the TLS client, if a route uses it.
    pub(crate) ja4: Option<Arc<str>>,
}

impl ConnectionContext {
    /// The client of its verified certificate.
    pub(crate) fn client_certificate(&self) -> Option<&str> {
        self.certificate.as_ref().map(|certificate| certificate.identity())
    }
}

/// The configuration in force, compiled.
#[derive(Debug)]
pub(crate) struct Active {
    table: RouteTable,
    routes: Vec<RouteConfig>,
    upstreams: Vec<Arc<Upstream>>,
    trusted_proxies: Proxies,
    tunnel_idle: Duration,
    pub(crate) access: AccessList,
    pub(crate) connection_limits: Arc<ConnectionLimiter>,
    body_limits: BodyLimits,
    pub(crate) identities: Identities,
}

/// Why a configuration cannot be used.
#[derive(Debug)]
pub(crate) enum CompileError {
    /// Routes cannot be combined.
    Route(RouteError),
    /// Options of an upstream cannot be used.
    Upstream(TlsOptionsError),
    /// An access list is invalid.
    Access(AccessError),
    /// A limit of connections is invalid.
    Connections(LimitError),
    /// Identities cannot be verified.
    Identity(IdentityError),
}

/// The handler of one worker.
#[derive(Debug, Clone)]
pub(crate) struct GatewayHandler {
    pub(crate) app: App,
    pub(crate) active: Arc<ArcSwap<Active>>,
    pub(crate) style: Style,
    pub(crate) worker: usize,
}

impl Active {
    /// Compiles a configuration. Servers of `previous` that are unchanged keep their connections
    /// and their health. Must be called within a Tokio runtime.
    pub(crate) fn new(
        config: &GatewayConfig,
        workers: usize,
        previous: Option<&Self>,
    ) -> Result<Self, CompileError> {
        let table = RouteTable::new(&config.routes).map_err(CompileError::Route)?;
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
        Ok(Self {
            table,
            routes: config.routes.clone(),
            upstreams: config.upstreams.iter().map(upstream).collect::<Result<_, _>>()?,
            trusted_proxies: Proxies::new(config.trusted_proxies.clone()),
            tunnel_idle: config.timeouts.idle,
            access: AccessList::new(&config.access).map_err(CompileError::Access)?,
            connection_limits,
            body_limits: BodyLimits {
                bytes_max: config.body_bytes_max.unwrap_or(u64::MAX),
                timeout: config.timeouts.body,
            },
            identities: identities.map_err(CompileError::Identity)?,
        })
    }

    /// The upstreams.
    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}

impl Active {
    /// Whether the client behind a trusted proxy is exempt from limits.
    fn is_exempt(&self, peer: Option<IpAddr>, lines: &HeaderLines<'_>) -> Result<bool, ProxyError> {
        let Some(peer) = peer else { return Ok(false) };
        match self.access.find(self.trusted_proxies.client_ip(peer, lines)) {
            Some(Access::Denied) => Err(ProxyError::Forbidden),
            access => Ok(access == Some(Access::Allowed)),
        }
    }
}

impl GatewayHandler {
    async fn answer(
        self,
        request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Response<ResponseBody> {
        let active = self.active.load_full();
        let has_body = !request.body().is_end_stream();
        let served = self.serve(&active, request, context).await;
        let mut response = served.unwrap_or_else(ProxyError::response);
        if has_body {
            response.body_mut().leave_request_body();
        }
        response
    }

    async fn serve(
        &self,
        active: &Active,
        mut request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Result<Response<ResponseBody>, ProxyError> {
        if let Some(port) = context.redirect
            && let Some(redirect) = redirect_to_https(&request, port)?
        {
            return Ok(redirect);
        }
        if request.method() == Method::CONNECT {
            return Err(ProxyError::MethodNotAllowed);
        }
        normalize(request.uri_mut())?;
        let host = host_of(&request)?.to_ascii_lowercase();
        let host = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        let found = active.table.find(host, request.uri().path(), request.method());
        let (index, route) = match found {
            Found::Route(index) => (index, active.routes.get(index).ok_or(ProxyError::NoRoute)?),
            Found::OtherMethod => return Err(ProxyError::MethodNotAllowed),
            Found::None => return Err(ProxyError::NoRoute),
        };
        let (mut head, body) = request.into_parts();
        let (mut body, outcome) = RequestBody::new(body, active.body_limits)?;
        let is_trusted = context.peer.is_some_and(|peer| active.trusted_proxies.trust(peer));
        let mut is_exempt = context.is_exempt;
        if is_trusted && !active.access.is_empty() {
            is_exempt = active.is_exempt(context.peer, &HeaderLines(&head.headers))?;
        }
        let client = match context.peer {
            Some(peer) if is_trusted => {
                Some(active.trusted_proxies.client_ip(peer, &HeaderLines(&head.headers)))
            }
            peer => peer,
        };
        let identified = active
            .identities
            .identify((index, route), &head, &mut body, &context, client, self.worker)
            .await;
        let identity = identified
            .map_err(|error| outcome.as_ref().and_then(|it| it.error()).unwrap_or(error))?;
        let mut limit_headers = None;
        if let Some(limit) = route.limit.as_ref().filter(|_| !is_exempt) {
            let lines = HeaderLines(&head.headers);
            let attributes = attributes(&head, &lines, host, client, &identity);
            match decide(&self.app, &self.style, limit, &head, &attributes).await? {
                Decision::Denied(response) => return Ok(response),
                Decision::Admitted(headers) => limit_headers = Some(headers),
            }
        }
        let Action::Forward { upstream, strip_prefix, host: new_host } = &route.action else {
            return Err(ProxyError::NoRoute);
        };
        let upstream = active.upstreams.get(*upstream).ok_or(ProxyError::Unavailable)?;
        let key = match upstream.hash_part() {
            None => None,
            Some(part) => {
                let lines = HeaderLines(&head.headers);
                let attributes = attributes(&head, &lines, host, client, &identity);
                // A part that is no text is treated as missing: the limits have judged it.
                let value = part.value(&attributes).ok().flatten();
                value.map(|value| stable_hash(value.as_bytes()))
            }
        };
        identity.strip(&mut head);
        let request = Request::from_parts(head, body);
        let forwarding = Forwarding {
            peer: context.peer,
            is_trusted,
            is_tls: context.is_tls,
            strip_prefix: strip_prefix.as_deref(),
            host: new_host.as_deref(),
            worker: self.worker,
            key,
            tunnel_idle: active.tunnel_idle,
        };
        let forwarded = forward(upstream, request, forwarding).await;
        let mut response =
            forwarded.map_err(|error| outcome.and_then(|it| it.error()).unwrap_or(error))?;
        if let Some(headers) = limit_headers {
            response.headers_mut().extend(headers);
        }
        Ok(response)
    }
}

impl Handler for GatewayHandler {
    type Context = ConnectionContext;
    type Future = Pin<Box<dyn Future<Output = Self::Response> + Send>>;
    type Response = Response<ResponseBody>;
    type Body = ResponseBody;

    fn call(
        &self,
        request: Request<Incoming>,
        connection: &Connection<ConnectionContext>,
    ) -> Self::Future {
        Box::pin(self.clone().answer(request, connection.context.clone()))
    }

    fn overloaded(&self, _: &Request<Incoming>, _: &App) -> Self::Response {
        ProxyError::Overload.response()
    }

    fn send(
        &self,
        mut response: Self::Response,
        in_flight: InFlight<ConnectionContext>,
    ) -> Response<ResponseBody> {
        if let Some(tunnel) = response.body_mut().take_tunnel() {
            in_flight.connection().set_tunnel(Box::pin(tunnel.run()));
        }
        if response.body().leaves_request_body() {
            in_flight.connection().discard_body();
        }
        response.body_mut().attach(in_flight);
        response
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(error) => error.fmt(f),
            Self::Upstream(error) => error.fmt(f),
            Self::Access(error) => write!(f, "access: {error}"),
            Self::Connections(error) => write!(f, "connections: {error}"),
            Self::Identity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompileError {}
