//! The envelope of an error, in JSON.

use serde_json::{Map, Value, json};
use sluicegate_core::verdict::Outcome;

use super::{Told, millis_to_go};

// === impl Told ===

impl Told<'_> {
    /// The JSON body of a denial; `None` if the request was admitted.
    ///
    /// `renewal` is the moment from which on it is worth trying again, in UNIX milliseconds.
    ///
    /// ```
    /// # use sluicegate::http::Told;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Never { max_cost: 10 };
    /// let told = Told { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let body = told.body().expect("it is denied");
    /// assert!(body.starts_with(r#"{"error":{"code":"rate_limited","message":"Request cost exceeds"#));
    /// assert!(body.ends_with(r#""context":{"max_cost":10}}}"#));
    /// ```
    #[must_use]
    pub fn body(&self) -> Option<String> {
        let message = self.message()?;
        let context = self.context();
        let error = json!({ "code": "rate_limited", "message": message, "context": context });
        Some(json!({ "error": error }).to_string())
    }

    fn context(&self) -> Map<String, Value> {
        let mut context = Map::new();
        let mut tell = |name: &str, value: Value| context.insert(name.to_owned(), value);
        if let Some(wait) = self.retry_after() {
            let renewal_ms = self.now.after(wait).as_micros().div_ceil(1_000);
            tell("renewal", renewal_ms.into());
        }
        if let Some(policy) = self.decider() {
            tell("limit", policy.name.as_str().into());
        }
        match self.verdict.outcome {
            Outcome::Deny { retry_after } => {
                tell("retry_after_ms", millis_to_go(retry_after).into());
            }
            Outcome::Never { max_cost } => {
                tell("max_cost", max_cost.into());
            }
            Outcome::Allow { .. } => {}
        }
        context
    }
}
