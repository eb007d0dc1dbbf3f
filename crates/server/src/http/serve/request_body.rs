//! Body of a request: whole, in time, and within the memory budget.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use crate::http::receive::BODY_BYTES_MAX;
use crate::memory::{Account, Gather, GatherError};

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Late;

/// Yields the body as one piece, charged to its connection if it arrives in several. The timeout
/// starts at the first wait, so that a body that arrives with its head needs no timer.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    gather: Gather,
    account: Arc<Account>,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

type BoxError = Box<dyn Error + Send + Sync>;

impl RequestBody {
    pub(super) fn new(body: Incoming, account: Arc<Account>, timeout: Duration) -> Self {
        Self { body, gather: Gather::default(), account, timeout, deadline: None }
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BoxError>> {
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let Some(frame) = frame else { return Poll::Ready(Ok(self.gather.take())) };
            // Trailers carry nothing for a limiter.
            let Ok(piece) = frame?.into_data() else { continue };
            self.gather.push(piece, BODY_BYTES_MAX, &self.account)?;
            if self.body.is_end_stream() {
                return Poll::Ready(Ok(self.gather.take()));
            }
        }
        self.gather.detach(BODY_BYTES_MAX, &self.account)?;
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        deadline.as_mut().poll(cx).map(|()| Err(Late.into()))
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

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body took too long to come")
    }
}

impl Error for Late {}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the body is too long",
            Self::Exhausted => "the memory budget is exhausted",
        })
    }
}

impl Error for GatherError {}
