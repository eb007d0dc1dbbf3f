//! A call's turn at a server: a place among the calls under way, an answer by the deadline, and what is learnt from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::server::{Condition, Line, Shared};
use crate::redis::CallError;

/// A place at a server. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    server: &'a Shared,
    line: Arc<Line>,
    deadline: Instant,
    /// Something was sent, and nobody has seen the answer.
    open: bool,
    _place: SemaphorePermit<'a>,
}

impl Shared {
    /// A place, if one is to be had in time. Without one nothing was sent.
    pub(super) async fn enter(&self, deadline: Instant) -> Result<Visit<'_>, CallError> {
        // Apart from the wait: whoever kept a place meanwhile would need two.
        let free = self.is_up().then(|| self.places.try_acquire().ok()).flatten();
        let place = match free {
            Some(place) => place,
            None => self.wait_for_place(deadline).await?,
        };
        let line = self.pick().ok_or(CallError::Down)?;
        line.under_way.fetch_add(1, Relaxed);
        Ok(Visit { server: self, line, deadline, open: false, _place: place })
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
        self.open = true;
        let mut connection = self.line.connection.clone();
        let answer = timeout_at(self.deadline, connection.send_packed_command(command)).await;
        self.end(answer.ok())
    }

    pub(super) async fn many(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, CallError> {
        self.open = true;
        let mut connection = self.line.connection.clone();
        let sending = connection.send_packed_commands(pipeline, 0, pipeline.len());
        let answer = timeout_at(self.deadline, sending).await;
        self.end(answer.ok())
    }

    fn end<T>(&mut self, answer: Option<RedisResult<T>>) -> Result<T, CallError> {
        self.open = false;
        let breaker = &self.server.breaker;
        match answer {
            Some(Ok(answer)) => {
                if self.line.lost.load(Relaxed) != 0 {
                    self.line.lost.store(0, Relaxed);
                }
                if breaker.answered() {
                    self.server.settle();
                }
                Ok(answer)
            }
            Some(Err(_)) => {
                self.line.broken.store(true, Relaxed);
                self.failed();
                Err(CallError::Broken)
            }
            None => {
                self.failed();
                // While the breaker is open, it is a look that decides over the connections.
                let options = &self.server.settings.options.breaker;
                if self.lose() >= options.failures && !breaker.is_open() {
                    self.line.give_up.notify_one();
                }
                Err(CallError::TimedOut)
            }
        }
    }

    fn failed(&self) {
        if self.server.breaker.failed(&self.server.settings.options.breaker) {
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
