//! Sends deferred requests: each queue in order, one request at a time, when its limits admit it.
//!
//! ```text
//!   claim a queue ── first request ── due? ── charge ── running ── send ── done, retry, dead letter
//!        │                │                     │          │                 │
//!        │                └ none: release       │          └ durable         └ durable
//!        └ renewed while it is owned            └ denied: wait as long as the limit says
//! ```
//!
//! Queues that wait for the same counter take turns: only the first of them asks it, when the limit
//! said so.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate::backend::Call;
use sluicegate::{Checked, Span, Timestamp};
use sluicegate_server::app::App;
use sluicegate_server::rls::response::Code;
use tokio::sync::{Mutex as TurnLock, Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::Deferrals;
use super::callback::CallbackSender;
use super::request::{DeferredRequest, DeferredState, millis, timestamp};
use super::send::{SendFailure, Sent, due_at, send};
use super::store::{BodyPart, Claim, DeferredStore, Release, StoreError};
use crate::active::Active;
use crate::held_ticket::{HeldTicket, charge_slots};
use crate::shape::{CounterKey, Queues, denying_limit};

/// Queues that a node sends at the same time.
const QUEUES_MAX: usize = 10_000;
/// Requests that a node sends at the same time.
const SENDS_MAX: usize = 64;
/// Queues claimed by one call.
const CLAIMS_MAX: usize = 64;
/// Interval of renewals, deletions, callbacks and figures.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(1);
/// Requests that housekeeping handles each time.
const HOUSEKEEPING_MAX: usize = 100;
/// Pause after a failure of the store.
const STORE_RETRY: Span = Span::from_millis(250);
/// Pause when a limit cannot say when it admits a request.
const UNKNOWN_WAIT: Span = Span::from_secs(1);
const LISTED_WAIT: Span = Span::from_secs(60);
/// The longest pause until a limit is asked again, whatever it said.
const WAIT_MAX: Span = Span::from_secs(30);

/// Sends the deferred requests of a process.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) app: App,
    pub(crate) active: Arc<ArcSwap<Active>>,
    /// Requests that wait for slots.
    pub(crate) queues: Arc<Queues>,
    pub(crate) deferrals: Arc<Deferrals>,
    /// Its index among the workers, for connections to upstreams.
    pub(crate) worker: usize,
}

/// A dispatcher that runs.
struct Running {
    dispatcher: Dispatcher,
    store: Arc<dyn DeferredStore>,
    sends: Semaphore,
    turns: Mutex<HashMap<CounterKey, Weak<TurnLock<()>>>>,
}

/// The queues of a node, each with the number of its task.
#[derive(Debug, Default)]
struct OwnedQueues {
    queues: HashMap<u64, (Claim, watch::Sender<Ownership>)>,
    next: u64,
}

/// A queue that is being sent.
#[derive(Debug)]
struct OwnedQueue {
    claim: Claim,
    ownership: watch::Receiver<Ownership>,
}

/// Whether a queue is still to be sent by this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Held,
    /// Another node owns it.
    Lost,
    /// The process ends.
    Stopping,
}

/// A request that its limits admit.
struct AdmittedRequest<'a> {
    _permit: SemaphorePermit<'a>,
    /// A slot of a concurrency limit.
    _slot: Option<HeldTicket>,
}

/// Answer of the limits.
enum Charged {
    Admitted(Option<HeldTicket>, Span),
    Denied { counter: Option<CounterKey>, retry_at: Timestamp },
}

