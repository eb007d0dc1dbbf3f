//! A request that waits: asks the counters for its turn, and leaves with its client.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use sluicegate::backend::{Backend, Call, DENIED_WITHOUT_STORE};
use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::request::Request;
use sluicegate::rules::rule::OnLimit as RuleOnLimit;
use sluicegate::{
    Checked, Engine, Operation, Outcome, Policy, Snapshot, Span, Status, Timestamp, new_holder,
};
use sluicegate_config::gateway::route::{OnLimit, ShapeConfig};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_server::status::{denying_status, policies};
use tokio::sync::Notify;

use super::queues::{Applicant, CounterKey, Queues, Step};
use crate::body::RequestBody;
use crate::error::ProxyError;
use crate::identity::BufferedBody;
use crate::limit::priority_of;

/// How long before a turn it is booked. More than timers are late, so that the turns of a limit
/// follow each other exactly; a turn that is booked is lost if its client goes away and nobody else
/// waits.
const LOOKAHEAD: Span = Span::from_millis(50);
/// When a request asks for a slot again that another node may have released: that is not known in
/// advance. A slot that this node releases wakes it.
const SLOT_POLL_INTERVAL: Span = Span::from_millis(100);
/// Bytes of a body that are read while its request waits: only then a client that goes away is
/// noticed.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A limit that requests may wait for, and denies one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocked {
    pub(crate) key: CounterKey,
    /// When it may admit the request.
    pub(crate) retry_at: Timestamp,
    /// Time for a unit of cost.
    unit: Span,
    cost: u64,
}

/// How a request waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shaping<'a> {
    pub(crate) queues: &'a Queues,
    pub(crate) on_limit: OnLimit,
    pub(crate) config: &'a ShapeConfig,
    /// The client, for fairness.
    pub(crate) client: u64,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// It is the turn of the request, which holds a slot under this id.
    Turn {
        /// Of a slot of a concurrency limit.
        slot: Option<Holder>,
    },
    /// A limit denies it.
    Denied,
}

impl<'a> Shaping<'a> {
    /// The limit that a request has to wait for, if no other kind of limit denies it.
    pub(crate) fn blocked(
        &self,
        rules: &Snapshot<'_>,
        checked: &Checked,
        now: Timestamp,
    ) -> Option<Blocked> {
        let denied = || checked.statuses.iter().filter(|status| !status.verdict.is_allowed());
        let is_decided = checked.listed().is_some() || checked.denied_unmatched().is_some();
        if checked.allowed || is_decided || !denied().all(|status| self.may_wait(rules, status)) {
            return None;
        }
        denying_limit(rules, checked, now)
    }

    fn may_wait(&self, rules: &Snapshot<'_>, status: &Status) -> bool {
        let Target::Rule(no) = status.target else { return false };
        let rule = rules.rules().rule(no);
        let is_shaped = self.on_limit == OnLimit::Shape || rule.on_limit == RuleOnLimit::Shape;
        is_shaped && status.verdict != DENIED_WITHOUT_STORE
    }

    /// The limit of a request that others wait for already.
    pub(crate) fn occupied(&self, rules: &Snapshot<'_>, request: &Request<'_>) -> Option<Blocked> {
        if self.queues.is_empty() {
            return None;
        }
        let mut plan = Plan::default();
        rules.rules().plan(request, &mut plan);
        let key = self.queues.find((0..plan.steps().len()).map(|at| counter_key(&plan, at)))?;
        let at = (0..plan.steps().len()).find(|at| counter_key(&plan, *at) == key)?;
        let step = plan.steps().get(at)?;
        let policies = policies(step.target, rules);
        let unit = policies.first().map_or(Span::ZERO, unit);
        Some(Blocked { key, retry_at: Timestamp::EPOCH, unit, cost: step.cost })
    }

