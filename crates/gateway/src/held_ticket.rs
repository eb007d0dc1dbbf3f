//! What a request holds until its response ends or the client goes away: a reservation, or a slot
//! of a concurrency limit.

use std::sync::Arc;

use sluicegate::backend::ready;
use sluicegate::{Checked, Span};
use sluicegate_server::app::App;
use sluicegate_server::reservations::{DescriptorUsage, ReservationError, Ticket};
use tokio::sync::oneshot;

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

    /// Charges the usage of each descriptor, and returns the rest.
    pub(crate) fn settle(
        mut self,
        usage: Vec<DescriptorUsage>,
        metrics: Option<Arc<RouteMetrics>>,
    ) {
        let Some(ticket) = self.ticket.take() else { return };
        let app = self.app.clone();
        self.finish(async move {
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
