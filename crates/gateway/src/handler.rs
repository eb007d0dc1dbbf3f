//! Answers a request: route, limits, upstream.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method, Request, Response, Version};
use sluicegate::http::HeaderLines;
use sluicegate_config::gateway::route::{Action, OnLimit};
use sluicegate_server::app::App;
use sluicegate_server::http::{Connection, Handler, HttpLimits, InFlight, IncomingBody, OnUpgrade};
use tokio::time::Instant;
use tracing::warn;

use crate::acme;
use crate::active::Active;
use crate::body::{RequestBody, ResponseBody};
use crate::deferred::{Deferrals, Destination, accept};
use crate::denial::DenialStyle;
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::forward::{
    Forwarding, LoosePath, check_transfer_encoding, forward, host_of, join_cookies, name_of,
    normalize, remove_named_by_connection,
};
use crate::header_changes::{Placeholders, request_id};
use crate::limit::{
    Admission, Decision, EXCEEDED, LimitOptions, LimitedRequest, attributes, decide,
};
use crate::listener::certificate::ClientCertificate;
use crate::listener::redirect::{HttpsPort, redirect_to_https};
use crate::metrics::RequestVerdict;
use crate::route::Found;
use crate::route_state::RouteState;
use crate::shape::Queues;
use crate::tokens::remove_provider_limits;
use crate::upstream::{UpstreamRequest, stable_hash};

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

/// The handler of one worker.
#[derive(Debug, Clone)]
pub(crate) struct GatewayHandler {
    pub(crate) app: App,
    pub(crate) active: Arc<ArcSwap<Active>>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) deferrals: Option<Arc<Deferrals>>,
    pub(crate) style: DenialStyle,
    pub(crate) worker: usize,
}

impl GatewayHandler {
    async fn answer(
        self,
        request: Request<IncomingBody>,
        context: ConnectionContext,
    ) -> Response<ResponseBody> {
        let active = self.active.load_full();
        let mut exchange = Exchange::begin(&self.app, active.access_log.as_ref(), &request);
        let (head, body) = request.into_parts();
        let mut request =
            UpstreamRequest { head, body: RequestBody::new(body, active.body_limits) };
        let served = self.serve(&active, &mut request, &context, &mut exchange).await;
        let mut response = served.unwrap_or_else(|error| {
            exchange.fail(error);
            error.response()
        });
        if !exchange.has_route() {
            exchange.set_route(&active.unmatched);
        }
        exchange.respond(response.status());
        response.body_mut().set_exchange(exchange);
        response
    }

    /// Finds the route of a request.
    async fn serve(
        &self,
        active: &Active,
        request: &mut UpstreamRequest,
        context: &ConnectionContext,
        exchange: &mut Exchange,
    ) -> Result<Response<ResponseBody>, ProxyError> {
        let head = &mut request.head;
        exchange.set_client(context.peer, "");
        if !context.is_tls
            && active.challenges.is_used()
            && head.uri.path().starts_with(acme::PATH)
            // Boxed, as it is rare.
            && let Some(response) = Box::pin(active.challenges.answer(head)).await
        {
            return Ok(response);
        }
        if let Some(port) = context.redirect
            && let Some(redirect) = redirect_to_https(head, port)?
        {
            return Ok(redirect);
        }
        if head.method == Method::CONNECT {
            return Err(ProxyError::MethodNotAllowed);
        }
        if let Some(deferrals) = &self.deferrals
            && head.uri.path().starts_with(deferrals.tickets_path())
            && let Some(response) = Box::pin(deferrals.answer(&self.app, head)).await
        {
            return Ok(response);
        }
        match head.version {
            Version::HTTP_2 => join_cookies(&mut head.headers),
            _ => remove_named_by_connection(&mut head.headers),
        }
        let path = normalize(&mut head.uri)?;
        let host = host_of(head)?.to_ascii_lowercase();
        let host = name_of(&host).unwrap_or_default();
        let is_trusted = context.peer.is_some_and(|peer| active.trusted_proxies.trust(peer));
        let client = match context.peer {
            Some(peer) if is_trusted => {
                Some(active.trusted_proxies.client_ip(peer, &HeaderLines(&head.headers)))
            }
            peer => peer,
        };
        exchange.set_client(client, host);
        let found = active.table.find(host, path.decoded(&head.uri), &head.method);
        if let Some(mut loose) = path.into_loose() {
            if active.table.find(host, &loose, &head.method) != found {
                return Err(ProxyError::BadRequest("The path can be read as that of two routes."));
            }
            loose.extend(head.uri.query().into_iter().flat_map(|query| ["?", query]));
            head.extensions.insert(LoosePath(loose));
        }
        let (index, route) = match found {
            Found::Route(index) => (index, active.routes.get(index).ok_or(ProxyError::NoRoute)?),
            Found::OtherMethod => return Err(ProxyError::MethodNotAllowed),
            Found::None => return Err(ProxyError::NoRoute),
        };
        exchange.set_route(&route.metrics);
        let request_id = active.request_id.as_ref().map(|name| {
            let id = request_id(&head.headers, name, is_trusted);
            exchange.set_request_id(&id);
            head.headers.insert(name, id.clone());
            id
        });
        let request_id = request_id.as_ref();
        let values = Placeholders { client, request_id, host };
        let served = self.serve_route(
            active,
            (index, route),
            request,
            context,
            is_trusted,
            values,
            exchange,
        );
        let served = served.await;
        if route.response_headers.is_none() && request_id.is_none() {
            return served;
        }
        let mut response = served.unwrap_or_else(|error| {
            exchange.fail(error);
            error.response()
        });
        if let Some((name, id)) = active.request_id.as_ref().zip(request_id) {
            response.headers_mut().insert(name, id.clone());
        }
        if let Some(edits) = &route.response_headers {
            edits.apply(response.headers_mut(), values);
        }
        Ok(response)
    }

