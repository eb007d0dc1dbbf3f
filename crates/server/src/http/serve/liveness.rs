//! Whether a connection is alive, without a timer for each request.
//!
//! Events are counted, and a check at intervals finds whether there were any. So a request costs a
//! few counters, and timeouts are exact up to one interval.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Bounds;
use crate::listen::http2::{FrameParser, PREFACE_BYTES, Progress, StallDetector};
use crate::memory::{Account, Charge};

/// What happens on a connection.
#[derive(Debug)]
pub(super) struct Watch {
    /// How often anything has begun or ended.
    moves: AtomicU64,
    /// Requests that are being answered.
    in_hand: AtomicUsize,
    /// Whether a head has begun and not ended. The first is awaited from the beginning.
    head: AtomicBool,
    /// Whether it is HTTP/2, where bytes need not be a head.
    frames: AtomicBool,
    /// Frames of HTTP/2, and writes of either protocol.
    progress: Progress,
}

/// How long nothing has happened.
#[derive(Debug)]
pub(super) struct Silence {
    look_every: Duration,
    header_looks: u32,
    idle_looks: u32,
    seen: u64,
    /// Looks that found nothing new.
    looks: u32,
    stall: StallDetector,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Fine,
    /// Nobody asks for anything.
    Idle,
    /// A head, a frame or a response takes too long, or an idle client does not leave.
    TooLong,
}

/// A connection whose bytes are counted.
pub(super) struct Watched<I> {
    io: I,
    watch: Arc<Watch>,
    account: Arc<Account>,
    protocol: Protocol,
    /// For a frame or a header block that is buffered.
    charge: Option<Charge>,
    /// How many bytes may still come, once everything is said.
    farewell: Option<usize>,
}

/// Protocol of a connection.
#[derive(Debug)]
enum Protocol {
    /// So many of the first bytes were those of HTTP/2.
    Unknown(usize),
    Http1,
    Http2(FrameParser),
}

/// No method of HTTP/1.1 begins like the preface of HTTP/2.
const PREFACE: &[u8] = b"PRI";

/// Of a head that is refused so many more bytes are read, and thrown away. Proxies send on heads of up to 1 MiB.
const FAREWELL_BYTES_MAX: usize = 2 << 20;

// === impl Watch ===

impl Default for Watch {
    fn default() -> Self {
        Self {
            moves: AtomicU64::new(0),
            in_hand: AtomicUsize::new(0),
            head: AtomicBool::new(true),
            frames: AtomicBool::new(false),
            progress: Progress::default(),
        }
    }
}

impl Watch {
    /// A head is complete.
    pub(super) fn request_begun(&self) {
        self.head.store(false, Relaxed);
        self.in_hand.fetch_add(1, Relaxed);
        self.moves.fetch_add(1, Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.in_hand.fetch_sub(1, Relaxed);
        self.moves.fetch_add(1, Relaxed);
    }

    fn bytes_came(&self) {
        // With a request in hand they are of its body, or of one that is not read before that has ended.
        let head = self.in_hand.load(Relaxed) == 0 && !self.frames.load(Relaxed);
        if head && !self.head.swap(true, Relaxed) {
            self.moves.fetch_add(1, Relaxed);
        }
    }

    fn are_frames(&self) {
        self.frames.store(true, Relaxed);
        self.head.store(false, Relaxed);
    }

    pub(super) fn requests_in_hand(&self) -> usize {
        self.in_hand.load(Relaxed)
    }

    pub(super) fn is_write_blocked(&self) -> bool {
        self.progress.is_write_blocked()
    }
}

// === impl Silence ===

impl Silence {
    pub(super) fn new(bounds: &Bounds) -> Self {
        /// A look must cost nothing beside what is looked at.
        const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);

