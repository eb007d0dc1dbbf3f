//! The body of a request of HTTP/1.1, as its connection reads it.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Handler;
use super::body::{BodySender, Demand, IncomingBody};
use super::http1::{Disconnected, Http1};
use crate::http::http1::{Decoded, Decoder, ReadBuffer};

/// Bytes of a body that are discarded, so that the connection can be used again.
const DISCARDED_BYTES_MAX: u64 = 64 << 10;

/// Reads a body.
#[derive(Debug)]
pub(super) struct RequestBodyReader {
    state: ReaderState,
    decoder: Decoder,
    /// Whether the client waits for `100 Continue`.
    expects_continue: bool,
    discarded: u64,
}

#[derive(Debug)]
enum ReaderState {
    /// As the handler asks for it.
    Open(BodySender),
    /// The handler does not read the rest.
    Dropped,
    /// All of it was read.
    Done,
    /// What follows cannot be understood.
    Failed,
}

impl RequestBodyReader {
    /// The reader of a body, and the body.
    pub(super) fn new(
        decoder: Decoder,
        expects_continue: bool,
        read: &mut ReadBuffer,
    ) -> (Self, IncomingBody) {
        let (state, body) = match decoder {
            Decoder::Done => (ReaderState::Done, IncomingBody::empty()),
            Decoder::Length(length) if read.bytes.len() as u64 >= length => {
                (ReaderState::Done, IncomingBody::whole(take(read, length)))
            }
            _ => {
                let (sender, body) = IncomingBody::channel(decoder.size_hint());
                (ReaderState::Open(sender), body)
            }
        };
        (Self { state, decoder, expects_continue, discarded: 0 }, body)
    }

    /// Whether all of it was read.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, ReaderState::Done)
    }

    /// Whether the connection can probably be used for another request.
    pub(super) fn is_reusable(&self) -> bool {
        match &self.state {
            ReaderState::Done => true,
            // The handler may go on reading.
            ReaderState::Open(sender) if !sender.is_dropped() => true,
            // Whether the client sends the body cannot be known.
            ReaderState::Open(_) | ReaderState::Dropped if self.expects_continue => false,
            ReaderState::Open(_) | ReaderState::Dropped => {
                self.decoder.size_hint().lower() <= DISCARDED_BYTES_MAX
            }
            ReaderState::Failed => false,
        }
    }

    /// Bytes that the handler has not taken.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.state {
            ReaderState::Open(sender) => sender.held_bytes(),
            _ => 0,
        }
    }

    /// Reads what the handler asks for, or else notices that the client is gone. Whether the
    /// handler has got something.
    pub(super) fn poll<H, I>(
        &mut self,
        http1: &mut Http1<H, I>,
        has_response: bool,
        cx: &mut Context<'_>,
    ) -> Result<bool, Disconnected>
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let sender = match &self.state {
            ReaderState::Open(sender) => sender,
            ReaderState::Done if http1.read.bytes.is_empty() => {
                // What arrives is the next request.
                let read = http1.read.poll_read_parsed(&mut http1.io, cx, |_| 0);
                let is_disconnected = matches!(read, Poll::Ready(Ok(0) | Err(_)));
                return if is_disconnected { Err(Disconnected) } else { Ok(false) };
            }
            _ => return Ok(false),
        };
        match sender.demand(cx) {
            Demand::Nothing => Ok(false),
            Demand::Dropped => {
                self.state = ReaderState::Dropped;
                Ok(false)
            }
            Demand::Frame => {
                if !has_response {
                    if std::mem::take(&mut self.expects_continue) {
                        http1.write.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    // What cannot be written now is written before the response.
                    let _ = http1.poll_flush(cx)?;
                }
                Ok(self.poll_frame(http1, cx).is_ready())
            }
        }
    }

    /// Passes the next frame to the handler.
    fn poll_frame<H, I>(&mut self, http1: &mut Http1<H, I>, cx: &mut Context<'_>) -> Poll<()>
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let decoded = ready!(self.poll_decoded(http1, cx));
        let ReaderState::Open(sender) = &self.state else { return Poll::Ready(()) };
        let next = match decoded {
            Ok(Some(frame)) => {
                let is_done = self.decoder.is_done();
                sender.send(frame, (!is_done).then(|| self.decoder.size_hint()), cx);
                is_done.then_some(ReaderState::Done)
            }
            Ok(None) => {
                sender.end(cx);
                Some(ReaderState::Done)
            }
            Err(reason) => {
                sender.fail(reason, Some(cx));
                Some(ReaderState::Failed)
            }
        };
        if let Some(next) = next {
            self.state = next;
        }
        Poll::Ready(())
    }

    /// The next frame.
    fn poll_decoded<H, I>(
        &mut self,
        http1: &mut Http1<H, I>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, &'static str>>
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let Http1 { io, read, .. } = http1;
        loop {
            match self.decoder.decode(&mut read.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Ok(Some(frame))),
                Ok(Decoded::End) => return Poll::Ready(Ok(None)),
                Ok(Decoded::Incomplete) => {}
                Err(reason) => return Poll::Ready(Err(reason)),
            }
            if ready!(read.poll_read(io, cx)).map_or(0, |count| count) == 0 {
                return Poll::Ready(Err("the client has closed the connection"));
            }
        }
    }

    /// Reads the rest: what the handler asks for, and, within bounds, what it has left. Whether
    /// the connection can be used for another request.
    pub(super) fn poll_rest<H, I>(
        &mut self,
        http1: &mut Http1<H, I>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Disconnected>>
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            match self.state {
                ReaderState::Done => return Poll::Ready(Ok(true)),
                ReaderState::Failed => return Poll::Ready(Ok(false)),
                ReaderState::Open(_) => {
                    let is_read = self.poll(http1, true, cx)?;
                    if !is_read && matches!(self.state, ReaderState::Open(_)) {
                        return Poll::Pending;
                    }
                }
                ReaderState::Dropped if self.expects_continue => {
                    self.state = ReaderState::Failed;
                }
                ReaderState::Dropped => {
                    // It has the time of a head.
                    http1.connection.liveness.head_begun();
                    let decoded = ready!(self.poll_decoded(http1, cx));
                    if let Ok(Some(frame)) = &decoded {
                        self.discarded += frame.data_ref().map_or(0, Bytes::len) as u64;
                    }
                    if decoded.is_err() || self.discarded > DISCARDED_BYTES_MAX {
                        self.state = ReaderState::Failed;
                    } else if self.decoder.is_done() {
                        http1.connection.liveness.head_ended();
                        self.state = ReaderState::Done;
                    }
                }
            }
        }
    }
}

/// Takes bytes from the beginning of the buffer.
fn take(read: &mut ReadBuffer, length: u64) -> Bytes {
    match usize::try_from(length) {
        Ok(length) if length < read.bytes.len() => read.bytes.split_to(length).freeze(),
        _ => std::mem::take(&mut read.bytes).freeze(),
    }
}
