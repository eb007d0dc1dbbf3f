//! When a deferred request is sent, as its limit says.

use sluicegate::backend::Call;
use sluicegate::{Checked, Operation, Outcome, Policy, Span};
use sluicegate_server::app::App;
use sluicegate_server::status::{deciding_status, policies};

use super::request::{DeferredRequest, DeferredState, Millis, millis, timestamp};

/// When a request with so many before it is expected to be sent; `None` if that cannot be known.
///
/// The limit says when the first request can go; those before this one take their share of it. It
/// assumes that the upstream answers at once, and that no other request charges the limit.
pub(super) async fn estimate(app: &App, request: &DeferredRequest, ahead: u64) -> Option<Millis> {
    if request.state != DeferredState::Queued {
        return None;
    }
    let entries = request.charge.entries();
    let descriptors = request.charge.descriptors(&entries);
    let limited = request.charge.request(&descriptors);
    let engine = app.engine();
    let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
    let peeked =
        engine.apply(Operation::Peek, Call::new(&rules, &limited, now), &mut checked).await;
    if peeked.is_err() || checked.listed().is_some() || checked.denied_unmatched().is_some() {
        return None;
    }
    let status = deciding_status(!checked.allowed, &checked)?;
    let index = checked.statuses.iter().position(|one| std::ptr::eq(one, status))?;
    let cost = checked.plan.steps().get(index)?.cost.max(1);
    let policies = policies(status.target, &rules);
    let policy = policies.get(status.verdict.decided_by?)?;
    if policy.has_slots() {
        return None;
    }
    let (first, free) = match status.verdict.outcome {
        Outcome::Deny { retry_after } => (now.after(retry_after), 0),
        Outcome::Allow { wait } => {
            (now.after(wait), u64::try_from(status.verdict.remaining.unwrap_or(0)).unwrap_or(0))
        }
        Outcome::Never { .. } => return None,
    };
    let first = first.max(timestamp(request.due_at));
    let before = ahead.saturating_mul(cost).saturating_sub(free);
    time_of(policy, before).map(|span| millis(first.after(span)))
}

/// The time in which a limit admits so much.
fn time_of(policy: &Policy, cost: u64) -> Option<Span> {
    if cost == 0 {
        return Some(Span::ZERO);
    }
    let (window, quota) = (policy.window?.as_micros(), policy.quota.filter(|quota| *quota > 0)?);
    let span = match policy.algorithm {
        // The whole quota is there at the beginning of a window.
        "fixed_window" => (cost / quota).checked_mul(window)?,
        _ => u64::try_from(u128::from(cost) * u128::from(window) / u128::from(quota)).ok()?,
    };
    Some(Span::from_micros(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(algorithm: &'static str) -> Policy {
        Policy {
            name: "one".to_owned(),
            algorithm,
            quota: Some(10),
            window: Some(Span::from_secs(60)),
            enforced: true,
        }
    }

    #[test]
    fn the_wait_is_that_of_the_algorithm() {
        let secs = |algorithm, cost| {
            time_of(&policy(algorithm), cost).map(|one| one.as_micros() / 1_000_000)
        };
        assert_eq!(secs("token_bucket", 0), Some(0));
        assert_eq!(secs("token_bucket", 5), Some(30));
        // Nine more fit into the window of the first.
        assert_eq!(secs("fixed_window", 9), Some(0));
        assert_eq!(secs("fixed_window", 10), Some(60));
        let unknown = Policy { window: None, ..policy("concurrency") };
        assert_eq!(time_of(&unknown, 1), None);
    }
}
