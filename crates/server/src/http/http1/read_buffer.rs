//! Bytes of a connection that were read and not consumed.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Bytes of a read, at first and at most: it doubles while reads fill the buffer.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// For reads of connections that wait, and therefore have no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MIN * 4]);
}

/// Buffer that reads of a connection go to.
#[derive(Debug)]
pub struct ReadBuffer {
    /// What was read.
    pub bytes: BytesMut,
    read_bytes: usize,
}

impl ReadBuffer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: BytesMut::new(), read_bytes: READ_BYTES_MIN }
    }

    /// Reads more; 0 is the end.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn poll_read(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Small messages share a buffer. When it is full and they are gone, it is used from its
        // beginning again.
        if self.bytes.capacity() - self.bytes.len() < self.read_bytes / 4 {
            self.bytes.reserve(self.read_bytes);
        }
        let space = self.bytes.capacity() - self.bytes.len();
        let count = ready!(poll_read_buf(Pin::new(io), cx, &mut self.bytes))?;
        if count == space {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok(count))
    }

    /// Reads more, and passes all that was not consumed to `parse`, which returns how much it
    /// consumes. The rest is kept in a buffer of its size; without a rest there is none. 0 is the
    /// end.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn poll_read_parsed(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        parse: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(Pin::new(io).poll_read(cx, &mut buf))?;
            let filled = buf.filled();
            if filled.is_empty() {
                return Poll::Ready(Ok(0));
            }
            if self.bytes.is_empty() {
                let rest = filled.get(parse(filled)..).unwrap_or_default();
                if !rest.is_empty() {
                    self.bytes.extend_from_slice(rest);
                }
            } else {
                self.bytes.extend_from_slice(filled);
                let consumed = parse(&self.bytes);
                self.bytes.advance(consumed);
            }
            Poll::Ready(Ok(filled.len()))
        })
    }

    /// Reads and discards; 0 is the end.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn poll_discard(
        io: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            Pin::new(io).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
        })
    }

    /// Releases a large buffer if nothing is in it.
    pub fn shrink(&mut self) {
        if self.read_bytes > READ_BYTES_MIN {
            self.release();
        }
    }

    /// Releases the buffer if nothing is in it.
    pub fn release(&mut self) {
        if self.bytes.is_empty() {
            *self = Self::new();
        }
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}
