//! A connection of HTTP/1.1, driven by the task of the request that uses it.
//!
//! hyper's client has a channel, a second task or a second future to poll, and a copy of every
//! request that may have to be sent again. This one writes a head from a borrowed request, so that
//! the caller can send it again, and reads the response into one buffer; DESIGN has the figures.

mod head;
mod upload;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, request};
use http_body::{Frame, SizeHint};
use sluicegate_server::http::http1::{Decoded, Decoder, ReadBuffer};
use tokio::io::AsyncWrite as _;
use tokio::time::{Instant, Sleep, sleep_until};

use self::head::ResponseHead;
use self::upload::{Upload, UploadError};
use super::UpstreamRequest;
use super::send_error::SendError;
use super::transport::Transport;
use crate::body::BoxError;

/// A connection that has no request.
pub(super) struct Http1(Box<Parts>);

/// Large, so it is moved as a pointer.
struct Parts {
    io: Transport,
    read: ReadBuffer,
    write: Vec<u8>,
    /// Bytes of `write` that were written.
    written: usize,
    /// Kept between requests: moving its end on would cost more than to wake up once for nothing.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The time that a server has until the head of its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadTimeout {
    /// From the end of the request, or while the server does not read it.
    pub(super) first_byte: Duration,
    /// The end of the whole exchange.
    pub(super) deadline: Option<Instant>,
}

/// Body of a response, with its connection.
pub(super) struct Http1Body {
    connection: Http1,
    decoder: Decoder,
    /// The rest of the request's body.
    upload: Option<Box<Upload>>,
    /// Whether both sides keep the connection open.
    is_reusable: bool,
}

impl Http1 {
    pub(super) fn new(io: Transport) -> Self {
        Self(Box::new(Parts {
            io,
            read: ReadBuffer::new(),
            write: Vec::new(),
            written: 0,
            timer: None,
        }))
    }

    /// Whether the server has neither closed it nor sent anything, as far as is known.
    pub(super) fn is_alive(&mut self) -> bool {
        let parts = &mut *self.0;
        parts.read.bytes.is_empty()
            && parts.poll_read(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Sends a request, and returns the response. The body of the request is taken; its head is
    /// only read.
    pub(super) async fn send(
        mut self,
        request: &mut UpstreamRequest,
        timeout: HeadTimeout,
    ) -> Result<Response<Http1Body>, SendError> {
        let body = std::mem::take(&mut request.body);
        let parts = &mut *self.0;
        parts.write.clear();
        parts.written = 0;
        let framing = head::write(&mut parts.write, &request.head, &body);
        let mut upload = Some(Upload::new(body, framing));
        let mut exchange = HeadExchange {
            request: RequestKind::of(&request.head),
            is_answered: false,
            is_write_failed: false,
            waiting_since: None,
            timeout,
        };
        let head = poll_fn(|cx| exchange.poll(&mut self.0, &mut upload, cx)).await?;
        let ResponseHead { response, decoder, is_persistent, .. } = head;
        let is_reusable = is_persistent && !exchange.is_write_failed;
        let upload = upload.map(Box::new);
        Ok(response.map(|()| Http1Body { connection: self, decoder, upload, is_reusable }))
    }
}

/// What the response to a request depends on.
#[derive(Debug, Clone, Copy)]
struct RequestKind {
    is_head: bool,
    is_upgrade: bool,
}

impl RequestKind {
    fn of(head: &request::Parts) -> Self {
        Self {
            is_head: head.method == Method::HEAD,
            is_upgrade: head.headers.contains_key(http::header::UPGRADE),
        }
    }
}

/// A request until the head of its response.
struct HeadExchange {
    request: RequestKind,
    /// Whether an interim response has arrived.
    is_answered: bool,
    is_write_failed: bool,
    /// Since when the server, and not the client, is waited for.
    waiting_since: Option<Instant>,
    timeout: HeadTimeout,
}

impl HeadExchange {
    fn poll(
        &mut self,
        parts: &mut Parts,
        upload: &mut Option<Upload>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, SendError>> {
        if let Some(sending) = upload {
            let written = sending.written();
            match sending.poll(parts, cx) {
                // The time of the response begins.
                Poll::Ready(Ok(())) => (*upload, self.waiting_since) = (None, None),
                Poll::Ready(Err(UploadError::Body)) => return Poll::Ready(Err(SendError::Body)),
                // The server may have answered before it closed the connection.
                Poll::Ready(Err(UploadError::Write)) => {
                    (*upload, self.is_write_failed) = (None, true);
                }
                Poll::Pending if sending.written() > written || parts.has_written() => {
                    self.waiting_since = None;
                }
                Poll::Pending => {}
            }
        }
        loop {
            match parts.poll_read(cx) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => {
                    let is_unanswered = parts.read.bytes.is_empty() && !self.is_answered;
                    let error = if is_unanswered { SendError::Closed } else { SendError::Failed };
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => break,
            }
            while let Some(head) = head::parse(&mut parts.read.bytes, self.request)? {
                let status = head.response.status();
                if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                self.is_answered = true;
            }
        }
        let is_for_client = upload.is_some() && parts.has_written();
        if is_for_client && self.timeout.deadline.is_none() {
            return Poll::Pending;
        }
        let first_byte = (!is_for_client).then(|| {
            let since = self.waiting_since.get_or_insert_with(Instant::now);
            *since + self.timeout.first_byte
        });
        let until = match (first_byte, self.timeout.deadline) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or_else(Instant::now),
        };
        parts.poll_timer(until, cx).map(|()| Err(SendError::Timeout))
    }
}

impl Parts {
    /// Reads more; 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.read.poll_read(&mut self.io, cx)
    }

    /// Writes what is left of `write`.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.write.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.write.clear();
        self.written = 0;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn has_written(&self) -> bool {
        self.write.is_empty()
    }

    /// Ready when the time has come.
    fn poll_timer(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            // It was set for an earlier request.
            timer.as_mut().reset(until);
        }
    }
}

impl Http1Body {
    /// The next part of the body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let parts = &mut *self.connection.0;
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(uploaded) = upload.poll(parts, cx)
        {
            self.upload = None;
            self.is_reusable &= uploaded.is_ok();
        }
        loop {
            match self.decoder.decode(&mut parts.read.bytes)? {
                Decoded::Frame(frame) => return Poll::Ready(Some(Ok(frame))),
                Decoded::End => return Poll::Ready(None),
                Decoded::Incomplete => {}
            }
            if ready!(parts.poll_read(cx))? == 0 {
                self.is_reusable = false;
                return Poll::Ready(self.decoder.end().err().map(|error| Err(error.into())));
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.decoder.is_done()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.decoder.size_hint()
    }

    /// The connection, if it can be used again.
    pub(super) fn into_connection(self) -> Option<Http1> {
        let Self { mut connection, decoder, upload, is_reusable } = self;
        let is_complete = is_reusable && decoder.is_done() && upload.is_none();
        connection.0.read.shrink();
        (is_complete && connection.is_alive()).then_some(connection)
    }

    /// The byte stream after a switch of protocols, and what was read of it.
    pub(super) fn into_upgraded(self) -> (Transport, Bytes) {
        let Parts { io, read, .. } = *self.connection.0;
        (io, read.bytes.freeze())
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1").finish_non_exhaustive()
    }
}

impl fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Body").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}
