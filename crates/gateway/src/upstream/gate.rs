//! The limit of the requests in flight at an upstream, and the short queue in front of it.
//!
//! A request that finds the limit reached waits for another one to end: by priority, and fairly
//! between clients. From twice the limit waiting, requests are rejected at random, from three times
//! all are. Only those that would be served first count, so the least important are rejected first.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::adaptive::{AdaptiveLimit, AdaptiveOptions, AdaptiveSample, AdaptiveSignal};
use sluicegate::{Span, Timestamp};
use sluicegate_config::gateway::upstream::{CapacitySignal, ConcurrencyConfig};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::scheduler::{QueuedRequest, Scheduler};

/// The limit of an upstream.
pub(super) struct Gate {
    max_wait: Duration,
    epoch: Instant,
    state: Mutex<GateState>,
}

struct GateState {
    limit: GateLimit,
    in_flight: usize,
    queue: Scheduler,
    waiting: HashMap<u64, GateWaiter>,
    next_id: u64,
    rejected: [u64; PRIORITIES],
}

enum GateLimit {
    Fixed(usize),
    Adaptive(AdaptiveLimit),
}

/// A waiting request.
struct GateWaiter {
    entry: QueuedRequest,
    wake: Arc<Notify>,
}

/// A request in flight; dropping it admits the next one.
pub(crate) struct GatePermit {
    gate: Arc<Gate>,
    began: Instant,
    /// When it began, itself included.
    in_flight: usize,
}

/// A request that waits; dropping it leaves the queue.
struct GatePlace<'a> {
    gate: &'a Arc<Gate>,
    id: u64,
    is_admitted: bool,
}

/// State of a gate, for metrics.
#[derive(Debug, Clone, Copy)]
pub(super) struct GateFigures {
    pub(super) limit: usize,
    pub(super) in_flight: usize,
    pub(super) waiting: usize,
    /// By priority.
    pub(super) rejected: [u64; PRIORITIES],
    pub(super) baseline: Option<Span>,
}

pub(super) const PRIORITIES: usize = 10;

/// Waiting requests for each request of the limit: from the first number on requests are rejected
/// at random, from the second on all are.
const REJECTED_FROM: usize = 2;
const REJECTED_ALL: usize = 3;

impl Gate {
    pub(super) fn new(config: &ConcurrencyConfig) -> Arc<Self> {
        let limit = match &config.adaptive {
            None => GateLimit::Fixed(config.max),
            Some(adaptive) => GateLimit::Adaptive(AdaptiveLimit::new(AdaptiveOptions {
                min: adaptive.min,
                max: config.max,
                start: adaptive.start,
                signal: match adaptive.signal {
                    CapacitySignal::Latency => AdaptiveSignal::Latency,
                    CapacitySignal::Failures => AdaptiveSignal::Failures,
                },
            })),
        };
        let state = GateState {
            limit,
            in_flight: 0,
            queue: Scheduler::default(),
            waiting: HashMap::new(),
            next_id: 0,
            rejected: [0; PRIORITIES],
        };
        Arc::new(Self {
            max_wait: config.max_wait,
            epoch: Instant::now(),
            state: Mutex::new(state),
        })
    }

    /// Admits a request at once, if the limit is not reached and no other one waits.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<GatePermit> {
        let mut state = self.state.lock();
        let is_free = state.queue.len() == 0 && state.in_flight < state.limit.get();
        is_free.then(|| {
            state.in_flight += 1;
            self.permit(state.in_flight)
        })
    }

    /// Waits for other requests to end; `None` if the request is rejected.
    pub(super) async fn enter(self: &Arc<Self>, priority: u8, client: u64) -> Option<GatePermit> {
        let (id, wake) = {
            let mut state = self.state.lock();
            let id = state.next_id;
            let entry = QueuedRequest { id, priority, client, cost: 1 };
            if state.rejects(priority, fastrand::f64()) {
                state.reject(priority);
                return None;
            }
            let wake = Arc::new(Notify::new());
            state.next_id += 1;
            state.queue.push(entry);
            state.waiting.insert(id, GateWaiter { entry, wake: wake.clone() });
            state.admit();
            (id, wake)
        };
        let mut place = GatePlace { gate: self, id, is_admitted: false };
        let admitted = pin!(wake.notified());
        if timeout(self.max_wait, admitted).await.is_err() {
            // It may have been admitted at this moment.
            let mut state = self.state.lock();
            if state.waiting.contains_key(&id) {
                state.reject(priority);
                return None;
            }
        }
        place.is_admitted = true;
        let in_flight = self.state.lock().in_flight;
        Some(self.permit(in_flight))
    }

    fn permit(self: &Arc<Self>, in_flight: usize) -> GatePermit {
        GatePermit { gate: self.clone(), began: Instant::now(), in_flight }
    }

    /// Requests in flight, in thousandths of an adaptive limit; `None` if it is fixed.
    pub(super) fn load(&self) -> Option<u64> {
        let state = self.state.lock();
        match &state.limit {
            GateLimit::Fixed(_) => None,
            GateLimit::Adaptive(limit) => {
                let used = state.in_flight + state.queue.len();
                Some((used * 1_000 / limit.limit().max(1)) as u64)
            }
        }
    }

    pub(super) fn figures(&self) -> GateFigures {
        let state = self.state.lock();
        let baseline = match &state.limit {
            GateLimit::Fixed(_) => None,
            GateLimit::Adaptive(limit) => limit.baseline(),
        };
        GateFigures {
            limit: state.limit.get(),
            in_flight: state.in_flight,
            waiting: state.queue.len(),
            rejected: state.rejected,
            baseline,
        }
    }

    fn now(&self) -> Timestamp {
        let micros = self.epoch.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn release(&self) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        state.admit();
    }
}

