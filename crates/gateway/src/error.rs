//! Why a request has no response of an upstream, and the response in its place.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use crate::body::ResponseBody;

/// Why a request was not answered by an upstream. Never a verdict of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyError {
    /// No route for host and path.
    NoRoute,
    /// No route for the method.
    MethodNotAllowed,
    /// The request is malformed.
    BadRequest(&'static str),
    /// It has not what its limit needs.
    IdentityMissing,
    /// An access list denies the client.
    Forbidden,
    /// The body of the request is too large.
    BodyTooLarge,
    /// The body of the request did not arrive in time.
    BodyTimeout,
    /// The store is away, and a rule demands its answer.
    StoreAway,
    /// No rule matches it, and `SLUICEGATE_UNMATCHED` is `error`.
    Unmatched,
    /// No server of the upstream can be used.
    Unavailable,
    /// The connection failed, or broke before the response.
    BadGateway,
    /// The upstream did not answer in time.
    Timeout,
    /// Too many requests are in flight.
    Overload,
    /// Too many requests are in flight at the upstream.
    UpstreamOverload,
    /// The route requires a credential.
    Unauthorized(Challenge),
    /// The keys of tokens are not loaded yet.
    KeysUnavailable,
    /// What a request to a model costs cannot be read.
    TokensUnreadable(&'static str),
    /// The model has no price or weight.
    UnknownModel,
}

/// What a client must send to be authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// An API key of the file.
    ApiKey,
    /// A token.
    Token,
    /// A token that has not expired.
    ExpiredToken,
    /// Another token.
    InvalidToken,
    /// A client certificate.
    ClientCertificate,
}

impl Challenge {
    /// Value of `WWW-Authenticate` (RFC 9110, RFC 6750).
    const fn header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::ApiKey => "ApiKey",
            Self::Token => "Bearer",
            Self::ExpiredToken => {
                r#"Bearer error="invalid_token", error_description="The token has expired""#
            }
            Self::InvalidToken => r#"Bearer error="invalid_token""#,
            Self::ClientCertificate => "ClientCertificate",
        })
    }

    const fn message(self) -> &'static str {
        match self {
            Self::ApiKey => "A valid API key is required.",
            Self::Token => "A bearer token is required.",
            Self::ExpiredToken => "The token has expired.",
            Self::InvalidToken => "The token is not valid.",
            Self::ClientCertificate => "A client certificate is required.",
        }
    }
}

/// Seconds after which a retry can make sense.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

impl ProxyError {
    /// Whether the upstream failed, and not the client or the gateway.
    pub(crate) const fn is_of_upstream(self) -> bool {
        matches!(self, Self::Unavailable | Self::BadGateway | Self::Timeout)
    }

    /// Its code, in responses, logs and metrics.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BadRequest(_) => "bad_request",
            Self::IdentityMissing => "identity_missing",
            Self::Forbidden => "forbidden",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::StoreAway => "store_unavailable",
            Self::Unmatched => "unmatched",
            Self::Unavailable => "upstream_unavailable",
            Self::BadGateway => "upstream_failed",
            Self::Timeout => "upstream_timeout",
            Self::Overload => "overload",
            Self::UpstreamOverload => "upstream_overload",
            Self::Unauthorized(_) => "unauthorized",
            Self::KeysUnavailable => "keys_unavailable",
            Self::TokensUnreadable(_) => "tokens_unreadable",
            Self::UnknownModel => "unknown_model",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BadRequest(_)
            | Self::IdentityMissing
            | Self::TokensUnreadable(_)
            | Self::UnknownModel => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::StoreAway
            | Self::Unavailable
            | Self::Overload
            | Self::UpstreamOverload
            | Self::KeysUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            // The operator can correct it, and the client cannot.
            Self::Unmatched => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::NoRoute => "No route matches this host and path.",
            Self::MethodNotAllowed => "No route of this path accepts the method.",
            Self::BadRequest(message) | Self::TokensUnreadable(message) => message,
            Self::UnknownModel => "The model has no price here.",
            Self::IdentityMissing => "The request lacks what identifies its client.",
            Self::Forbidden => "This client is not admitted.",
            Self::BodyTooLarge => "The body of the request is too large.",
            Self::BodyTimeout => "The body of the request did not arrive in time.",
            Self::StoreAway => "The limits cannot be checked now. Try again.",
            Self::Unmatched => "No limit is configured for this request.",
            Self::Unavailable => "No server is available now. Try again.",
            Self::BadGateway => "The server failed to answer.",
            Self::Timeout => "The server did not answer in time.",
            Self::Overload | Self::UpstreamOverload => {
                "Too many requests are in progress. Try again."
            }
            Self::Unauthorized(challenge) => challenge.message(),
            Self::KeysUnavailable => "Tokens cannot be verified now. Try again.",
        }
    }

    /// The response to the client.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let (code, message) = (self.code(), self.message());
        let body =
            format!(r#"{{"error":{{"code":"{code}","message":"{message}","context":{{}}}}}}"#);
        let mut response = Response::new(ResponseBody::full(Bytes::from(body)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self, Self::BadRequest(_) | Self::BodyTooLarge | Self::BodyTimeout) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status().is_server_error() && self != Self::Unmatched {
            headers.insert(RETRY_AFTER, RETRY_AFTER_S);
        }
        if let Self::Unauthorized(challenge) = self {
            headers.insert(WWW_AUTHENTICATE, challenge.header());
        }
        response
    }
}
