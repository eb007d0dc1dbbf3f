//! The request on its way to the server: its head, and its body as the client sends it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use sluicegate_server::http::http1::Encoder;

use super::Parts;
use crate::body::RequestBody;

/// Bytes that are collected for one write.
const WRITE_BYTES: usize = 16 << 10;

/// A request that is not written to its end.
#[derive(Debug)]
pub(super) struct Upload {
    body: RequestBody,
    encoder: Encoder,
    is_read: bool,
    written: u64,
}

/// Why a request was not written to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadError {
    /// The client did not send the body.
    Body,
    /// The server does not take it.
    Write,
}

impl Upload {
    pub(super) fn new(body: RequestBody, encoder: Encoder) -> Self {
        let is_read = encoder == Encoder::None;
        Self { body, encoder, is_read, written: 0 }
    }

    /// Bytes of the body that were passed on.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Writes what the client has sent; ready when all of it is written.
    pub(super) fn poll(
        &mut self,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        loop {
            let mut is_waiting = false;
            while !self.is_read && !is_waiting && parts.write.len() < WRITE_BYTES {
                match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.encode(&mut parts.write, frame)?,
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(UploadError::Body)),
                    Poll::Ready(None) => self.finish(&mut parts.write)?,
                    Poll::Pending => is_waiting = true,
                }
            }
            match parts.poll_write(cx) {
                Poll::Ready(Ok(())) if self.is_read => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) if is_waiting => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(UploadError::Write)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn encode(&mut self, write: &mut Vec<u8>, frame: Frame<Bytes>) -> Result<(), UploadError> {
        // Trailers of a request are not forwarded.
        let Ok(data) = frame.into_data() else { return Ok(()) };
        self.written += data.len() as u64;
        self.encoder.encode(write, &data).map_err(|_| UploadError::Body)
    }

    fn finish(&mut self, write: &mut Vec<u8>) -> Result<(), UploadError> {
        self.is_read = true;
        self.encoder.finish(write).map_err(|_| UploadError::Body)
    }
}
