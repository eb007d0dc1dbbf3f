//! Rate limit headers: `X-RateLimit-*` and the IETF fields, which are RFC 9651 lists of strings
//! with parameters.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::time::Span;
use sluicegate_rules::mapping::Headers;

use super::{Reset, Style, VerdictResponse, seconds_to_go, seconds_to_wait};
use crate::Policy;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const X_WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Names no limit: a verdict does not identify the soft limit.
const WARNING: &str = "Request quota exceeded. Admitted within the margin of a soft limit.";

/// The numbers of the deciding limit, as sent in headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Its quota.
    pub limit: u64,
    /// Remaining quota.
    pub remaining: u64,
    /// Until it is full; `None` if it never will be.
    pub reset_after: Option<Span>,
}

impl VerdictResponse<'_> {
    /// The numbers of the deciding limit, for encodings other than headers; `None` where headers
    /// have none.
    ///
    /// ```
    /// # use sluicegate::http::VerdictResponse;
    /// # use sluicegate_core::{time::Timestamp, verdict::judge};
    /// let verdict = judge(&[]);
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// assert_eq!(response.figures(), None, "nothing is limited");
    /// ```
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let policy = self.decider()?;
        let limit = policy.quota?;
        let remaining = u64::try_from(self.verdict.remaining?.max(0)).unwrap_or_default();
        let reset_after = (limit > 0).then_some(self.verdict.reset_after);
        Some(Figures { limit, remaining, reset_after })
    }

    /// Writes the headers that HTTP and gRPC share.
    pub(super) fn write_limits(&self, style: &Style, headers: &mut HeaderMap) {
        if let (Some(policy), Some(figures)) = (self.decider(), self.figures()) {
            if style.x_headers {
                self.write_figures(&figures, style.reset, headers);
            }
            if style.ietf_fields {
                self.write_field(RATE_LIMIT, self.service_limit(policy, &figures), headers);
            }
        }
        if style.ietf_fields {
            let listed = self.policies.iter().filter(|policy| policy.enforced);
            if let Some(list) = quota_policies(listed) {
                self.write_field(RATE_LIMIT_POLICY, list, headers);
            }
        }
        if let Some(wait) = self.verdict.retry_after() {
            let seconds = number_header(seconds_to_wait(wait));
            if style.x_headers {
                put(headers, X_RETRY_AFTER, seconds.clone());
            }
            put(headers, RETRY_AFTER, seconds);
        }
        if style.x_headers && self.verdict.soft && !self.is_denied() {
            put(headers, X_WARNING, HeaderValue::from_static(WARNING));
        }
    }

    fn write_figures(&self, figures: &Figures, reset: Reset, headers: &mut HeaderMap) {
        // Usually empty: this is the first limiter to write.
        if !headers.is_empty() {
            if !self.is_denied() && has_less(headers, figures.remaining) {
                return;
            }
            // The header of another limiter would not match these.
            headers.remove(X_RESET);
        }
        put(headers, X_LIMIT, number_header(figures.limit));
        put(headers, X_REMAINING, number_header(figures.remaining));
        if let Some(reset_after) = figures.reset_after {
            let at_us = self.now.after(reset_after).as_micros();
            let reset_at = match reset {
                Reset::UnixSeconds => at_us.div_ceil(1_000_000),
                Reset::UnixMillis => at_us.div_ceil(1_000),
                Reset::SecondsToGo => seconds_to_go(reset_after),
            };
            put(headers, X_RESET, number_header(reset_at));
        }
    }

    fn service_limit(&self, policy: &Policy, figures: &Figures) -> String {
        let window = match self.verdict.retry_after() {
            Some(wait) => Some(seconds_to_wait(wait)),
            None => figures.reset_after.map(seconds_to_go).filter(|seconds| *seconds > 0),
        };
        service_limit(&policy.name, figures.remaining, window)
    }

    /// Appends to the upstream's values; a denial has no upstream.
    fn write_field(&self, name: HeaderName, list: String, headers: &mut HeaderMap) {
        // Copied to drop the excess capacity.
        let Ok(value) = HeaderValue::from_str(&list) else {
            return;
        };
        if self.is_denied() {
            put(headers, name, value);
        } else {
            // Full only with tens of thousands of headers, where these do not matter.
            let _ = headers.try_append(name, value);
        }
    }
}

/// Sets one header; a full map (tens of thousands of headers) omits it.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

/// Whether another limiter, nearer to the upstream, has less remaining quota.
fn has_less(headers: &HeaderMap, remaining: u64) -> bool {
    let text = headers.get(X_REMAINING).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|left| left < remaining)
}

