//! A denial in a sentence that a person understands.

use sluicegate_core::time::Span;
use sluicegate_core::verdict::Outcome;

use super::Told;

// === impl Told ===

impl Told<'_> {
    /// What to tell a person whose request was denied; `None` if it was admitted.
    ///
    /// ```
    /// # use sluicegate::http::Told;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(170) };
    /// let told = Told { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let message = told.message();
    /// assert_eq!(message.as_deref(), Some("Request quota exceeded. Wait 3 minutes and try again."));
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<String> {
        match self.verdict.outcome {
            Outcome::Allow { .. } => None,
            Outcome::Deny { retry_after } => {
                let wait = in_words(retry_after);
                Some(format!("Request quota exceeded. Wait {wait} and try again."))
            }
            Outcome::Never { max_cost: 0 } => {
                Some("The limit is closed: no request can pass. Waiting does not help.".to_owned())
            }
            Outcome::Never { max_cost } => Some(format!(
                "Request cost exceeds what the limit can hold. The largest cost that can pass is {max_cost}."
            )),
        }
    }
}

/// A wait in whole seconds, minutes, hours or days, rounded up.
///
/// Between one and two of a unit the smaller one is used, so that nobody waits more than half as long again:
/// 61 seconds are not two minutes.
fn in_words(wait: Span) -> String {
    let seconds = wait.as_micros().div_ceil(1_000_000).max(1);
    let minutes = seconds.div_ceil(60);
    let hours = minutes.div_ceil(60);
    let days = hours.div_ceil(24);
    // Whether so many are better said in the smaller unit, of which so many make one of the larger.
    let few = |count: u64, in_larger: u64| count < 2 * in_larger && count != in_larger;
    if few(seconds, 60) {
        counted(seconds, "second")
    } else if few(minutes, 60) {
        counted(minutes, "minute")
    } else if few(hours, 24) {
        counted(hours, "hour")
    } else {
        counted(days, "day")
    }
}

fn counted(count: u64, unit: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
