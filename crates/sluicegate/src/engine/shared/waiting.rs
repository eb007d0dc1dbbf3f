//! Waiting for a request's turn, with its counters in the store.
//!
//! Turns are booked in the store, so those who wait come in the order in which they asked, whatever node they asked. For a slot of a concurrency limit nodes do not wait in one queue: each looks
//! again when a lease that is in its way ends, and meanwhile at every [`LOOK_EVERY`].

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::Span;
use sluicegate_rules::request::Request;

use super::SharedEngine;
use crate::clock::sleep_until;
use crate::engine::{Checked, HoldError, Waited};

/// How often somebody who waits for a slot looks for one: others may give theirs back before their leases end.
const LOOK_EVERY: Span = Span::from_millis(50);

impl SharedEngine {
    /// As [`Engine::wait`](crate::Engine::wait).
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
        let clock = self.engine.inner.store.clock.as_deref();
        let mut checked = Checked::default();
        let mut turn = Turn { shared: self, request, holder, is_booked: false };
        loop {
            let now = self.engine.now();
            let patience = deadline.since(now);
            let op = move |cost| Op::Acquire { cost, patience, holder: Some(holder) };
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
        sleep_until(clock, self.engine.now().max(begun).after(checked.wait())).await;
        turn.is_booked = false;
        let has_slot = checked.holds_slot(&self.engine.snapshot());
        Ok(Waited { checked, waited: self.engine.now().since(begun), has_slot })
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
        let (shared, holder) = (self.shared.clone(), self.holder);
        let rules = shared.engine.snapshot();
        let mut checked = Checked::default();
        rules.begin(self.request, &mut checked);
        let now = shared.engine.now();
        let parts = shared.parts(super::Want::Hit, &rules, &checked.plan, now);
        let parts: Vec<_> = parts.into_iter().map(|part| part.part).collect();
        let store = shared.store.clone();
        tokio::spawn(async move {
            for part in parts {
                // Where it was never booked there is nothing to give back.
                let _ = store.apply(&[part], Op::Cancel { holder }).await;
            }
        });
    }
}
