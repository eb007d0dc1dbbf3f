//! The loops: who asks when.
//!
//! Closed: every slot asks again as soon as it is answered. Open: the slots stand in a queue, the first of them waits until the next request is
//! due and sends it; while all are waiting for answers nobody is there to send, and what is due meanwhile is sent late, and counts from when
//! it was due.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use crate::keys::Keys;
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::wire::Slot;

/// A stretch of load.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) keys: Keys,
    /// None in a closed loop.
    pub(crate) schedule: Option<Schedule>,
    /// Nothing is sent from then on.
    pub(crate) ends: Option<Instant>,
    /// No more is sent than that.
    pub(crate) count: u64,
    pub(crate) wait: Wait,
    /// When nothing has been answered for so long, nothing will be.
    pub(crate) patience: Duration,
}

/// How a request is kept back until it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Without sleep at the end, since no timer is fine enough. The network is looked after at every turn.
    Exact,
    /// By a timer alone, which virtual time can follow.
    #[cfg(test)]
    Timer,
}

/// Finer than that no timer of tokio is, and it may be late by as much.
const TIMER: Duration = Duration::from_millis(2);

/// What all slots share.
struct Shared {
    state: RefCell<State>,
    /// Whoever holds it is the next to send, in an open loop.
    turn: Mutex<()>,
    wait: Wait,
    ends: Option<Instant>,
}

struct State {
    keys: Keys,
    schedule: Option<Schedule>,
    left: u64,
    tally: Tally,
    sent: u64,
}

/// Asks until the time, the count or the keys are at an end. The slots come back, unless it was given up.
pub(crate) async fn drive<S: Slot + 'static>(
    slots: Vec<S>,
    stretch: Stretch,
    tally: Tally,
) -> (Vec<S>, Unsent) {
    let Stretch { keys, schedule, ends, count, wait, patience } = stretch;
    let state = State { keys, schedule, left: count, tally, sent: 0 };
    let shared = Shared { state: RefCell::new(state), turn: Mutex::new(()), wait, ends };
    let shared = Rc::new(shared);
    let mut tasks = JoinSet::new();
    for slot in slots {
        tasks.spawn_local(asking(slot, shared.clone()));
    }
    let mut slots = Vec::new();
    let all = async {
        while let Some(done) = tasks.join_next().await {
            slots.extend(done);
        }
    };
    tokio::select! {
        () = all => {}
        () = nothing_heard(&shared, patience) => {
            // Who still waits is told so by its end.
            tasks.shutdown().await;
            let mut state = shared.state.borrow_mut();
            let missing = state.sent.saturating_sub(state.tally.heard());
            state.tally.failed(format!("no answer within {} s", patience.as_secs_f64()), missing);
            slots.clear();
        }
    }
    let mut state = shared.state.borrow_mut();
    let unsent = state.unsent(shared.ends);
    state.tally.finish();
    drop(state);
    (slots, unsent)
}

/// Requests that were due before the end and could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsent(pub(crate) u64);

/// One slot, until there is nothing more to ask.
async fn asking<S: Slot>(mut slot: S, shared: Rc<Shared>) -> S {
    let room = slot.room();
    let (mut keys, mut due, mut heard) = (Vec::new(), Vec::new(), Vec::new());
    while shared.take(room, &mut keys, &mut due).await {
        slot.ask(&keys, &mut heard).await;
        let mut state = shared.state.borrow_mut();
        due.iter().zip(heard.drain(..)).for_each(|(due, heard)| state.tally.add(*due, heard));
        let reconnects = slot.reconnects();
        state.tally.reconnected(reconnects);
    }
    slot
}

// === impl Shared ===

impl Shared {
    /// The next requests of a slot, and when they were due; whether there are any.
    async fn take(&self, room: usize, keys: &mut Vec<u64>, due: &mut Vec<Instant>) -> bool {
        keys.clear();
        due.clear();
        let open = self.state.borrow().schedule.is_some();
        if open {
            let _first = self.turn.lock().await;
            self.until_due().await;
            self.state.borrow_mut().take(room, self.ends, keys, due);
        } else {
            self.state.borrow_mut().take(room, self.ends, keys, due);
        }
        !keys.is_empty()
    }

    /// Until the next request is due, or nothing will be any more.
    async fn until_due(&self) {
        let next = self.state.borrow().next_due();
        let Some(due) = next else { return };
        let due = self.ends.map_or(due, |ends| due.min(ends));
        match self.wait {
            #[cfg(test)]
            Wait::Timer => sleep_until(due).await,
            Wait::Exact => {
                if due.saturating_duration_since(Instant::now()) > TIMER {
                    sleep_until(due - TIMER).await;
                }
                while Instant::now() < due {
                    yield_now().await;
                }
            }
        }
    }
}

// === impl State ===

impl State {
    fn next_due(&self) -> Option<Instant> {
        if self.left == 0 || self.tally.is_hopeless() {
            return None;
        }
        self.schedule.as_ref().map(|schedule| self.tally.began() + schedule.due())
    }

    fn take(
        &mut self,
        room: usize,
        ends: Option<Instant>,
        keys: &mut Vec<u64>,
        due: &mut Vec<Instant>,
    ) {
        let now = Instant::now();
        if ends.is_some_and(|ends| now >= ends) || self.tally.is_hopeless() {
            return;
        }
        while keys.len() < room && self.left > 0 {
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

    /// What was due before the end and was not sent.
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

/// Returns when nothing has been heard for so long, although something was sent.
async fn nothing_heard(shared: &Shared, patience: Duration) {
    let counts = || {
        let state = shared.state.borrow();
        (state.sent, state.tally.heard())
    };
    let mut before = counts();
    loop {
        sleep(patience).await;
        let now = counts();
        if now.1 == before.1 && before.0 > before.1 {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests;
