//! An HTTP/2 connection, from its handshake to its end.
//!
//! Checked at intervals: whether the client reads its responses, completes the frames that it
//! begins, and still exists.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{self, ConnectionContext, ConnectionState, GrpcServer};
use super::message::{CALL_BYTES, OutgoingMessage, UNCHARGED_BYTES, UnreadResponses};
use crate::listen::http2::{Http2Observer, Progress, StallDetector};
use crate::listen::{ConnectionGuard, Observed, Socket};
use crate::memory::{Account, Charge};
use crate::tls::Tls;

/// Bytes that h2 counts for a small DATA frame.
const SMALL_PIECE_BYTES: usize = 256;

/// Checks of an incomplete frame or a blocked write before the connection is closed, at intervals
/// of half a timeout.
const STALL_CHECKS_MAX: u32 = 2;

/// Capacity for accepted calls that is retained.
const ACCEPTED_MIN: usize = 32;

type Accepted = (Request<RecvStream>, SendResponse<OutgoingMessage>);

/// Serves a connection until it ends, or `stop` is ready and its calls are answered.
pub(super) async fn serve(
    socket: Socket,
    tls: Option<Tls>,
    server: Arc<GrpcServer>,
    guard: ConnectionGuard,
    stop: impl Future<Output = ()>,
) {
    let account = guard.account().clone();
    let stop = std::pin::pin!(stop);
    match tls {
        None => serve_plain(socket, server, account, stop).await,
        // Boxed: most connections are plain, and would reserve memory for it.
        Some(tls) => Box::pin(serve_tls(socket, tls, server, account, stop)).await,
    }
}

async fn serve_tls(
    socket: Socket,
    tls: Tls,
    server: Arc<GrpcServer>,
    account: Arc<Account>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) {
    let timeout = server.limits.timeout;
    if let Some(socket) = handshake(tls.accept(socket), timeout, stop.as_mut()).await {
        serve_plain(socket, server, account, stop).await;
    }
}

/// The result of a handshake; `None` if it fails, takes too long or the server stops before.
async fn handshake<T, E>(
    handshake: impl Future<Output = Result<T, E>>,
    limit: Duration,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = timeout(limit, handshake) => done.ok()?.ok(),
        () = stop => None,
    }
}

async fn serve_plain<S>(
    socket: S,
    server: Arc<GrpcServer>,
    account: Arc<Account>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let progress = Arc::new(Progress::default());
    let observer = Http2Observer::new(progress.clone(), account.clone());
    let socket = Observed::new(socket, observer);
    let limits = &server.limits;
    let calls = limits.calls as usize;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.calls)
        .max_header_list_size(limits.header_bytes)
        // A client whose calls time out resets all of them at once, which is no attack.
        .max_pending_accept_reset_streams(calls)
        .max_concurrent_reset_streams(calls)
        .max_local_error_reset_streams(Some(calls))
        // A small message on every call; h2's default ends a connection with some 170 at once.
        .data_frame_budget(calls.saturating_mul(SMALL_PIECE_BYTES));
    let shaken = handshake(builder.handshake(socket), limits.timeout, stop.as_mut()).await;
    let Some(connection) = shaken else { return };
    let Some(calls) = account.charge(0) else { return };
    let monitor = Monitor { account, calls, progress };
    GrpcConnection::new(connection, server, monitor).run(stop).await;
}

/// A connection after its handshake.
struct GrpcConnection<S> {
    connection: Connection<Observed<S, Http2Observer>, OutgoingMessage>,
    server: Arc<GrpcServer>,
    unread: UnreadResponses,
    state: watch::Sender<ConnectionState>,
    /// Of `state`, for calls.
    observed: watch::Receiver<ConnectionState>,
    monitor: Monitor,
    stall: StallDetector,
    /// Calls since the last complete flush.
    calls_since_flush: usize,
    /// Peak of concurrent calls.
    calls_peak: usize,
    keepalive: Keepalive,
    /// When it is closed for its age; `None` once it is closing.
    old_at: Option<Instant>,
    /// When it is aborted.
    end_at: Option<Instant>,
}

