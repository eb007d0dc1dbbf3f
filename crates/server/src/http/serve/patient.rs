//! A body that must not take too long.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

/// It has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Late;

/// A body, and for how long it is waited for. The clock starts when there is something to wait for, so that one that came with its head costs nothing.
#[derive(Debug)]
pub(super) struct Patient {
    body: Incoming,
    patience: Duration,
    end: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(super) const fn new(body: Incoming, patience: Duration) -> Self {
        Self { body, patience, end: None }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        match end.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Late.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
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
