//! Answers a request: route, limits, upstream.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use sluicegate::http::{HeaderLines, Style};
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::route::{Action, RouteConfig};
use sluicegate_config::gateway::upstream::UpstreamConfig;
use sluicegate_rules::mapping::Proxies;
use sluicegate_server::app::App;
use sluicegate_server::http::{Connection, Handler, InFlight};

use crate::body::{RequestBody, ResponseBody};
use crate::error::ProxyError;
use crate::forward::{Forwarding, forward, host_of, normalize};
use crate::limit::{Decision, attributes, decide};
use crate::route::{Found, RouteError, RouteTable};
use crate::upstream::{TlsOptionsError, Upstream, stable_hash};

/// What is known of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionContext {
    /// Address of the client.
    pub(crate) peer: Option<IpAddr>,
}

/// The configuration in force, compiled.
#[derive(Debug)]
pub(crate) struct Active {
    table: RouteTable,
    routes: Vec<RouteConfig>,
    upstreams: Vec<Arc<Upstream>>,
    trusted_proxies: Proxies,
    tunnel_idle: Duration,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// Routes cannot be combined.
    Route(RouteError),
    /// Options of an upstream cannot be used.
    Upstream(TlsOptionsError),
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
        Ok(Self {
            table,
            routes: config.routes.clone(),
            upstreams: config.upstreams.iter().map(upstream).collect::<Result<_, _>>()?,
            trusted_proxies: Proxies::new(config.trusted_proxies.clone()),
            tunnel_idle: config.timeouts.idle,
        })
    }

    /// The upstreams.
    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}

impl GatewayHandler {
    async fn answer(
        self,
        request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Response<ResponseBody> {
        let active = self.active.load_full();
        match self.serve(&active, request, context).await {
            Ok(response) => response,
            Err(error) => error.response(),
        }
    }

    async fn serve(
        &self,
        active: &Active,
        mut request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Result<Response<ResponseBody>, ProxyError> {
        if request.method() == Method::CONNECT {
            return Err(ProxyError::MethodNotAllowed);
        }
        normalize(request.uri_mut())?;
        let host = host_of(&request)?.to_ascii_lowercase();
        let host = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        let route = match active.table.find(host, request.uri().path(), request.method()) {
            Found::Route(index) => active.routes.get(index).ok_or(ProxyError::NoRoute)?,
            Found::OtherMethod => return Err(ProxyError::MethodNotAllowed),
            Found::None => return Err(ProxyError::NoRoute),
        };
        let (head, body) = request.into_parts();
        let is_trusted = context.peer.is_some_and(|peer| active.trusted_proxies.trust(peer));
        let mut limit_headers = None;
        if let Some(limit) = &route.limit {
            let lines = HeaderLines(&head.headers);
            let client = match context.peer {
                Some(peer) if is_trusted => Some(active.trusted_proxies.client_ip(peer, &lines)),
                peer => peer,
            };
            let attributes = attributes(&head, &lines, host, client);
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
                let client = match context.peer {
                    Some(peer) if is_trusted => {
                        Some(active.trusted_proxies.client_ip(peer, &lines))
                    }
                    peer => peer,
                };
                // A part that is no text is treated as missing: the limits have judged it.
                let value = part.value(&attributes(&head, &lines, host, client)).ok().flatten();
                value.map(|value| stable_hash(value.as_bytes()))
            }
        };
        let request = Request::from_parts(head, RequestBody::new(body));
        let forwarding = Forwarding {
            peer: context.peer,
            is_trusted,
            strip_prefix: strip_prefix.as_deref(),
            host: new_host.as_deref(),
            worker: self.worker,
            key,
            tunnel_idle: active.tunnel_idle,
        };
        let mut response = forward(upstream, request, forwarding).await?;
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
        Box::pin(self.clone().answer(request, connection.context))
    }

    fn overloaded(&self, _: &Request<Incoming>) -> Self::Response {
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
        response.body_mut().keep(in_flight);
        response
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(error) => error.fmt(f),
            Self::Upstream(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompileError {}
