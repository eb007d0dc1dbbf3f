//! Decisions of a gate: which request is in flight, waits, or is rejected.
//!
//! Time and random numbers are arguments, and what wakes a waiting request is a value of the
//! caller, so that a simulation drives the same decisions on virtual time.

use std::collections::HashMap;

use sluicegate::adaptive::{AdaptiveLimit, AdaptiveOptions, AdaptiveSample, AdaptiveSignal};
use sluicegate::{Span, Timestamp};
use sluicegate_config::gateway::upstream::{CapacitySignal, ConcurrencyConfig};

use super::{GateFigures, PRIORITIES};
use crate::scheduler::{QueuedRequest, Scheduler};

/// Waiting requests for each request of the limit: from the first number on requests are rejected
/// at random, from the second on all are.
const REJECTED_FROM: usize = 2;
const REJECTED_ALL: usize = 3;

/// The limit, and the requests in flight and waiting. `W` wakes a waiting request.
pub(super) struct GateState<W> {
    limit: GateLimit,
    in_flight: usize,
    queue: Scheduler,
    waiting: HashMap<u64, (QueuedRequest, W)>,
    next_id: u64,
    rejected: [u64; PRIORITIES],
}

enum GateLimit {
    Fixed(usize),
    Adaptive(Box<AdaptiveLimit>),
}

impl<W> GateState<W> {
    pub(super) fn new(config: &ConcurrencyConfig) -> Self {
        let limit = match &config.adaptive {
            None => GateLimit::Fixed(config.max),
            Some(adaptive) => GateLimit::Adaptive(Box::new(AdaptiveLimit::new(AdaptiveOptions {
                min: adaptive.min,
                max: config.max,
                start: adaptive.start,
                signal: match adaptive.signal {
                    CapacitySignal::Latency => AdaptiveSignal::Latency,
                    CapacitySignal::Failures => AdaptiveSignal::Failures,
                },
            }))),
        };
        Self {
            limit,
            in_flight: 0,
            queue: Scheduler::default(),
            waiting: HashMap::new(),
            next_id: 0,
            rejected: [0; PRIORITIES],
        }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Admits a request at once, if the limit is not reached and no other one waits.
    pub(super) fn try_enter(&mut self) -> bool {
        let is_free = self.queue.len() == 0 && self.in_flight < self.limit.get();
        self.in_flight += usize::from(is_free);
        is_free
    }

    /// Adds a request to the queue, given a random number below 1. Returns its number, or `None` if
    /// it is rejected.
    pub(super) fn enqueue(
        &mut self,
        (priority, client): (u8, u64),
        random: f64,
        waker: W,
    ) -> Option<u64> {
        let entry = QueuedRequest { id: self.next_id, priority, client, cost: 1 };
        if self.rejects(entry, random) {
            self.count_rejected(priority);
            return None;
        }
        self.next_id += 1;
        self.queue.push(entry);
        self.waiting.insert(entry.id, (entry, waker));
        Some(entry.id)
    }

    /// A request has waited for too long; false if it was admitted at this moment.
    pub(super) fn expire(&mut self, id: u64) -> bool {
        let Some((entry, _)) = self.waiting.remove(&id) else { return false };
        self.queue.remove(entry);
        self.count_rejected(entry.priority);
        true
    }

    /// The client of a request in the queue has gone. It may have been admitted without noticing.
    pub(super) fn leave(&mut self, id: u64, wake: impl FnMut(W)) {
        match self.waiting.remove(&id) {
            Some((entry, _)) => self.queue.remove(entry),
            None => self.release(wake),
        }
    }

    /// A request in flight ends.
    pub(super) fn release(&mut self, wake: impl FnMut(W)) {
        self.in_flight -= 1;
        self.admit(wake);
    }

    /// Admits those that are first.
    pub(super) fn admit(&mut self, mut wake: impl FnMut(W)) {
        while self.in_flight < self.limit.get()
            && let Some(next) = self.queue.next()
        {
            self.queue.serve(next);
            self.in_flight += 1;
            if let Some((_, waker)) = self.waiting.remove(&next.id) {
                wake(waker);
            }
        }
    }

    /// The head of a response has arrived, or the server has failed.
    pub(super) fn record(&mut self, now: Timestamp, sample: AdaptiveSample, wake: impl FnMut(W)) {
        if let GateLimit::Adaptive(limit) = &mut self.limit
            && limit.record(now, sample)
        {
            self.admit(wake);
        }
    }

    /// The client of a request in flight has gone before the response.
    pub(super) fn record_abandoned(
        &mut self,
        now: Timestamp,
        sample: AdaptiveSample,
        wake: impl FnMut(W),
    ) {
        if let GateLimit::Adaptive(limit) = &mut self.limit
            && limit.record_abandoned(now, sample)
        {
            self.admit(wake);
        }
    }

    /// Requests in flight and waiting, in thousandths of an adaptive limit; `None` if it is fixed.
    pub(super) fn load(&self) -> Option<u64> {
        match &self.limit {
            GateLimit::Fixed(_) => None,
            GateLimit::Adaptive(limit) => {
                let used = self.in_flight + self.queue.len();
                Some((used * 1_000 / limit.limit().max(1)) as u64)
            }
        }
    }

    pub(super) fn figures(&self) -> GateFigures {
        GateFigures {
            limit: self.limit.get(),
            in_flight: self.in_flight,
            waiting: self.queue.len(),
            rejected: self.rejected,
            baseline: self.limit.baseline(),
        }
    }

    /// Only the requests that would be served first count: those of higher priorities, and of each
    /// other client no more than of this one. So the least important are rejected first, and of
    /// them those of the clients that wait with the most.
    fn rejects(&self, entry: QueuedRequest, random: f64) -> bool {
        let limit = self.limit.get();
        let before = usize::try_from(self.queue.count_before(entry)).unwrap_or(usize::MAX);
        let from = limit * REJECTED_FROM;
        let beyond = before.saturating_sub(from) as f64;
        before > from && random < beyond / (limit * (REJECTED_ALL - REJECTED_FROM)) as f64
    }

    fn count_rejected(&mut self, priority: u8) {
        if let Some(count) = self.rejected.get_mut(usize::from(priority)) {
            *count += 1;
        }
    }
}

impl GateLimit {
    fn get(&self) -> usize {
        match self {
            Self::Fixed(limit) => *limit,
            Self::Adaptive(limit) => limit.limit(),
        }
    }

