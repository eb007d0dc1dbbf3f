//! A connection, from its first words to its end.
//!
//! It is looked after at regular times: whether its client reads what it asked for, completes the
//! frames that it begins, and still exists.

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

use super::answer::{Answer, CALL_BYTES, UNCHARGED_BYTES, Unread};
use super::call::{self, Shared, Told};
use super::jitter::jittered;
use crate::listen::Socket;
use crate::listen::http2::{Monitored, Progress, StallDetector};
use crate::memory::{Account, Charge};
use crate::tls::Tls;

/// What h2 takes a small piece of a message for.
const SMALL_PIECE_BYTES: usize = 256;

/// Checks of an incomplete frame or a blocked write before the connection is closed; a check is
/// half a patience after the one before it.
const STALL_CHECKS_MAX: u32 = 2;

/// Room for calls that are accepted together, and is kept.
const ACCEPTED_MIN: usize = 32;

type Accepted = (Request<RecvStream>, SendResponse<Answer>);

/// Serves a connection until it ends, or is told to.
pub(super) async fn serve(
    socket: Socket,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    account: Arc<Account>,
    stop: impl Future<Output = ()>,
) {
    let stop = std::pin::pin!(stop);
    match tls {
        None => talk(socket, shared, account, stop).await,
        // In memory of its own: most connections are plain, and would reserve room for it.
        Some(tls) => Box::pin(talk_tls(socket, tls, shared, account, stop)).await,
    }
}

async fn talk_tls(
    socket: Socket,
    tls: Tls,
    shared: Arc<Shared>,
    account: Arc<Account>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) {
    let patience = shared.bounds.patience;
    if let Some(socket) = first(tls.accept(socket), patience, stop.as_mut()).await {
        talk(socket, shared, account, stop).await;
    }
}

/// The first words, unless they take too long; or it is time to stop, and nobody has asked for anything.
async fn first<T, E>(
    words: impl Future<Output = Result<T, E>>,
    patience: Duration,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    tokio::select! {
        // What has come is heard.
        biased;
        words = timeout(patience, words) => words.ok()?.ok(),
        () = stop => None,
    }
}

async fn talk<S>(
    socket: S,
    shared: Arc<Shared>,
    account: Arc<Account>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let progress = Arc::new(Progress::default());
    let socket = Monitored::new(socket, progress.clone(), account.clone());
    let bounds = &shared.bounds;
    let calls = bounds.calls as usize;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.calls)
        .max_header_list_size(bounds.header_bytes)
        // What is broken off is forgotten as soon as it is accepted, and that is soon. A client that has waited too long breaks
        // off all its calls at once; that is no attack.
        .max_pending_accept_reset_streams(calls)
        .max_concurrent_reset_streams(calls)
        .max_local_error_reset_streams(Some(calls))
        // A small message on every call that there may be; h2's own bound ends a connection that brings some 170 at once.
        .data_frame_budget(calls.saturating_mul(SMALL_PIECE_BYTES));
    let words = builder.handshake(socket);
    let Some(connection) = first(words, bounds.patience, stop.as_mut()).await else { return };
    let Some(calls) = account.charge(0) else { return };
    let mut talk = Talk::new(connection, shared, Monitor { account, calls, progress });
    talk.run(stop).await;
}

/// A connection that is past its first words.
struct Talk<S> {
    connection: Connection<Monitored<S>, Answer>,
    shared: Arc<Shared>,
    unread: Unread,
    told: watch::Sender<Told>,
    monitor: Monitor,
    stall: StallDetector,
    /// Calls since the socket took all that was to be sent.
    calls_since_flush: usize,
    /// Most calls at a time so far.
    calls_peak: usize,
    life: Life,
    /// When it is to be closed for its age; nothing if it is being closed already.
    old_at: Option<Instant>,
    /// When it is cut off, whatever is left to do.
    end_at: Option<Instant>,
}

/// What a connection takes, and how it gets on.
struct Monitor {
    account: Arc<Account>,
    /// For calls whose answers are not read.
    calls: Charge,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    fn new(
        mut connection: Connection<Monitored<S>, Answer>,
        shared: Arc<Shared>,
        monitor: Monitor,
    ) -> Self {
        let unread = Unread::default();
        let told = watch::Sender::new(Told { closing: false, since: unread.since() });
        let now = Instant::now();
        let life = Life::new(connection.ping_pong(), shared.bounds.idle, now);
        let old_at = shared.bounds.age.and_then(|age| now.checked_add(jittered(age)));
        Self {
            connection,
            shared,
            unread,
            told,
            monitor,
            stall: StallDetector::default(),
            calls_since_flush: 0,
            calls_peak: 0,
            life,
            old_at,
            end_at: None,
        }
    }

