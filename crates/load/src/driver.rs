//! Closed and open loop over a set of slots.
//!
//! Closed: every slot sends again as soon as it is answered. Open: idle slots queue for the turn to
//! send the next scheduled request; when all slots are busy, scheduled requests are sent late and
//! their latency still counts from the scheduled time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::keys::Keys;
use crate::plan::Timer;
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::wire::Slot;

/// A phase of a run: fill, warm-up or measurement.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) keys: Keys,
    /// `None` in a closed loop.
    pub(crate) schedule: Option<Schedule>,
    /// End of sending.
    pub(crate) ends: Option<Instant>,
    /// Maximum number of requests.
    pub(crate) count: u64,
    pub(crate) timer: Timer,
    /// The phase is aborted after this time without a response.
    pub(crate) timeout: Duration,
    /// A request without a response after this time is abandoned.
    pub(crate) request_timeout: Option<Duration>,
}

/// Resolution of Tokio's timer, with its lateness.
const TIMER_RESOLUTION: Duration = Duration::from_millis(2);

/// State shared by all slots.
struct DriverState {
    state: RefCell<State>,
    /// Held by the next slot to send, in an open loop.
    turn: Mutex<()>,
    timer: Timer,
    ends: Option<Instant>,
    request_timeout: Option<Duration>,
}

struct State {
    keys: Keys,
    schedule: Option<Schedule>,
    left: u64,
    tally: Tally,
    sent: u64,
}

/// Runs a phase until its time, count or keys are exhausted. Returns the slots unless the phase was
/// aborted.
pub(crate) async fn drive<S: Slot + 'static>(
    slots: Vec<S>,
    phase: Phase,
    tally: Tally,
) -> (Vec<S>, Unsent) {
    let Phase { keys, schedule, ends, count, timer, timeout, request_timeout } = phase;
    let state = State { keys, schedule, left: count, tally, sent: 0 };
    let (state, turn) = (RefCell::new(state), Mutex::new(()));
    let shared = DriverState { state, turn, timer, ends, request_timeout };
    let shared = Rc::new(shared);
    let mut tasks = JoinSet::new();
    for slot in slots {
        tasks.spawn_local(run_slot(slot, shared.clone()));
    }
    let mut slots = Vec::new();
    let all = async {
        while let Some(done) = tasks.join_next().await {
            slots.extend(done);
        }
    };
    tokio::select! {
        () = all => {}
        () = stalled(&shared, timeout) => {
            // Slots still waiting are cancelled.
            tasks.shutdown().await;
            let mut state = shared.state.borrow_mut();
            let missing = state.sent.saturating_sub(state.tally.completed());
            state.tally.failed(format!("no answer within {} s", timeout.as_secs_f64()), missing);
            slots.clear();
        }
    }
    let mut state = shared.state.borrow_mut();
    let unsent = state.unsent(shared.ends);
    state.tally.finish();
    drop(state);
    (slots, unsent)
}

/// Scheduled requests that could not be sent before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsent(pub(crate) u64);

/// Runs one slot until the phase is over.
async fn run_slot<S: Slot>(mut slot: S, shared: Rc<DriverState>) -> S {
    let capacity = slot.capacity();
    let (mut keys, mut due, mut received) = (Vec::new(), Vec::new(), Vec::new());
    while shared.take(capacity, &mut keys, &mut due).await {
        let is_answered = match shared.request_timeout {
            None => {
                slot.send(&keys, &mut received).await;
                true
            }
            // The slot closes its connection.
            Some(limit) => timeout(limit, slot.send(&keys, &mut received)).await.is_ok(),
        };
        let mut state = shared.state.borrow_mut();
        if !is_answered {
            received.clear();
            state.tally.timed_out(Instant::now(), keys.len() as u64);
        }
        due.iter().zip(received.drain(..)).for_each(|(due, one)| state.tally.add(*due, one));
        let reconnects = slot.reconnects();
        state.tally.reconnected(reconnects);
    }
    slot
}

impl DriverState {
    /// Takes the next requests of a slot and their scheduled times; false at the end.
    async fn take(&self, capacity: usize, keys: &mut Vec<u64>, due: &mut Vec<Instant>) -> bool {
        keys.clear();
        due.clear();
        let open = self.state.borrow().schedule.is_some();
        if open {
            let _first = self.turn.lock().await;
            self.until_due().await;
            self.state.borrow_mut().take(capacity, self.ends, keys, due);
        } else {
            self.state.borrow_mut().take(capacity, self.ends, keys, due);
        }
        !keys.is_empty()
    }

    /// Waits until the next request is due or the phase ends.
    async fn until_due(&self) {
        let next = self.state.borrow().next_due();
        let Some(due) = next else { return };
        let due = self.ends.map_or(due, |ends| due.min(ends));
        match self.timer {
            Timer::Coarse => sleep_until(due).await,
            Timer::Exact => {
                if due.saturating_duration_since(Instant::now()) > TIMER_RESOLUTION {
                    sleep_until(due - TIMER_RESOLUTION).await;
                }
                while Instant::now() < due {
                    yield_now().await;
                }
            }
        }
    }
}

impl State {
    fn next_due(&self) -> Option<Instant> {
        if self.left == 0 || self.tally.is_failing() {
            return None;
        }
        self.schedule.as_ref().map(|schedule| self.tally.began() + schedule.due())
    }

    fn take(
        &mut self,
        capacity: usize,
        ends: Option<Instant>,
        keys: &mut Vec<u64>,
        due: &mut Vec<Instant>,
    ) {
        let now = Instant::now();
        if ends.is_some_and(|ends| now >= ends) || self.tally.is_failing() {
            return;
        }
        while keys.len() < capacity && self.left > 0 {
            let when = match &mut self.schedule {
                None => now,
                Some(schedule) => {
                    let when = self.tally.began() + schedule.due();
                    if when > now {
                        break;
                    }
                    schedule.advance();
                    self.tally.sent_after(now - when);
                    when
                }
            };
            let Some(key) = self.keys.next() else {
                self.left = 0;
                break;
            };
            keys.push(key);
            due.push(when);
            self.left -= 1;
        }
        self.sent += keys.len() as u64;
    }

    /// Counts scheduled requests that were not sent.
    fn unsent(&mut self, ends: Option<Instant>) -> Unsent {
        let mut count = 0;
        while let (Some(due), Some(ends), Some(schedule)) =
            (self.next_due(), ends, &mut self.schedule)
        {
            if due >= ends {
                break;
            }
            schedule.advance();
            self.left -= 1;
            count += 1;
        }
        Unsent(count)
    }
}

/// Returns when requests are outstanding and none completed within the timeout.
async fn stalled(shared: &DriverState, timeout: Duration) {
    let counts = || {
        let state = shared.state.borrow();
        (state.sent, state.tally.completed())
    };
    let mut before = counts();
    loop {
        sleep(timeout).await;
        let now = counts();
        if now.1 == before.1 && before.0 > before.1 {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests;
