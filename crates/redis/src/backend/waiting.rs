//! Waiting for a request's turn, with its counters in the store.
//!
//! Turns are booked in the store, so those who wait come in the order in which they asked, whatever node they asked. For a slot of a concurrency limit nodes do not wait in one queue: each looks
//! again when a lease that is in its way ends, and meanwhile at every [`LOOK_EVERY`].

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::request::Request;

use super::SharedEngine;
use crate::script::ScriptPart;
use sluicegate::backend::Want;
use sluicegate::backend::sleep_until;
use sluicegate::{Checked, HoldError, Waited};

/// How often somebody who waits for a slot looks for one: others may give theirs back before their leases end.
const LOOK_EVERY: Span = Span::from_millis(50);

impl SharedEngine {
    /// As [`Engine::wait`](sluicegate::Engine::wait).
    ///
    /// # Errors
    /// When something that it is under cannot be booked, or the store does not answer.
    pub async fn wait(
        &self,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
    ) -> Result<Waited, HoldError> {
        let begun = self.engine.now();
        let deadline = begun.after(patience);
        let clock = self.engine.clock();
        let clock = clock.as_deref();
        let mut checked = Checked::default();
        let mut turn = Turn { shared: self, request, holder, is_booked: false };
        loop {
            let now = self.engine.now();
            let patience = deadline.since(now);
            let op = move |cost| Op::Acquire { cost, max_wait: patience, holder: Some(holder) };
            turn.is_booked = true;
            let rules = self.engine.snapshot();
            self.hold(&op, &rules, request, holder, &mut checked).await?;
            turn.is_booked = checked.allowed;
            let free_at = match checked.allowed {
                true => None,
                false => rules.slot_free_at(&checked, now).filter(|_| now < deadline),
            };
            drop(rules);
            let Some(free_at) = free_at else { break };
            sleep_until(clock, free_at.min(deadline).min(now.after(LOOK_EVERY))).await;
        }
        self.engine.snapshot().count_unless_listed(&checked);
        if !checked.allowed {
            return Ok(Waited { checked, waited: self.engine.now().since(begun), has_slot: false });
        }
        let until = self.engine.now().max(begun).after(checked.wait());
        self.hold_until(request, holder, until).await;
        turn.is_booked = false;
        // What can no longer be given back need not be remembered; if the store is gone, it forgets that by itself a day later.
        let has_slot = checked.holds_slot(&self.engine.snapshot());
        for (part, lease) in self.booked(request) {
            let _ = self.store.forget(&part, holder).await;
            if lease.is_some() {
                // A slot that came with it is held on, and its lease begins.
                let _ = self.store.renew(&part, holder).await;
            }
        }
        Ok(Waited { checked, waited: self.engine.now().since(begun), has_slot })
    }

    /// Waits until the turn comes. A slot that was taken with it may have a shorter lease, so it is renewed meanwhile.
    async fn hold_until(&self, request: &Request<'_>, holder: Holder, until: Timestamp) {
        /// A shorter lease would keep the store busy.
        const RENEWED_AFTER_MIN: Span = Span::from_millis(100);

        let clock = self.engine.clock();
        let clock = clock.as_deref();
        let mut with_slots = self.booked(request);
        with_slots.retain(|(_, lease)| lease.is_some());
        let every = with_slots.iter().filter_map(|(_, lease)| *lease).min();
        loop {
            let now = self.engine.now();
            if now >= until {
                return;
            }
            let next = every.map_or(until, |lease| {
                let half = Span::from_micros(lease.as_micros() / 2);
                now.after(half.max(RENEWED_AFTER_MIN)).min(until)
            });
            sleep_until(clock, next).await;
            if next < until {
                for (part, _) in &with_slots {
                    // If that fails the lease may run out; then somebody else has the slot.
                    let _ = self.store.renew(part, holder).await;
                }
            }
        }
    }

    /// What a request books, each with the shortest lease of its slots.
    fn booked(&self, request: &Request<'_>) -> Vec<(ScriptPart, Option<Span>)> {
        let (rules, now) = (self.engine.snapshot(), self.engine.now());
        let mut checked = Checked::default();
        rules.begin(request, &mut checked);
        let parts = self.parts(Want::Hit, &rules, &checked.plan, now);
        parts.into_iter().map(|part| (part.part, part.asked.lease(now))).collect()
    }
}

/// A turn that is waited for; given back unless it was used.
struct Turn<'a> {
    shared: &'a SharedEngine,
    request: &'a Request<'a>,
    holder: Holder,
    is_booked: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_booked {
            return;
        }
        let (parts, holder) = (self.shared.booked(self.request), self.holder);
        let store = self.shared.store.clone();
        tokio::spawn(async move {
            for (part, _) in parts {
                // Where it was never booked there is nothing to give back.
                let _ = store.apply(&[part], Op::Cancel { holder }).await;
            }
        });
    }
}
