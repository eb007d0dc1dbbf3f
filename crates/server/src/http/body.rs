//! Receives the body of a request.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body::Body as HttpBody;

use super::error::ApiError;
use super::sized_body::BodyTimeout;
use crate::memory::GatherError;

/// Longest body of a request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A body that is being received.
#[derive(Debug)]
pub(super) struct BodyReader<B> {
    body: B,
    /// Nearly always the first piece is the whole body, and is not copied.
    first: Bytes,
    /// All pieces, if there are several.
    all: BytesMut,
}

/// Receives the whole body.
pub(super) async fn receive(body: Body) -> Result<Bytes, ApiError> {
    let mut reader = BodyReader::new(body);
    poll_fn(|cx| reader.poll(cx)).await
}

impl<B> BodyReader<B>
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    pub(super) fn new(body: B) -> Self {
        Self { body, first: Bytes::new(), all: BytesMut::new() }
    }

    /// The whole body, once it has arrived.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, ApiError>> {
        if self.body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Poll::Ready(Err(ApiError::too_large(BODY_BYTES_MAX)));
        }
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(self.take())),
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    let Ok(data) = frame.into_data() else { continue };
                    if self.first.len().max(self.all.len()) + data.len() > BODY_BYTES_MAX {
                        return Poll::Ready(Err(ApiError::too_large(BODY_BYTES_MAX)));
                    }
                    self.push(data);
                    if self.body.is_end_stream() {
                        return Poll::Ready(Ok(self.take()));
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Err(error_of(&*error.into())));
                }
            }
        }
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }

    fn take(&mut self) -> Bytes {
        let first = std::mem::take(&mut self.first);
        if self.all.is_empty() { first } else { std::mem::take(&mut self.all).freeze() }
    }
}

/// Error of a request whose body did not arrive.
fn error_of(error: &(dyn Error + 'static)) -> ApiError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<BodyTimeout>() {
            return ApiError::late();
        }
        match error.downcast_ref() {
            Some(GatherError::TooLong) => return ApiError::too_large(BODY_BYTES_MAX),
            Some(GatherError::Exhausted) => return ApiError::overload().closing(),
            None => cause = error.source(),
        }
    }
    ApiError::broken()
}
