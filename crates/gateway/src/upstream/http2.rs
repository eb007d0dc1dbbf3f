//! Connections of HTTP/2: few for each worker and server, with many streams each.
//!
//! Each connection has a task on its worker's runtime: unlike one of HTTP/1.1, it belongs to no
//! single request. A connection that the server closes (GOAWAY) takes no new streams; those that
//! it has end by themselves.

use std::error::Error as _;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::UpstreamRequest;
use super::send_error::SendError;
use super::server::is_replayable;
use super::transport::Transport;
use crate::body::RequestBody;

/// Streams of a connection, unless the server allows fewer.
const STREAMS_MAX: usize = 100;
/// Connections of a worker to a server; beyond it streams wait for others to end.
const CONNECTIONS_MAX: usize = 8;
/// Flow control windows: what the gateway buffers for a client that does not read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of a response's head.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// An interval without a frame after which the server is asked for one, and the time it has.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of one worker.
#[derive(Debug, Default)]
pub(super) struct Http2Pool(Mutex<Vec<Http2>>);

/// A connection.
#[derive(Debug, Clone)]
pub(super) struct Http2 {
    sender: SendRequest<RequestBody>,
    streams: Arc<Streams>,
}

#[derive(Debug)]
struct Streams {
    open: AtomicUsize,
    /// How many the server allows.
    max: AtomicUsize,
    last_used: Mutex<Instant>,
}

/// A stream, counted until dropped.
#[derive(Debug)]
pub(super) struct StreamGuard(Arc<Streams>);

impl Http2Pool {
    /// A connection that can take a stream.
    pub(super) fn get(&self) -> Option<Http2> {
        let mut connections = self.0.lock();
        connections.retain(|connection| !connection.sender.is_closed());
        let is_full = connections.len() >= CONNECTIONS_MAX;
        let least = connections.iter().min_by_key(|connection| connection.open())?;
        (is_full || least.open() < least.streams_max()).then(|| least.clone())
    }

    pub(super) fn insert(&self, connection: Http2) {
        self.0.lock().push(connection);
    }

    /// Closes connections that had no stream for a time.
    pub(super) fn reap(&self, idle: Duration) {
        self.0.lock().retain(|Http2 { sender, streams }| {
            let is_used = streams.open.load(Relaxed) > 0;
            !sender.is_closed() && (is_used || streams.last_used.lock().elapsed() < idle)
        });
    }
}

impl Http2 {
    pub(super) async fn handshake(transport: Transport) -> hyper::Result<Self> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_BYTES_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        let (sender, connection) = builder.handshake(TokioIo::new(transport)).await?;
        let streams = Arc::new(Streams {
            open: AtomicUsize::new(0),
            max: AtomicUsize::new(STREAMS_MAX),
            last_used: Mutex::new(Instant::now()),
        });
        let shared = streams.clone();
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            poll_fn(|cx| {
                let ended = connection.as_mut().poll(cx);
                let max = connection.current_max_send_streams().clamp(1, STREAMS_MAX);
                shared.max.store(max, Relaxed);
                // Its streams get the error, if there is one.
                ended.map(drop)
            })
            .await;
        });
        Ok(Self { sender, streams })
    }

    fn open(&self) -> usize {
        self.streams.open.load(Relaxed)
    }

    fn streams_max(&self) -> usize {
        self.streams.max.load(Relaxed)
    }

    pub(super) async fn send(
        mut self,
        request: &mut UpstreamRequest,
        scheme: Scheme,
    ) -> Result<(Response<Incoming>, StreamGuard), SendError> {
        to_http2(&mut request.head, scheme).ok_or(SendError::Failed)?;
        let again = replay(request);
        let UpstreamRequest { head, body } = std::mem::take(request);
        self.streams.open.fetch_add(1, Relaxed);
        let guard = StreamGuard(self.streams.clone());
        match self.sender.try_send_request(Request::from_parts(head, body)).await {
            Ok(response) => Ok((response, guard)),
            Err(mut error) => Err(match error.take_message() {
                Some(unsent) => {
                    let (head, body) = unsent.into_parts();
                    *request = UpstreamRequest { head, body };
                    SendError::Unsent
                }
                None if error.error().is_user() => SendError::Body,
                None if is_unprocessed(error.error()) => {
                    *request = again.unwrap_or_default();
                    SendError::Closed
                }
                None => SendError::Failed,
            }),
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Relaxed) == 1 {
            *self.0.last_used.lock() = Instant::now();
        }
    }
}

/// A copy of a request that may be sent twice.
fn replay(request: &UpstreamRequest) -> Option<UpstreamRequest> {
    is_replayable(request).then(|| {
        let mut copy = UpstreamRequest::default();
        copy.head.method = request.head.method.clone();
        copy.head.uri = request.head.uri.clone();
        copy.head.headers = request.head.headers.clone();
        copy
    })
}

/// Whether the server closed the connection or refused the stream.
fn is_unprocessed(error: &hyper::Error) -> bool {
    if error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
        return true;
    }
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_go_away()
                || error.is_io()
                || error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        source = error.source();
    }
    false
}

/// Gives a request the form of HTTP/2: the host is in its target.
fn to_http2(head: &mut Parts, scheme: Scheme) -> Option<()> {
    let host = head.headers.remove(HOST);
    if let Some(host) = host {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
        let path = head.uri.path_and_query().cloned();
        parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
        head.uri = Uri::from_parts(parts).ok()?;
    }
    head.version = Version::HTTP_2;
    Some(())
}
