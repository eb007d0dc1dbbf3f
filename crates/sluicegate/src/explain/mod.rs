//! Why a request would get what it would get now: which rules it is under, whose counters those are, and what stands there.
//! Nothing is counted.
//!
//! The way through the rules is told by [`RuleSet::explain`](sluicegate_rules::set::RuleSet::explain), what would happen by
//! [`Snapshot::peek`]: both by the same steps that a check takes. This module puts it into words, for a person
//! ([`Told::to_text`]) and for a program ([`Told::to_json`]); [`rule`] does the same for a rule by itself.

mod hints;
mod json;
mod now;
pub mod rule;
mod text;
mod told;

pub use told::Told;

use sluicegate_core::time::Timestamp;
use sluicegate_rules::request::Request;

use crate::engine::{Checked, Snapshot};

/// Explains a request by the rules and the counters as they are at `now`, without counting it.
///
/// ```
/// use sluicegate::explain::explain;
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::{Engine, rules_of};
///
/// let engine = Engine::new(rules_of(
///     "
/// domain: shop
/// descriptors: [{ key: user_id, limits: { name: yearly, algorithm: fixed_window, rate: 1/year } }]
/// ",
/// )?)?;
/// let entries = [Entry::new("user_id", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
///
/// let told = explain(&engine.snapshot(), &request, engine.now());
/// assert!(told.allowed());
/// assert_eq!(told.to_json()["descriptors"][0]["under"]["now"]["remaining"], 1);
///
/// assert!(engine.check(&request).allowed, "it was not counted before");
/// let told = explain(&engine.snapshot(), &request, engine.now());
/// assert!(told.why().starts_with("denied by shop/user_id: 0 left, and `yearly` lets it pass after "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn explain<'a>(snapshot: &Snapshot<'_>, request: &Request<'a>, now: Timestamp) -> Told<'a> {
    told::told(snapshot, request, |rules, asked| {
        let mut checked = Checked::default();
        rules.peek(asked, now, &mut checked);
        checked
    })
}

/// The same where other nodes share the counters: by what they said when they were peeked with [`explained_request`].
#[must_use]
pub fn explain_by<'a>(snapshot: &Snapshot<'_>, request: &Request<'a>, peeked: Checked) -> Told<'a> {
    told::told(snapshot, request, move |_, _| peeked)
}

/// The descriptors that counters are peeked with for an explanation of a request. A counter of Envoy's form that is named more than once counts each time, so
/// it is asked for all that will have come by then.
#[must_use]
pub fn explained_request<'a>(
    snapshot: &Snapshot<'_>,
    request: &Request<'a>,
) -> Vec<sluicegate_rules::request::Descriptor<'a>> {
    let mut plan = sluicegate_rules::plan::Plan::default();
    snapshot.rules().plan(request, &mut plan);
    told::summed(snapshot.rules(), request, &plan)
}
