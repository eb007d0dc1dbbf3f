//! What a request holds until its response ends or the client goes away: a reservation, or a slot
//! of a concurrency limit.

use std::sync::Arc;

use sluicegate::backend::{Call, ready};
use sluicegate::rules::plan::Target;
use sluicegate::rules::rule::OnExhausted;
use sluicegate::{Checked, Operation, Snapshot, Span};
use sluicegate_server::app::App;
use sluicegate_server::reservations::{DescriptorUsage, ReservationError, Reservations, Ticket};
use tokio::sync::oneshot;

use crate::error::ProxyError;
use crate::limit::TOO_LONG;
use crate::metrics::{RouteMetrics, SettleOutcome};
use crate::shape::Queues;

/// A held ticket; dropping it returns what it holds.
#[derive(Debug)]
pub(crate) struct HeldTicket {
    app: App,
    /// Taken by the settlement, or the drop.
    ticket: Option<Box<Ticket>>,
    /// Ends the task that renews the lease.
    _renewal: oneshot::Sender<()>,
    /// Requests that may wait for its slot.
    queues: Arc<Queues>,
}

/// How a ticket is renewed while it is held. The lease limits only how long a crashed node holds
/// it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    /// Until when it is held, from each renewal on.
    pub(crate) ttl: Span,
    /// The shortest of its leases.
    pub(crate) lease: Span,
}

impl Renewal {
    /// That of a slot.
    pub(crate) const fn of_lease(lease: Span) -> Self {
        Self { ttl: lease, lease }
    }
}

/// A partial commit that the store has not answered yet.
#[derive(Debug)]
pub(crate) struct PendingPart {
    used: Vec<u64>,
    outcome: oneshot::Receiver<PartOutcome>,
}

/// What became of a partial commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOutcome {
    /// The store did not answer: it is part of the final commit.
    Failed,
    Committed,
    /// The same, and a limit whose rule ends streams has nothing left.
    Exhausted,
}

/// What was committed of a reservation before its end, by descriptor.
#[derive(Debug, Default)]
pub(crate) struct CommittedParts {
    used: Vec<u64>,
    pending: Option<PendingPart>,
    is_exhausted: bool,
}

impl CommittedParts {
    /// Whether a limit whose rule ends streams has nothing left.
    pub(crate) fn is_exhausted(&mut self) -> bool {
        if let Some(pending) = &mut self.pending
            && let Ok(outcome) = pending.outcome.try_recv()
        {
            let used = std::mem::take(&mut pending.used);
            self.pending = None;
            self.add(&used, outcome);
        }
        self.is_exhausted
    }

    /// Commits what exceeds the parts before, unless one is on its way. `total` is by descriptor.
    pub(crate) fn raise(&mut self, held: &HeldTicket, total: &[u64]) {
        if self.pending.is_some() {
            return;
        }
        self.used.resize(total.len(), 0);
        let more = total.iter().zip(&self.used).map(|(total, used)| total.saturating_sub(*used));
        let more: Vec<u64> = more.collect();
        match held.commit_part(more.clone()) {
            Ok(outcome) => self.add(&more, outcome),
            Err(outcome) => self.pending = Some(PendingPart { used: more, outcome }),
        }
    }

    fn add(&mut self, used: &[u64], outcome: PartOutcome) {
        self.is_exhausted |= outcome == PartOutcome::Exhausted;
        if outcome != PartOutcome::Failed {
            self.used.resize(used.len(), 0);
            self.used.iter_mut().zip(used).for_each(|(all, one)| *all = all.saturating_add(*one));
        }
    }

    /// The remaining usage, once every part is decided.
    async fn subtract_from(mut self, usage: &mut [DescriptorUsage]) {
        if let Some(PendingPart { used, outcome }) = self.pending.take() {
            let outcome = outcome.await.unwrap_or(PartOutcome::Failed);
            self.add(&used, outcome);
        }
        for (usage, used) in usage.iter_mut().zip(&self.used) {
            if let DescriptorUsage::Hits(hits) = usage {
                *hits = hits.saturating_sub(*used);
            }
        }
    }
}

impl HeldTicket {
    /// Holds the ticket of a request.
    pub(crate) fn new(
        app: &App,
        ticket: Ticket,
        renewal: Option<Renewal>,
        queues: &Arc<Queues>,
    ) -> Self {
        let (sender, released) = oneshot::channel();
        if let Some(renewal) = renewal {
            tokio::spawn(renew(app.clone(), ticket.clone(), renewal, released));
        }
        let (app, ticket) = (app.clone(), Some(Box::new(ticket)));
        Self { app, ticket, _renewal: sender, queues: queues.clone() }
    }