    /// Serves a request of a route.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    async fn serve_route(
        &self,
        active: &Active,
        (index, route): (usize, &RouteState),
        request: &mut UpstreamRequest,
        context: &ConnectionContext,
        is_trusted: bool,
        values: Placeholders<'_>,
        exchange: &mut Exchange,
    ) -> Result<Response<ResponseBody>, ProxyError> {
        let Placeholders { client, host, .. } = values;
        let UpstreamRequest { head, body } = &mut *request;
        if !body.is_empty() {
            check_transfer_encoding(&head.headers)?;
        }
        body.check_length()?;
        let outcome = body.outcome();
        let mut is_exempt = context.is_exempt;
        if is_trusted && !active.access.is_empty() {
            is_exempt = active.is_exempt(context.peer, &HeaderLines(&head.headers))?;
        }
        let identified = active
            .identities
            .identify((index, &route.config), head, body, context, client, self.worker)
            .await;
        let identity = identified
            .map_err(|error| outcome.as_ref().and_then(|it| it.error()).unwrap_or(error))?;
        let mut admission = Admission::default();
        let mut deferral = None;
        if is_exempt {
            exchange.set_verdict(RequestVerdict::Exempt);
        } else if let Some(limit) = &route.config.limit {
            let lines = HeaderLines(&head.headers);
            let attributes = attributes(head, &lines, host, client, &identity);
            let options = LimitOptions {
                app: &self.app,
                style: &self.style,
                queues: &self.queues,
                limit_headers: active.limit_headers,
                deferrals: self.deferrals.as_deref(),
            };
            let attributes = &attributes;
            let limited = LimitedRequest { route, limit, head, attributes, identity: &identity };
            let decided = decide(options, limited, body, exchange).await;
            let decided = decided
                .map_err(|error| outcome.as_ref().and_then(|it| it.error()).unwrap_or(error))?;
            match decided {
                Decision::Denied(response) => return Ok(*response),
                Decision::Deferred(denied) => deferral = Some(denied),
                Decision::Admitted(admitted) => admission = admitted,
            }
        }
        let mut response = match (&route.action, &route.config.action) {
            (Some(action), _) => Box::pin(action.respond(head)).await?,
            (None, Action::Forward { upstream, strip_prefix, host: new_host }) => {
                let upstream = active.upstreams.get(*upstream).ok_or(ProxyError::Unavailable)?;
                let key = upstream.hash_part().and_then(|part| {
                    let lines = HeaderLines(&head.headers);
                    let attributes = attributes(head, &lines, host, client, &identity);
                    // A part that is no text is treated as missing: the limits have judged it.
                    let value = part.value(&attributes).ok().flatten();
                    value.map(|value| stable_hash(value.as_bytes()))
                });
                identity.strip(head);
                if route.config.on_limit == OnLimit::Mark {
                    // Only this gateway says it.
                    head.headers.remove(EXCEEDED);
                    head.headers.extend(admission.exceeded.take().map(|rule| (EXCEEDED, rule)));
                }
                exchange.write_trace(&mut head.headers);
                if route.settle.as_ref().is_some_and(|settle| settle.reads_body()) {
                    let identity = HeaderValue::from_static("identity");
                    head.headers.insert(ACCEPT_ENCODING, identity);
                }
                if let Some(tokens) = identity.tokens().filter(|_| exchange.is_settled()) {
                    tokens.request_usage(head, body);
                }
                let forwarding = Forwarding {
                    peer: context.peer,
                    is_trusted,
                    is_tls: context.is_tls,
                    strip_prefix: strip_prefix.as_deref(),
                    host: new_host.as_deref(),
                    worker: self.worker,
                    priority: admission.priority,
                    client: client_hash(client),
                    key,
                    tunnel_idle: active.timeouts.idle,
                    edits: route.request_headers.as_ref().map(|edits| (edits, values)),
                };
                if let (Some(deferral), Some(deferrals)) = (deferral, &self.deferrals) {
                    let destination = Destination { route, upstream: upstream.name(), forwarding };
                    let (app, deferral) = (&self.app, *deferral);
                    let accepted = accept(deferrals, app, destination, deferral, request, exchange);
                    return Box::pin(accepted).await;
                }
                let begun = exchange.has_details().then(Instant::now);
                let mut server = None;
                let forwarded = forward(upstream, request, forwarding, &mut server).await;
                if let Some(begun) = begun {
                    let server = server.as_ref().map(|server| server.label());
                    exchange.set_upstream(upstream.name(), server, begun.elapsed());
                }
                forwarded.map_err(|error| {
                    let error = outcome.and_then(|it| it.error()).unwrap_or(error);
                    if error.is_of_upstream() {
                        let (route, upstream) = (&route.config.name, upstream.name());
                        warn!(route, upstream, error = error.code(), "upstream failed");
                    }
                    error
                })?
            }
            (None, _) => return Err(ProxyError::NoRoute),
        };
        if exchange.read_response(&mut response) {
            response.body_mut().set_rewritten();
        }
        let limit = route.config.limit.as_ref();
        if limit.is_some_and(|limit| limit.tokens.is_some()) {
            remove_provider_limits(response.headers_mut());
        }
        if let Some(headers) = admission.headers {
            response.headers_mut().extend(headers);
        }
        Ok(response)
    }
}

