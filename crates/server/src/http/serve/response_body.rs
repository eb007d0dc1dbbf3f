//! Body of a response: in pieces, and charged until the client has received it.
//!
//! hyper copies a piece into the write buffer of an HTTP/1.1 connection, and that buffer keeps its
//! capacity; so pieces are small. On HTTP/2 a piece waits in h2 until the client opens its window;
//! so the last piece carries the charge.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body as AxumBody;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::memory::{Account, Charge, Unsent};

/// Longest piece, and longest response that an HTTP/1.1 connection sends without a charge: its
/// fixed cost covers it.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// A client that has received so much more gets the whole time for the rest.
const RENEWAL_BYTES: usize = 256 << 10;

/// Body of a response.
#[derive(Debug)]
pub(super) struct ResponseBody {
    body: AxumBody,
    /// Part of the body that is not sent yet.
    rest: Bytes,
    unsent: Option<Unsent>,
    /// Bytes since the last renewal.
    received: usize,
}

/// Part of a response; the last one carries its charge.
#[derive(Debug)]
pub(super) struct Piece {
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
