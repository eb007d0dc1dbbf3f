//! In-flight permit of a call: bounds concurrent calls, enforces the deadline and feeds the circuit
//! breaker.
//!
//! A call that misses its deadline counts as a failure. Its reply can still be used: the call was
//! sent, and the server executes it sooner or later ([`Lateness::Awaited`]).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::server::{Condition, Line, Shared};
use super::stats::count;
use crate::CallError;

/// What happens to a reply that misses the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lateness {
    /// It is dropped: the call has failed.
    Dropped,
    /// It is awaited for up to [`LATE_MAX`].
    Awaited,
}

/// How long a late reply is awaited. Leases and reservations of that age have run out anyway.
pub(crate) const LATE_MAX: Duration = Duration::from_secs(2);

/// The part of the timeout that a reply gets on top, to be read from the socket. A node that was
/// not scheduled gets as much as it was late.
const GRACE: u32 = 8;

/// A place at a server. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    server: &'a Shared,
    line: Arc<Line>,
    deadline: Instant,
    lateness: Lateness,
    /// Something was sent, and nobody has seen the answer.
    open: bool,
    _place: SemaphorePermit<'a>,
}

impl Shared {
    /// A place, if one is to be had in time. Without one nothing was sent.
    pub(super) async fn enter(
        &self,
        deadline: Instant,
        lateness: Lateness,
    ) -> Result<Visit<'_>, CallError> {
        // Apart from the wait: whoever kept a place meanwhile would need two.
        let free = self.is_up().then(|| self.places.try_acquire().ok()).flatten();
        let place = match free {
            Some(place) => place,
            None => self.wait_for_place(deadline).await?,
        };
        let line = self.pick().ok_or(CallError::Down)?;
        line.under_way.fetch_add(1, Relaxed);
        Ok(Visit { server: self, line, deadline, lateness, open: false, _place: place })
    }

    async fn wait_for_place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, CallError> {
        let mut condition = self.condition.subscribe();
        if *condition.borrow() == Condition::Down {
            return Err(CallError::Down);
        }
        let _turn = Turn::take(&self.waiting, self.settings.options.waiting)?;
        let place = timeout_at(deadline, async {
            loop {
                let now = *condition.borrow_and_update();
                // Neither can fail: what they wait for is never closed before us.
                tokio::select! {
                    place = self.places.acquire(), if now == Condition::Up => {
                        return place.map_err(|_| CallError::Down);
                    }
                    Ok(()) = condition.changed(), if now != Condition::Down => {}
                    else => return Err(CallError::Down),
                }
            }
        });
        match place.await {
            // Who has no time left must not send: he would not hear what came of it.
            Ok(Ok(place)) if Instant::now() < deadline => Ok(place),
            Ok(Err(error)) => Err(error),
            _ if self.is_up() => Err(CallError::Busy),
            _ => Err(CallError::Down),
        }
    }
}

impl Visit<'_> {
    pub(super) async fn one(&mut self, command: &Cmd) -> Result<Value, CallError> {
        let mut connection = self.line.connection.clone();
        self.reply(connection.send_packed_command(command)).await
    }

    pub(super) async fn many(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, CallError> {
        let mut connection = self.line.connection.clone();
        self.reply(connection.send_packed_commands(pipeline, 0, pipeline.len())).await
    }

    /// Waits for the reply to something that is being sent.
    async fn reply<T>(
        &mut self,
        replying: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, CallError> {
        self.open = true;
        let replies = self.server.replies.load(Relaxed);
        let mut replying = pin!(replying);
        if let Ok(reply) = self.until_deadline(replying.as_mut()).await {
            return self.end(reply);
        }
        let is_silent = self.server.replies.load(Relaxed) == replies;
        self.missed_deadline(is_silent);
        if self.lateness == Lateness::Awaited
            && let Ok(reply) = timeout(LATE_MAX, replying).await
        {
            count(&self.server.surroundings.counters.late_replies);
            return self.end(reply);
        }
        self.open = false;
        Err(CallError::TimedOut)
    }

    async fn until_deadline<T>(
        &self,
        mut replying: std::pin::Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<RedisResult<T>, tokio::time::error::Elapsed> {
        if let Ok(reply) = timeout_at(self.deadline, replying.as_mut()).await {
            return Ok(reply);
        }
        let timeout = self.server.settings.options.timeout;
        let grace = self.deadline.elapsed().clamp(timeout / GRACE, timeout);
        timeout_at(Instant::now() + grace, replying).await
    }

    fn end<T>(&mut self, reply: RedisResult<T>) -> Result<T, CallError> {
        self.open = false;
        let breaker = &self.server.breaker;
        match reply {
            Ok(answer) => {
                self.server.replies.fetch_add(1, Relaxed);
                if self.line.lost.load(Relaxed) != 0 {
                    self.line.lost.store(0, Relaxed);
                }
                if breaker.answered() {
                    self.server.settle();
                }
                Ok(answer)
            }
            Err(_) => {
                self.line.broken.store(true, Relaxed);
                self.failed(false);
                Err(CallError::Broken)
            }
        }
    }

    /// A server that has not answered anybody for the whole timeout is taken for gone at once; one
    /// that answers others, only after several failures.
    fn missed_deadline(&self, is_silent: bool) {
        self.server.surroundings.counters.missed_deadline();
        self.failed(is_silent);
        // While the breaker is open, its probe decides over the connections.
        let options = &self.server.settings.options.breaker;
        if self.lose() >= options.failures && !self.server.breaker.is_open() {
            self.line.give_up.notify_one();
        }
    }

    fn failed(&self, is_silent: bool) {
        let Shared { breaker, settings, .. } = self.server;
        let has_opened = match is_silent {
            true => breaker.trip(),
            false => breaker.failed(&settings.options.breaker),
        };
        if has_opened {
            self.server.tripped();
        }
    }

    fn lose(&self) -> u32 {
        self.line.lost.fetch_add(1, Relaxed).saturating_add(1)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.line.under_way.fetch_sub(1, Relaxed);
        // The caller has left. His call is still under way, and its place is free: that must not go on for ever over a connection that is dead.
        if self.open {
            let in_flight = u32::try_from(self.server.settings.options.in_flight);
            if self.lose() > in_flight.unwrap_or(u32::MAX) {
                self.line.give_up.notify_one();
            }
        }
    }
}

/// One of the bounded number of those who wait.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a AtomicUsize);

impl<'a> Turn<'a> {
    pub(super) fn take(waiting: &'a AtomicUsize, most: usize) -> Result<Self, CallError> {
        let turn = Self(waiting);
        if waiting.fetch_add(1, Relaxed) < most { Ok(turn) } else { Err(CallError::Busy) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