        let look_every = (bounds.header_patience / 2).max(LOOK_EVERY_MIN);
        let looks = |patience: Duration| {
            let looks = patience.as_nanos().div_ceil(look_every.as_nanos());
            u32::try_from(looks).unwrap_or(u32::MAX).max(1)
        };
        let (header_looks, idle_looks) = (looks(bounds.header_patience), looks(bounds.idle));
        let stall = StallDetector::default();
        Self { look_every, header_looks, idle_looks, seen: 0, looks: 0, stall }
    }

    pub(super) const fn look_every(&self) -> Duration {
        self.look_every
    }

    pub(super) fn look(&mut self, watch: &Watch, account: &Account) -> Look {
        account.trim();
        // Both need to be checked each time.
        let is_stalled = self.stall.is_stalled(&watch.progress, self.header_looks);
        if account.has_stuck_response() || is_stalled {
            return Look::TooLong;
        }
        let moves = watch.moves.load(Relaxed);
        // Who is being answered is in our hand, and the body has a patience of its own.
        if moves != self.seen || watch.in_hand.load(Relaxed) > 0 {
            self.seen = moves;
            self.looks = 0;
            return Look::Fine;
        }
        self.looks = self.looks.saturating_add(1);
        match watch.head.load(Relaxed) {
            true if self.looks >= self.header_looks => Look::TooLong,
            _ if self.looks > self.idle_looks => Look::TooLong,
            _ if self.looks == self.idle_looks => Look::Idle,
            _ => Look::Fine,
        }
    }
}

// === impl Watched ===

impl<I> Watched<I> {
    pub(super) const fn new(io: I, watch: Arc<Watch>, account: Arc<Account>) -> Self {
        let protocol = Protocol::Unknown(0);
        Self { io, watch, account, protocol, charge: None, farewell: None }
    }

    /// Whether a head has begun, and will not be read to its end.
    fn is_within_head(&self) -> bool {
        !matches!(self.protocol, Protocol::Unknown(0)) && self.watch.head.load(Relaxed)
    }
}

impl<I: AsyncRead + Unpin> Watched<I> {
    /// Reads what still comes, up to a bound. Whoever closes over unread bytes breaks the connection off, and the peer takes the answer that was under way
    /// for a failure: a proxy that lets requests pass when its limiter fails would let pass whoever sends enough.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 8 << 10];
        while let Some(left) = self.farewell.filter(|left| *left > 0) {
            let mut buf = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf));
            let came = buf.filled().len();
            if read.is_err() || came == 0 {
                break;
            }
            self.farewell = Some(left.saturating_sub(came));
        }
        self.farewell = Some(0);
        Poll::Ready(())
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let came = buf.filled().get(before..).unwrap_or_default();
        if came.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        if let Protocol::Unknown(before) = this.protocol {
            this.protocol = Protocol::of(before, came);
            if matches!(this.protocol, Protocol::Http2(_)) {
                this.watch.are_frames();
            }
        } else if let Protocol::Http2(parser) = &mut this.protocol {
            parser.feed(came);
        }
        if let Protocol::Http2(parser) = &this.protocol {
            let progress = &this.watch.progress;
            return Poll::Ready(parser.publish(progress, &this.account, &mut this.charge));
        }
        this.watch.bytes_came();
        Poll::Ready(Ok(()))
    }
}

impl Protocol {
    /// Of a connection that has sent so many bytes like those of HTTP/2, and then these.
    fn of(before: usize, came: &[u8]) -> Self {
        // They may come in pieces.
        let rest = PREFACE.get(before..).unwrap_or_default();
        let more = rest.iter().zip(came).take_while(|(a, b)| a == b).count();
        match before + more {
            whole if whole == PREFACE.len() => {
                let mut parser = FrameParser::new(PREFACE_BYTES - PREFACE.len());
                parser.feed(came.get(more..).unwrap_or_default());
                Self::Http2(parser)
            }
            part if more == came.len() => Self::Unknown(part),
            _ => Self::Http1,
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch.progress.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.watch.progress.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.farewell.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.farewell = Some(if self.is_within_head() { FAREWELL_BYTES_MAX } else { 0 });
        }
        self.poll_farewell(cx).map(Ok)
    }
}
