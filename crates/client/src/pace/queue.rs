//! FIFO queues of calls to an API.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::hints::ServerHints;
use super::state::{Pace, SendTime, SentCall};

/// Queues of a layer, by API.
#[derive(Debug, Default)]
pub(super) struct Queues {
    all: Mutex<HashMap<String, Arc<Queue>>>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pace: Mutex<Pace>,
    /// Held by the next call to be sent; fair.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    /// Notifies of changed pacing state.
    news: Notify,
}

/// Bounds of waiting time, waiting calls and queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueBounds {
    pub(super) wait_max: Duration,
    pub(super) waiting_max: usize,
    pub(super) keys_max: usize,
}

/// A call in flight; dropping it counts as a lost response.
#[derive(Debug)]
pub(super) struct Permit {
    queue: Arc<Queue>,
    /// `None` once answered.
    call: Option<SentCall>,
}

/// The call was not sent: its wait or the queue would be too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WouldWait {
    /// Expected wait, if the API announced it.
    pub wait: Option<Duration>,
}

/// Queue shared by new keys when the table is full.
const OTHERS: &str = "";

impl Queues {
    /// The queue of a key.
    pub(super) fn queue(
        &self,
        key: &str,
        keys_max: usize,
        pace: impl Fn() -> Pace,
        now: Instant,
    ) -> Arc<Queue> {
        let mut all = self.all.lock();
        if let Some(queue) = all.get(key) {
            return queue.clone();
        }
        if all.len() >= keys_max {
            // Unused and without state.
            all.retain(|_, queue| Arc::strong_count(queue) > 1 || !queue.pace.lock().is_idle(now));
        }
        let key = if all.len() >= keys_max { OTHERS } else { key };
        let queue = all.entry(key.to_owned()).or_insert_with(|| Arc::new(Queue::new(pace())));
        queue.clone()
    }
}

impl Queue {
    fn new(pace: Pace) -> Self {
        let turn = tokio::sync::Mutex::default();
        Self { pace: Mutex::new(pace), turn, waiting: AtomicUsize::new(0), news: Notify::new() }
    }

    /// Waits for permission to send a call.
    pub(super) async fn enter(
        self: &Arc<Self>,
        bounds: QueueBounds,
        deadline: Instant,
    ) -> Result<Permit, WouldWait> {
        let _waiting = Waiting::enter(self, bounds.waiting_max)?;
        // Calls that would exceed the deadline fail before they queue.
        in_time(self.pace.lock().when(Instant::now()), deadline)?;
        let turn = timeout_at(deadline, self.turn.lock()).await;
        let _turn = turn.map_err(|_| WouldWait { wait: None })?;
        loop {
            let mut news = pin!(self.news.notified());
            // Registers before the check, so that no notification is lost.
            news.as_mut().enable();
            match self.go(deadline)? {
                Ok(call) => return Ok(Permit { queue: self.clone(), call: Some(call) }),
                // A notification may change the time.
                Err(at) => drop(timeout_at(at, news).await),
            }
        }
    }

    /// Registers the next call as sent, or returns its send time if that meets the deadline.
    fn go(&self, deadline: Instant) -> Result<Result<SentCall, Instant>, WouldWait> {
        let (mut pace, now) = (self.pace.lock(), Instant::now());
        match in_time(pace.when(now), deadline)? {
            SendTime::Now => Ok(Ok(pace.sent(now))),
            SendTime::At(at) => Ok(Err(at)),
        }
    }
}

fn in_time(when: SendTime, deadline: Instant) -> Result<SendTime, WouldWait> {
    match when {
        SendTime::At(at) if at > deadline => Err(WouldWait { wait: Some(at - Instant::now()) }),
        when => Ok(when),
    }
}

/// Counts a waiting call.
struct Waiting<'a>(&'a Queue);

impl<'a> Waiting<'a> {
    fn enter(queue: &'a Queue, max: usize) -> Result<Self, WouldWait> {
        let waiting = Self(queue);
        let before = queue.waiting.fetch_add(1, Ordering::Relaxed);
        // The first one holds the turn and waits behind no other call.
        if before > max { Err(WouldWait { wait: None }) } else { Ok(waiting) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Permit {
    /// Registers the response.
    pub(super) fn answered(mut self, hints: &ServerHints) {
        if let Some(call) = self.call.take() {
            self.queue.pace.lock().answered(call, hints, Instant::now());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.queue.pace.lock().lost(call, Instant::now());
        }
        self.queue.news.notify_waiters();
    }
}

impl fmt::Display for WouldWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Some(wait) => {
                write!(f, "the API wants no call for another {wait:?}, which is longer than a call may wait here; try later, or raise `wait_max`")
            }
            None => f.write_str("too many calls wait for this API; make fewer at a time, or raise `waiting_max` or `wait_max`"),
        }
    }
}

impl std::error::Error for WouldWait {}