    /// Commits a part of each descriptor. In memory it is done at once.
    fn commit_part(&self, used: Vec<u64>) -> Result<PartOutcome, oneshot::Receiver<PartOutcome>> {
        let Some(ticket) = self.ticket.as_deref().cloned() else { return Ok(PartOutcome::Failed) };
        let app = self.app.clone();
        let commit = async move {
            let engine = app.engine();
            let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
            let reservations = app.reservations();
            let committed =
                reservations.commit_parts(engine, &rules, &ticket, &used, now, &mut checked).await;
            match committed {
                Ok(()) if ends_stream(&rules, &checked) => PartOutcome::Exhausted,
                Ok(()) => PartOutcome::Committed,
                Err(_) => PartOutcome::Failed,
            }
        };
        if self.app.is_local() {
            return Ok(ready(commit).unwrap_or(PartOutcome::Failed));
        }
        let (sender, outcome) = oneshot::channel();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Its caller does not wait any more.
                let _ = sender.send(commit.await);
            });
        }
        Err(outcome)
    }

    /// Charges the usage of each descriptor, and returns the rest. `committed` are the parts of it
    /// that are charged already.
    pub(crate) fn settle(
        mut self,
        mut usage: Vec<DescriptorUsage>,
        committed: CommittedParts,
        metrics: Option<Arc<RouteMetrics>>,
    ) {
        let Some(ticket) = self.ticket.take() else { return };
        let app = self.app.clone();
        self.finish(async move {
            committed.subtract_from(&mut usage).await;
            let engine = app.engine();
            let (rules, now) = (engine.snapshot(), engine.now());
            let settled = app.reservations().settle_each(engine, &rules, &ticket, &usage, now);
            if let (Err(_), Some(metrics)) = (settled.await, metrics) {
                metrics.settle(SettleOutcome::Failed);
            }
        });
    }

    /// Runs what ends it. In memory it never waits: the client's next request finds it done.
    fn finish(&self, task: impl Future<Output = ()> + Send + 'static) {
        let queues = self.queues.clone();
        let task = async move {
            task.await;
            queues.slot_released();
        };
        if self.app.is_local() {
            let _ = ready(task);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task);
        }
    }
}

/// Charges a request: the slot that it holds, if it has one.
pub(crate) async fn charge_slots(
    app: &App,
    queues: &Arc<Queues>,
    call: Call<'_>,
    checked: &mut Checked,
) -> Result<Option<HeldTicket>, ProxyError> {
    let Call { rules, request, now, .. } = call;
    if rules.slot_descriptor(request).is_none() {
        let decided = app.engine().apply(Operation::Hit, call, checked).await;
        return decided.map(|()| None).map_err(|_| ProxyError::StoreAway);
    }
    let ticket = Reservations::check(app.engine(), call, checked).await;
    let ticket = ticket.map_err(|error| match error {
        ReservationError::Hold(_) => ProxyError::StoreAway,
        _ => TOO_LONG,
    })?;
    let renewal = rules.lease(&checked.plan, now).map(Renewal::of_lease);
    Ok(ticket.map(|ticket| HeldTicket::new(app, ticket, renewal, queues)))
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let app = self.app.clone();
        self.finish(async move {
            let engine = app.engine();
            let (rules, now) = (engine.snapshot(), engine.now());
            let mut checked = Checked::default();
            // If the store does not answer, it is free when its lease ends.
            let reservations = app.reservations();
            let settled = reservations.settle(engine, &rules, &ticket, None, now, &mut checked);
            let _ = settled.await;
        });
    }
}

/// Whether a limit is in debt whose rule ends streams then.
fn ends_stream(rules: &Snapshot<'_>, checked: &Checked) -> bool {
    checked.statuses.iter().any(|status| {
        let Target::Rule(no) = status.target else { return false };
        status.verdict.remaining.is_some_and(|remaining| remaining < 0)
            && rules.rules().rule(no).on_exhausted() == OnExhausted::End
    })
}

/// Renews a lease until the ticket is settled.
async fn renew(app: App, ticket: Ticket, renewal: Renewal, mut released: oneshot::Receiver<()>) {
    let interval = renewal.lease.to_duration() / 3;
    loop {
        tokio::select! {
            _ = &mut released => return,
            () = tokio::time::sleep(interval) => {}
        }
        let engine = app.engine();
        let (rules, now) = (engine.snapshot(), engine.now());
        let mut checked = Checked::default();
        let reservations = app.reservations();
        let renewed =
            reservations.renew(engine, &rules, &ticket, renewal.ttl, now, &mut checked).await;
        // On another error the next attempt may succeed before the lease ends.
        if let Err(ReservationError::Settled(_)) = renewed {
            return;
        }
    }
}