    async fn run(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut stopped = false;
        let patience = self.shared.bounds.patience;
        let mut look_at = Instant::now() + patience;
        let mut stall_check_at = Instant::now() + patience / 2;
        let mut timer = std::pin::pin!(sleep_until(self.next(look_at.min(stall_check_at))));
        let mut accepted = Vec::new();
        loop {
            tokio::select! {
                // Calls first: as long as there are any, no timer is asked.
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
                        self.end_at = now.checked_add(self.shared.bounds.age_grace);
                    }
                    if now >= look_at {
                        if !self.is_fine(now) {
                            return;
                        }
                        look_at = now + patience;
                    }
                    if now >= stall_check_at {
                        self.monitor.account.trim();
                        accepted.shrink_to(ACCEPTED_MIN);
                        if self.stall.is_stalled(&self.monitor.progress, STALL_CHECKS_MAX) {
                            return;
                        }
                        stall_check_at = now + patience / 2;
                    }
                }
            }
            timer.as_mut().reset(self.next(look_at.min(stall_check_at)));
        }
    }

    /// All calls that have come. They are answered together, since every look for another one sends what there is to send:
    /// one by one, each answer would be written by itself.
    fn gather(&mut self, accepted: &mut Vec<Accepted>, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(call))) => accepted.push(call),
                // Whoever breaks the protocol, or leaves, has no more calls.
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(false),
                Poll::Pending if !self.charge_calls() => return Poll::Ready(false),
                Poll::Pending if accepted.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(true),
            }
        }
    }

    /// Charges for the memory that calls have left in h2, and for answers that the client does not
    /// read. Changes only with a new peak, or when answers are not sent at once.
    fn charge_calls(&mut self) -> bool {
        if !self.monitor.progress.is_write_blocked() {
            self.calls_since_flush = 0;
        }
        // One reference is the connection's own, for the answers to come.
        let unread = self.unread.count().saturating_sub(1).max(self.calls_since_flush);
        let unread = unread.min(self.shared.bounds.calls as usize);
        self.calls_peak = self.calls_peak.max(unread);
        self.monitor.calls.resize(self.calls_peak * CALL_BYTES + unread * UNCHARGED_BYTES)
    }

    fn answer(&mut self, accepted: &mut Vec<Accepted>) {
        self.life.is_busy = true;
        self.calls_since_flush = self.calls_since_flush.saturating_add(accepted.len());
        self.calls_peak = self.calls_peak.max(accepted.len());
        let (since, account) = (self.unread.since(), &self.monitor.account);
        for (request, respond) in accepted.drain(..) {
            call::answer(request, respond, &self.shared, &self.told, &since, account);
        }
    }

    /// Asks the client to come again on another connection; what has begun goes on.
    fn close(&mut self) {
        self.old_at = None;
        self.connection.graceful_shutdown();
        self.told.send_modify(|told| told.closing = true);
    }

    /// Whether the client is there and reads.
    fn is_fine(&mut self, now: Instant) -> bool {
        let is_stuck = self.unread.is_stuck();
        // For the answers from now on; nobody need be woken for it.
        self.told.send_if_modified(|told| {
            told.since = self.unread.since();
            false
        });
        !is_stuck && self.life.is_there(now)
    }

    fn next(&self, look_at: Instant) -> Instant {
        [self.old_at, self.end_at].into_iter().flatten().fold(look_at, Instant::min)
    }
}

/// Whether there still is a client. One that calls is there; one that does not is asked.
struct Life {
    ping: Option<PingPong>,
    is_asked: bool,
    is_busy: bool,
    quiet_since: Instant,
    idle: Duration,
}

impl Life {
    fn new(ping: Option<PingPong>, idle: Duration, now: Instant) -> Self {
        Self { ping, is_asked: false, is_busy: false, quiet_since: now, idle }
    }

    fn is_there(&mut self, now: Instant) -> bool {
        let Some(ping) = &mut self.ping else { return true };
        if std::mem::take(&mut self.is_busy) {
            self.quiet_since = now;
        }
        if self.is_asked {
            let cx = &mut Context::from_waker(Waker::noop());
            let answered = matches!(ping.poll_pong(cx), Poll::Ready(Ok(_)));
            self.is_asked = false;
            self.quiet_since = now;
            return answered;
        }
        if now.duration_since(self.quiet_since) >= self.idle {
            self.is_asked = true;
            return ping.send_ping(Ping::opaque()).is_ok();
        }
        true
    }
}

/// The age, give or take a tenth, so that connections opened together do not close together.
fn jittered(age: Duration) -> Duration {
    (age / 10_000).saturating_mul(fastrand::u32(9_000..=11_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_at_most_a_tenth_and_varies() {
        let hour = Duration::from_secs(3_600);
        let ages: Vec<_> = (0..100).map(|_| jittered(hour)).collect();
        assert!(ages.iter().all(|age| (hour * 9 / 10..=hour * 11 / 10).contains(age)));
        assert!(ages.iter().any(|age| *age != ages[0]));
    }
}
