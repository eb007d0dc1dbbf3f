//! Which dialects an answer speaks.

use http::StatusCode;

/// Which headers an answer carries, and how they are written.
///
/// ```
/// use http::StatusCode;
/// use sluicegate::http::{Reset, Style};
///
/// let github = Style::default();
/// assert!(github.x_headers && github.ietf_fields);
/// assert_eq!((github.reset, github.denied), (Reset::UnixSeconds, StatusCode::TOO_MANY_REQUESTS));
///
/// let standard = Style { x_headers: false, denied: StatusCode::SERVICE_UNAVAILABLE, ..Style::default() };
/// assert!(!standard.x_headers && standard.ietf_fields);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether to write `X-RateLimit-*`.
    pub x_headers: bool,
    /// How `X-RateLimit-Reset` counts.
    pub reset: Reset,
    /// Whether to write `RateLimit` and `RateLimit-Policy`.
    pub ietf_fields: bool,
    /// The status of a denial: 429; or 503, or what else the asker understands (nginx' `auth_request`: 403).
    pub denied: StatusCode,
}

/// How `X-RateLimit-Reset` counts. All round up: whoever comes at that time does not come early.
///
/// ```
/// use sluicegate::http::Reset;
///
/// assert_eq!(Reset::default(), Reset::UnixSeconds);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// Seconds since 1970, as GitHub does.
    #[default]
    UnixSeconds,
    /// Milliseconds since 1970.
    UnixMillis,
    /// Seconds from now: no clocks to compare.
    SecondsToGo,
}

// === impl Style ===

impl Default for Style {
    fn default() -> Self {
        Self {
            x_headers: true,
            reset: Reset::default(),
            ietf_fields: true,
            denied: StatusCode::TOO_MANY_REQUESTS,
        }
    }
}
