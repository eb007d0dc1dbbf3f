//! What a count means: the core says it.

use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::tally::{Tally, TallyState};
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Verdict, judge};

use super::key::start_s;
use super::{Counted, EnvoyCheck, EnvoyOp};
use sluicegate::backend::UNCOUNTED;

/// What the counter says of `op`, by what it held.
pub(super) fn verdict(
    op: EnvoyOp,
    ask: &EnvoyCheck<'_>,
    counted: Counted,
    now: Timestamp,
) -> Verdict {
    let start = Timestamp::from_micros(start_s(ask.unit, now).saturating_mul(1_000_000));
    let state = State::Tally(TallyState { start, count: counted.before });
    // Neither a 32-bit number nor a unit is beyond what it holds.
    let limit = Tally::new(ask.requests_per_unit.into(), ask.unit.span());
    let limit = limit.map_or(Limit::Closed, Limit::Tally);
    let mode = if ask.shadow { Mode::Shadow } else { Mode::Hard };
    let Ok(step) = EnforcedLimit::new(limit, mode) else { return UNCOUNTED };
    let op = match op {
        EnvoyOp::Hit => {
            let mut state = state;
            let mut decision = step.hit_single(&mut state, counted.charged, now);
            decision.enforced = !ask.shadow;
            return judge(&[decision]);
        }
        EnvoyOp::Peek => Op::Peek { cost: ask.cost },
        EnvoyOp::Refund => Op::Refund { cost: ask.cost },
        EnvoyOp::Reset => Op::Reset,
    };
    let mut account = Account::from_states([(state, State::New)]);
    let answer = account.apply(&[step], op, Moment::at(now));
    answer.map_or(UNCOUNTED, |answer| answer.verdict)
}
