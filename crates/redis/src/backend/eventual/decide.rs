//! Decisions on the totals of all nodes: the core decides, on states built from the counts.

use sluicegate_core::algorithm::Slot;
use sluicegate_core::algorithm::periodic::PeriodicState;
use sluicegate_core::algorithm::sliding_window::CounterState;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};

use super::series::Series;

/// Rules of up to this many limits are decided without allocation.
const INLINE_MAX: usize = 4;

/// The operation to decide.
#[derive(Debug, Clone, Copy)]
pub(super) enum LocalOp {
    /// A hit, counted if admitted.
    Hit(u64),
    /// The same without counting.
    Peek(u64),
}

/// Decides all steps. `series_index` holds the series of each.
#[inline]
pub(super) fn decide(
    steps: &[EnforcedLimit],
    series_index: &[Option<u8>],
    series: &[Series],
    op: LocalOp,
    now: Timestamp,
) -> Verdict {
    let (cost, counts) = match op {
        LocalOp::Hit(cost) => (cost, cost > 0),
        LocalOp::Peek(cost) => (cost, false),
    };
    let evaluate = |index: usize| {
        let found = series_index.get(index).copied().flatten();
        let limit = steps[index].limit();
        let state = state(limit, found.and_then(|found| series.get(usize::from(found))));
        let outcome = outcome(limit, &state, cost, now);
        (limit, state, outcome)
    };
    // Most rules have one limit.
    if steps.len() == 1 {
        let (limit, state, outcome) = evaluate(0);
        let charged = counts && outcome.is_allowed();
        return Verdict::from_single(&decision(
            limit,
            state,
            outcome,
            charged.then_some(cost),
            now,
        ));
    }
    let indices = 0..steps.len();
    let charged = counts && indices.clone().all(|index| evaluate(index).2.is_allowed());
    let decision = |index: usize| {
        let (limit, state, outcome) = evaluate(index);
        decision(limit, state, outcome, charged.then_some(cost), now)
    };
    match steps.len() {
        2..=INLINE_MAX => {
            let mut inline = [decision(0); INLINE_MAX];
            for index in indices.clone().skip(1) {
                inline[index] = decision(index);
            }
            judge(&inline[..indices.len()])
        }
        _ => judge(&indices.map(decision).collect::<Vec<_>>()),
    }
}

/// Decides each step on its own.
pub(super) fn decide_each(
    steps: &[EnforcedLimit],
    series_index: &[Option<u8>],
    series: &[Series],
    cost: u64,
    now: Timestamp,
) -> Vec<Decision> {
    let found = |index: usize| series_index.get(index..=index).unwrap_or_default();
    let one = |index: usize| {
        let step = &steps[index..=index];
        let Verdict { outcome, remaining, reset_after, .. } =
            decide(step, found(index), series, LocalOp::Peek(cost), now);
        let (enforced, beyond, soft, elastic) = (true, 0, false, false);
        Decision { outcome, enforced, remaining, reset_after, beyond, soft, elastic }
    };
    (0..steps.len()).map(one).collect()
}

/// Outcome of a limit for a cost.
#[inline]
fn outcome(limit: &Limit, state: &State, cost: u64, now: Timestamp) -> Outcome {
    if cost == 0 {
        return Outcome::Allow { wait: Span::ZERO };
    }
    match limit.slot(state, cost, now) {
        Slot::Never { max_cost } => Outcome::Never { max_cost },
        Slot::At(at) if at > now => Outcome::Deny { retry_after: at.since(now) },
        Slot::At(_) => Outcome::Allow { wait: Span::ZERO },
    }
}

/// Decision of a limit, after a charge if there is one.
#[inline]
fn decision(
    limit: &Limit,
    mut state: State,
    outcome: Outcome,
    charged: Option<u64>,
    now: Timestamp,
) -> Decision {
    if let Some(cost) = charged {
        limit.spend(&mut state, cost, now, now);
    }
    Decision {
        outcome,
        enforced: true,
        remaining: limit.remaining(&state, now),
        reset_after: limit.full_after(&state, now),
        beyond: 0,
        soft: false,
        elastic: false,
    }
}

/// State of a limit in the current windows, with the totals of all nodes.
#[inline]
fn state(limit: &Limit, series: Option<&Series>) -> State {
    match (limit, series) {
        (Limit::FixedWindow(window), Some(series)) => {
            // The excess over the limit is not carried into the next window.
            let left = window.rate().count().saturating_sub(series.used());
            let level = i64::try_from(left).unwrap_or(i64::MAX);
            let anchor = series.start();
            State::Periodic(PeriodicState { level, anchor, seen: None, hole_until: None })
        }
        (Limit::SlidingWindow(_), Some(series)) => {
            let (start, previous) = (series.start(), series.previous_used());
            let current = series.used();
            State::Counter(CounterState { start, previous, current, next: 0, seen: None })
        }
        _ => State::New,
    }
}
