//! A connection of HTTP/1.1, in one task: a head, the handler's response, and the next head.
//!
//! ```text
//!   head ── handler ── response ── head …
//!            │  the body of the request is read as the handler asks for it
//!            └─ the end of the connection drops it
//! ```
//!
//! A connection that waits for a head has no buffers. What a slow client makes it hold is charged
//! to its account.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{Method, StatusCode, Version};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use super::request_body::RequestBodyReader;
use super::service::ConnectionService;
use super::write_buffer::WriteBuffer;
use super::{Connection, Handler};
use crate::http::http1::{
    Encoder, HeadError, ReadBuffer, RequestHead, RequestParser, ResponseKind, recycle_map,
    write_error, write_response, write_trailers,
};
use crate::memory::Charge;

/// What an HTTP/2 client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes in buffers that the fixed cost of a connection covers.
const HELD_BYTES_FREE: usize = 4 << 10;
/// Bytes that are discarded after the last response. Proxies forward heads of up to 1 MiB.
const LINGER_BYTES_MAX: usize = 2 << 20;
/// Requests that are answered before other tasks run.
const REQUESTS_IN_TURN: usize = 16;

/// How a connection ends.
#[derive(Debug)]
pub(super) enum Ended<I> {
    Closed,
    /// It switches to another protocol. What was read of it, and the rest.
    Upgraded(Bytes, I),
    /// The client speaks HTTP/2. What was read of it, and the rest.
    Http2(Bytes, I),
}

/// The client is gone, or is sent away without a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Disconnected;

/// A connection.
pub(super) struct Http1<H: Handler, I> {
    pub(super) io: I,
    pub(super) connection: Arc<Connection<H::Context>>,
    pub(super) read: ReadBuffer,
    pub(super) write: WriteBuffer<<H::Body as Body>::Data>,
    parser: RequestParser,
    /// For what the buffers hold.
    charge: Option<Charge>,
}

/// The first bytes of a connection, or the next head.
#[expect(clippy::large_enum_variant, reason = "nearly always the large one, and never kept")]
enum NextHead {
    Request(RequestHead),
    Http2,
    Closed,
    Refused(HeadError),
}

/// What happens after a response.
enum AfterResponse {
    Next,
    Upgrade,
    Close {
        /// Whether the client may still send.
        has_unread: bool,
    },
}

