//! Timeouts of a connection, without a timer for each request.
//!
//! Events are counted, and a watchdog compares the counts at intervals. So a request costs a few
//! counters, and timeouts are exact up to one interval.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use super::{Connection, HttpLimits};
use crate::listen::Observer;
use crate::listen::http2::{FrameParser, PREFACE_BYTES, Progress, StallDetector};
use crate::memory::{Account, Charge};

/// Events of a connection.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Requests and heads that have begun or ended.
    events: AtomicU64,
    /// Requests that are being answered.
    in_flight: AtomicUsize,
    /// Whether a head is incomplete. The first one is expected from the beginning.
    in_head: AtomicBool,
    /// Whether it is HTTP/2, where bytes need not be a head.
    is_http2: AtomicBool,
    /// Frames of HTTP/2, and writes of either protocol.
    progress: Progress,
    stalls: StreamStalls,
}

/// Streams of HTTP/2 whose response waits for the client to open its window. h2 does not read a
/// body then, so the body cannot have a timeout of its own.
#[derive(Debug, Default)]
struct StreamStalls {
    /// Advances four times in the idle time.
    epoch: AtomicU32,
    /// Waiting streams, by the epoch in which they began to wait.
    waiting: [AtomicU32; STALL_EPOCHS],
}

/// More than any stream waits: five, the first of which is not complete.
const STALL_EPOCHS: usize = 8;

impl StreamStalls {
    fn slot(epoch: u32) -> usize {
        epoch as usize % STALL_EPOCHS
    }

    /// Begins the next epoch; whether a stream has waited for four.
    fn advance(&self) -> bool {
        let epoch = self.epoch.fetch_add(1, Relaxed).wrapping_add(1);
        self.waiting[Self::slot(epoch.wrapping_sub(5))].load(Relaxed) > 0
    }
}

/// Compares the events of a connection at intervals.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval: Duration,
    header_checks: u32,
    idle_checks: u32,
    seen: u64,
    /// Checks without a new event.
    checks: u32,
    stall: StallDetector,
    /// Checks since the epoch of waiting streams began.
    epoch_checks: u32,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivenessCheck {
    Alive,
    /// No request for the idle time.
    Idle,
    /// A head, a frame or a response takes too long, or an idle client does not close.
    TimedOut,
}

/// Detects the protocol of a connection and records its events.
#[derive(Debug)]
pub(super) struct HttpObserver<C> {
    connection: Arc<Connection<C>>,
    protocol: HttpProtocol,
    /// For a frame or a header block that is buffered.
    charge: Option<Charge>,
}

/// Protocol of a connection.
#[derive(Debug)]
enum HttpProtocol {
    /// So many of the first bytes match the preface of HTTP/2.
    Unknown(usize),
    Http1,
    Http2(FrameParser),
}

/// No method of HTTP/1.1 begins like the preface of HTTP/2.
const PREFACE: &[u8] = b"PRI";

/// Bytes that are discarded after a rejected head. Proxies forward heads of up to 1 MiB.
const LINGER_BYTES_MAX: usize = 2 << 20;

impl Default for Liveness {
    fn default() -> Self {
        Self {
            events: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            in_head: AtomicBool::new(true),
            is_http2: AtomicBool::new(false),
            progress: Progress::default(),
            stalls: StreamStalls::default(),
        }
    }
}

