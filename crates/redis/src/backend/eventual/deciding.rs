//! What limits say to what is known: the core says it, of states that are made from the counts of all nodes.

use sluicegate_core::algorithm::Slot;
use sluicegate_core::algorithm::periodic::PeriodicState;
use sluicegate_core::algorithm::sliding_window::CounterState;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};

use super::series::Series;

/// Rules of so many limits are decided without the heap.
const FEW: usize = 4;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// May it go? It is counted then.
    Hit(u64),
    /// Might it?
    Peek(u64),
}

/// What all steps say. `of` tells in which series each counts.
#[inline]
pub(super) fn decide(
    steps: &[EnforcedLimit],
    of: &[Option<u8>],
    series: &[Series],
    asked: Asked,
    now: Timestamp,
) -> Verdict {
    let (cost, counts) = match asked {
        Asked::Hit(cost) => (cost, cost > 0),
        Asked::Peek(cost) => (cost, false),
    };
    let found = |place: usize| {
        let of = of.get(place).copied().flatten();
        let limit = steps[place].limit();
        let state = state(limit, of.and_then(|of| series.get(usize::from(of))));
        let outcome = outcome(limit, &state, cost, now);
        (limit, state, outcome)
    };
    // By far the most rules have one limit.
    if steps.len() == 1 {
        let (limit, state, outcome) = found(0);
        let charged = counts && outcome.is_allowed();
        return Verdict::from_single(&said(limit, state, outcome, charged.then_some(cost), now));
    }
    let places = 0..steps.len();
    let charged = counts && places.clone().all(|place| found(place).2.is_allowed());
    let said = |place: usize| {
        let (limit, state, outcome) = found(place);
        said(limit, state, outcome, charged.then_some(cost), now)
    };
    match steps.len() {
        2..=FEW => {
            let mut few = [said(0); FEW];
            for place in places.clone().skip(1) {
                few[place] = said(place);
            }
            judge(&few[..places.len()])
        }
        _ => judge(&places.map(said).collect::<Vec<_>>()),
    }
}

/// What each step says on its own to a cost.
pub(super) fn each(
    steps: &[EnforcedLimit],
    of: &[Option<u8>],
    series: &[Series],
    cost: u64,
    now: Timestamp,
) -> Vec<Decision> {
    let of = |place: usize| of.get(place..=place).unwrap_or_default();
    let one = |place: usize| {
        let step = &steps[place..=place];
        let Verdict { outcome, remaining, reset_after, .. } =
            decide(step, of(place), series, Asked::Peek(cost), now);
        let (enforced, beyond, soft, elastic) = (true, 0, false, false);
        Decision { outcome, enforced, remaining, reset_after, beyond, soft, elastic }
    };
    (0..steps.len()).map(one).collect()
}

/// Whether a limit lets a cost pass.
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

/// What a limit says, with a cost charged or not.
#[inline]
fn said(
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

/// A limit's state in the windows of this moment, with what everybody has used.
#[inline]
fn state(limit: &Limit, series: Option<&Series>) -> State {
    match (limit, series) {
        (Limit::FixedWindow(window), Some(series)) => {
            // What is above the limit is not carried into the next window: nobody asked for it.
            let left = window.rate().count().saturating_sub(series.used());
            let level = i64::try_from(left).unwrap_or(i64::MAX);
            let anchor = series.start();
            State::Periodic(PeriodicState { level, anchor, seen: None, hole_until: None })
        }
        (Limit::SlidingWindow(_), Some(series)) => {
            let (start, previous) = (series.start(), series.used_before());
            let current = series.used();
            State::Counter(CounterState { start, previous, current, next: 0, seen: None })
        }
        _ => State::New,
    }
}