impl GateLimit {
    fn get(&self) -> usize {
        match self {
            Self::Fixed(limit) => *limit,
            Self::Adaptive(limit) => limit.limit(),
        }
    }
}

impl GateState {
    /// Whether a request is rejected, given a random number below 1.
    fn rejects(&self, priority: u8, random: f64) -> bool {
        let (limit, before) = (self.limit.get(), self.queue.len_from(priority));
        let from = limit * REJECTED_FROM;
        let beyond = before.saturating_sub(from) as f64;
        before > from && random < beyond / (limit * (REJECTED_ALL - REJECTED_FROM)) as f64
    }

    fn reject(&mut self, priority: u8) {
        if let Some(count) = self.rejected.get_mut(usize::from(priority)) {
            *count += 1;
        }
    }

    /// Admits those that are first.
    fn admit(&mut self) {
        while self.in_flight < self.limit.get()
            && let Some(next) = self.queue.next()
        {
            self.queue.serve(next);
            self.in_flight += 1;
            if let Some(waiter) = self.waiting.remove(&next.id) {
                waiter.wake.notify_one();
            }
        }
    }
}

impl GatePermit {
    /// The head of the response has arrived, or the server has failed.
    pub(super) fn record(&self, is_failure: bool) {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (latency, now) = (Span::from_micros(micros), self.gate.now());
        let sample = AdaptiveSample { latency, in_flight: self.in_flight, is_failure };
        let mut state = self.gate.state.lock();
        if let GateLimit::Adaptive(limit) = &mut state.limit
            && limit.record(now, sample)
        {
            state.admit();
        }
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        self.gate.release();
    }
}

impl Drop for GatePlace<'_> {
    fn drop(&mut self) {
        if self.is_admitted {
            return;
        }
        let mut state = self.gate.state.lock();
        match state.waiting.remove(&self.id) {
            Some(waiter) => state.queue.remove(waiter.entry),
            // It was admitted, and its client has gone.
            None => {
                state.in_flight -= 1;
                state.admit();
            }
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures().fmt(f)
    }
}

impl fmt::Debug for GatePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatePermit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn gate(max: usize) -> Arc<Gate> {
        let max_wait = Duration::from_secs(1);
        Gate::new(&ConcurrencyConfig { max, adaptive: None, max_wait })
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_ends_admits_the_most_important() {
        let gate = gate(1);
        let first = gate.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
        let (mut low, mut high) = (Box::pin(gate.enter(1, 1)), Box::pin(gate.enter(9, 2)));
        assert!(poll(&mut low).is_pending() && poll(&mut high).is_pending());
        drop(first);
        let Poll::Ready(Some(permit)) = poll(&mut high) else { panic!("it goes first") };
        assert!(poll(&mut low).is_pending());
        assert!(gate.try_enter().is_none(), "nobody overtakes");
        drop(permit);
        assert!(matches!(poll(&mut low), Poll::Ready(Some(_))));
        drop(low);
        assert_eq!((gate.figures().in_flight, gate.figures().waiting), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_frees_its_place() {
        let gate = gate(1);
        let first = gate.try_enter().unwrap();
        let (mut gone, mut next) = (Box::pin(gate.enter(5, 1)), Box::pin(gate.enter(5, 2)));
        assert!(poll(&mut gone).is_pending() && poll(&mut next).is_pending());
        drop(first);
        // It was admitted, but has not noticed yet.
        drop(gone);
        assert!(matches!(poll(&mut next), Poll::Ready(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_time_only() {
        let gate = gate(1);
        let _first = gate.try_enter().unwrap();
        assert!(gate.enter(5, 1).await.is_none());
        let figures = gate.figures();
        assert_eq!((figures.in_flight, figures.waiting, figures.rejected[5]), (1, 0, 1));
    }

    #[test]
    fn the_least_important_are_rejected_first() {
        let gate = gate(10);
        let mut state = gate.state.lock();
        for id in 0..25 {
            state.queue.push(QueuedRequest { id, priority: 5, client: id, cost: 1 });
        }
        assert!(state.rejects(5, 0.4) && !state.rejects(5, 0.6), "half way from 20 to 30");
        assert!(state.rejects(1, 0.4), "it would be behind all of them");
        assert!(!state.rejects(6, 0.0), "it would be before all of them");
        for id in 25..30 {
            state.queue.push(QueuedRequest { id, priority: 5, client: id, cost: 1 });
        }
        assert!(state.rejects(5, 0.999));
    }
}