/// The largest integer of a structured field: fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// Maximum length of a name in a field; the configuration allows no longer ones.
const NAME_CHARS_MAX: usize = 64;
/// Maximum length of the policy list. Clients and proxies limit all headers together to about 8
/// KiB.
const LIST_BYTES_MAX: usize = 2_048;
/// Capacity for the parameters after a name; rarely exceeded.
const PARAMETERS_BYTES: usize = 40;

// The first policy always fits: each character of its name takes at most four bytes, written as
// `%XX`.
const _: () = assert!(NAME_CHARS_MAX * 4 * 3 + 100 < LIST_BYTES_MAX);

/// An item of `RateLimit`: the remaining quota of one policy, and its seconds.
pub(super) fn service_limit(name: &str, left: u64, seconds: Option<u64>) -> String {
    let mut item = String::with_capacity(name.len() + PARAMETERS_BYTES);
    push_string(&mut item, name);
    push_integer(&mut item, ";r=", left);
    if let Some(seconds) = seconds {
        push_integer(&mut item, ";t=", seconds);
    }
    item
}

/// The `RateLimit-Policy` list of the policies with a quota; `None` instead of an empty list, which
/// is invalid.
pub(super) fn quota_policies<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<String> {
    let mut list = String::new();
    for policy in policies {
        let Some(quota) = policy.quota else {
            continue;
        };
        list.reserve(policy.name.len() + PARAMETERS_BYTES);
        let so_far = list.len();
        if so_far > 0 {
            list.push_str(", ");
        }
        push_quota_policy(&mut list, policy, quota);
        if list.len() > LIST_BYTES_MAX {
            list.truncate(so_far);
            break;
        }
    }
    (!list.is_empty()).then_some(list)
}

fn push_quota_policy(list: &mut String, policy: &Policy, quota: u64) {
    push_string(list, &policy.name);
    push_integer(list, ";q=", quota);
    if policy.algorithm == "concurrency" {
        list.push_str(r#";qu="concurrent-requests""#);
    }
    // Rounded up, a window of 10 ms would be a hundred times too long; one above a second, less
    // than twice.
    if let Some(window) = policy.window.filter(|window| window.as_micros() >= 1_000_000) {
        push_integer(list, ";w=", seconds_to_go(window));
    }
}

/// Appends a quoted string; characters other than printable ASCII are percent-encoded.
fn push_string(out: &mut String, text: &str) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    out.push('"');
    if text.len() <= NAME_CHARS_MAX && text.as_bytes().iter().all(is_plain) {
        out.push_str(text);
    } else {
        for c in text.chars().take(NAME_CHARS_MAX) {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                ' '..='~' => out.push(c),
                _ => push_percent(c.encode_utf8(&mut [0; 4]).as_bytes(), out),
            }
        }
    }
    out.push('"');
}

fn push_integer(out: &mut String, name: &str, value: u64) {
    out.push_str(name);
    with_digits(value.min(INTEGER_MAX), |digits| out.push_str(digits));
}

/// Calls `take` with the decimal digits of a number, without `fmt`: every response has several.
pub(super) fn with_digits<R>(mut number: u64, take: impl FnOnce(&str) -> R) -> R {
    const DIGITS_MAX: usize = 20;

    let mut digits = [b'0'; DIGITS_MAX];
    let mut from = DIGITS_MAX;
    loop {
        from -= 1;
        // The digit is below ten, and the buffer holds the digits of any number.
        digits[from] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    take(str::from_utf8(&digits[from..]).unwrap_or_default())
}

/// A number as the value of a header.
pub(super) fn number_header(number: u64) -> HeaderValue {
    with_digits(number, HeaderValue::from_str).unwrap_or_else(|_| number.into())
}

/// Appends the bytes as `%XX`.
pub(super) fn push_percent(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        out.push('%');
        for digit in [byte >> 4, byte & 15] {
            let digit = char::from_digit(digit.into(), 16).unwrap_or('0');
            out.push(digit.to_ascii_uppercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{number_header, with_digits};

    #[test]
    fn digits_are_those_of_the_number() {
        let mut number = u64::MAX;
        while number > 0 {
            for near in [number, number - 1, number.saturating_add(1)] {
                assert_eq!(with_digits(near, str::to_owned), near.to_string());
            }
            number /= 3;
        }
        assert_eq!(number_header(0), "0");
    }
}

/// The headers of a request, as [`Proxies`](sluicegate_rules::mapping::Proxies) and mappings of
/// rules read them.
///
/// ```
/// use sluicegate::http::HeaderLines;
/// use sluicegate::rules::mapping::Proxies;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-forwarded-for", "203.0.113.9".parse()?);
/// let client = Proxies::default().client_ip("127.0.0.1".parse()?, &HeaderLines(&headers));
/// assert_eq!(client.to_string(), "203.0.113.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct HeaderLines<'a>(pub &'a HeaderMap);

impl Headers for HeaderLines<'_> {
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }
}
