//! Answers a request: route, limits, upstream.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response};
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
use crate::forward::{Forwarded, forward, host_of};
use crate::limit::{Decision, attributes, decide};
use crate::route::{Found, RouteError, RouteTable};
use crate::upstream::Upstream;

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
    upstreams: Vec<Upstream>,
    trusted_proxies: Proxies,
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
    /// Compiles a configuration. Servers that the previous one has too keep their state.
    pub(crate) fn new(
        config: &GatewayConfig,
        workers: usize,
        previous: Option<&Self>,
    ) -> Result<Self, RouteError> {
        let previous = |name: &str| {
            let mut upstreams = previous.into_iter().flat_map(|active| &active.upstreams);
            upstreams.find(|upstream| upstream.name() == name)
        };
        let upstream = |one: &UpstreamConfig| Upstream::new(one, workers, previous(&one.name));
        Ok(Self {
            table: RouteTable::new(&config.routes)?,
            routes: config.routes.clone(),
            upstreams: config.upstreams.iter().map(upstream).collect(),
            trusted_proxies: Proxies::new(config.trusted_proxies.clone()),
        })
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
        request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Result<Response<ResponseBody>, ProxyError> {
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
        let Action::Forward { upstream, .. } = &route.action else {
            return Err(ProxyError::NoRoute);
        };
        let upstream = active.upstreams.get(*upstream).ok_or(ProxyError::Unavailable)?;
        let request = Request::from_parts(head, RequestBody::new(body));
        let forwarded = Forwarded { peer: context.peer, is_trusted };
        let mut response = forward(upstream, self.worker, request, forwarded).await?;
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
        response.body_mut().keep(in_flight);
        response
    }
}
