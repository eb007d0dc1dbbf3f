//! The same responses for gRPC, where a denial is HTTP 200 with a gRPC status in the headers.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use sluicegate_core::time::Span;

use super::{Style, VerdictResponse, headers, millis_to_go};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// `RESOURCE_EXHAUSTED`.
const RESOURCE_EXHAUSTED: i32 = 8;
/// The longest pushback sent to a client library, which sleeps while its caller waits.
const PUSHBACK_MAX: Span = Span::from_secs(60);
/// Any negative number disables the retry.
const PUSHBACK_NEVER: i64 = -1;

/// Whether a request is gRPC, by its `Content-Type`. gRPC-Web is not: it is another protocol.
///
/// ```
/// use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
///
/// let speaks = |kind| {
///     let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
///     sluicegate::http::is_grpc(&headers)
/// };
/// assert!(speaks("application/grpc") && speaks("application/grpc+proto"));
/// assert!(!speaks("application/grpc-web") && !speaks("application/json"));
/// ```
#[must_use]
pub fn is_grpc(request: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = request.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    match kind.split_at_checked(GRPC.len()) {
        Some((start, rest)) => {
            start.eq_ignore_ascii_case(GRPC)
                && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
        }
        None => false,
    }
}

impl VerdictResponse<'_> {
    /// The gRPC status of a denial, 8 (`RESOURCE_EXHAUSTED`); `None` if the upstream sets it.
    ///
    /// ```
    /// # use sluicegate::http::VerdictResponse;
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(1) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// assert_eq!(response.grpc_status(), Some(8));
    /// ```
    #[must_use]
    pub fn grpc_status(&self) -> Option<i32> {
        self.is_denied().then_some(RESOURCE_EXHAUSTED)
    }

    /// Writes the headers of a gRPC response, admitted or denied: a denial is one without messages
    /// ("trailers-only").
    ///
    /// ```
    /// # use sluicegate::http::{Style, VerdictResponse};
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_millis(1_500) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let mut headers = http::HeaderMap::new();
    /// response.write_grpc_headers(&Style::default(), &mut headers);
    /// assert_eq!(headers["grpc-message"], "Request quota exceeded. Wait 2 seconds and try again.");
    /// assert_eq!(headers["grpc-retry-pushback-ms"], "1500");
    /// ```
    pub fn write_grpc_headers(&self, style: &Style, headers: &mut HeaderMap) {
        self.write_limits(style, headers);
        let (Some(status), Some(message)) = (self.grpc_status(), self.message()) else {
            return;
        };
        headers::put(headers, CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers::put(headers, GRPC_STATUS, HeaderValue::from(status));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
            headers::put(headers, GRPC_MESSAGE, message);
        }
        headers::put(headers, GRPC_RETRY_PUSHBACK, HeaderValue::from(self.pushback_ms()));
    }

    /// The complete response to a denied call, without a body; `None` if it was admitted.
    ///
    /// ```
    /// # use sluicegate::http::{Style, VerdictResponse};
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Never { max_cost: 10 };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let response = response.grpc_denial(&Style::default()).expect("it is denied");
    /// assert_eq!(response.status(), 200);
    /// assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
    /// ```
    #[must_use]
    pub fn grpc_denial(&self, style: &Style) -> Option<Response<()>> {
        self.grpc_status()?;
        let mut response = Response::new(());
        self.write_grpc_headers(style, response.headers_mut());
        Some(response)
    }

    fn pushback_ms(&self) -> i64 {
        match self.verdict.retry_after() {
            Some(wait) if wait <= PUSHBACK_MAX => {
                i64::try_from(millis_to_go(wait)).unwrap_or(PUSHBACK_NEVER)
            }
            _ => PUSHBACK_NEVER,
        }
    }
}

/// Percent-encodes a message for gRPC: printable ASCII except `%` unchanged, every other byte as
/// `%XX`.
///
/// Current messages are plain ASCII; a future one may quote a name.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(char::from(byte)),
            _ => headers::push_percent(&[byte], &mut encoded),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_is_percent_encoded() {
        let cases = [
            ("plain \"text\" ~", "plain \"text\" ~"),
            ("100% für\n", "100%25 f%C3%BCr%0A"),
            ("\u{7f}", "%7F"),
            ("", ""),
        ];
        for (message, expected) in cases {
            assert_eq!(super::percent_encoded(message), expected);
        }
    }
}