    fn baseline(&self) -> Option<Span> {
        match self {
            Self::Fixed(_) => None,
            Self::Adaptive(limit) => limit.baseline(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state(max: usize) -> GateState<()> {
        let max_wait = Duration::from_secs(1);
        GateState::new(&ConcurrencyConfig { max, adaptive: None, max_wait })
    }

    const fn entry(priority: u8, client: u64) -> QueuedRequest {
        QueuedRequest { id: 999, priority, client, cost: 1 }
    }

    #[test]
    fn the_least_important_are_rejected_first() {
        let mut state = state(10);
        for client in 0..25 {
            state.enqueue((5, client), 1.0, ()).unwrap();
        }
        let rejects = |priority, random| state.rejects(entry(priority, 99), random);
        assert!(rejects(5, 0.4) && !rejects(5, 0.6), "half way from 20 to 30");
        assert!(rejects(1, 0.4), "it would be behind all of them");
        assert!(!rejects(6, 0.0), "it would be before all of them");
        for client in 25..30 {
            state.enqueue((5, client), 1.0, ()).unwrap();
        }
        assert!(state.rejects(entry(5, 99), 0.999));
    }

    #[test]
    fn the_client_that_waits_with_the_most_is_rejected_first() {
        let mut state = state(10);
        for _ in 0..30 {
            state.enqueue((5, 1), 1.0, ()).unwrap();
        }
        assert!(state.rejects(entry(5, 1), 0.999));
        assert!(!state.rejects(entry(5, 2), 0.0), "it would be second");
    }
}
