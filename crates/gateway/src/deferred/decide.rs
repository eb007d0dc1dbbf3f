//! Which requests are deferred: those that a limit denies, and those behind them.

use std::fmt::Write;

use http::Response;
use ring::digest;
use sluicegate::backend::{Call, DENIED_WITHOUT_STORE};
use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::rule::OnLimit as RuleOnLimit;
use sluicegate::{Checked, Operation, Outcome, Snapshot, Status};
use sluicegate_config::gateway::route::{Action, OnLimit};

use super::request::StoredCharge;
use crate::body::ResponseBody;
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::limit::{Decision, LimitOptions, LimitedRequest, conclude, deny, priority_of};

/// A request over its limit that may be processed later.
#[derive(Debug)]
pub(crate) struct Deferral {
    pub(super) queue: String,
    pub(super) charge: StoredCharge,
    pub(super) priority: u8,
    /// The response if it cannot be deferred.
    pub(super) denial: Response<ResponseBody>,
}

/// The decision about a denied request.
pub(crate) fn denied(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    call: &Call<'_>,
    checked: &Checked,
    denial: Response<ResponseBody>,
) -> Decision {
    let Call { rules, request, .. } = *call;
    let is_decided = checked.listed().is_some() || checked.denied_unmatched().is_some();
    let mut denied = checked.statuses.iter().filter(|status| !status.verdict.is_allowed());
    let may_defer = may_defer(options, limited)
        && !is_decided
        && denied.all(|status| is_deferred(limited, rules, status));
    let queue = may_defer.then(|| queue_of(rules, &checked.plan)).flatten();
    match queue {
        Some(queue) => Decision::Deferred(Box::new(Deferral {
            queue,
            charge: StoredCharge::new(request),
            priority: priority_of(rules, &checked.plan),
            denial,
        })),
        None => Decision::Denied(Box::new(denial)),
    }
}

/// The decision about a request while earlier ones of its queue wait: it does not overtake them.
pub(crate) async fn decide_behind(
    options: LimitOptions<'_>,
    limited: LimitedRequest<'_>,
    exchange: &mut Exchange,
) -> Result<Option<Decision>, ProxyError> {
    let store = options.deferrals.and_then(|deferrals| deferrals.store());
    let Some(store) = store.filter(|_| may_defer(options, limited)) else { return Ok(None) };
    let engine = options.app.engine();
    let described = limited.describe()?;
    let entries = described.entries();
    let descriptors = limited.descriptors(&described, &entries);
    let request = limited.request(&described, &descriptors);
    let queue = {
        let (rules, mut plan) = (engine.snapshot(), Plan::default());
        rules.rules().plan(&request, &mut plan);
        let is_deferred = |target| match target {
            Target::Rule(no) => rules.rules().rule(no).on_limit == RuleOnLimit::Queue,
            Target::None(_) | Target::Replaced(_) | Target::Override(_) => false,
        };
        let is_deferred = limited.route.config.on_limit == OnLimit::Queue
            || plan.steps().iter().any(|step| is_deferred(step.target));
        is_deferred.then(|| queue_of(&rules, &plan)).flatten()
    };
    let Some(queue) = queue else { return Ok(None) };
    // Without an answer of the store, the limit decides alone.
    if !store.is_waiting(&queue).await.unwrap_or(false) {
        return Ok(None);
    }
    let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
    let call = Call::new(&rules, &request, now);
    // The present figures.
    if engine.apply(Operation::Peek, call, &mut checked).await.is_err() {
        return Ok(None);
    }
    let is_decided = checked.listed().is_some() || checked.denied_unmatched().is_some();
    if is_decided || checked.statuses.iter().all(|status| status.verdict.decided_by.is_none()) {
        return Ok(None);
    }
    if checked.allowed {
        deny(&mut checked);
    }
    conclude(options, limited, &Call { retries: true, ..call }, &checked, exchange).map(Some)
}

/// Whether requests of a route can be deferred at all.
fn may_defer(options: LimitOptions<'_>, limited: LimitedRequest<'_>) -> bool {
    let config = &limited.route.config;
    options.deferrals.is_some()
        && limited.route.settle.is_none()
        && matches!(config.on_limit, OnLimit::Rules | OnLimit::Queue)
        && matches!(config.action, Action::Forward { .. })
}

/// Whether a denial is one that defers. What can never pass is denied.
fn is_deferred(limited: LimitedRequest<'_>, rules: &Snapshot<'_>, status: &Status) -> bool {
    let Target::Rule(no) = status.target else { return false };
    let is_queued = limited.route.config.on_limit == OnLimit::Queue
        || rules.rules().rule(no).on_limit == RuleOnLimit::Queue;
    is_queued
        && matches!(status.verdict.outcome, Outcome::Deny { .. })
        && status.verdict != DENIED_WITHOUT_STORE
}

/// The queue of a request: all its counters. So what holds for the first request of a queue holds
/// for the others. It is the same on all nodes, and after a restart.
fn queue_of(rules: &Snapshot<'_>, plan: &Plan) -> Option<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut is_limited = false;
    for step in plan.steps() {
        if let Target::Rule(no) = step.target {
            is_limited = true;
            for part in [rules.rules().id(no).as_bytes(), plan.identity(step)] {
                context.update(&(part.len() as u64).to_le_bytes());
                context.update(part);
            }
        }
    }
    let mut name = String::new();
    for byte in context.finish().as_ref().iter().take(16) {
        // Writing to memory cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    is_limited.then_some(name)
}
