//! `CL.THROTTLE key max_burst count period [quantity]`: a bucket whose limit comes with the command.

use sluicegate::{Outcome, Span, Verdict};

use super::frame::Args;
use super::refusal::{Refusal, shown, whole};
use super::seam::{NoRoom, Terms};

/// What is asked of a bucket, beside its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) terms: Terms,
    pub(super) quantity: u64,
}

/// Reads what is asked.
pub(super) fn read(args: Args<'_>) -> Result<Asked, Refusal> {
    if !(5..=6).contains(&args.len()) {
        return Err(Refusal::arity("cl.throttle"));
    }
    let number = |place: usize, name: &str| -> Result<i64, Refusal> {
        let text = args.get(place).unwrap_or_default();
        whole(text).ok_or_else(|| {
            Refusal::invalid(format_args!(
                "value is not an integer or out of range: {name} must be a whole number of 64 bits, got `{}`",
                shown(text)
            ))
        })
    };
    let (max_burst, count, period) =
        (number(2, "max_burst")?, number(3, "count")?, number(4, "period")?);
    let quantity = if args.len() == 6 { number(5, "quantity")? } else { 1 };
    let quantity = u64::try_from(quantity).map_err(|_| {
        Refusal::invalid(format_args!("quantity must be 0 or more, got `{quantity}`"))
    })?;
    let terms = Terms::new(max_burst, count, period).map_err(Refusal::invalid)?;
    Ok(Asked { terms, quantity })
}

/// What is answered: limited, limit, remaining, retry_after, reset_after.
pub(super) fn numbers(terms: &Terms, verdict: &Verdict, is_enforced: bool) -> [i64; 5] {
    let denied = !verdict.is_allowed() && is_enforced;
    let retry_after = match verdict.outcome {
        Outcome::Deny { retry_after } if denied => seconds(retry_after),
        _ => -1,
    };
    let limit = i64::try_from(terms.limit()).unwrap_or(i64::MAX);
    let remaining = verdict.remaining.unwrap_or(limit).max(0);
    [denied.into(), limit, remaining, retry_after, seconds(verdict.reset_after)]
}

/// There is no room for another key.
pub(super) fn no_room(_: NoRoom) -> Refusal {
    Refusal::service(
        "OOM no room for another key; raise SLUICEGATE_MAX_IDENTITIES where the service runs, or wait until others have run out",
    )
}

/// Whole seconds, rounded up.
pub(super) fn seconds(span: Span) -> i64 {
    i64::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