impl Liveness {
    /// A head is complete.
    pub(super) fn request_begun(&self) {
        self.in_head.store(false, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.events.fetch_add(1, Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.events.fetch_add(1, Relaxed);
    }

    fn bytes_arrived(&self) {
        // With a request in flight they are of its body, or pipelined.
        let head = self.in_flight.load(Relaxed) == 0 && !self.is_http2.load(Relaxed);
        if head && !self.in_head.swap(true, Relaxed) {
            self.events.fetch_add(1, Relaxed);
        }
    }

    fn set_http2(&self) {
        self.is_http2.store(true, Relaxed);
        self.in_head.store(false, Relaxed);
    }

    /// Whether a request has begun, on HTTP/2 at least the connection itself.
    pub(super) fn has_begun(&self) -> bool {
        self.is_http2.load(Relaxed) || self.events.load(Relaxed) > 0
    }

    /// What still arrives is as a head that was rejected.
    pub(super) fn discard_body(&self) {
        if !self.is_http2.load(Relaxed) {
            self.in_head.store(true, Relaxed);
        }
    }

    /// A stream of HTTP/2 waits for its client; the slot that it waits in.
    pub(super) fn wait_for_client(&self) -> Option<usize> {
        if !self.is_http2.load(Relaxed) {
            return None;
        }
        let slot = StreamStalls::slot(self.stalls.epoch.load(Relaxed));
        self.stalls.waiting[slot].fetch_add(1, Relaxed);
        Some(slot)
    }

    /// A stream does not wait any more.
    pub(super) fn stop_waiting(&self, slot: usize) {
        self.stalls.waiting[slot].fetch_sub(1, Relaxed);
    }

    pub(super) fn requests_in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn is_write_blocked(&self) -> bool {
        self.progress.is_write_blocked()
    }
}

impl Watchdog {
    pub(super) fn new(limits: &HttpLimits) -> Self {
        const INTERVAL_MIN: Duration = Duration::from_millis(10);

        let interval = (limits.header_timeout / 2).max(INTERVAL_MIN);
        let checks = |timeout: Duration| {
            let checks = timeout.as_nanos().div_ceil(interval.as_nanos());
            u32::try_from(checks).unwrap_or(u32::MAX).max(1)
        };
        let (header_checks, idle_checks) = (checks(limits.header_timeout), checks(limits.idle));
        let stall = StallDetector::default();
        Self { interval, header_checks, idle_checks, seen: 0, checks: 0, stall, epoch_checks: 0 }
    }

    pub(super) const fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn check(&mut self, liveness: &Liveness, account: &Account) -> LivenessCheck {
        account.trim();
        // Both have to be evaluated at every check.
        let is_stalled = self.stall.is_stalled(&liveness.progress, self.header_checks);
        if account.has_stuck_response() || is_stalled {
            return LivenessCheck::TimedOut;
        }
        self.epoch_checks += 1;
        if self.epoch_checks >= self.idle_checks.div_ceil(4) {
            self.epoch_checks = 0;
            if liveness.stalls.advance() {
                return LivenessCheck::TimedOut;
            }
        }
        let events = liveness.events.load(Relaxed);
        // A request in flight is ours to answer, and its body has its own timeout.
        if events != self.seen || liveness.in_flight.load(Relaxed) > 0 {
            self.seen = events;
            self.checks = 0;
            return LivenessCheck::Alive;
        }
        self.checks = self.checks.saturating_add(1);
        match liveness.in_head.load(Relaxed) {
            true if self.checks >= self.header_checks => LivenessCheck::TimedOut,
            _ if self.checks > self.idle_checks => LivenessCheck::TimedOut,
            _ if self.checks == self.idle_checks => LivenessCheck::Idle,
            _ => LivenessCheck::Alive,
        }
    }
}

impl<C> HttpObserver<C> {
    pub(super) const fn new(connection: Arc<Connection<C>>) -> Self {
        Self { connection, protocol: HttpProtocol::Unknown(0), charge: None }
    }
}

impl<C> Observer for HttpObserver<C> {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let HttpProtocol::Unknown(matched) = self.protocol {
            self.protocol = HttpProtocol::detect(matched, bytes);
            if matches!(self.protocol, HttpProtocol::Http2(_)) {
                self.connection.liveness.set_http2();
            }
        } else if let HttpProtocol::Http2(parser) = &mut self.protocol {
            parser.feed(bytes);
        }
        if let HttpProtocol::Http2(parser) = &self.protocol {
            return parser.publish(
                &self.connection.liveness.progress,
                self.connection.guard.account(),
                &mut self.charge,
            );
        }
        self.connection.liveness.bytes_arrived();
        Ok(())
    }

    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.connection.liveness.progress.wrote(outcome);
    }

    /// A head that has begun and is rejected is read to its end.
    fn linger_bytes(&self) -> usize {
        let has_begun = !matches!(self.protocol, HttpProtocol::Unknown(0));
        if has_begun && self.connection.liveness.in_head.load(Relaxed) {
            LINGER_BYTES_MAX
        } else {
            0
        }
    }
}

impl HttpProtocol {
    /// Detects the protocol: `matched` bytes of the preface were read before `bytes`.
    fn detect(matched: usize, bytes: &[u8]) -> Self {
        let rest = PREFACE.get(matched..).unwrap_or_default();
        let more = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        match matched + more {
            whole if whole == PREFACE.len() => {
                let mut parser = FrameParser::new(PREFACE_BYTES - PREFACE.len());
                parser.feed(bytes.get(more..).unwrap_or_default());
                Self::Http2(parser)
            }
            part if more == bytes.len() => Self::Unknown(part),
            _ => Self::Http1,
        }
    }
}
