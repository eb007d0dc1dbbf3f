//! The JSON error of a denial: an envelope, or an RFC 9457 problem.

use serde_json::to_writer;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::Outcome;

use super::{Style, VerdictResponse, millis_to_go};
use crate::Policy;

/// The problem type of the IETF draft.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

impl VerdictResponse<'_> {
    /// The JSON body of a denial; `None` if the request was admitted.
    ///
    /// `renewal` is the time from which a retry can succeed, in UNIX milliseconds.
    ///
    /// ```
    /// # use sluicegate::http::VerdictResponse;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Never { max_cost: 10 };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let body = response.body().expect("it is denied");
    /// assert!(body.starts_with(r#"{"error":{"code":"rate_limited","message":"Request cost exceeds"#));
    /// assert!(body.ends_with(r#""context":{"max_cost":10}}}"#));
    /// ```
    #[must_use]
    pub fn body(&self) -> Option<String> {
        let mut body = vec![b'{'];
        self.write_error(&mut body).then(|| body.push(b'}'))?;
        String::from_utf8(body).ok()
    }

    /// Appends the `error` member of such a body, for bodies with more members. Returns whether
    /// there was a denial to write.
    ///
    /// ```
    /// # use sluicegate::http::VerdictResponse;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(3) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let mut body = Vec::new();
    /// assert!(response.write_error(&mut body));
    /// assert!(body.starts_with(br#""error":{"code":"rate_limited","message":"Request quota exceeded"#));
    /// ```
    pub fn write_error(&self, out: &mut Vec<u8>) -> bool {
        let Some(message) = self.message() else {
            return false;
        };
        out.extend_from_slice(br#""error":{"code":"rate_limited","message":"#);
        write(out, &message);
        out.extend_from_slice(br#","context":{"#);
        self.write_context(out);
        out.pop();
        out.extend_from_slice(b"}}");
        true
    }

    /// Appends the members of a problem, as defined by RFC 9457 and the IETF draft. Returns whether
    /// there was a denial to write.
    ///
    /// ```
    /// # use sluicegate::http::{Style, VerdictResponse};
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(3) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let mut body = Vec::new();
    /// assert!(response.write_problem(&Style::default(), &mut body));
    /// assert!(body.starts_with(br#""type":"https://iana.org/assignments/http-problem-types#quota-exceeded""#));
    /// ```
    pub fn write_problem(&self, style: &Style, out: &mut Vec<u8>) -> bool {
        let Some(message) = self.message() else {
            return false;
        };
        out.extend_from_slice(br#""type":"#);
        write(out, QUOTA_EXCEEDED);
        out.extend_from_slice(br#","title":"Request quota exceeded","#);
        write_number(out, br#""status":"#, style.denied.as_u16().into());
        out.extend_from_slice(br#""detail":"#);
        write(out, &message);
        if let Some(policy) = self.decider() {
            out.extend_from_slice(br#","violated-policies":["#);
            write(out, &policy.name);
            out.push(b']');
        }
        out.extend_from_slice(br#","code":"rate_limited","#);
        self.write_context(out);
        out.pop();
        true
    }

    /// Each member ends with a comma; there is at least one.
    fn write_context(&self, out: &mut Vec<u8>) {
        if let Some(wait) = self.verdict.retry_after() {
            let renewal_ms = self.now.after(wait).as_micros().div_ceil(1_000);
            write_number(out, br#""renewal":"#, renewal_ms);
        }
        if let Some(policy) = self.decider() {
            out.extend_from_slice(br#""limit":"#);
            write(out, &policy.name);
            out.push(b',');
        }
        match self.verdict.outcome {
            Outcome::Deny { retry_after } => {
                write_number(out, br#""retry_after_ms":"#, millis_to_go(retry_after));
                if self.decider().is_some_and(Policy::has_slots) {
                    out.extend_from_slice(br#""estimated":true,"#);
                }
            }
            Outcome::Never { max_cost } => write_number(out, br#""max_cost":"#, max_cost),
            Outcome::Allow { .. } => {}
        }
    }
}

fn write(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail.
    let _ = to_writer(out, text);
}

/// A member with its comma.
fn write_number(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    let _ = to_writer(&mut *out, &number);
    out.push(b',');
}

impl VerdictResponse<'_> {
    /// Human-readable message of a denial; `None` if the request was admitted.
    ///
    /// ```
    /// # use sluicegate::http::VerdictResponse;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(170) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let message = response.message();
    /// assert_eq!(message.as_deref(), Some("Request quota exceeded. Wait 3 minutes and try again."));
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<String> {
        match self.verdict.outcome {
            Outcome::Allow { .. } => None,
            Outcome::Deny { retry_after } => {
                let wait = in_words(retry_after);
                if let Some(message) = self.slots_message(&wait) {
                    return Some(message);
                }
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

    /// Message of a denial by a concurrency limit. The wait is an estimate.
    fn slots_message(&self, wait: &str) -> Option<String> {
        let policy = self.decider().filter(|policy| policy.has_slots())?;
        let max = policy.quota?;
        let free = u64::try_from(self.verdict.remaining.unwrap_or(0)).unwrap_or(0);
        let running = max.saturating_sub(free);
        Some(format!(
            "{running} of {max} concurrent requests are running. Wait until one ends, expected within {wait}, and try again."
        ))
    }
}

/// A wait in whole seconds, minutes, hours or days, rounded up.
///
/// Between one and two of a unit the smaller unit is used, so that rounding adds at most half: 61
/// seconds are not two minutes.
fn in_words(wait: Span) -> String {
    let seconds = wait.as_micros().div_ceil(1_000_000).max(1);
    let minutes = seconds.div_ceil(60);
    let hours = minutes.div_ceil(60);
    let days = hours.div_ceil(24);
    // Whether to use the smaller unit, of which `in_larger` make one of the larger.
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