/// The client, for fairness between those that wait.
fn client_hash(client: Option<IpAddr>) -> u64 {
    match client {
        Some(IpAddr::V4(client)) => u64::from(client.to_bits()),
        // An IPv6 /64 is one client.
        Some(IpAddr::V6(client)) => (client.to_bits() >> 64) as u64,
        None => 0,
    }
}

impl Handler for GatewayHandler {
    type Context = ConnectionContext;
    type Future = Pin<Box<dyn Future<Output = Self::Response> + Send>>;
    type Response = Response<ResponseBody>;
    type Body = ResponseBody;

    fn call(
        &self,
        request: Request<IncomingBody>,
        connection: &Connection<ConnectionContext>,
    ) -> Self::Future {
        Box::pin(self.clone().answer(request, connection.context.clone()))
    }

    /// A change of the configuration applies to new connections.
    fn connection_limits(&self, limits: HttpLimits) -> HttpLimits {
        let active = self.active.load();
        HttpLimits {
            header_bytes: active.header_bytes_max,
            header_timeout: active.timeouts.header,
            body_timeout: active.timeouts.body,
            idle: active.timeouts.idle,
            ..limits
        }
    }

    fn overloaded(
        &self,
        request: &Request<IncomingBody>,
        connection: &Connection<ConnectionContext>,
        app: &App,
    ) -> Self::Response {
        let active = self.active.load();
        let mut exchange = Exchange::begin(app, active.access_log.as_ref(), request);
        exchange.set_client(connection.context.peer, "");
        // Its route is not looked for: a request beyond the bound costs little.
        exchange.set_route(&active.unmatched);
        exchange.fail(ProxyError::Overload);
        let mut response = ProxyError::Overload.response();
        exchange.respond(response.status());
        response.body_mut().set_exchange(exchange);
        response
    }

    fn send(
        &self,
        mut response: Self::Response,
        in_flight: InFlight<ConnectionContext>,
    ) -> Response<ResponseBody> {
        if let Some(tunnel) = response.body_mut().take_tunnel() {
            let exchange = response.body_mut().take_exchange();
            in_flight.connection().set_upgrade(OnUpgrade::new(move |client| {
                Box::pin(async move {
                    // It lasts as long as the tunnel.
                    let _exchange = exchange;
                    tunnel.run(client).await;
                })
            }));
        }
        response.body_mut().attach(in_flight);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(
        _: impl FnOnce(GatewayHandler, Request<IncomingBody>, ConnectionContext) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// It is moved several times for each request.
    #[test]
    fn the_future_of_a_request_is_small() {
        let bytes = size_of_future(GatewayHandler::answer);
        assert!(bytes <= 3_584, "{bytes} bytes: put what is rare into a box");
    }
}
