//! The queues of all limits, shared by the workers, and whose turn it is.
//!
//! A queue has a leader, which alone asks the counters. It books a turn, sleeps until then, and
//! leaves; or it passes the turn on to the request that is first by then. Every change that may
//! concern another request wakes it. Times are arguments: nothing here waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use sluicegate::{Span, Timestamp};
use sluicegate_core::algorithm::concurrency::Holder;
use tokio::sync::Notify;

use crate::scheduler::{QueuedRequest, Scheduler};

/// Identifies a limit of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CounterKey(pub(super) u64);

/// The waiting requests of all limits.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    state: Mutex<QueueMap>,
    /// Waiting requests, read without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueMap {
    queues: HashMap<CounterKey, Queue>,
    /// Number of the next request.
    next_id: u64,
}

/// The waiting requests of one limit. There is none without a request.
#[derive(Debug, Default)]
struct Queue {
    scheduler: Scheduler,
    requests: HashMap<u64, Waiting>,
    /// The request that asks the counters.
    leader: Option<u64>,
    /// When it asks.
    retry_at: Timestamp,
    /// The turn that is booked.
    turn: Option<Turn>,
    pace: Pace,
}

/// A waiting request.
#[derive(Debug)]
struct Waiting {
    entry: QueuedRequest,
    plan: u64,
    wake: Arc<Notify>,
}

/// A request that would wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applicant {
    pub(super) priority: u8,
    /// The client, for fairness.
    pub(super) client: u64,
    pub(super) cost: u64,
    /// Its counters and costs: a turn fits every request with the same.
    pub(super) plan: u64,
    /// Number of requests that may wait for its limit.
    pub(super) queue_max: usize,
}

/// A turn that is booked in the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// When it comes.
    pub(super) at: Timestamp,
    /// Its id in the counters; `None` if it is charged already.
    pub(super) holder: Option<Holder>,
    plan: u64,
}

/// What a waiting request does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its turn has come. It does not wait any more.
    Go(Turn),
    /// Asks the counters for a turn.
    Book,
    /// Waits until this time, or until it is woken.
    Sleep(Timestamp),
    /// Waits until it is woken.
    Follow,
}

/// How long a limit takes for a unit of cost.
#[derive(Debug, Default)]
struct Pace {
    /// By the configured rate.
    nominal: Span,
    /// As observed, where nodes share the limit: an average of turns without a pause.
    observed: Option<u64>,
    last_turn: Option<Timestamp>,
}

impl Queues {
    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// The first of these limits that requests wait for.
    pub(super) fn find(&self, keys: impl Iterator<Item = CounterKey>) -> Option<CounterKey> {
        let state = self.state.lock();
        let mut keys = keys;
        keys.find(|key| state.queues.contains_key(key))
    }

    /// Adds a request to the queue of a limit, unless that is full or the wait would be too long.
    /// `retry_at` is when the limit admits it at the earliest, and `unit` the time for a unit of
    /// cost. Returns its number.
    pub(super) fn enter(
        &self,
        key: CounterKey,
        applicant: Applicant,
        (retry_at, unit): (Timestamp, Span),
        (now, deadline): (Timestamp, Timestamp),
    ) -> Option<(u64, Arc<Notify>)> {
        let mut state = self.state.lock();
        let QueueMap { queues, next_id } = &mut *state;
        let Applicant { priority, client, cost, plan, queue_max } = applicant;
        let entry = QueuedRequest { id: *next_id, priority, client, cost };
        if let Some(queue) = queues.get_mut(&key) {
            queue.pace.nominal = unit;
            let starts_at = queue.starts_at(entry, now);
            // The requests of other clients that are served later do not take its place.
            let before = queue.scheduler.count_before(entry);
            if before >= queue_max as u64 || starts_at > deadline {
                return None;
            }
        } else if queue_max == 0 || retry_at > deadline {
            return None;
        }
        *next_id += 1;
        let queue = queues.entry(key).or_insert_with(|| {
            let pace = Pace { nominal: unit, ..Pace::default() };
            Queue { retry_at, pace, ..Queue::default() }
        });
        let wake = Arc::new(Notify::new());
        queue.scheduler.push(entry);
        queue.requests.insert(entry.id, Waiting { entry, plan, wake: wake.clone() });
        self.waiting.fetch_add(1, Relaxed);
        Some((entry.id, wake))
    }

    /// What a waiting request does next.
    pub(super) fn step(&self, key: CounterKey, id: u64, now: Timestamp) -> Step {
        let mut state = self.state.lock();
        let Some(queue) = state.queues.get_mut(&key) else { return Step::Follow };
        let step = queue.step(id, now);
        if matches!(step, Step::Go(_)) {
            self.waiting.fetch_sub(1, Relaxed);
            if queue.requests.is_empty() {
                state.queues.remove(&key);
            }
        }
        step
    }

