//! Explains a decision without counting the request: the matching rules, their counters and the
//! counters' state.
//!
//! [`RuleSet::explain`](sluicegate_rules::set::RuleSet::explain) traces the match and
//! [`Operation::Peek`] decides, by the same steps as a check. The result is text
//! ([`Explanation::to_text`]) or JSON ([`Explanation::to_json`]); [`rule`] does the same for a
//! rule, and [`mod@diff`] for the differences of two sets of rules.

mod decision;
pub mod diff;
mod explanation;
mod hints;
mod render;
pub mod rule;

pub use explanation::Explanation;
pub use hints::similar_key;

use sluicegate_core::time::Timestamp;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::Request;

use crate::engine::backend::{Backend, Call, StoreError};
use crate::engine::{Checked, Engine, MemoryBackend, Operation, Snapshot};

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
/// let explanation = explain(&engine.snapshot(), &request, engine.now());
/// assert!(explanation.allowed());
/// assert_eq!(explanation.to_json()["descriptors"][0]["under"]["now"]["remaining"], 1);
///
/// assert!(engine.check(&request).allowed, "it was not counted before");
/// let explanation = explain(&engine.snapshot(), &request, engine.now());
/// assert!(explanation.why().starts_with("denied by shop/user_id: 0 left, and `yearly` lets it pass after "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn explain<'a>(
    snapshot: &Snapshot<'_>,
    request: &Request<'a>,
    now: Timestamp,
) -> Explanation<'a> {
    explanation::explain_with(snapshot, request, |rules, planned| {
        let mut checked = Checked::default();
        let call = Call::new(rules, planned, now);
        MemoryBackend::apply_now(Operation::Peek, &call, &mut checked);
        checked
    })
}

/// The same on any backend.
///
/// # Errors
/// When the store is unavailable and a rule has `on_store_failure: error`.
pub async fn explain_on<'a, B: Backend + ?Sized>(
    engine: &Engine<B>,
    rules: &Snapshot<'_>,
    request: &Request<'a>,
) -> Result<Explanation<'a>, StoreError> {
    let (mut plan, mut checked) = (Plan::default(), Checked::default());
    rules.rules().plan(request, &mut plan);
    // A counter in Envoy's form that is named more than once counts each time.
    let descriptors = explanation::accumulate_hits(rules.rules(), request, &plan);
    let peeked = Request { descriptors: &descriptors, ..*request };
    engine.apply(Operation::Peek, engine.call(rules, &peeked), &mut checked).await?;
    Ok(explanation::explain_with(rules, request, move |_, _| checked))
}
