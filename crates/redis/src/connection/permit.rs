//! In-flight permit of a call: bounds concurrent calls, enforces the deadline and feeds the circuit
//! breaker.
//!
//! A call that misses its deadline counts as a failure. Its reply can still be used: the call was
//! sent, and the server executes it sooner or later ([`LateReply::Awaited`]).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::count;
use super::server::{Connection, ServerHealth, ServerState};
use crate::CallError;

/// What happens to a reply that misses the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LateReply {
    /// It is dropped: the call has failed.
    Dropped,
    /// It is awaited for up to [`LATE_MAX`].
    Awaited,
}

/// How long a late reply is awaited. Leases and reservations of that age have expired anyway.
pub(super) const LATE_MAX: Duration = Duration::from_secs(2);

/// Fraction of the timeout that a reply gets on top, to be read from the socket. A process that was
/// not scheduled gets as much as it was late.
const GRACE: u32 = 8;

/// Permit for one call at a server. Released when it is dropped.
#[derive(Debug)]
pub(super) struct CallPermit<'a> {
    server: &'a ServerState,
    connection: Arc<Connection>,
    deadline: Instant,
    late_reply: LateReply,
    /// A command was sent, and its reply is outstanding.
    is_pending: bool,
    _in_flight: SemaphorePermit<'a>,
}

impl<'a> CallPermit<'a> {
    /// Acquires a permit before the deadline. On an error nothing was sent.
    pub(super) async fn acquire(
        server: &'a ServerState,
        deadline: Instant,
        late_reply: LateReply,
    ) -> Result<Self, CallError> {
        let free = server.is_up().then(|| server.in_flight.try_acquire().ok()).flatten();
        let in_flight = match free {
            Some(permit) => permit,
            None => wait_in_flight(server, deadline).await?,
        };
        let connection = server.least_loaded().ok_or(CallError::Down)?;
        connection.in_flight.fetch_add(1, Relaxed);
        Ok(Self {
            server,
            connection,
            deadline,
            late_reply,
            is_pending: false,
            _in_flight: in_flight,
        })
    }

    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, CallError> {
        let mut redis = self.connection.redis.clone();
        self.reply(redis.send_packed_command(command)).await
    }

    pub(super) async fn send_pipeline(
        &mut self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, CallError> {
        let mut redis = self.connection.redis.clone();
        self.reply(redis.send_packed_commands(pipeline, 0, pipeline.len())).await
    }

    async fn reply<T>(
        &mut self,
        replying: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, CallError> {
        self.is_pending = true;
        let replies = self.server.replies.load(Relaxed);
        let mut replying = pin!(replying);
        if let Ok(reply) = self.until_deadline(replying.as_mut()).await {
            return self.on_reply(reply);
        }
        let is_silent = self.server.replies.load(Relaxed) == replies;
        self.on_missed_deadline(is_silent);
        if self.late_reply == LateReply::Awaited
            && let Ok(reply) = timeout(LATE_MAX, replying).await
        {
            count(&self.server.context.counters.late_replies);
            return self.on_reply(reply);
        }
        self.is_pending = false;
        Err(CallError::TimedOut)
    }

    async fn until_deadline<T>(
        &self,
        mut replying: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<RedisResult<T>, Elapsed> {
        if let Ok(reply) = timeout_at(self.deadline, replying.as_mut()).await {
            return Ok(reply);
        }
        let timeout = self.server.settings.options.timeout;
        let grace = self.deadline.elapsed().clamp(timeout / GRACE, timeout);
        timeout_at(Instant::now() + grace, replying).await
    }

    fn on_reply<T>(&mut self, reply: RedisResult<T>) -> Result<T, CallError> {
        self.is_pending = false;
        let Ok(reply) = reply else {
            self.connection.broken.store(true, Relaxed);
            self.on_failure(false);
            return Err(CallError::Broken);
        };
        self.server.replies.fetch_add(1, Relaxed);
        if self.connection.unanswered.load(Relaxed) != 0 {
            self.connection.unanswered.store(0, Relaxed);
        }
        if self.server.breaker.succeeded() {
            self.server.update_health();
        }
        Ok(reply)
    }

    /// A server that sent no reply at all for the whole timeout is down at once; one that replies
    /// to other calls, only after several failures.
    fn on_missed_deadline(&self, is_silent: bool) {
        self.server.context.counters.missed_deadline();
        self.on_failure(is_silent);
        // While the breaker is open, its probes decide about connections.
        let options = &self.server.settings.options.breaker;
        if self.count_unanswered() >= options.failures && !self.server.breaker.is_open() {
            self.connection.close.notify_one();
        }
    }

    fn on_failure(&self, is_silent: bool) {
        let ServerState { breaker, settings, .. } = self.server;
        let has_opened = match is_silent {
            true => breaker.trip(),
            false => breaker.failed(&settings.options.breaker),
        };
        if has_opened {
            self.server.on_breaker_opened();
        }
    }

    fn count_unanswered(&self) -> u32 {
        self.connection.unanswered.fetch_add(1, Relaxed).saturating_add(1)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.connection.in_flight.fetch_sub(1, Relaxed);
        // A cancelled call is still in flight, without a permit. Too many of them on a dead
        // connection close it.
        if self.is_pending {
            let in_flight = u32::try_from(self.server.settings.options.in_flight);
            if self.count_unanswered() > in_flight.unwrap_or(u32::MAX) {
                self.connection.close.notify_one();
            }
        }
    }
}

/// Apart from `acquire`: the fast path must not hold a permit across the wait.
async fn wait_in_flight(
    server: &ServerState,
    deadline: Instant,
) -> Result<SemaphorePermit<'_>, CallError> {
    let mut health = server.health.subscribe();
    if *health.borrow() == ServerHealth::Down {
        return Err(CallError::Down);
    }
    let _waiting = WaitPermit::acquire(&server.waiting, server.settings.options.waiting)?;
    let permit = timeout_at(deadline, async {
        loop {
            let now = *health.borrow_and_update();
            // Neither fails: semaphore and channel outlive the callers.
            tokio::select! {
                permit = server.in_flight.acquire(), if now == ServerHealth::Up => {
                    return permit.map_err(|_| CallError::Down);
                }
                Ok(()) = health.changed(), if now != ServerHealth::Down => {}
                else => return Err(CallError::Down),
            }
        }
    });
    match permit.await {
        // Nothing is sent after the deadline: its reply would not be awaited.
        Ok(Ok(permit)) if Instant::now() < deadline => Ok(permit),
        Ok(Err(error)) => Err(error),
        _ if server.is_up() => Err(CallError::Busy),
        _ => Err(CallError::Down),
    }
}

/// One of a bounded number of waiting callers.
#[derive(Debug)]
pub(super) struct WaitPermit<'a>(&'a AtomicUsize);

impl<'a> WaitPermit<'a> {
    pub(super) fn acquire(waiting: &'a AtomicUsize, max: usize) -> Result<Self, CallError> {
        let permit = Self(waiting);
        if waiting.fetch_add(1, Relaxed) < max { Ok(permit) } else { Err(CallError::Busy) }
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
