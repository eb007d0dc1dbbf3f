//! Explains why core rejects a limit, in the terms of the configuration.

use sluicegate_core::quota::QuotaError;

use crate::units::{show_longest, show_rate, show_span};

/// The complete message: the problem, the given value and the remedy.
///
/// For a limit and a mode that conflict, since they are written in two places. An error of a single
/// field is reported at that field.
///
/// ```
/// use sluicegate_core::algorithm::warm_up::WarmUp;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(10, Span::from_secs(1)).unwrap();
/// let error = WarmUp::new(rate, Span::from_secs(7_200), 3_000).unwrap_err();
/// assert_eq!(
///     sluicegate_config::quota::explain(&error),
///     "the warm-up period must last from `1us` to `1h`, got `2h`; write another time"
/// );
/// ```
#[must_use]
pub fn explain(error: &QuotaError) -> String {
    let wrong = requirement(error);
    match error {
        QuotaError::Nothing { what } => format!("{what} {wrong}, got `0`; write at least `1`"),
        QuotaError::TooMuch { what, amount, .. } => {
            format!("{what} {wrong}, got `{amount}`; write less")
        }
        QuotaError::BadSpan { what, given, .. } => {
            let given = show_span(*given);
            format!("{what} {wrong}, got `{given}`; write another time")
        }
        QuotaError::FillsTooSlowly { amount, .. } => {
            format!("an amount that {wrong}, got `{amount}`; lower it or raise the rate")
        }
        QuotaError::OutOfRange { what, given, .. } => {
            format!("{what} {wrong}, got `{given}`; write one in between")
        }
        QuotaError::Unfit { remedy, .. } => format!("{wrong}; {remedy}"),
        other => format!("{other}; write other numbers"),
    }
}

/// The violated requirement, to be followed by the given value and the remedy.
pub(crate) fn requirement(error: &QuotaError) -> String {
    match error {
        QuotaError::Nothing { .. } => "must be at least `1`".to_owned(),
        QuotaError::TooMuch { max, .. } => format!("must be at most `{max}`"),
        QuotaError::BadSpan { longest, .. } => {
            format!("must last from `1us` to `{}`", show_longest(*longest))
        }
        QuotaError::FillsTooSlowly { count, period, .. } => {
            let rate = show_rate(*count, *period);
            format!("would take more than 142 years to fill at `{rate}`")
        }
        QuotaError::OutOfRange { min, max, .. } => {
            format!("must be from `{min}` to `{max}`")
        }
        QuotaError::Unfit { mode, algorithm, .. } => {
            format!("mode `{mode}` has no meaning for `{algorithm}`")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::algorithm::concurrency::Concurrency;
    use sluicegate_core::algorithm::smooth::SmoothBursty;
    use sluicegate_core::algorithm::token_bucket::TokenBucket;
    use sluicegate_core::limit::Limit;
    use sluicegate_core::mode::{EnforcedLimit, Mode};
    use sluicegate_core::quota::Rate;
    use sluicegate_core::time::Span;

    #[test]
    fn every_error_has_place_value_and_remedy() {
        let daily = Rate::new(1, Span::from_secs(86_400)).unwrap();
        let bucket = |burst| TokenBucket::new(daily, burst).unwrap_err();
        let smooth = Limit::SmoothBursty(SmoothBursty::new(daily, Span::ZERO).unwrap());
        let table = [
            (bucket(0), "the burst must be at least `1`, got `0`; write at least `1`"),
            (
                bucket(1_000_000),
                "an amount that would take more than 142 years to fill at `1/day`, got `1000000`; \
                 lower it or raise the rate",
            ),
            (
                Concurrency::new(5_000_000, Span::from_secs(1)).unwrap_err(),
                "the number of slots must be at most `1000000`, got `5000000`; write less",
            ),
            (
                Concurrency::new(5, Span::ZERO).unwrap_err(),
                "the lease must last from `1us` to `142years`, got `0s`; write another time",
            ),
            (
                EnforcedLimit::new(Limit::Closed, Mode::Soft { percent: 0 }).unwrap_err(),
                "the soft percentage must be from `1` to `1000`, got `0`; write one in between",
            ),
            (
                EnforcedLimit::new(smooth, Mode::Soft { percent: 10 }).unwrap_err(),
                "mode `soft` has no meaning for `smooth_bursty`; it grants any cost and lets the \
                 next caller pay, so there is nothing to exceed; use `hard`, or a token bucket",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(explain(&error), expected);
        }
    }
}
