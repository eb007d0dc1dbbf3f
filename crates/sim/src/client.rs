//! A client: one request, its answer, and what becomes of the quota.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::Holder;

use crate::node::{Answered, Node};
use crate::scenario::{Arrival, RequestPlan, StepPlan};
use crate::time::WorldClock;
use crate::trace::Trace;
use crate::world::Hit;

/// A client with one request.
pub(crate) struct Client {
    pub(crate) truth: Arc<WorldClock>,
    pub(crate) trace: Trace,
    pub(crate) hits: Arc<Mutex<Vec<Hit>>>,
    pub(crate) node: Node,
    /// Node and process.
    pub(crate) place: (usize, u64),
    pub(crate) arrival: Arrival,
    /// Whether it returns its quota, and after how many milliseconds it knows.
    pub(crate) returned_after: Option<(bool, u64)>,
}

impl Client {
    /// Sends the request, and returns quota that is not used.
    pub(crate) async fn run(self, request: Arc<RequestPlan>) {
        let Arrival { cost, usage, .. } = self.arrival;
        let requested_us = self.truth.event_us();
        let holder = usage.is_reserved.then_some(Holder(requested_us));
        let answered = match holder {
            Some(holder) => self.node.reserve(&request, cost, holder).await,
            None => self.node.check(&request, cost).await,
        };
        let first = self.record(&request, requested_us, answered);
        let Some((is_returned, after)) = self.returned_after.filter(|_| answered.allowed) else {
            return;
        };
        tokio::time::sleep(Duration::from_millis(after)).await;
        if is_returned {
            let at = self.truth.event_us();
            let mut hits = self.hits.lock();
            let its = hits[first..].iter_mut().take(request.steps.len());
            its.for_each(|hit| hit.refunded_us = Some(at));
        }
        match holder {
            Some(holder) => self.node.settle(&request, cost, (holder, !is_returned)).await,
            None if is_returned => self.node.refund(&request, cost).await,
            None => {}
        }
    }

    /// Records the steps, and returns the index of the first.
    fn record(&self, request: &RequestPlan, requested_us: u64, answered: Answered) -> usize {
        let Answered { allowed, level: origin } = answered;
        let answered_us = self.truth.event_us();
        let verdict = if allowed { "allowed" } else { "denied" };
        let Self { node, place: (index, process), arrival, .. } = self;
        let mut hits = self.hits.lock();
        let first = hits.len();
        for StepPlan { rule, identity, weight } in &request.steps {
            let (rule, identity, cost) = (*rule, *identity, arrival.cost * weight);
            let name = &node.name;
            self.trace.line(format_args!("{name} rule{rule} id{identity} {cost} {verdict}"));
            let is_first = hits.len() == first;
            hits.push(Hit {
                request: arrival.request,
                is_first,
                rule,
                identity,
                node: *index,
                process: *process,
                cost,
                requested_us,
                answered_us,
                allowed,
                origin,
                refunded_us: None,
            });
        }
        first
    }
}
