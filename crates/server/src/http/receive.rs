//! The body of a request, as one piece of memory.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body::Body as HttpBody;

use super::error::Refusal;
use super::serve::Late;
use crate::memory::GatherError;

/// The longest body of a request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A body that is coming in.
#[derive(Debug)]
pub(super) struct Receiving<B> {
    body: B,
    /// What has come. Nearly always the first piece is all, and is not copied.
    so_far: SoFar,
}

#[derive(Debug)]
enum SoFar {
    Nothing,
    One(Bytes),
    More(BytesMut),
}

/// All of it.
pub(super) async fn receive(body: Body) -> Result<Bytes, Refusal> {
    let mut receiving = Receiving::new(body);
    poll_fn(|cx| receiving.poll(cx)).await
}

impl<B> Receiving<B>
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    pub(super) const fn new(body: B) -> Self {
        Self { body, so_far: SoFar::Nothing }
    }

    /// All of it, once it is here.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Refusal>> {
        if self.body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Poll::Ready(Err(Refusal::too_large(BODY_BYTES_MAX)));
        }
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(self.so_far.take())),
                Some(Ok(frame)) => {
                    // Trailers have nothing to tell us.
                    let Ok(data) = frame.into_data() else { continue };
                    if self.so_far.len() + data.len() > BODY_BYTES_MAX {
                        return Poll::Ready(Err(Refusal::too_large(BODY_BYTES_MAX)));
                    }
                    self.so_far.push(data);
                    if self.body.is_end_stream() {
                        return Poll::Ready(Ok(self.so_far.take()));
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Err(refusal_of(&*error.into())));
                }
            }
        }
    }
}

impl SoFar {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::More(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, more: Bytes) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::One(more),
            Self::One(first) => {
                let mut all = BytesMut::from(first);
                all.extend_from_slice(&more);
                Self::More(all)
            }
            Self::More(mut all) => {
                all.extend_from_slice(&more);
                Self::More(all)
            }
        };
    }

    fn take(&mut self) -> Bytes {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::More(bytes) => bytes.freeze(),
        }
    }
}

/// Refusal of a request whose body did not arrive.
fn refusal_of(error: &(dyn Error + 'static)) -> Refusal {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<Late>() {
            return Refusal::late();
        }
        match error.downcast_ref() {
            Some(GatherError::TooLong) => return Refusal::too_large(BODY_BYTES_MAX),
            Some(GatherError::Exhausted) => return Refusal::overload(),
            None => cause = error.source(),
        }
    }
    Refusal::broken()
}
