//! The body of a request, as its handler reads it.
//!
//! A body of HTTP/1.1 that has arrived with its head is there at once. Any other passes through a
//! channel of one frame: the connection reads when the handler asks for more, so that a handler
//! that does not read stops the client.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

/// The body of a request.
#[derive(Debug)]
pub struct IncomingBody(Source);

#[derive(Debug)]
enum Source {
    Empty,
    /// All of it has arrived.
    Whole(Bytes),
    Channel(Receiver),
    Http2(Incoming),
}

/// The body did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BodyError(&'static str);

/// Any error.
pub(in crate::http) type BoxError = Box<dyn Error + Send + Sync>;

impl IncomingBody {
    /// No body.
    pub(super) const fn empty() -> Self {
        Self(Source::Empty)
    }

    /// A body that has arrived.
    pub(super) const fn whole(bytes: Bytes) -> Self {
        Self(Source::Whole(bytes))
    }

    /// A body that is still to arrive, and the sender of its frames.
    pub(super) fn channel(hint: SizeHint) -> (BodySender, Self) {
        let slot = Slot {
            frame: None,
            state: BodyState::Open,
            hint,
            is_wanted: false,
            receiver: None,
            sender: None,
        };
        let slot = Arc::new(Mutex::new(slot));
        (BodySender { slot: slot.clone() }, Self(Source::Channel(Receiver { slot })))
    }
}

impl From<Incoming> for IncomingBody {
    fn from(body: Incoming) -> Self {
        Self(Source::Http2(body))
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Source::Empty => Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Source::Channel(receiver) => receiver.poll_frame(cx),
            Source::Http2(body) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Empty => true,
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Channel(receiver) => {
                let slot = receiver.slot.lock();
                slot.frame.is_none() && slot.state == BodyState::Ended
            }
            Source::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Channel(receiver) => receiver.size_hint(),
            Source::Http2(body) => body.size_hint(),
        }
    }
}

// === channel ===

/// The frame between a connection and the handler of its request.
#[derive(Debug)]
struct Slot {
    frame: Option<Frame<Bytes>>,
    state: BodyState,
    /// What is known of the body behind the frame.
    hint: SizeHint,
    /// Whether the handler asks for a frame.
    is_wanted: bool,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Open,
    Ended,
    Failed(BodyError),
    /// The handler does not read it to its end.
    Dropped,
}

/// The connection's side of a body.
#[derive(Debug)]
pub(super) struct BodySender {
    slot: Arc<Mutex<Slot>>,
}

/// The handler's side of a body.
#[derive(Debug)]
struct Receiver {
    slot: Arc<Mutex<Slot>>,
}

/// What a handler wants of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// The next frame.
    Frame,
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Dropped,
}

impl BodySender {
    /// What the handler wants. The task is woken when it wants more.
    pub(super) fn demand(&self, cx: &mut Context<'_>) -> Demand {
        let mut slot = self.slot.lock();
        if slot.state == BodyState::Dropped {
            return Demand::Dropped;
        }
        if slot.is_wanted {
            return Demand::Frame;
        }
        set_waker(&mut slot.sender, cx);
        Demand::Nothing
    }

    /// Whether the handler has dropped the body.
    pub(super) fn is_dropped(&self) -> bool {
        self.slot.lock().state == BodyState::Dropped
    }

    /// Passes a frame on; what follows it, has this size, unless it has ended.
    pub(super) fn send(&self, frame: Frame<Bytes>, rest: Option<SizeHint>, cx: &Context<'_>) {
        let mut slot = self.slot.lock();
        slot.frame = Some(frame);
        match rest {
            Some(hint) => slot.hint = hint,
            None => slot.end(BodyState::Ended),
        }
        slot.notify_receiver(Some(cx));
    }

    /// The body has ended.
    pub(super) fn end(&self, cx: &Context<'_>) {
        let mut slot = self.slot.lock();
        slot.end(BodyState::Ended);
        slot.notify_receiver(Some(cx));
    }

    /// The rest of the body does not arrive.
    pub(super) fn fail(&self, reason: &'static str, cx: Option<&Context<'_>>) {
        let mut slot = self.slot.lock();
        slot.end(BodyState::Failed(BodyError(reason)));
        slot.notify_receiver(cx);
    }

    /// Bytes that the handler has not taken.
    pub(super) fn held_bytes(&self) -> usize {
        let slot = self.slot.lock();
        slot.frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len)
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.fail("the connection was closed", None);
    }
}

impl Slot {
    fn end(&mut self, state: BodyState) {
        if self.state == BodyState::Open {
            self.state = state;
        }
        if state == BodyState::Ended {
            self.hint = SizeHint::with_exact(0);
        }
    }

    /// Wakes the handler, unless it is part of the task that runs, which polls it again.
    fn notify_receiver(&mut self, cx: Option<&Context<'_>>) {
        self.is_wanted = false;
        if let Some(waker) = self.receiver.take()
            && !cx.is_some_and(|cx| waker.will_wake(cx.waker()))
        {
            waker.wake();
        }
    }

    /// Wakes the connection, unless it is the task that runs, which polls it again.
    fn notify_sender(&mut self, cx: &Context<'_>) {
        if let Some(waker) = self.sender.take_if(|waker| !waker.will_wake(cx.waker())) {
            waker.wake();
        }
    }
}

impl Receiver {
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut slot = self.slot.lock();
        if let Some(frame) = slot.frame.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match slot.state {
            BodyState::Ended | BodyState::Dropped => Poll::Ready(None),
            BodyState::Failed(error) => Poll::Ready(Some(Err(error.into()))),
            BodyState::Open => {
                slot.is_wanted = true;
                set_waker(&mut slot.receiver, cx);
                slot.notify_sender(cx);
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let slot = self.slot.lock();
        let held = slot.frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(slot.hint.lower().saturating_add(held));
        if let Some(upper) = slot.hint.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut slot = self.slot.lock();
        slot.frame = None;
        slot.end(BodyState::Dropped);
        if let Some(waker) = slot.sender.take() {
            waker.wake();
        }
    }
}

fn set_waker(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for BodyError {}
