//! A slot of a concurrency limit, held until the response ends or the client goes away.

use std::sync::Arc;

use sluicegate::backend::ready;
use sluicegate::{Checked, Span};
use sluicegate_server::app::App;
use sluicegate_server::reservations::Ticket;
use tokio::sync::oneshot;

use crate::shape::Queues;

/// A held slot; dropping it releases it.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    app: App,
    /// Taken by the drop.
    ticket: Option<Box<Ticket>>,
    /// Ends the task that renews the lease.
    _renewal: oneshot::Sender<()>,
    /// Requests that may wait for it.
    queues: Arc<Queues>,
}

impl HeldSlot {
    /// Holds the slot of a request. The lease is renewed while it lasts, so that it limits only how
    /// long the slots of a crashed node are held.
    pub(crate) fn new(
        app: &App,
        ticket: Ticket,
        lease: Option<Span>,
        queues: &Arc<Queues>,
    ) -> Self {
        let (renewal, released) = oneshot::channel();
        if let Some(lease) = lease {
            tokio::spawn(renew(app.clone(), ticket.clone(), lease, released));
        }
        let queues = queues.clone();
        Self { app: app.clone(), ticket: Some(Box::new(ticket)), _renewal: renewal, queues }
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let released = release(self.app.clone(), ticket, self.queues.clone());
        if self.app.is_local() {
            // In memory it never waits. The client's next request finds the slot free.
            let _ = ready(released);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(released);
        }
    }
}

async fn release(app: App, ticket: Box<Ticket>, queues: Arc<Queues>) {
    let engine = app.engine();
    let (rules, now) = (engine.snapshot(), engine.now());
    let mut checked = Checked::default();
    // If the store does not answer, the slot is free when its lease ends.
    let settled = app.reservations().settle(engine, &rules, &ticket, None, now, &mut checked);
    let _ = settled.await;
    queues.slot_released();
}

/// Renews a lease until the slot is released.
async fn renew(app: App, ticket: Ticket, lease: Span, mut released: oneshot::Receiver<()>) {
    let interval = lease.to_duration() / 3;
    loop {
        tokio::select! {
            _ = &mut released => return,
            () = tokio::time::sleep(interval) => {}
        }
        let engine = app.engine();
        let (rules, now) = (engine.snapshot(), engine.now());
        let mut checked = Checked::default();
        // On an error the next attempt may succeed before the lease ends.
        let renewed = app.reservations().renew(engine, &rules, &ticket, lease, now, &mut checked);
        let _ = renewed.await;
    }
}