impl<H, I> Http1<H, I>
where
    H: Handler,
    I: AsyncRead + AsyncWrite + Unpin,
{
    pub(super) fn new(io: I, connection: Arc<Connection<H::Context>>, header_bytes: usize) -> Self {
        Self {
            io,
            connection,
            read: ReadBuffer::new(),
            write: WriteBuffer::new(),
            parser: RequestParser::new(header_bytes),
            charge: None,
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn serve(mut self, service: &ConnectionService<H>) -> Ended<I> {
        let mut is_first = true;
        loop {
            for _ in 0..REQUESTS_IN_TURN {
                let next = poll_fn(|cx| self.poll_head(is_first, cx)).await;
                is_first = false;
                let after = match next {
                    NextHead::Request(head) => self.exchange(head, service).await,
                    NextHead::Http2 => return Ended::Http2(self.read.bytes.freeze(), self.io),
                    NextHead::Closed => Ok(AfterResponse::Close { has_unread: false }),
                    NextHead::Refused(error) => {
                        write_error(self.write.begin(), error.status());
                        Ok(AfterResponse::Close { has_unread: true })
                    }
                };
                match after {
                    Ok(AfterResponse::Next) => {}
                    Ok(AfterResponse::Upgrade) => {
                        return Ended::Upgraded(self.read.bytes.freeze(), self.io);
                    }
                    Ok(AfterResponse::Close { has_unread }) => {
                        self.close(has_unread).await;
                        return Ended::Closed;
                    }
                    Err(Disconnected) => return Ended::Closed,
                }
            }
            if !self.read.bytes.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The next head.
    fn poll_head(&mut self, is_first: bool, cx: &mut Context<'_>) -> Poll<NextHead> {
        let Self { io, connection, read, parser, .. } = self;
        let mut next = None;
        if !read.bytes.is_empty() {
            let consumed = parse_next(parser, &read.bytes, is_first, &mut next);
            read.bytes.advance(consumed);
            if let Some(next) = next.take() {
                return Poll::Ready(next);
            }
            connection.liveness.head_begun();
        }
        loop {
            let parse = |bytes: &[u8]| parse_next(parser, bytes, is_first, &mut next);
            match read.poll_read_parsed(io, cx, parse) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(NextHead::Closed),
                Poll::Ready(Ok(_)) => match next.take() {
                    Some(next) => return Poll::Ready(next),
                    None => connection.liveness.head_begun(),
                },
                // A request that has arrived is still answered.
                Poll::Pending if read.bytes.is_empty() && connection.liveness.is_closing() => {
                    return Poll::Ready(NextHead::Closed);
                }
                Poll::Pending => break,
            }
        }
        self.read.release();
        self.write.release();
        match self.settle_charge(0) {
            Ok(()) => Poll::Pending,
            Err(Disconnected) => Poll::Ready(NextHead::Closed),
        }
    }

    /// Answers a request.
    async fn exchange(
        &mut self,
        head: RequestHead,
        service: &ConnectionService<H>,
    ) -> Result<AfterResponse, Disconnected> {
        let RequestHead { request, decoder, is_persistent, expects_continue, takes_trailers } =
            head;
        let mut kind = ResponseKind {
            is_head: *request.method() == Method::HEAD,
            is_http10: request.version() == Version::HTTP_10,
            is_persistent,
        };
        let (mut reader, body) = RequestBodyReader::new(decoder, expects_continue, &mut self.read);
        let response = {
            let mut response = pin!(service.respond(request.map(|()| body)));
            poll_fn(|cx| {
                loop {
                    if let Poll::Ready(response) = response.as_mut().poll(cx) {
                        return Poll::Ready(response.ok_or(Disconnected));
                    }
                    if !reader.poll(self, false, cx)? {
                        return self.pending(&reader);
                    }
                }
            })
            .await?
        };
        let (head, body) = response.into_parts();
        kind.is_persistent &= !self.connection.liveness.is_closing() && reader.is_reusable();
        let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let size = (!body.is_end_stream()).then(|| body.size_hint());
        let encoder = write_response(self.write.begin(), &head, size, &mut kind);
        // If the client takes trailers, its headers announce them.
        let announced = if takes_trailers {
            Some(head.headers)
        } else {
            recycle_map(head.headers);
            None
        };
        {
            let mut sending = Sending { encoder, is_finished: encoder == Encoder::None };
            let mut body = pin!(Some(body));
            if sending.is_finished {
                body.set(None);
            }
            poll_fn(|cx| {
                loop {
                    let collected =
                        sending.collect(&mut self.write, body.as_mut(), announced.as_ref(), cx);
                    if collected.is_err() {
                        let _ = self.poll_flush(cx);
                    }
                    let is_waiting = collected?;
                    let written = self.poll_flush(cx)?;
                    if written.is_ready() && sending.is_finished {
                        return Poll::Ready(Ok::<_, Disconnected>(()));
                    }
                    let can_go_on = written.is_ready() && !is_waiting;
                    if !(reader.poll(self, true, cx)? || can_go_on) {
                        return self.pending(&reader);
                    }
                }
            })
            .await?;
        }
        if is_switch {
            let is_read = reader.is_done();
            let close = AfterResponse::Close { has_unread: true };
            return Ok(if is_read { AfterResponse::Upgrade } else { close });
        }
        // The handler may go on reading the body, and what it leaves is discarded.
        if kind.is_persistent && poll_fn(|cx| reader.poll_rest(self, cx)).await? {
            return Ok(AfterResponse::Next);
        }
        Ok(AfterResponse::Close { has_unread: !reader.is_done() || !self.read.bytes.is_empty() })
    }

    /// Nothing can be done now: what is held meanwhile is charged.
    fn pending<T>(&mut self, reader: &RequestBodyReader) -> Poll<Result<T, Disconnected>> {
        match self.settle_charge(reader.held_bytes()) {
            Ok(()) => Poll::Pending,
            Err(Disconnected) => Poll::Ready(Err(Disconnected)),
        }
    }

    /// Charges for what the buffers hold, and for so many bytes more.
    fn settle_charge(&mut self, more: usize) -> Result<(), Disconnected> {
        let held = self.read.bytes.len() + self.write.unwritten() + more;
        if held <= HELD_BYTES_FREE {
            self.charge = None;
            return Ok(());
        }
        let fits = match &mut self.charge {
            Some(charge) => charge.resize(held),
            charge => {
                *charge = self.connection.account().charge(held);
                charge.is_some()
            }
        };
        fits.then_some(()).ok_or(Disconnected)
    }

    /// Writes what is to be written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Disconnected> {
        let progress = &self.connection.liveness.progress;
        match self.write.poll_flush(&mut self.io, cx, progress) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(_)) => Err(Disconnected),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Ends the connection after its last response. What still arrives is discarded, up to a limit:
    /// closing a socket with unread bytes resets the connection, and the peer takes the response in
    /// flight for a failure. A proxy that fails open would let requests pass that are large enough.
    async fn close(&mut self, has_unread: bool) {
        let mut left = if has_unread { LINGER_BYTES_MAX } else { 0 };
        let mut is_shut_down = false;
        // It has the time of a head.
        self.connection.liveness.head_begun();
        let closed = poll_fn(|cx| {
            if !is_shut_down {
                if self.poll_flush(cx)?.is_pending() {
                    return Poll::Pending;
                }
                if ready!(Pin::new(&mut self.io).poll_shutdown(cx)).is_err() {
                    return Poll::Ready(Err(Disconnected));
                }
                is_shut_down = true;
            }
            while left > 0 {
                match ready!(ReadBuffer::poll_discard(&mut self.io, cx)) {
                    Ok(count) if count > 0 => left = left.saturating_sub(count),
                    _ => break,
                }
            }
            Poll::Ready(Ok(()))
        });
        // An error means that the client is gone.
        let _ = closed.await;
    }
}

/// Parses what a connection begins with, or the next head; returns how much of it is consumed.
fn parse_next(
    parser: &mut RequestParser,
    bytes: &[u8],
    is_first: bool,
    next: &mut Option<NextHead>,
) -> usize {
    if is_first {
        let matched = PREFACE.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        if matched == bytes.len().min(PREFACE.len()) {
            *next = (matched == PREFACE.len()).then_some(NextHead::Http2);
            return 0;
        }
    }
    match parser.parse(bytes) {
        Ok(Some((length, head))) => {
            *next = Some(NextHead::Request(head));
            length
        }
        Ok(None) => 0,
        Err(error) => {
            *next = Some(NextHead::Refused(error));
            0
        }
    }
}

/// The body of a response on its way.
struct Sending {
    encoder: Encoder,
    is_finished: bool,
}

impl Sending {
    /// Collects what there is of the body; whether it is waited for.
    fn collect<B>(
        &mut self,
        write: &mut WriteBuffer<B::Data>,
        mut body: Pin<&mut Option<B>>,
        announced: Option<&http::HeaderMap>,
        cx: &mut Context<'_>,
    ) -> Result<bool, Disconnected>
    where
        B: Body,
    {
        while !self.is_finished && write.has_space() {
            let Some(pinned) = body.as_mut().as_pin_mut() else { break };
            let frame = match pinned.poll_frame(cx) {
                Poll::Pending => return Ok(true),
                // It must not look complete.
                Poll::Ready(Some(Err(_))) => return Err(Disconnected),
                Poll::Ready(Some(Ok(frame))) => Some(frame),
                Poll::Ready(None) => None,
            };
            let is_end = match frame.map(http_body::Frame::into_data) {
                None => true,
                Some(Ok(data)) => {
                    write.push(&mut self.encoder, data).map_err(|_| Disconnected)?;
                    body.as_ref().as_pin_ref().is_none_or(|body| body.is_end_stream())
                }
                Some(Err(frame)) => {
                    if let (Ok(trailers), Some(announced), Encoder::Chunked) =
                        (frame.into_trailers(), announced, self.encoder)
                    {
                        write_trailers(&mut write.bytes, &trailers, announced);
                        self.encoder = Encoder::None;
                    }
                    true
                }
            };
            if is_end {
                write.finish(self.encoder).map_err(|_| Disconnected)?;
                self.is_finished = true;
                body.set(None);
            }
        }
        Ok(false)
    }
}