impl Dispatcher {
    /// Sends requests until `stopped`, then finishes those that are being sent, for up to `drain`.
    pub(crate) async fn run(self, stopped: impl Future<Output = ()>, drain: Duration) {
        let mut stopped = std::pin::pin!(stopped);
        let store = tokio::select! {
            store = self.deferrals.opened() => store,
            () = &mut stopped => return,
        };
        tokio::select! {
            warning = store.durability_warning() => if let Some(reason) = warning {
                warn!(reason, "deferred requests can be lost");
            },
            () = &mut stopped => return,
        }
        let running = Arc::new(Running {
            dispatcher: self,
            store,
            sends: Semaphore::new(SENDS_MAX),
            turns: Mutex::default(),
        });
        let mut owned = OwnedQueues::default();
        let mut tasks = JoinSet::new();
        let mut housekeeping = interval(HOUSEKEEPING_EVERY);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let callbacks = CallbackSender::default();
        loop {
            tokio::select! {
                () = &mut stopped => break,
                () = running.store.changed() => {}
                // A task that panicked does not return its number: its queue stays claimed.
                Some(ended) = tasks.join_next() => drop(ended.map(|number| owned.remove(number))),
                _ = housekeeping.tick() => running.housekeeping(&mut owned, &callbacks).await,
            }
            running.claim(&mut owned, &mut tasks).await;
        }
        owned.stop();
        let ended = timeout(drain, async { while tasks.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            warn!("deferred requests were still being sent: they will be sent again");
        }
        tasks.shutdown().await;
        running.store.close().await;
    }
}

impl Running {
    fn now(&self) -> Timestamp {
        self.dispatcher.app.engine().now()
    }

    /// Claims queues, and sends each in a task.
    async fn claim(self: &Arc<Self>, owned: &mut OwnedQueues, tasks: &mut JoinSet<u64>) {
        while tasks.len() < QUEUES_MAX {
            let room = CLAIMS_MAX.min(QUEUES_MAX - tasks.len());
            let claims = match self.store.claim(room).await {
                Ok(claims) if claims.is_empty() => return,
                Ok(claims) => claims,
                // The next attempt follows.
                Err(_) => return,
            };
            for claim in claims {
                // After an outage the store may offer what is owned already.
                if owned.has(&claim) {
                    continue;
                }
                let (number, queue) = owned.add(claim);
                let this = self.clone();
                tasks.spawn(async move {
                    this.send_queue(queue).await;
                    number
                });
            }
        }
    }

    /// Renews claims, sends callbacks, deletes what is outdated, and reads figures.
    async fn housekeeping(&self, owned: &mut OwnedQueues, callbacks: &CallbackSender) {
        for lost in self.store.renew(&owned.claims()).await.unwrap_or_default() {
            owned.lose(&lost);
        }
        let now = millis(self.now());
        let due = self.store.callbacks(now, HOUSEKEEPING_MAX).await.unwrap_or_default();
        for request in due {
            let metrics = self.dispatcher.deferrals.clone();
            callbacks.send(self.store.clone(), metrics, request, self.now()).await;
        }
        let outdated = self.store.outdated(now, HOUSEKEEPING_MAX).await.unwrap_or_default();
        for request in outdated {
            // One that has changed stays.
            let _ = self.store.remove(&request).await;
        }
        if let Ok(stats) = self.store.stats().await {
            self.dispatcher.deferrals.metrics.set_stats(stats, now);
        }
        self.turns.lock().retain(|_, turn| turn.strong_count() > 0);
    }

