//! The API as the handler of an HTTP server: its router, and the fast path of checks.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request};
use pin_project_lite::pin_project;
use sluicegate::backend::ready;
use tower_service::Service as _;

use super::body::{BODY_BYTES_MAX, BodyReader};
use super::check::CheckOperation;
use super::error::ApiError;
use super::idempotency::IdempotencyHeader;
use super::serve::{Connection, Handler, InFlight, IncomingBody};
use super::sized_body::{RequestBody, ResponseBody, TooLarge};
use super::{Api, Peer, Routes, forward_auth};
use crate::admin::{LOGIN, body_bytes_max};
use crate::app::App;
use crate::telemetry::Endpoint;
use crate::traces::Span;

pin_project! {
    /// Future of a response.
    #[project = RoutesFutureProjection]
    pub enum RoutesFuture {
        /// The router.
        Routed { #[pin] routed: RouteFuture<Infallible> },
        /// The fast path of `POST /v1/check`.
        Checked { check: Option<PendingCheck> },
    }
}

/// A check whose body is being received.
pub struct PendingCheck {
    api: Arc<Api>,
    reader: BodyReader<RequestBody>,
    key: IdempotencyHeader,
    span: Option<Span>,
}

impl Handler for Routes {
    /// Address of the client, which forward auth may trust, and which failed authentication counts
    /// for.
    type Context = Option<IpAddr>;
    type Future = RoutesFuture;
    type Response = Response;
    type Body = ResponseBody;

    fn call(
        &self,
        request: Request<IncomingBody>,
        connection: &Connection<Self::Context>,
    ) -> RoutesFuture {
        let (account, timeout) = (connection.account().clone(), connection.body_timeout);
        match &self.checks {
            Some(api) if is_check(&request) && api.app.is_local() => {
                let app = &api.app;
                let span = app.begin_span(CheckOperation::Check.span_name(), request.headers());
                let key = IdempotencyHeader::of(request.headers());
                let body = RequestBody::new(request.into_body(), account, BODY_BYTES_MAX, timeout);
                let reader = BodyReader::new(body);
                let check = PendingCheck { api: api.clone(), reader, key, span };
                RoutesFuture::Checked { check: Some(check) }
            }
            _ => {
                let bytes_max = match self.checks {
                    Some(_) => BODY_BYTES_MAX,
                    None => body_bytes_max(request.uri().path()),
                };
                let mut request = request
                    .map(|body| Body::new(RequestBody::new(body, account, bytes_max, timeout)));
                // Only where needed: an extension allocates.
                let is_wanted = wants_peer(&request) || self.checks.is_none();
                if let Some(peer) = connection.context.filter(|_| is_wanted) {
                    request.extensions_mut().insert(Peer(peer));
                }
                RoutesFuture::Routed { routed: self.router.clone().call(request) }
            }
        }
    }

    fn overloaded(
        &self,
        request: &Request<IncomingBody>,
        _: &Connection<Self::Context>,
        app: &App,
    ) -> Response {
        let error = ApiError::overload();
        if let Some(endpoint) = endpoint_of(request.uri().path()) {
            app.telemetry().record_failure(endpoint, error.fault);
        }
        self.overload_error()
    }

    /// The response, charged to the connection; an error if the budget does not allow it.
    fn send(
        &self,
        response: Response,
        mut in_flight: InFlight<Self::Context>,
    ) -> http::Response<ResponseBody> {
        let (head, body) = response.into_parts();
        match ResponseBody::new(body, in_flight.take_stream(), in_flight.account()) {
            Ok(body) => http::Response::from_parts(head, body),
            Err(TooLarge(stream)) => {
                self.overload_error().map(|body| ResponseBody::charged(body, stream))
            }
        }
    }
}

impl Routes {
    fn overload_error(&self) -> Response {
        let format = self.checks.as_ref().map(|api| api.options.error_format);
        ApiError::overload().response(format.unwrap_or_default())
    }
}

impl Future for RoutesFuture {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let response = match self.project() {
            RoutesFutureProjection::Routed { routed } => match ready!(routed.poll(cx)) {
                Ok(response) => Some(response),
                Err(never) => match never {},
            },
            RoutesFutureProjection::Checked { check } => match check.as_mut() {
                Some(checking) => {
                    let received = ready!(checking.reader.poll(cx));
                    check.take().map(|checking| {
                        let PendingCheck { api, key, span, .. } = checking;
                        // With counters in memory the future is ready.
                        ready(api.respond_to(CheckOperation::Check, key, received, span))
                            .unwrap_or_else(|| {
                                ApiError::overload().response(api.options.error_format)
                            })
                    })
                }
                None => None,
            },
        };
        Poll::Ready(response.unwrap_or_default())
    }
}

/// Whether the fast path applies; everything else goes to the router.
fn is_check<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == "/v1/check"
}

/// Requests that need the peer address: forward auth, and secrets, in a header or in the form of
/// the login, which are rate limited by address.
fn wants_peer<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    is_forward_auth(path) || path == LOGIN || request.headers().contains_key(AUTHORIZATION)
}

fn is_forward_auth(path: &str) -> bool {
    path.starts_with(forward_auth::PATH)
}

/// The endpoint that a refused request counts for.
fn endpoint_of(path: &str) -> Option<Endpoint> {
    Some(match path {
        "/v1/check" => Endpoint::Check,
        "/v1/peek" => Endpoint::Peek,
        "/v1/refund" => Endpoint::Refund,
        "/v1/reserve" => Endpoint::Reserve,
        "/v1/commit" => Endpoint::Commit,
        "/v1/cancel" => Endpoint::Cancel,
        "/v1/wait" => Endpoint::Wait,
        "/v1/explain" => Endpoint::Explain,
        "/v1/keys/inspect" | "/v1/keys/reset" => Endpoint::Keys,
        "/json" => Endpoint::Json,
        path if is_forward_auth(path) => Endpoint::ForwardAuth,
        _ => return None,
    })
}