    /// The leader has booked a turn.
    pub(super) fn booked(&self, key: CounterKey, id: u64, at: Timestamp, holder: Option<Holder>) {
        if let Some(queue) = self.state.lock().queues.get_mut(&key)
            && let Some(request) = queue.requests.get(&id)
        {
            queue.turn = Some(Turn { at, holder, plan: request.plan });
        }
    }

    /// The limit denies the leader until this time.
    pub(super) fn denied(&self, key: CounterKey, retry_at: Timestamp) {
        if let Some(queue) = self.state.lock().queues.get_mut(&key) {
            queue.retry_at = retry_at;
        }
    }

    /// A request does not wait any more. Returns its turn, to be cancelled, if it had one that fits
    /// no other request.
    pub(super) fn leave(&self, key: CounterKey, id: u64) -> Option<Turn> {
        let mut state = self.state.lock();
        let queue = state.queues.get_mut(&key)?;
        let waiting = queue.requests.remove(&id)?;
        self.waiting.fetch_sub(1, Relaxed);
        queue.scheduler.remove(waiting.entry);
        let turn = queue.replace_leader(id);
        if queue.requests.is_empty() {
            state.queues.remove(&key);
        }
        turn
    }

    /// Slots were released: leaders that wait for one ask again.
    pub(crate) fn slot_released(&self) {
        if self.is_empty() {
            return;
        }
        for queue in self.state.lock().queues.values_mut() {
            queue.retry_at = Timestamp::EPOCH;
            queue.wake_leader();
        }
    }
}

impl Queue {
    fn step(&mut self, id: u64, now: Timestamp) -> Step {
        if *self.leader.get_or_insert(id) != id {
            return Step::Follow;
        }
        let due = self.turn.map_or(self.retry_at, |turn| turn.at);
        if now < due {
            return Step::Sleep(due);
        }
        let Some(first) = self.scheduler.next() else { return Step::Follow };
        let fits = |turn: Turn, id: u64| {
            self.requests.get(&id).is_some_and(|request| request.plan == turn.plan)
        };
        if first.id != id && self.turn.is_none_or(|turn| fits(turn, first.id)) {
            self.leader = Some(first.id);
            self.wake_leader();
            return Step::Follow;
        }
        let Some(turn) = self.turn.take() else { return Step::Book };
        let Some(Waiting { entry, .. }) = self.requests.remove(&id) else { return Step::Follow };
        self.scheduler.serve(entry);
        self.pace.observe(entry.cost, turn.at);
        self.retry_at = now;
        self.elect();
        Step::Go(turn)
    }

    /// The request that is first becomes the leader.
    fn elect(&mut self) {
        self.leader = self.scheduler.next().map(|first| first.id);
        self.wake_leader();
    }

    /// Another request takes the place of a leader that leaves, and its turn. The turn if it fits
    /// none.
    fn replace_leader(&mut self, id: u64) -> Option<Turn> {
        if self.leader != Some(id) {
            return None;
        }
        if let Some(turn) = self.turn {
            let fits = |request: &&Waiting| request.plan == turn.plan;
            let mut heirs = self.requests.values().filter(fits).map(|request| request.entry.id);
            let first = self.scheduler.next().map(|first| first.id);
            let first = first.filter(|first| heirs.clone().any(|heir| heir == *first));
            if let Some(heir) = first.or_else(|| heirs.next()) {
                self.leader = Some(heir);
                self.wake_leader();
                return None;
            }
            self.turn = None;
            self.elect();
            return Some(turn);
        }
        self.elect();
        None
    }

    fn wake_leader(&self) {
        if let Some(leader) = self.leader.and_then(|leader| self.requests.get(&leader)) {
            leader.wake.notify_one();
        }
    }

    /// When a request would be served that is added now.
    fn starts_at(&self, entry: QueuedRequest, now: Timestamp) -> Timestamp {
        let next = self.turn.map_or(self.retry_at, |turn| turn.at).max(now);
        next.after(self.pace.time_for(self.scheduler.cost_before(entry)))
    }
}

impl Pace {
    /// Time for this cost.
    fn time_for(&self, cost: u64) -> Span {
        let unit = self.nominal.as_micros().max(self.observed.unwrap_or(0));
        Span::from_micros(unit.saturating_mul(cost))
    }