    /// Waits for the turn of a request. Dropping the future leaves the queue.
    pub(crate) async fn wait(
        &self,
        engine: &Engine<dyn Backend>,
        request: &Request<'_>,
        body: &mut RequestBody,
        reads_ahead: bool,
        blocked: Blocked,
    ) -> Result<Waited, ProxyError> {
        let mut buffered = BufferedBody::new(std::mem::take(body));
        let waited = {
            let mut read = pin!(async {
                match reads_ahead {
                    true => buffered.read_up_to(READ_AHEAD_BYTES).await.map(|_| ()),
                    false => Ok(()),
                }
            });
            let mut wait = pin!(self.wait_for_turn(engine, request, blocked));
            let mut is_read = false;
            poll_fn(|cx| {
                if !is_read && let Poll::Ready(read) = read.as_mut().poll(cx) {
                    is_read = true;
                    if read.is_err() {
                        let aborted =
                            ProxyError::BadRequest("The body of the request is incomplete.");
                        return Poll::Ready(Err(aborted));
                    }
                }
                wait.as_mut().poll(cx)
            })
            .await
        };
        *body = buffered.into_body();
        waited
    }

    async fn wait_for_turn(
        &self,
        engine: &Engine<dyn Backend>,
        request: &Request<'_>,
        mut blocked: Blocked,
    ) -> Result<Waited, ProxyError> {
        let max_wait =
            Span::from_micros(self.config.max_wait.as_micros().try_into().unwrap_or(u64::MAX));
        let deadline = engine.now().after(max_wait);
        loop {
            let Some(mut place) = self.enter(engine, request, blocked, deadline) else {
                return Ok(Waited::Denied);
            };
            match self.advance(&mut place, deadline).await? {
                Advanced::Waited(waited) => return Ok(waited),
                Advanced::Moves(other) => blocked = other,
            }
        }
    }

    /// Enters the queue of a limit; `None` if it is full, or the wait would be too long.
    fn enter<'b>(
        &self,
        engine: &'b Engine<dyn Backend>,
        request: &'b Request<'b>,
        blocked: Blocked,
        deadline: Timestamp,
    ) -> Option<Place<'b>>
    where
        'a: 'b,
    {
        let (rules, now) = (engine.snapshot(), engine.now());
        let mut plan = Plan::default();
        rules.rules().plan(request, &mut plan);
        let mut hasher = DefaultHasher::new();
        for step in plan.steps() {
            if let Target::Rule(no) = step.target {
                (no.index(), plan.identity(step), step.cost).hash(&mut hasher);
            }
        }
        let applicant = Applicant {
            priority: priority_of(&rules, &plan),
            client: self.client,
            cost: blocked.cost.max(1),
            plan: hasher.finish(),
            queue_max: self.config.queue_max,
        };
        let Blocked { key, retry_at, unit, .. } = blocked;
        let (id, wake) = self.queues.enter(key, applicant, (retry_at, unit), (now, deadline))?;
        Some(Place { queues: self.queues, key, id, wake, engine, request, is_left: false })
    }

    /// Waits in one queue.
    async fn advance(
        &self,
        place: &mut Place<'_>,
        deadline: Timestamp,
    ) -> Result<Advanced, ProxyError> {
        let (engine, key) = (place.engine, place.key);
        loop {
            let now = engine.now();
            let sleep_until = match self.queues.step(key, place.id, now) {
                Step::Go(turn) => {
                    place.is_left = true;
                    let slot = match turn.holder {
                        Some(holder) => place.begin_turn(holder).await,
                        None => None,
                    };
                    return Ok(Advanced::Waited(Waited::Turn { slot }));
                }
                _ if now >= deadline => return Ok(Advanced::Waited(Waited::Denied)),
                Step::Book => match self.attempt(place, now, deadline).await? {
                    Attempt::Turn(at, holder) => {
                        self.queues.booked(key, place.id, at, holder);
                        continue;
                    }
                    Attempt::Blocked(blocked) if blocked.key == key => {
                        self.queues.denied(key, blocked.retry_at);
                        continue;
                    }
                    Attempt::Blocked(blocked) => return Ok(Advanced::Moves(blocked)),
                    Attempt::Denied => return Ok(Advanced::Waited(Waited::Denied)),
                },
                Step::Sleep(at) => at.min(deadline),
                Step::Follow => deadline,
            };
            either(place.wake.notified(), engine.clock().sleep_until(sleep_until)).await;
        }
    }

    /// Asks the counters for a turn that comes soon.
    async fn attempt(
        &self,
        place: &Place<'_>,
        now: Timestamp,
        deadline: Timestamp,
    ) -> Result<Attempt, ProxyError> {
        let Place { engine, request, .. } = *place;
        let (rules, mut checked) = (engine.snapshot(), Checked::default());
        let call = Call { retries: true, ..Call::new(&rules, request, now) };
        let mut booking = Booking { engine, request, holder: new_holder(), is_booked: true };
        let max_wait = LOOKAHEAD.min(deadline.since(now));
        let holder = match engine.book(call, booking.holder, max_wait, &mut checked).await {
            Ok(()) => {
                booking.is_booked = false;
                checked.allowed.then(|| rules.take_slots(&checked.plan, None));
                Some(booking.holder)
            }
            // What cannot be booked can be hit, and a store that is away has the rules' policy.
            Err(_) => {
                let decided = engine.apply(Operation::Hit, call, &mut checked).await;
                decided.map_err(|_| ProxyError::StoreAway)?;
                None
            }
        };
        if checked.allowed {
            return Ok(Attempt::Turn(now.after(checked.wait()), holder));
        }
        Ok(self.blocked(&rules, &checked, now).map_or(Attempt::Denied, Attempt::Blocked))
    }
}