    /// Sends the requests of a queue until it is empty, or no longer owned.
    async fn send_queue(&self, mut owned: OwnedQueue) {
        // The counter that denied the last request: the next one takes its turn behind the others.
        let mut counter = None;
        while owned.is_held() {
            let next = match self.store.first(&owned.claim.queue).await {
                Ok(Some(request)) => self.process(request, &mut owned, &mut counter).await,
                Ok(None) => match self.store.release(&owned.claim, Release::IfEmpty).await {
                    Ok(true) => return,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if next.is_err() {
                owned.sleep_until(self, self.now().after(STORE_RETRY)).await;
            }
        }
        // Another node claims it at once. Otherwise the claim expires.
        let _ = self.store.release(&owned.claim, Release::Abandon).await;
    }

    /// The next step of the first request of a queue.
    async fn process(
        &self,
        mut request: DeferredRequest,
        owned: &mut OwnedQueue,
        counter: &mut Option<CounterKey>,
    ) -> Result<(), StoreError> {
        let now = millis(self.now());
        if now >= request.expires_at {
            return self.bury(request, DeferredState::Expired, owned).await;
        }
        if request.due_at > now {
            let until = timestamp(request.due_at.min(request.expires_at));
            owned.sleep_until(self, until).await;
            return Ok(());
        }
        let Some(admitted) = self.admit(&request, owned, counter).await? else { return Ok(()) };
        request.state = DeferredState::Running;
        request.attempts = request.attempts.saturating_add(1);
        if !self.save(&mut request, None, owned).await? {
            // It was cancelled meanwhile.
            return Ok(());
        }
        let body = self.store.body(&request.id, BodyPart::Request).await?.unwrap_or_default();
        let active = self.dispatcher.active.load_full();
        let sent = send(&active, self.dispatcher.worker, &request, body, self.now()).await;
        drop(admitted);
        let now = self.now();
        match sent {
            Sent::Answered(response, body) => {
                request.response = Some(response);
                request.error = None;
                let retention = self.dispatcher.deferrals.config.response_retention;
                request.finish(DeferredState::Done, millis(now), retention);
                if self.save(&mut request, body, owned).await? {
                    self.dispatcher.deferrals.metrics.delivered.fetch_add(1, Relaxed);
                }
                Ok(())
            }
            Sent::Failed(failure) => self.retry(request, failure, owned).await,
        }
    }

    /// An attempt has failed: another one follows, unless it was the last.
    async fn retry(
        &self,
        mut request: DeferredRequest,
        failure: SendFailure,
        owned: &mut OwnedQueue,
    ) -> Result<(), StoreError> {
        let SendFailure { reason, retry_after, is_attempt } = failure;
        if !is_attempt {
            request.attempts = request.attempts.saturating_sub(1);
        }
        request.error = Some(reason);
        if request.attempts >= request.bounds.attempts_max {
            return self.bury(request, DeferredState::Failed, owned).await;
        }
        request.state = DeferredState::Queued;
        request.due_at = due_at(self.now(), request.attempts.max(1), retry_after);
        if self.save(&mut request, None, owned).await? {
            self.dispatcher.deferrals.metrics.retried.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// A request becomes a dead letter.
    async fn bury(
        &self,
        mut request: DeferredRequest,
        state: DeferredState,
        owned: &mut OwnedQueue,
    ) -> Result<(), StoreError> {
        let deferrals = &self.dispatcher.deferrals;
        request.finish(state, millis(self.now()), deferrals.config.dead_retention);
        if self.save(&mut request, None, owned).await? {
            deferrals.metrics.dead.fetch_add(1, Relaxed);
            let DeferredRequest { id, route, attempts, error, .. } = &request;
            let (state, error) = (state.name(), error.as_deref().unwrap_or("none"));
            warn!(
                id,
                route, state, attempts, error, "dead letter: a deferred request was not processed"
            );
        }
        Ok(())
    }

    /// Saves a change, however long the store fails, as long as this node owns the queue. Whether
    /// the request had not changed otherwise.
    async fn save(
        &self,
        request: &mut DeferredRequest,
        response: Option<bytes::Bytes>,
        owned: &mut OwnedQueue,
    ) -> Result<bool, StoreError> {
        request.version += 1;
        loop {
            match self.store.save(request, response.clone()).await {
                Ok(is_saved) => return Ok(is_saved),
                Err(error) if *owned.ownership.borrow() == Ownership::Lost => return Err(error),
                // Also while the process ends: what was sent is not to be sent again.
                Err(error) => {
                    info!(%error, "the state of a deferred request is not stored yet");
                    tokio::time::sleep(STORE_RETRY.to_duration()).await;
                }
            }
        }
    }

    /// Waits until the limits admit a request; `None` if it is not the first of its queue any more,
    /// or the queue is not owned.
    async fn admit(
        &self,
        request: &DeferredRequest,
        owned: &mut OwnedQueue,
        counter: &mut Option<CounterKey>,
    ) -> Result<Option<AdmittedRequest<'_>>, StoreError> {
        loop {
            let lock = (*counter).map(|key| self.turn_of(key));
            let turn = match &lock {
                None => None,
                Some(lock) => match owned.unless_lost(lock.lock()).await {
                    None => return Ok(None),
                    turn => turn,
                },
            };
            loop {
                if millis(self.now()) >= request.expires_at {
                    return Ok(None);
                }
                if turn.is_some() && !self.is_first(request).await? {
                    return Ok(None);
                }
                let Some(Ok(permit)) = owned.unless_lost(self.sends.acquire()).await else {
                    return Ok(None);
                };
                let denied = match self.charge(request).await {
                    Charged::Admitted(slot, wait) => {
                        if !wait.is_zero() {
                            tokio::time::sleep(wait.to_duration()).await;
                        }
                        return Ok(Some(AdmittedRequest { _permit: permit, _slot: slot }));
                    }
                    Charged::Denied { counter, retry_at } => (counter, retry_at),
                };
                drop(permit);
                let (denying, retry_at) = denied;
                if denying.is_some() && denying != *counter {
                    *counter = denying;
                    break;
                }
                // Limits can be raised meanwhile, and counters reset.
                let until = retry_at.min(self.now().after(WAIT_MAX));
                if !owned.sleep_until(self, until.min(timestamp(request.expires_at))).await {
                    return Ok(None);
                }
                // Without a counter nothing is known of others that wait.
                if turn.is_none() && !self.is_first(request).await? {
                    return Ok(None);
                }
            }
        }
    }

    async fn is_first(&self, request: &DeferredRequest) -> Result<bool, StoreError> {
        let first = self.store.first(&request.queue).await?;
        Ok(first.is_some_and(|first| (&first.id, first.version) == (&request.id, request.version)))
    }

    /// The right to ask a counter.
    fn turn_of(&self, key: CounterKey) -> Arc<TurnLock<()>> {
        let mut turns = self.turns.lock();
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(TurnLock::new(()));
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }

    /// Charges the limits of a request.
    async fn charge(&self, request: &DeferredRequest) -> Charged {
        let app = &self.dispatcher.app;
        let engine = app.engine();
        let entries = request.charge.entries();
        let descriptors = request.charge.descriptors(&entries);
        let limited = request.charge.request(&descriptors);
        let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
        // A denial is not counted: it waits.
        let call = Call { retries: true, ..Call::new(&rules, &limited, now) };
        let charged = charge_slots(app, &self.dispatcher.queues, call, &mut checked).await;
        let Ok(slot) = charged else {
            // The store of the counters does not answer.
            return Charged::Denied { counter: None, retry_at: now.after(UNKNOWN_WAIT) };
        };
        if app.code_of_attempt(&rules, &limited, &checked) != Code::OverLimit {
            return Charged::Admitted(slot, checked.wait());
        }
        let is_decided = checked.listed().is_some() || checked.denied_unmatched().is_some();
        match denying_limit(&rules, &checked, now).filter(|_| !is_decided) {
            Some(limit) => Charged::Denied { counter: Some(limit.key), retry_at: limit.retry_at },
            None => Charged::Denied { counter: None, retry_at: now.after(LISTED_WAIT) },
        }
    }
}

impl OwnedQueues {
    fn add(&mut self, claim: Claim) -> (u64, OwnedQueue) {
        let (sender, ownership) = watch::channel(Ownership::Held);
        self.next += 1;
        self.queues.insert(self.next, (claim.clone(), sender));
        (self.next, OwnedQueue { claim, ownership })
    }

    fn has(&self, claim: &Claim) -> bool {
        !claim.token.is_empty() && self.queues.values().any(|(owned, _)| owned == claim)
    }

    fn remove(&mut self, number: u64) {
        self.queues.remove(&number);
    }

    fn claims(&self) -> Vec<Claim> {
        self.queues.values().map(|(claim, _)| claim.clone()).collect()
    }

    /// Another node owns it.
    fn lose(&self, lost: &Claim) {
        for (claim, ownership) in self.queues.values() {
            if claim == lost {
                ownership.send_replace(Ownership::Lost);
            }
        }
    }

    fn stop(&self) {
        for (_, ownership) in self.queues.values() {
            ownership.send_replace(Ownership::Stopping);
        }
    }
}

impl OwnedQueue {
    fn is_held(&self) -> bool {
        *self.ownership.borrow() == Ownership::Held
    }

    /// Runs a future as long as the queue is owned.
    async fn unless_lost<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.ownership.wait_for(|ownership| *ownership != Ownership::Held) => None,
            value = future => Some(value),
        }
    }

    /// Sleeps; whether the queue is still owned.
    async fn sleep_until(&mut self, running: &Running, until: Timestamp) -> bool {
        let engine = running.dispatcher.app.engine();
        self.unless_lost(engine.clock().sleep_until(until)).await.is_some()
    }
}
