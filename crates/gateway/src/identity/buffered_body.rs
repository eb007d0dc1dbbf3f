//! A body whose beginning was read: it is sent as it came.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{BoxError, RequestBody};
use crate::client_body::BodyOutcome;

/// A body, and the frames that were read of it.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    frames: VecDeque<Frame<Bytes>>,
    rest: RequestBody,
    has_ended: bool,
    /// For its memory.
    permit: Option<OwnedSemaphorePermit>,
}

impl BufferedBody {
    pub(crate) const fn new(rest: RequestBody) -> Self {
        Self { frames: VecDeque::new(), rest, has_ended: false, permit: None }
    }

    /// A whole body.
    pub(crate) fn full(bytes: Bytes) -> Self {
        let frames = VecDeque::from([Frame::data(bytes)]);
        Self { frames, rest: RequestBody::Empty, has_ended: true, permit: None }
    }

    /// Reads until the end, or until there are more bytes than this; whether it has ended.
    pub(crate) async fn read_up_to(&mut self, bytes_max: usize) -> Result<bool, BoxError> {
        let mut length = 0_usize;
        while length <= bytes_max {
            let frame = poll_fn(|cx| Pin::new(&mut self.rest).poll_frame(cx)).await;
            let Some(frame) = frame.transpose()? else {
                self.has_ended = true;
                return Ok(true);
            };
            let data = frame.data_ref().map_or(0, Bytes::len);
            length = length.saturating_add(data);
            // Empty frames are not kept: they could be endless.
            if data > 0 || frame.is_trailers() {
                self.frames.push_back(frame);
            }
        }
        Ok(false)
    }

    /// The body with what was read of it, or the rest alone if nothing was read.
    pub(crate) fn into_body(self) -> RequestBody {
        match self.frames.is_empty() && !self.has_ended {
            true => self.rest,
            false => RequestBody::Buffered(Box::new(self)),
        }
    }

    /// Handle to the outcome of the client's body.
    pub(crate) fn outcome(&self) -> Option<BodyOutcome> {
        self.rest.outcome()
    }

    /// Holds one more permit for its memory.
    pub(super) fn add_permit(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(all) => all.merge(permit),
            None => self.permit = Some(permit),
        }
    }

    /// Bytes of the data that was read.
    pub(super) fn length(&self) -> usize {
        self.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum()
    }

    /// Replaces what was read, which is the whole body.
    pub(crate) fn replace(&mut self, bytes: Bytes) {
        debug_assert!(self.has_ended, "the rest would follow");
        self.frames.retain(Frame::is_trailers);
        self.frames.push_front(Frame::data(bytes));
    }

    /// The data that was read.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let data = self.frames.iter().filter_map(Frame::data_ref);
        data.flat_map(|bytes| bytes.iter().copied()).collect()
    }
}

impl Body for BufferedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if self.has_ended => Poll::Ready(None),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && (self.has_ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.length();
        let rest = if self.has_ended { SizeHint::with_exact(0) } else { self.rest.size_hint() };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read as u64));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read as u64));
        }
        hint
    }
}