    /// A turn of a queue in which others wait.
    fn observe(&mut self, cost: u64, at: Timestamp) {
        if let Some(last) = self.last_turn.replace(at) {
            let unit = at.since(last).as_micros() / cost.max(1);
            let known = self.observed.unwrap_or(unit);
            self.observed = Some(known - known / 8 + unit / 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CounterKey = CounterKey(1);
    const UNIT: Span = Span::from_millis(100);

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH.after(Span::from_millis(millis))
    }

    fn applicant(client: u64) -> Applicant {
        Applicant { priority: 5, client, cost: 1, plan: 7, queue_max: 10 }
    }

    fn enter(queues: &Queues, applicant: Applicant, millis: u64) -> Option<u64> {
        let entered = queues.enter(KEY, applicant, (at(100), UNIT), (at(millis), at(1_000)));
        entered.map(|(id, _)| id)
    }

    #[test]
    fn a_turn_goes_to_the_request_that_is_first_when_it_comes() {
        let queues = Queues::default();
        let slow = enter(&queues, applicant(1), 0).unwrap();
        assert_eq!(queues.step(KEY, slow, at(0)), Step::Sleep(at(100)));
        assert_eq!(queues.step(KEY, slow, at(100)), Step::Book);
        queues.booked(KEY, slow, at(150), Some(Holder(9)));
        let urgent = enter(&queues, Applicant { priority: 9, ..applicant(2) }, 120).unwrap();
        assert_eq!(queues.step(KEY, urgent, at(120)), Step::Follow);
        assert_eq!(queues.step(KEY, slow, at(150)), Step::Follow);
        let Step::Go(turn) = queues.step(KEY, urgent, at(150)) else { panic!("its turn") };
        assert_eq!((turn.holder, queues.waiting()), (Some(Holder(9)), 1));
        assert_eq!(queues.step(KEY, slow, at(150)), Step::Book, "it leads again");
    }

    #[test]
    fn a_turn_with_other_counters_is_not_passed_on() {
        let queues = Queues::default();
        let first = enter(&queues, applicant(1), 0).unwrap();
        assert_eq!(queues.step(KEY, first, at(100)), Step::Book);
        queues.booked(KEY, first, at(150), None);
        enter(&queues, Applicant { priority: 9, plan: 8, ..applicant(2) }, 120).unwrap();
        assert!(matches!(queues.step(KEY, first, at(150)), Step::Go(_)));
    }

    #[test]
    fn a_leader_that_leaves_hands_its_turn_on_or_cancels_it() {
        let queues = Queues::default();
        let first = enter(&queues, applicant(1), 0).unwrap();
        assert_eq!(queues.step(KEY, first, at(100)), Step::Book);
        queues.booked(KEY, first, at(150), Some(Holder(9)));
        let second = enter(&queues, applicant(2), 110).unwrap();
        assert_eq!(queues.leave(KEY, first), None, "the second one has its turn");
        assert_eq!(queues.step(KEY, second, at(110)), Step::Sleep(at(150)));
        let holder = queues.leave(KEY, second).and_then(|turn| turn.holder);
        assert_eq!((holder, queues.waiting()), (Some(Holder(9)), 0), "nobody is left");
        assert!(queues.state.lock().queues.is_empty());
    }

    #[test]
    fn a_request_is_refused_at_once_if_its_turn_comes_too_late() {
        let queues = Queues::default();
        let entered = (0..20).filter_map(|_| enter(&queues, applicant(1), 0)).count();
        assert_eq!(entered, 10, "the first at 0.1 s, the tenth at 1 s, and the queue is full");
        let queues = Queues::default();
        let wide = Applicant { queue_max: 100, ..applicant(1) };
        let entered = (0..20).filter_map(|_| enter(&queues, wide, 0)).count();
        assert_eq!(entered, 10, "the eleventh would be served after its deadline");
        // Another client is served after one of them, and before the others.
        assert!(enter(&queues, Applicant { client: 2, ..wide }, 0).is_some());
    }

    #[test]
    fn a_limit_that_is_slower_than_configured_is_noticed() {
        let queues = Queues::default();
        for client in 0..6 {
            enter(&queues, applicant(client), 0).unwrap();
        }
        for turn in 1..=4 {
            let now = at(turn * 200);
            let leader = queues.state.lock().queues[&KEY].leader.unwrap_or(0);
            assert_eq!(queues.step(KEY, leader, now), Step::Book);
            queues.booked(KEY, leader, now, None);
            assert!(matches!(queues.step(KEY, leader, now), Step::Go(_)));
        }
        assert_eq!(enter(&queues, applicant(9), 800), None, "two before it, 0.2 s each");
    }

    #[test]
    fn a_released_slot_wakes_the_leader() {
        let queues = Queues::default();
        let first = enter(&queues, applicant(1), 0).unwrap();
        assert_eq!(queues.step(KEY, first, at(0)), Step::Sleep(at(100)));
        queues.slot_released();
        assert_eq!(queues.step(KEY, first, at(0)), Step::Book);
    }
}
