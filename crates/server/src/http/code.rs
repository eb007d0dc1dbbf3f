//! Codes of error responses.

use http::StatusCode;

use crate::telemetry::named;

named! {
    /// Code of an error, for programs. `docs/guide/service.md` has the table.
    pub enum ErrorCode {
        /// A limit denies the request; `context` has the limit and the wait.
        RateLimited = "rate_limited",
        /// No rule matches a descriptor, and `--unmatched` is `error`; with `deny` the status is
        /// 429. Also a credit that no limit would get.
        Unmatched = "unmatched",
        /// The request is malformed; `context` has line, column and field.
        InvalidRequest = "invalid_request",
        /// Forwarded headers contradict each other.
        ConflictingHeaders = "conflicting_headers",
        /// The operator token is missing or wrong.
        Unauthorized = "unauthorized",
        /// Operator endpoints are off here, or need the token.
        Forbidden = "forbidden",
        /// No charged check matches the refund.
        RefundUnproven = "refund_unproven",
        /// The peer is not one of `trusted_proxies`.
        UntrustedProxy = "untrusted_proxy",
        /// Unknown path.
        NotFound = "not_found",
        /// Nothing is held under this reservation.
        UnknownReservation = "unknown_reservation",
        /// Wrong method; the header `Allow` lists the right ones.
        MethodNotAllowed = "method_not_allowed",
        /// The body did not arrive in time. The connection is closed.
        BodyLate = "body_late",
        /// A request with this `Idempotency-Key` is in progress.
        IdempotencyKeyInUse = "idempotency_key_in_use",
        /// The reservation was committed or cancelled, or it expired.
        SettledReservation = "settled_reservation",
        /// The body is longer than 1 MiB. The connection is closed.
        BodyTooLarge = "body_too_large",
        /// This `Idempotency-Key` was used for another request.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// Too many wrong tokens from this address.
        TooManyFailures = "too_many_failures",
        /// No rules are loaded.
        NoRules = "no_rules",
        /// Too many requests at once, or the memory budget is exhausted.
        Overloaded = "overloaded",
        /// Too many pending reservations or waiting requests.
        TooMany = "too_many",
        /// The service is shutting down; another node will answer.
        ShuttingDown = "shutting_down",
        /// The store did not answer, and a rule has `on_store_failure: error`.
        StoreUnavailable = "store_unavailable",
    }
}

impl ErrorCode {
    /// The status of its responses, unless the settings or rules choose another.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::RateLimited | Self::TooManyFailures => StatusCode::TOO_MANY_REQUESTS,
            Self::Unmatched | Self::InvalidRequest | Self::ConflictingHeaders => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::RefundUnproven | Self::UntrustedProxy => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownReservation => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::IdempotencyKeyInUse => StatusCode::CONFLICT,
            Self::SettledReservation => StatusCode::GONE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NoRules
            | Self::Overloaded
            | Self::TooMany
            | Self::ShuttingDown
            | Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
