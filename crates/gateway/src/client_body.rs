//! The body of a request as a client sends it: bounded in size, and in time between two pieces.
//!
//! Its trailers are not forwarded: servers that take them for headers would get what was neither
//! limited nor checked.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sluicegate_server::http::IncomingBody;
use tokio::time::{Instant, Sleep, sleep};

use crate::body::BoxError;
use crate::error::ProxyError;

/// Limits of the bodies of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// Bytes of a body.
    pub(crate) bytes_max: u64,
    /// Time between two pieces.
    pub(crate) timeout: Duration,
}

/// A body within limits.
#[derive(Debug)]
pub(crate) struct ClientBody<B = IncomingBody> {
    body: B,
    bytes_left: u64,
    timeout: Duration,
    /// Created when the client has to be waited for the first time.
    timer: Option<Pin<Box<Sleep>>>,
    outcome: BodyOutcome,
}

/// What happened to a body: when it was last read, and why it ended early, if it did.
#[derive(Debug, Clone)]
pub(crate) struct BodyOutcome(Arc<BodyState>);

#[derive(Debug)]
struct BodyState {
    reason: AtomicU8,
    /// Whether the client is being waited for.
    is_waiting: AtomicBool,
    begun: Instant,
    /// Of the last piece, in milliseconds after `begun`.
    read_at: AtomicU64,
}

const TOO_LARGE: u8 = 1;
const TIMED_OUT: u8 = 2;

impl BodyOutcome {
    /// The error of a client that exceeded the limits.
    pub(crate) fn error(&self) -> Option<ProxyError> {
        match self.0.reason.load(Relaxed) {
            TOO_LARGE => Some(ProxyError::BodyTooLarge),
            TIMED_OUT => Some(ProxyError::BodyTimeout),
            _ => None,
        }
    }

    /// When the last piece was read; `None` while the client is waited for.
    pub(crate) fn read_at(&self) -> Option<Instant> {
        let BodyState { is_waiting, begun, read_at, .. } = &*self.0;
        let at = || *begun + Duration::from_millis(read_at.load(Relaxed));
        (!is_waiting.load(Relaxed)).then(at)
    }

    fn record_read(&self) {
        let elapsed = self.0.begun.elapsed().as_millis();
        self.0.read_at.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Relaxed);
        self.0.is_waiting.store(false, Relaxed);
    }

    fn fail(&self, reason: u8) -> BoxError {
        self.0.reason.store(reason, Relaxed);
        let reason = if reason == TOO_LARGE { "body too large" } else { "body timed out" };
        reason.into()
    }
}

impl<B: Body<Data = Bytes> + Unpin> ClientBody<B> {
    /// Limits a body.
    pub(crate) fn new(body: B, limits: BodyLimits) -> Self {
        Self {
            body,
            bytes_left: limits.bytes_max,
            timeout: limits.timeout,
            timer: None,
            outcome: BodyOutcome(Arc::new(BodyState {
                reason: AtomicU8::new(0),
                is_waiting: AtomicBool::new(false),
                begun: Instant::now(),
                read_at: AtomicU64::new(0),
            })),
        }
    }

    /// Refuses a body whose length is known, and too large.
    pub(crate) fn check_length(&self) -> Result<(), ProxyError> {
        match self.body.size_hint().lower() > self.bytes_left {
            true => Err(ProxyError::BodyTooLarge),
            false => Ok(()),
        }
    }

    /// Handle to the outcome.
    pub(crate) fn outcome(&self) -> BodyOutcome {
        self.outcome.clone()
    }

    /// Whether the client was waited for too long.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { timeout, timer, outcome, .. } = self;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep(*timeout)));
        if !outcome.0.is_waiting.swap(true, Relaxed) {
            timer.as_mut().reset(Instant::now() + *timeout);
        }
        timer.as_mut().poll(cx)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for ClientBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            return this.poll_timeout(cx).map(|()| Some(Err(this.outcome.fail(TIMED_OUT))));
        };
        this.outcome.record_read();
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        if matches!(&frame, Some(Ok(frame)) if frame.is_trailers()) {
            return Poll::Ready(None);
        }
        Poll::Ready(match this.bytes_left.checked_sub(bytes) {
            Some(left) => {
                this.bytes_left = left;
                frame.map(|frame| frame.map_err(Into::into))
            }
            None => Some(Err(this.outcome.fail(TOO_LARGE))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;

    /// Pieces, each after a delay.
    pub(crate) struct Pieces(VecDeque<(Duration, usize)>, Option<Pin<Box<Sleep>>>);

    impl Pieces {
        pub(crate) fn new(pieces: &[(u64, usize)]) -> Self {
            let pieces = pieces.iter().map(|(secs, bytes)| (Duration::from_secs(*secs), *bytes));
            Self(pieces.collect(), None)
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Self(pieces, timer) = &mut *self;
            let Some((delay, length)) = pieces.front().copied() else { return Poll::Ready(None) };
            let timer_now = timer.get_or_insert_with(|| Box::pin(sleep(delay)));
            if timer_now.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *timer = None;
            pieces.pop_front();
            Poll::Ready(Some(Ok(Frame::data(vec![0; length].into()))))
        }
    }

    async fn read(pieces: &[(u64, usize)]) -> (usize, Option<ProxyError>) {
        let limits = BodyLimits { bytes_max: 100, timeout: Duration::from_secs(30) };
        let mut body = ClientBody::new(Pieces::new(pieces), limits);
        let mut bytes = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        (bytes, body.outcome().error())
    }

    #[tokio::test(start_paused = true)]
    async fn each_piece_has_the_time_of_its_own() {
        assert_eq!(read(&[(29, 10), (29, 10), (29, 10)]).await, (30, None));
        assert_eq!(read(&[(29, 10), (31, 10)]).await, (10, Some(ProxyError::BodyTimeout)));
        assert_eq!(read(&[(31, 1)]).await, (0, Some(ProxyError::BodyTimeout)));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_counted_while_they_stream() {
        assert_eq!(read(&[(0, 60), (0, 40)]).await, (100, None));
        assert_eq!(read(&[(0, 60), (0, 41)]).await, (60, Some(ProxyError::BodyTooLarge)));
    }
}
