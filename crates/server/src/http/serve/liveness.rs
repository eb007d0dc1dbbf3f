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
    /// Whether a connection of HTTP/1.1 ends with the request in flight.
    is_closing: AtomicBool,
    /// Frames of HTTP/2, and writes of either protocol.
    pub(super) progress: Progress,
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

/// Follows the frames of a connection of HTTP/2.
#[derive(Debug)]
pub(super) struct HttpObserver<C> {
    connection: Arc<Connection<C>>,
    parser: FrameParser,
    /// For a frame or a header block that is buffered.
    charge: Option<Charge>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            events: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            in_head: AtomicBool::new(true),
            is_http2: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
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

    /// Bytes of a head have arrived, or such as have the time of one.
    pub(super) fn head_begun(&self) {
        if !self.in_head.swap(true, Relaxed) {
            self.events.fetch_add(1, Relaxed);
        }
    }

    /// The next head is waited for.
    pub(super) fn head_ended(&self) {
        self.in_head.store(false, Relaxed);
        self.events.fetch_add(1, Relaxed);
    }

    /// The client speaks HTTP/2.
    pub(super) fn set_http2(&self) {
        self.is_http2.store(true, Relaxed);
        self.in_head.store(false, Relaxed);
    }

    /// A connection of HTTP/1.1 ends with the request in flight, or at once.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Whether a request has begun, on HTTP/2 at least the connection itself.
    pub(super) fn has_begun(&self) -> bool {
        self.is_http2.load(Relaxed) || self.events.load(Relaxed) > 0
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
        Self { connection, parser: FrameParser::new(PREFACE_BYTES), charge: None }
    }
}

impl<C> Observer for HttpObserver<C> {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.parser.feed(bytes);
        let Connection { liveness, guard, .. } = &*self.connection;
        self.parser.publish(&liveness.progress, guard.account(), &mut self.charge)
    }

    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.connection.liveness.progress.wrote(outcome);
    }
}