/// The limit that denies a request for the longest time, unless it denies it for ever.
pub(crate) fn denying_limit(
    rules: &Snapshot<'_>,
    checked: &Checked,
    now: Timestamp,
) -> Option<Blocked> {
    let status = denying_status(&checked.statuses)?;
    let Outcome::Deny { retry_after } = status.verdict.outcome else { return None };
    let index = checked.statuses.iter().position(|one| std::ptr::eq(one, status))?;
    let step = checked.plan.steps().get(index)?;
    let policies = policies(status.target, rules);
    let policy = status.verdict.decided_by.and_then(|at| policies.get(at));
    let retry_after = match policy.is_some_and(Policy::has_slots) {
        true => retry_after.min(SLOT_POLL_INTERVAL),
        false => retry_after,
    };
    let (key, retry_at) = (counter_key(&checked.plan, index), now.after(retry_after));
    Some(Blocked { key, retry_at, unit: policy.map_or(Span::ZERO, unit), cost: step.cost })
}

/// The end of waiting in one queue.
enum Advanced {
    Waited(Waited),
    /// Another limit denies it.
    Moves(Blocked),
}

/// Answer of the counters.
enum Attempt {
    Turn(Timestamp, Option<Holder>),
    Blocked(Blocked),
    Denied,
}

/// A place in a queue; dropping it leaves the queue.
struct Place<'a> {
    queues: &'a Queues,
    key: CounterKey,
    id: u64,
    wake: Arc<Notify>,
    engine: &'a Engine<dyn Backend>,
    request: &'a Request<'a>,
    is_left: bool,
}

impl Place<'_> {
    /// The booked turn has come; the id of a slot that is held since.
    async fn begin_turn(&self, holder: Holder) -> Option<Holder> {
        let Self { engine, request, .. } = *self;
        let mut booking = Booking { engine, request, holder, is_booked: true };
        let has_slot = engine.begin_turn(request, holder).await;
        booking.is_booked = false;
        has_slot.then_some(holder)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_left
            && let Some(turn) = self.queues.leave(self.key, self.id)
            && let Some(holder) = turn.holder
        {
            self.engine.cancel_turn(self.request, holder);
        }
    }
}

/// A turn that may be booked; cancelled if it is dropped before that is known.
struct Booking<'a> {
    engine: &'a Engine<dyn Backend>,
    request: &'a Request<'a>,
    holder: Holder,
    is_booked: bool,
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        if self.is_booked {
            self.engine.cancel_turn(self.request, self.holder);
        }
    }
}

/// Numbers change with the rules; requests that wait meanwhile are then in another queue, and the
/// counters decide all the same.
fn counter_key(plan: &Plan, index: usize) -> CounterKey {
    let mut hasher = DefaultHasher::new();
    if let Some(step) = plan.steps().get(index) {
        let number = match step.target {
            Target::Rule(no) => Some(no.index()),
            Target::None(_) | Target::Replaced(_) | Target::Override(_) => None,
        };
        (number, plan.identity(step)).hash(&mut hasher);
    }
    CounterKey(hasher.finish())
}

/// Time for a unit of cost.
fn unit(policy: &Policy) -> Span {
    let window = policy.window.unwrap_or(Span::ZERO).as_micros();
    Span::from_micros(window.div_ceil(policy.quota.unwrap_or(1).max(1)))
}

/// Until one of two is ready.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}
