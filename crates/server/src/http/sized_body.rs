//! Bodies within the memory budget.
//!
//! A request body arrives whole and in time. A response body is sent in pieces, and charged until
//! the client has received it: an HTTP/1.1 connection charges for a piece that waits for the
//! client; on HTTP/2 a piece waits in h2 until the client opens its window, so the last piece
//! carries the charge.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body as AxumBody;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::serve::{BoxError, IncomingBody};
use crate::memory::{Account, Charge, Gather, GatherError, Unsent};

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct BodyTimeout;

/// Yields the body as one piece, charged to its connection if it arrives in several. The timeout
/// starts at the first wait, so that a body that arrives with its head needs no timer.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: IncomingBody,
    gather: Gather,
    account: Arc<Account>,
    bytes_max: usize,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub(super) fn new(
        body: IncomingBody,
        account: Arc<Account>,
        bytes_max: usize,
        timeout: Duration,
    ) -> Self {
        Self { body, gather: Gather::default(), account, bytes_max, timeout, deadline: None }
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BoxError>> {
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let Some(frame) = frame else { return Poll::Ready(Ok(self.gather.take())) };
            // Trailers carry nothing for a limiter.
            let Ok(piece) = frame?.into_data() else { continue };
            self.gather.push(piece, self.bytes_max, &self.account)?;
            if self.body.is_end_stream() {
                return Poll::Ready(Ok(self.gather.take()));
            }
        }
        self.gather.detach(self.bytes_max, &self.account)?;
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        deadline.as_mut().poll(cx).map(|()| Err(BodyTimeout.into()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.poll_whole(cx).map(|whole| match whole {
            Ok(whole) if whole.is_empty() => None,
            whole => Some(whole.map(Frame::data)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.gather.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Display for BodyTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body did not arrive in time")
    }
}

impl Error for BodyTimeout {}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the body is too long",
            Self::Exhausted => "the memory budget is exhausted",
        })
    }
}

impl Error for GatherError {}

// === responses ===

/// Longest piece, and longest response that is charged on an HTTP/1.1 connection only while it
/// waits for the client.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// A client that has received so much more gets the whole time for the rest.
const RENEWAL_BYTES: usize = 256 << 10;

/// Body of a response.
#[derive(Debug)]
pub struct ResponseBody {
    body: AxumBody,
    /// Part of the body that is not sent yet.
    rest: Bytes,
    unsent: Option<Unsent>,
    /// Bytes since the last renewal.
    received: usize,
}

/// Part of a response; the last one carries its charge.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    _unsent: Option<Unsent>,
}

/// The memory budget does not allow a response of this length.
#[derive(Debug)]
pub(super) struct TooLarge(pub(super) Option<Charge>);

impl ResponseBody {
    /// Charges for a response; to the charge for its stream, on HTTP/2.
    pub(super) fn new(
        body: AxumBody,
        stream: Option<Charge>,
        account: &Arc<Account>,
    ) -> Result<Self, TooLarge> {
        let length = body.size_hint().lower();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let charge = match stream {
            Some(mut stream) => {
                let bytes = stream.bytes().saturating_add(length);
                if length > 0 && !stream.resize(bytes) {
                    return Err(TooLarge(Some(stream)));
                }
                Some(stream)
            }
            None if length <= PIECE_BYTES_MAX => None,
            None => Some(account.charge(length).ok_or(TooLarge(None))?),
        };
        Ok(Self::charged(body, charge))
    }

    /// A response that replaces one that is too large.
    pub(super) fn charged(body: AxumBody, charge: Option<Charge>) -> Self {
        let unsent = charge.map(Charge::into_unsent);
        Self { body, rest: Bytes::new(), unsent, received: 0 }
    }

    fn next_piece(&mut self) -> Piece {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        self.received = self.received.saturating_add(bytes.len());
        if self.rest.is_empty() && self.body.is_end_stream() {
            return Piece { bytes, _unsent: self.unsent.take() };
        }
        if self.received >= RENEWAL_BYTES {
            self.received = 0;
            self.unsent.iter_mut().for_each(Unsent::renew);
        }
        Piece { bytes, _unsent: None }
    }
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    // No handler sends trailers.
                    Err(_) => return Poll::Ready(None),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