/// Memory and progress of a connection.
struct Monitor {
    account: Arc<Account>,
    /// For calls whose responses are not read.
    calls: Charge,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> GrpcConnection<S> {
    fn new(
        mut connection: Connection<Observed<S, Http2Observer>, OutgoingMessage>,
        server: Arc<GrpcServer>,
        monitor: Monitor,
    ) -> Self {
        let unread = UnreadResponses::default();
        let generation = unread.generation();
        let state = watch::Sender::new(ConnectionState { is_closing: false, generation });
        let now = Instant::now();
        let keepalive = Keepalive::new(connection.ping_pong(), server.limits.idle, now);
        let old_at = server.limits.age.and_then(|age| now.checked_add(jittered(age)));
        Self {
            connection,
            server,
            unread,
            observed: state.subscribe(),
            state,
            monitor,
            stall: StallDetector::default(),
            calls_since_flush: 0,
            calls_peak: 0,
            keepalive,
            old_at,
            end_at: None,
        }
    }

    async fn run(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut stopped = false;
        let timeout = self.server.limits.timeout;
        let mut check_at = Instant::now() + timeout;
        let mut stall_check_at = Instant::now() + timeout / 2;
        let mut timer = std::pin::pin!(sleep_until(self.next(check_at.min(stall_check_at))));
        let mut accepted = Vec::new();
        loop {
            tokio::select! {
                // Calls first: no timer is polled while there are any.
                biased;
                more = std::future::poll_fn(|cx| self.gather(&mut accepted, cx)) => {
                    self.answer(&mut accepted);
                    if !more {
                        return;
                    }
                    continue;
                }
                () = &mut stop, if !stopped => {
                    stopped = true;
                    self.close();
                }
                () = &mut timer => {
                    let now = Instant::now();
                    if self.end_at.is_some_and(|end| now >= end) {
                        return;
                    }
                    if self.old_at.is_some_and(|old| now >= old) {
                        self.close();
                        self.end_at = now.checked_add(self.server.limits.age_grace);
                    }
                    if now >= check_at {
                        if !self.is_alive(now) {
                            return;
                        }
                        check_at = now + timeout;
                    }
                    if now >= stall_check_at {
                        self.monitor.account.trim();
                        accepted.shrink_to(ACCEPTED_MIN);
                        if self.stall.is_stalled(&self.monitor.progress, STALL_CHECKS_MAX) {
                            return;
                        }
                        stall_check_at = now + timeout / 2;
                    }
                }
            }
            timer.as_mut().reset(self.next(check_at.min(stall_check_at)));
        }
    }

    /// Collects all calls that have arrived. Polling for another one flushes, so that one by one
    /// each response would be a write of its own.
    fn gather(&mut self, accepted: &mut Vec<Accepted>, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(call))) => accepted.push(call),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(false),
                Poll::Pending if !self.charge_calls() => return Poll::Ready(false),
                Poll::Pending if accepted.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(true),
            }
        }
    }

    /// Charges for the memory that calls have left in h2, and for responses that the client does
    /// not read. Changes only with a new peak, or when responses are not sent at once.
    fn charge_calls(&mut self) -> bool {
        if !self.monitor.progress.is_write_blocked() {
            self.calls_since_flush = 0;
        }
        // One reference is held by the connection's state.
        let unread = self.unread.count().saturating_sub(1).max(self.calls_since_flush);
        let unread = unread.min(self.server.limits.calls as usize);
        self.calls_peak = self.calls_peak.max(unread);
        self.monitor.calls.resize(self.calls_peak * CALL_BYTES + unread * UNCHARGED_BYTES)
    }

    fn answer(&mut self, accepted: &mut Vec<Accepted>) {
        self.keepalive.is_busy = true;
        self.calls_since_flush = self.calls_since_flush.saturating_add(accepted.len());
        self.calls_peak = self.calls_peak.max(accepted.len());
        let (generation, account) = (self.unread.generation(), &self.monitor.account);
        for (request, respond) in accepted.drain(..) {
            let context =
                ConnectionContext { generation: &generation, account, state: &self.observed };
            call::answer(request, respond, &self.server, context);
        }
    }

    /// Closes gracefully: the client reconnects, open calls go on.
    fn close(&mut self) {
        self.old_at = None;
        self.connection.graceful_shutdown();
        self.state.send_modify(|state| state.is_closing = true);
    }

    /// Whether the client exists and reads its responses.
    fn is_alive(&mut self, now: Instant) -> bool {
        let is_stuck = self.unread.is_stuck();
        // Watchers need no wake-up for a new generation.
        self.state.send_if_modified(|state| {
            state.generation = self.unread.generation();
            false
        });
        !is_stuck && self.keepalive.is_alive(now)
    }

    fn next(&self, check_at: Instant) -> Instant {
        [self.old_at, self.end_at].into_iter().flatten().fold(check_at, Instant::min)
    }
}

/// Pings clients without calls.
struct Keepalive {
    ping: Option<PingPong>,
    is_pinged: bool,
    is_busy: bool,
    quiet_since: Instant,
    idle: Duration,
}

impl Keepalive {
    fn new(ping: Option<PingPong>, idle: Duration, now: Instant) -> Self {
        Self { ping, is_pinged: false, is_busy: false, quiet_since: now, idle }
    }

    fn is_alive(&mut self, now: Instant) -> bool {
        let Some(ping) = &mut self.ping else { return true };
        if std::mem::take(&mut self.is_busy) {
            self.quiet_since = now;
        }
        if self.is_pinged {
            let cx = &mut Context::from_waker(Waker::noop());
            let answered = matches!(ping.poll_pong(cx), Poll::Ready(Ok(_)));
            self.is_pinged = false;
            self.quiet_since = now;
            return answered;
        }
        if now.duration_since(self.quiet_since) >= self.idle {
            self.is_pinged = true;
            return ping.send_ping(Ping::opaque()).is_ok();
        }
        true
    }
}

/// The duration, give or take a tenth, so that connections opened together do not close together.
fn jittered(age: Duration) -> Duration {
    // From 0.9 to 1.1, in ten thousandths.
    (age / 10_000).saturating_mul(fastrand::u32(9_000..=11_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_at_most_and_not_always_the_same() {
        let hour = Duration::from_secs(3_600);
        let spans: Vec<_> = (0..100).map(|_| jittered(hour)).collect();
        assert!(spans.iter().all(|span| (hour * 9 / 10..=hour * 11 / 10).contains(span)));
        assert!(spans.iter().any(|span| *span != spans[0]));
    }
}
