//! The limit of the requests in flight at an upstream, and the short queue in front of it.
//!
//! A request that finds the limit reached waits for another one to end: by priority, and fairly
//! between clients. From twice the limit waiting, requests are rejected at random, from three times
//! all are. Only those that would be served first count, so the least important are rejected first.

#[cfg(test)]
mod simulation;
mod state;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::adaptive::AdaptiveSample;
use sluicegate::{Span, Timestamp};
use sluicegate_config::gateway::upstream::ConcurrencyConfig;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::state::GateState;

/// The limit of an upstream.
pub(super) struct Gate {
    max_wait: Duration,
    epoch: Instant,
    state: Mutex<GateState<Arc<Notify>>>,
}

/// A request in flight; dropping it admits the next one.
pub(crate) struct GatePermit {
    gate: Arc<Gate>,
    began: Instant,
    /// When it began, itself included.
    in_flight: usize,
    is_recorded: bool,
}

/// A request that waits; dropping it leaves the queue.
struct GatePlace<'a> {
    gate: &'a Arc<Gate>,
    id: u64,
    is_left: bool,
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

impl Gate {
    pub(super) fn new(config: &ConcurrencyConfig) -> Arc<Self> {
        let (max_wait, epoch) = (config.max_wait, Instant::now());
        Arc::new(Self { max_wait, epoch, state: Mutex::new(GateState::new(config)) })
    }

    /// Admits a request at once, if the limit is not reached and no other one waits.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<GatePermit> {
        let mut state = self.state.lock();
        state.try_enter().then(|| self.permit(state.in_flight()))
    }

    /// Waits for other requests to end; `None` if the request is rejected.
    pub(super) async fn enter(self: &Arc<Self>, priority: u8, client: u64) -> Option<GatePermit> {
        let wake = Arc::new(Notify::new());
        let id = {
            let mut state = self.state.lock();
            let id = state.enqueue((priority, client), fastrand::f64(), wake.clone())?;
            state.admit(notify);
            id
        };
        let mut place = GatePlace { gate: self, id, is_left: false };
        let admitted = pin!(wake.notified());
        let is_late = timeout(self.max_wait, admitted).await.is_err();
        let mut state = self.state.lock();
        place.is_left = true;
        if is_late && state.expire(id) {
            return None;
        }
        Some(self.permit(state.in_flight()))
    }

    fn permit(self: &Arc<Self>, in_flight: usize) -> GatePermit {
        GatePermit { gate: self.clone(), began: Instant::now(), in_flight, is_recorded: false }
    }

    /// Requests in flight, in thousandths of an adaptive limit; `None` if it is fixed.
    pub(super) fn load(&self) -> Option<u64> {
        self.state.lock().load()
    }

    pub(super) fn figures(&self) -> GateFigures {
        self.state.lock().figures()
    }

    fn now(&self) -> Timestamp {
        let micros = self.epoch.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

fn notify(wake: Arc<Notify>) {
    wake.notify_one();
}

impl GatePermit {
    /// The head of the response has arrived, or the server has failed.
    pub(super) fn record(&mut self, is_failure: bool) {
        self.is_recorded = true;
        let sample = self.sample(is_failure);
        self.gate.state.lock().record(self.gate.now(), sample, notify);
    }

    /// The request failed for a reason that says nothing about the server.
    pub(super) const fn ignore(&mut self) {
        self.is_recorded = true;
    }

    fn sample(&self, is_failure: bool) -> AdaptiveSample {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        AdaptiveSample { latency: Span::from_micros(micros), in_flight: self.in_flight, is_failure }
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        if !self.is_recorded {
            state.record_abandoned(self.gate.now(), self.sample(false), notify);
        }
        state.release(notify);
    }
}

impl Drop for GatePlace<'_> {
    fn drop(&mut self) {
        if !self.is_left {
            self.gate.state.lock().leave(self.id, notify);
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
}
