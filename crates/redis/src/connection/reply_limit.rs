//! Bound on the size of one reply.
//!
//! The Redis crate buffers a reply of any length until it is complete: an endless line would
//! exhaust the memory. [`ReplyMeter`] parses the structure of replies as bytes arrive, and the
//! first reply above a limit closes the connection.
//!
//! The longest reply to our scripts has 16 requests of four limits, each a log of 10,000 entries of
//! at most 20 digits: less than 13 MiB, in fewer than 10,000 values.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::peer::DialTrace;

const REPLY_BYTES_MAX: u64 = 16 << 20;
/// Values of one reply, nested ones included; each takes some 40 bytes, however short it was sent.
const REPLY_VALUES_MAX: u64 = 1 << 18;
/// Bytes of a header line: a type and a number.
const HEADER_BYTES_MAX: usize = 32;

/// Why a connection was closed.
pub(super) const REPLY_TOO_LONG: &str = "a reply exceeds 16 MiB or 262,144 values";

/// Measures replies of RESP2 and RESP3.
#[derive(Debug, Default)]
struct ReplyMeter {
    /// Type and number of the current line.
    header: [u8; HEADER_BYTES_MAX],
    header_length: usize,
    /// Bytes left of a bulk string and its line end; 0 while a line is read.
    bulk_left: u64,
    /// Values that complete the reply; 0 between two replies.
    values_left: u64,
    bytes: u64,
    values: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReplyTooLong;

impl ReplyMeter {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ReplyTooLong> {
        while !bytes.is_empty() {
            let taken = if self.bulk_left > 0 { self.skip(bytes.len()) } else { self.line(bytes) };
            self.bytes = self.bytes.saturating_add(taken as u64);
            if self.bytes > REPLY_BYTES_MAX || self.values > REPLY_VALUES_MAX {
                return Err(ReplyTooLong);
            }
            if self.values_left == 0 && self.bulk_left == 0 && self.header_length == 0 {
                (self.bytes, self.values) = (0, 0);
            }
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn skip(&mut self, length: usize) -> usize {
        let taken = usize::try_from(self.bulk_left).unwrap_or(usize::MAX).min(length);
        self.bulk_left -= taken as u64;
        if self.bulk_left == 0 {
            self.values_left = self.values_left.saturating_sub(1);
        }
        taken
    }

    fn line(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        let room = self.header.get_mut(self.header_length..).unwrap_or_default();
        let retained = room.len().min(taken);
        for (to, byte) in room.iter_mut().zip(bytes.iter().take(retained)) {
            *to = *byte;
        }
        self.header_length += retained;
        if end.is_some() {
            self.end_line();
        }
        taken
    }

    fn end_line(&mut self) {
        let line = self.header.get(..self.header_length).unwrap_or_default();
        let kind = line.first().copied().unwrap_or_default();
        let number = str::from_utf8(line.get(1..).unwrap_or_default()).ok();
        // A null has a negative length and no content.
        let number = number.and_then(|text| text.trim_end().parse::<u64>().ok());
        self.header_length = 0;
        self.values = self.values.saturating_add(1);
        let others = self.values_left.max(1) - 1;
        self.values_left = match (kind, number) {
            (b'$' | b'=' | b'!', Some(length)) => {
                self.bulk_left = length.saturating_add(2);
                others.saturating_add(1)
            }
            (b'*' | b'~' | b'>', Some(count)) => others.saturating_add(count),
            (b'%', Some(count)) => others.saturating_add(count.saturating_mul(2)),
            // An attribute precedes the value that it belongs to.
            (b'|', Some(count)) => others.saturating_add(count.saturating_mul(2)).saturating_add(1),
            _ => others,
        };
    }
}

/// A stream whose replies are bounded.
#[derive(Debug)]
pub(super) struct ReplyLimited<S> {
    stream: S,
    meter: ReplyMeter,
    is_exceeded: Arc<AtomicBool>,
    /// Until the first bytes have arrived.
    trace: Option<Arc<DialTrace>>,
}

impl<S> ReplyLimited<S> {
    /// Returns also a flag that is set when a reply was too long.
    pub(super) fn new(stream: S, trace: Arc<DialTrace>) -> (Self, Arc<AtomicBool>) {
        let is_exceeded = Arc::new(AtomicBool::new(false));
        let (meter, trace) = (ReplyMeter::default(), Some(trace));
        let limited = Self { stream, meter, is_exceeded: is_exceeded.clone(), trace };
        (limited, is_exceeded)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let arrived = buf.filled().get(before..).unwrap_or_default();
        if let Some(trace) = self.trace.take() {
            trace.received(arrived);
        }
        Poll::Ready(self.meter.feed(arrived).map_err(|ReplyTooLong| {
            self.is_exceeded.store(true, Relaxed);
            io::Error::new(io::ErrorKind::InvalidData, REPLY_TOO_LONG)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[&str] = &[
        "+OK\r\n",
        ":42\r\n",
        "-ERR no\r\n",
        "$5\r\nhel\r\n\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*3\r\n:1\r\n*2\r\n+a\r\n$0\r\n\r\n$2\r\nab\r\n",
        "%1\r\n+key\r\n*1\r\n:1\r\n",
        "|1\r\n+a\r\n:1\r\n+value\r\n",
        ">2\r\n+message\r\n_\r\n",
        "=6\r\ntxt:ab\r\n",
    ];

    #[test]
    fn replies_end_where_they_end_in_pieces_of_any_length() {
        let all = REPLIES.concat();
        for length in 1..all.len() {
            let mut meter = ReplyMeter::default();
            all.as_bytes().chunks(length).for_each(|piece| meter.feed(piece).unwrap());
            assert_eq!((meter.bytes, meter.values, meter.values_left), (0, 0, 0), "{length}");
        }
        for reply in REPLIES {
            let mut meter = ReplyMeter::default();
            let (last, rest) = reply.as_bytes().split_last().unwrap();
            meter.feed(rest).unwrap();
            assert!(meter.bytes > 0, "{reply:?} is not complete");
            meter.feed(&[*last]).unwrap();
            assert_eq!(meter.bytes, 0, "{reply:?} is complete");
        }
    }

    #[test]
    fn replies_beyond_the_limits_fail_and_many_short_ones_do_not() {
        let mut meter = ReplyMeter::default();
        let reply = "*2\r\n:1\r\n+a\r\n".repeat(10_000);
        (0..1_000).for_each(|_| meter.feed(reply.as_bytes()).unwrap());

        let piece = vec![b'x'; 1 << 20];
        let endless = |start: &str| {
            let mut meter = ReplyMeter::default();
            meter.feed(start.as_bytes()).unwrap();
            (0..=16).find_map(|_| meter.feed(&piece).err())
        };
        for start in ["+", "$99999999\r\n", "*2\r\n:1\r\n$20000000\r\n", ""] {
            assert_eq!(endless(start), Some(ReplyTooLong), "{start:?}");
        }
        let mut meter = ReplyMeter::default();
        let nested = "*9\r\n".repeat(300_000);
        assert_eq!(meter.feed(nested.as_bytes()), Err(ReplyTooLong), "many values in few bytes");
    }
}
