//! The body of a response: the upstream's, or ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Permit;

pin_project! {
    /// The body of a response that has passed a [`RateLimit`](super::RateLimit): what the service answers, or a denial.
    ///
    /// As long as it lasts, the request holds its slots of concurrency limits. They are given back at the end of the body, when
    /// it fails, or when it is dropped, whatever comes first.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use sluicegate::tower::ResponseBody;
    ///
    /// fn of_a_limited_service(body: ResponseBody<Full<Bytes>>) -> impl http_body::Body<Data = Bytes> {
    ///     body
    /// }
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    #[derive(Debug)]
    enum Kind<B> {
        Upstream { #[pin] body: B, slots: Vec<Permit> },
        Ours { bytes: Bytes },
    }
}

// === impl ResponseBody ===

impl<B> ResponseBody<B> {
    /// The upstream's, holding these slots.
    pub(super) const fn upstream(body: B, slots: Vec<Permit>) -> Self {
        Self { kind: Kind::Upstream { body, slots } }
    }

    pub(super) const fn ours(bytes: Bytes) -> Self {
        Self { kind: Kind::Ours { bytes } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProjected::Upstream { mut body, slots } => {
                let polled = body.as_mut().poll_frame(cx);
                // A server need not ask again once the body says that this was all.
                let ended = match &polled {
                    Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
                    Poll::Ready(Some(Err(_)) | None) => true,
                    Poll::Pending => false,
                };
                if ended {
                    slots.clear();
                }
                polled
            }
            KindProjected::Ours { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProjected::Ours { bytes } => {
                let all = std::mem::take(bytes);
                Poll::Ready(Some(Ok(Frame::data(all.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Upstream { body, .. } => body.is_end_stream(),
            Kind::Ours { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Upstream { body, .. } => body.size_hint(),
            Kind::Ours { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
