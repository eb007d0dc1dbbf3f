//! A connection of HTTP/1.1, driven by the task of the request that uses it.
//!
//! hyper separates a connection from the handle that sends requests, and expects a task for it.
//! Here both are polled in the task of the request: two tasks would wake each other for every
//! request.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use http::header::HOST;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::send_error::SendError;
use super::transport::Transport;
use crate::body::RequestBody;

/// A connection that has no request.
pub(super) struct Http1(Box<Parts>);

/// Large, so it is moved as a pointer.
struct Parts {
    sender: SendRequest<RequestBody>,
    connection: Connection<TokioIo<Transport>, RequestBody>,
}

impl Http1 {
    pub(super) async fn handshake(transport: Transport) -> hyper::Result<Self> {
        let (sender, connection) = builder().handshake(TokioIo::new(transport)).await?;
        Ok(Self(Box::new(Parts { sender, connection })))
    }

    /// Whether the server has not closed it, as far as is known.
    pub(super) fn is_alive(&mut self) -> bool {
        self.advance(&mut Context::from_waker(Waker::noop())) && self.0.sender.is_ready()
    }

    /// Whether it is still open.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.0.connection).poll(cx).is_pending()
    }

    /// Sends a request; the connection is returned if it is still open. It has to be advanced while
    /// the body is read.
    pub(super) async fn send(
        mut self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Option<Self>), SendError> {
        to_http1(&mut request);
        let mut response = pin!(self.0.sender.try_send_request(request));
        let mut is_open = true;
        let response = poll_fn(|cx| {
            is_open = is_open && Pin::new(&mut self.0.connection).poll(cx).is_pending();
            response.as_mut().poll(cx)
        });
        let response = response.await.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None => failure(error.error()),
        })?;
        Ok((response, is_open.then_some(self)))
    }

    /// Sends a request that asks for an upgrade, on a connection of its own with a task of its own:
    /// whoever gets the upgraded connection outlives the request.
    pub(super) async fn send_upgrade(
        transport: Transport,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        to_http1(&mut request);
        let handshake = builder().handshake(TokioIo::new(transport)).await;
        let Ok((mut sender, connection)) = handshake else { return Err(SendError::Failed) };
        // The request gets the error, if there is one.
        tokio::spawn(async { drop(connection.with_upgrades().await) });
        sender.send_request(request).await.map_err(|error| failure(&error))
    }
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Requests are small: copied behind their heads, they are one write.
    builder.writev(false);
    builder
}

fn failure(error: &hyper::Error) -> SendError {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        SendError::Closed
    } else if error.is_user() {
        SendError::Body
    } else {
        SendError::Failed
    }
}

/// Gives a request that had the form of HTTP/2 that of HTTP/1.1: the host is in a header.
fn to_http1(request: &mut Request<RequestBody>) {
    if request.uri().scheme().is_some() {
        let host = request.uri().authority();
        let host = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        if let Some(host) = host {
            request.headers_mut().insert(HOST, host);
        }
    }
    *request.version_mut() = Version::HTTP_11;
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1").finish_non_exhaustive()
    }
}
