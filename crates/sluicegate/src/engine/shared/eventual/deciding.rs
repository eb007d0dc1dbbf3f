//! What limits say to what is known: the core says it, of states that are made from the counts of all nodes.

use sluicegate_core::algorithm::Slot;
use sluicegate_core::algorithm::sliding_window::CounterState;
use sluicegate_core::algorithm::steps::StepsState;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::Step;
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
    steps: &[Step],
    of: &[Option<u8>],
    series: &[Series],
    asked: Asked,
    now: Timestamp,
) -> Verdict {
    let (cost, counts) = match asked {
        Asked::Hit(cost) => (cost, true),
        Asked::Peek(cost) => (cost, false),
    };
    let state = |place: usize| {
        let of = of.get(place).copied().flatten();
        state(steps[place].limit(), of.and_then(|of| series.get(usize::from(of))), now)
    };
    let outcome = |limit: &Limit, state: &State| match limit.slot(state, cost, now) {
        _ if cost == 0 => Outcome::Allow { wait: Span::ZERO },
        Slot::Never { max_cost } => Outcome::Never { max_cost },
        Slot::At(at) if at > now => Outcome::Deny { retry_after: at.since(now) },
        Slot::At(_) => Outcome::Allow { wait: Span::ZERO },
    };
    let places = 0..steps.len();
    let passes = |place: usize| outcome(steps[place].limit(), &state(place)).is_allowed();
    let charged = counts && cost > 0 && places.clone().all(passes);
    let said = |place: usize| {
        let (limit, mut state) = (steps[place].limit(), state(place));
        let outcome = outcome(limit, &state);
        if charged {
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
    };
    match steps.len() {
        1 => Verdict::of_one(&said(0)),
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
    steps: &[Step],
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

/// A limit's state, with what everybody has used.
#[inline]
fn state(limit: &Limit, series: Option<&Series>, now: Timestamp) -> State {
    let mut state = match (limit, series) {
        (Limit::FixedWindow(window), Some(series)) => {
            // What is above the limit is not carried into the next window: nobody asked for it.
            let left = window.rate().count().saturating_sub(series.used());
            let level = i64::try_from(left).unwrap_or(i64::MAX);
            let anchor = series.start();
            State::Steps(StepsState { level, anchor, seen: None, hole_until: None })
        }
        (Limit::SlidingWindow(_), Some(series)) => {
            let (start, previous) = (series.start(), series.used_before());
            let current = series.used();
            State::Counter(CounterState { start, previous, current, next: 0, seen: None })
        }
        _ => State::New,
    };
    limit.open(&mut state, now);
    state
}
