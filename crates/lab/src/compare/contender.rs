//! The limits that are compared: one for each algorithm, all of the same nominal rate.
//!
//! A rate of `n` per period means: at most `n` in a window of the period, or `n` permits that come
//! in that time. What else an algorithm needs is derived, so that each may admit a burst of `burst`
//! where it knows bursts:
//!
//! | algorithm | derived |
//! |---|---|
//! | `token_bucket` | `burst` tokens |
//! | `leaky_bucket` | a queue of `burst - 1`; policing, and shaping (requests wait) |
//! | `smooth_bursty` | permits stored for as long as `burst` of them take to come |
//! | `warm_up` | warms up for one period, at most one hour |
//! | `cycle` | `n` permits in each period |
//! | `sliding_window` | once with two counts, once with ten slices |
//! | the others | nothing |
//!
//! An algorithm that cannot hold the numbers, such as a log of a million entries, is left out.

use sluicegate_config::limit::limits;
use sluicegate_config::units::{WrittenRate, show_rate, show_span};
use sluicegate_core::time::Span;
use sluicegate_rules::limit::LimitConfig;

/// The algorithm that all others are measured against.
pub const EXACT: &str = "sliding_log";

/// The leaky bucket whose requests wait.
const SHAPING: &str = "leaky_bucket (shaping)";

/// Slices of the sliding window that counts slices.
const SLICES: u64 = 10;

/// Longest warm-up period.
const WARM_UP_MAX: Span = Span::from_secs(3_600);

/// The rule that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NominalRule {
    rate: WrittenRate,
    burst: u64,
}

/// A limit in the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Its name in reports.
    pub name: String,
    /// The limit as it is written in a rule.
    pub limit_text: String,
    /// When its admitted requests pass.
    pub passage: Passage,
    /// The limit.
    pub limit: LimitConfig,
}

/// When admitted requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// When they arrive.
    AtArrival,
    /// At the slot that the limit gives them.
    AtSlot,
}

impl NominalRule {
    /// A rule of this rate. Without a burst, it is the number of the rate.
    ///
    /// ```
    /// use sluicegate_config::units::rate;
    /// use sluicegate_lab::compare::NominalRule;
    ///
    /// let rule = NominalRule::new(rate("100/m")?, None)?;
    /// assert_eq!((rule.limit(), rule.burst()), (100, 100));
    /// assert!(NominalRule::new(rate("0/m")?, None).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the rate or the burst is 0.
    pub fn new(rate: WrittenRate, burst: Option<u64>) -> Result<Self, String> {
        if rate.count() == 0 {
            let shown = show_rate(0, rate.period());
            return Err(format!("the rate must be above 0, got `{shown}`; write like `100/m`"));
        }
        match burst.unwrap_or(rate.count()) {
            0 => Err("the burst must be at least `1`, got `0`; write at least `1`".to_owned()),
            burst => Ok(Self { rate, burst }),
        }
    }

    /// Requests in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.rate.count()
    }

    /// Length of a window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.rate.period()
    }

    /// Requests in a burst.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The rate as it is written.
    #[must_use]
    pub fn rate_text(&self) -> String {
        show_rate(self.limit(), self.window())
    }

    /// The contenders, [`EXACT`] first; and why others are left out, which cannot hold the rate or
    /// the burst.
    #[must_use]
    pub fn contenders(&self) -> (Vec<Contender>, Vec<String>) {
        let (rate, burst, period) = (self.rate_text(), self.burst, show_span(self.window()));
        let (limit, us) = (u128::from(self.limit()), u128::from(self.window().as_micros()));
        let stored_us = (u128::from(burst) * us).div_ceil(limit);
        let warm_up = show_span(self.window().min(WARM_UP_MAX));
        let queue = burst - 1;
        let table = [
            (EXACT, EXACT, format!("rate: {rate}")),
            (
                "sliding_window (slices)",
                "sliding_window",
                format!("rate: {rate}, slices: {SLICES}"),
            ),
            ("sliding_window", "sliding_window", format!("rate: {rate}")),
            ("fixed_window", "fixed_window", format!("rate: {rate}")),
            ("token_bucket", "token_bucket", format!("rate: {rate}, burst: {burst}")),
            ("leaky_bucket", "leaky_bucket", format!("rate: {rate}, queue: {queue}")),
            (SHAPING, "leaky_bucket", format!("rate: {rate}, queue: {queue}")),
            ("smooth_bursty", "smooth_bursty", format!("rate: {rate}, max_burst: {stored_us}us")),
            ("warm_up", "warm_up", format!("rate: {rate}, warm_up: {warm_up}")),
            ("cycle", "cycle", format!("permits: {limit}, period: {period}")),
            ("tally", "tally", format!("rate: {rate}")),
        ];
        let (mut contenders, mut left_out) = (Vec::new(), Vec::new());
        for (name, algorithm, numbers) in table {
            match Contender::new(name, algorithm, &numbers) {
                Ok(contender) => contenders.push(contender),
                Err(problem) => left_out.push(problem),
            }
        }
        (contenders, left_out)
    }
}

impl Contender {
    fn new(name: &str, algorithm: &str, numbers: &str) -> Result<Self, String> {
        let limit_text = format!("{{ algorithm: {algorithm}, {numbers} }}");
        let read = limits(name, &limit_text).map_err(|problems| problems.to_string())?;
        let limit =
            read.into_iter().next().ok_or_else(|| format!("`{limit_text}` has no limit"))?;
        let passage = if name == SHAPING { Passage::AtSlot } else { Passage::AtArrival };
        Ok(Self { name: name.to_owned(), limit_text, passage, limit })
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::units::rate;

    use super::*;

    #[test]
    fn usual_rates_have_all_contenders() {
        for text in ["1/s", "100/m", "7/3s", "10000/day", "3/week"] {
            for burst in [None, Some(1), Some(5_000)] {
                let rule = NominalRule::new(rate(text).unwrap(), burst).unwrap();
                let (contenders, left_out) = rule.contenders();
                assert_eq!((contenders.len(), left_out), (11, Vec::new()), "{text}");
                assert_eq!(contenders[0].name, EXACT);
            }
        }
    }

    #[test]
    fn what_cannot_hold_the_numbers_is_left_out_with_the_reason() {
        let left_out =
            |text, burst| NominalRule::new(rate(text).unwrap(), burst).unwrap().contenders().1;
        let of_a_log = left_out("1000000/day", None);
        assert!(of_a_log[0].starts_with("sliding_log:1:") && of_a_log[0].contains("at most"));
        let of_a_burst = left_out("1/day", Some(1_000_000));
        assert!(of_a_burst.iter().any(|problem| problem.contains("142 years")), "{of_a_burst:?}");
    }
}
