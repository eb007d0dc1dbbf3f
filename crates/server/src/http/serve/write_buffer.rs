//! Bytes on their way to a client of HTTP/1.1: heads and small pieces in one buffer, and behind it
//! a large piece that is not copied.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::AsyncWrite;

use crate::http::http1::{Encoder, LengthMismatch};
use crate::listen::http2::Progress;

/// Bytes that are collected for one write.
const COLLECTED_BYTES: usize = 16 << 10;
/// Longest piece that is copied.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Memory of a response without a large piece.
const CAPACITY: usize = 1 << 10;

/// What is to be written.
#[derive(Debug)]
pub(super) struct WriteBuffer<D> {
    pub(super) bytes: Vec<u8>,
    written: usize,
    piece: Option<D>,
    /// What follows the piece.
    piece_end: &'static [u8],
    /// Whether the transport may still hold what was written.
    is_unflushed: bool,
}

impl<D: Buf> WriteBuffer<D> {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), written: 0, piece: None, piece_end: b"", is_unflushed: false }
    }

    /// Whether more can be collected before it is written.
    pub(super) fn has_space(&self) -> bool {
        self.piece.is_none() && self.bytes.len() < COLLECTED_BYTES
    }

    /// The buffer for a head.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.reserve(CAPACITY);
        &mut self.bytes
    }

    /// Adds a piece of a body. There has to be space.
    pub(super) fn push(
        &mut self,
        encoder: &mut Encoder,
        mut piece: D,
    ) -> Result<(), LengthMismatch> {
        let length = piece.remaining();
        if length == 0 {
            return Ok(());
        }
        encoder.begin_piece(&mut self.bytes, length)?;
        if length > COPIED_BYTES_MAX {
            self.piece = Some(piece);
            self.piece_end = encoder.piece_end();
            return Ok(());
        }
        while piece.has_remaining() {
            let chunk = piece.chunk();
            self.bytes.extend_from_slice(chunk);
            let count = chunk.len();
            piece.advance(count);
        }
        self.bytes.extend_from_slice(encoder.piece_end());
        Ok(())
    }

    /// Adds the end of the body, behind its last piece or when there is space.
    pub(super) fn finish(&mut self, encoder: Encoder) -> Result<(), LengthMismatch> {
        match (&self.piece, encoder) {
            (Some(_), Encoder::Chunked) => self.piece_end = b"\r\n0\r\n\r\n",
            _ => encoder.finish(&mut self.bytes)?,
        }
        Ok(())
    }

    /// Bytes that are not written.
    pub(super) fn unwritten(&self) -> usize {
        let piece = self.piece.as_ref().map_or(0, Buf::remaining);
        self.bytes.len() - self.written + piece + self.piece_end.len()
    }

    /// Writes all of it.
    pub(super) fn poll_flush<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
        progress: &Progress,
    ) -> Poll<io::Result<()>> {
        while self.unwritten() > 0 {
            self.is_unflushed = true;
            let outcome = self.poll_write(io, cx);
            progress.wrote(&outcome);
            match ready!(outcome)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.advance(count),
            }
        }
        self.bytes.clear();
        self.written = 0;
        self.piece = None;
        if self.is_unflushed {
            let outcome = Pin::new(io).poll_flush(cx);
            progress.wrote(&outcome);
            ready!(outcome)?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write<I: AsyncWrite + Unpin>(
        &self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let bytes = self.bytes.get(self.written..).unwrap_or_default();
        let piece = self.piece.as_ref().map(Buf::chunk).unwrap_or_default();
        // Only a piece of one part can be followed by its end.
        let is_last = self.piece.as_ref().is_none_or(|all| all.remaining() == piece.len());
        let end = if is_last { self.piece_end } else { b"" };
        let io = Pin::new(io);
        if piece.is_empty() && end.is_empty() {
            return io.poll_write(cx, bytes);
        }
        if io.is_write_vectored() {
            return io.poll_write_vectored(cx, &[bytes, piece, end].map(IoSlice::new));
        }
        let parts = [bytes, piece, end];
        io.poll_write(cx, parts.into_iter().find(|part| !part.is_empty()).unwrap_or_default())
    }

    fn advance(&mut self, count: usize) {
        let of_bytes = count.min(self.bytes.len() - self.written);
        self.written += of_bytes;
        let mut count = count - of_bytes;
        if let Some(piece) = &mut self.piece {
            let of_piece = count.min(piece.remaining());
            piece.advance(of_piece);
            count -= of_piece;
        }
        self.piece_end = self.piece_end.get(count..).unwrap_or_default();
    }

    /// Releases the memory of what is written.
    pub(super) fn release(&mut self) {
        if self.unwritten() == 0 && !self.is_unflushed {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    /// Takes so many bytes of each write, none with 0, and passes them on with a flush.
    struct Slow {
        counts: Vec<usize>,
        calls: usize,
        is_vectored: bool,
        taken: Vec<u8>,
        written: Vec<u8>,
    }

    impl Slow {
        fn next_count(&mut self) -> usize {
            self.calls += 1;
            self.counts[self.calls % self.counts.len()]
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let count = self.next_count();
            if count == 0 {
                return Poll::Pending;
            }
            let before = self.taken.len();
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            self.taken.extend(all.take(count));
            Poll::Ready(Ok(self.taken.len() - before))
        }

        fn is_write_vectored(&self) -> bool {
            self.is_vectored
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.next_count() == 0 {
                return Poll::Pending;
            }
            let taken = std::mem::take(&mut self.taken);
            self.written.extend(taken);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn what_is_written_does_not_depend_on_how_much_a_write_takes(
            lengths in proptest::collection::vec(1_usize..3 * COPIED_BYTES_MAX, 0..6),
            mut counts in proptest::collection::vec(0_usize..9_000, 1..8),
            is_vectored: bool,
            is_chunked: bool,
            ends_apart: bool,
        ) {
            counts.push(1);
            let body: Vec<u8> = (0..lengths.iter().sum()).map(|index| (index % 251) as u8).collect();
            let mut io = Slow { counts, calls: 0, is_vectored, taken: Vec::new(), written: Vec::new() };
            let length = Encoder::Length(body.len() as u64);
            let mut encoder = if is_chunked { Encoder::Chunked } else { length };
            let (mut same, mut expected) = (encoder, b"head".to_vec());
            let (mut buffer, progress) = (WriteBuffer::new(), Progress::default());
            buffer.begin().extend_from_slice(b"head");
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut flush = |buffer: &mut WriteBuffer<_>| {
                while buffer.poll_flush(&mut io, &mut cx, &progress).is_pending() {}
            };
            let mut rest = Bytes::from(body);
            for length in lengths {
                let piece = rest.split_to(length);
                same.encode(&mut expected, &piece).unwrap();
                if !buffer.has_space() {
                    flush(&mut buffer);
                }
                buffer.push(&mut encoder, piece).unwrap();
            }
            if ends_apart {
                flush(&mut buffer);
            }
            buffer.finish(encoder).unwrap();
            same.finish(&mut expected).unwrap();
            flush(&mut buffer);
            prop_assert_eq!(buffer.unwritten(), 0);
            prop_assert!(!progress.is_write_blocked());
            prop_assert_eq!(io.written, expected);
        }
    }
}
