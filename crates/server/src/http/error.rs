//! Error responses.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use sluicegate::rules::plan::NoRule;

use super::ErrorFormat;
use super::code::ErrorCode;
use super::request::RequestError;
use crate::idempotency::IdempotencyError;
use crate::telemetry::Fault;
use crate::unmatched::UnmatchedError;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    /// Boxed, since few errors have one.
    context: Option<Box<Map<String, Value>>>,
    header: Option<(HeaderName, &'static str)>,
    /// Whether the connection ends: the rest of the body is not received.
    closes: bool,
    /// The fault that it counts as.
    pub(super) fault: Fault,
}

impl ApiError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let (status, message, fault) = (code.status(), message.into(), Fault::Invalid);
        Self { status, code, message, context: None, header: None, closes: false, fault }
    }

    /// The body is not a valid request.
    pub(super) fn malformed(error: &RequestError) -> Self {
        let RequestError { line, column, field, .. } = error;
        let context = json!({ "line": line, "column": column, "field": field });
        Self::invalid(error.to_string()).with_context(context)
    }

    /// The request is not valid here.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// The body is too long.
    pub(super) fn too_large(max: usize) -> Self {
        let message = format!("the body has more than {max} bytes; send fewer checks per request");
        Self::new(ErrorCode::BodyTooLarge, message).closing()
    }

    /// The body did not arrive in time.
    pub(super) fn late() -> Self {
        let message = "the body did not arrive in time; send it at once, with its length";
        let error = Self::new(ErrorCode::BodyLate, message);
        Self { fault: Fault::Late, ..error }.closing()
    }

    /// The body is incomplete.
    pub(super) fn broken() -> Self {
        let message = "the body is incomplete; send it again";
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// A request that may succeed in a second.
    fn unavailable(code: ErrorCode, fault: Fault, message: impl Into<String>) -> Self {
        let error = Self::new(code, message);
        Self { fault, header: Some((RETRY_AFTER, "1")), ..error }
    }

    /// Rules were never loaded.
    pub(super) fn no_rules() -> Self {
        let message = "no rules are loaded; the log names the errors to correct";
        Self::unavailable(ErrorCode::NoRules, Fault::Service, message)
    }

    /// Too many requests in flight.
    pub(super) fn overload() -> Self {
        let message = "too many requests at once; retry in a second";
        Self::unavailable(ErrorCode::Overloaded, Fault::Overload, message)
    }

    /// Too many reservations or waiting requests.
    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::unavailable(ErrorCode::TooMany, Fault::Overload, message)
    }

    /// The service is shutting down.
    pub(super) fn draining() -> Self {
        let message = "the service is shutting down; retry, and another node will answer";
        Self::unavailable(ErrorCode::ShuttingDown, Fault::Service, message)
    }

    /// The store did not answer.
    pub(super) fn store(error: impl std::fmt::Display) -> Self {
        let message = format!("{error}; retry in a second");
        Self::unavailable(ErrorCode::StoreUnavailable, Fault::Store, message)
    }

    /// The same, with `Connection: close`: a pooled connection must not be used again.
    pub(super) fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// Adds context.
    pub(super) fn with_context(self, context: Value) -> Self {
        match context {
            Value::Object(context) => Self { context: Some(Box::new(context)), ..self },
            _ => self,
        }
    }

    /// The operator token is missing.
    pub(super) fn no_token() -> Self {
        let message = "the operator token is required; send `Authorization: Bearer TOKEN`";
        let error = Self::new(ErrorCode::Unauthorized, message);
        let header = Some((WWW_AUTHENTICATE, "Bearer"));
        Self { header, ..error }
    }

    /// The source address has used up its wrong guesses; the token was not compared.
    pub(super) fn too_many_tokens() -> Self {
        let message =
            "too many wrong tokens from this address: this one was not compared; retry in a second";
        let error = Self::new(ErrorCode::TooManyFailures, message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Overload, header, ..error }
    }

    /// Refund without proof of a charge.
    pub(super) fn unproven() -> Self {
        let message = "no charged check matches this refund: send the `Idempotency-Key` and the body of the check, once, within ten \
                       minutes and to the same node; or use /v1/reserve and /v1/cancel, or the operator's token";
        Self::new(ErrorCode::RefundUnproven, message)
    }

    /// Refund of a request that takes a slot.
    pub(super) fn slot_refund(descriptor: usize) -> Self {
        let message = format!(
            "descriptors[{descriptor}] is under a concurrency limit, and a slot is not refunded but released; send the \
             `reservation` of its check to /v1/cancel, and refund the other descriptors without this one"
        );
        let field = format!("descriptors[{descriptor}]");
        Self::invalid(message).with_context(json!({ "field": field }))
    }

    /// Operator endpoints are off.
    pub(super) fn keys_off() -> Self {
        let message = "operator endpoints are off, since this address can be reached from other machines and no token is \
                       set; set SLUICEGATE_ADMIN_TOKEN, or listen on loopback";
        Self::new(ErrorCode::Forbidden, message)
    }

    /// The request comes from a web page.
    pub(super) fn from_web_page() -> Self {
        let message = "requests with an `Origin` come from web pages, which need the operator token here; set \
                       SLUICEGATE_ADMIN_TOKEN and send `Authorization: Bearer TOKEN`";
        Self::new(ErrorCode::Forbidden, message)
    }

    /// Unknown path.
    pub(super) fn not_found(path: &str, routes: &[&str]) -> Self {
        let path: String = path.chars().take(100).collect();
        let message = format!("there is no `{path}`; there are {}", routes.join(", "));
        Self::new(ErrorCode::NotFound, message)
    }

    /// Known path, wrong method.
    pub(super) fn wrong_method(method: &http::Method, path: &str) -> Self {
        let message =
            format!("`{path}` does not support {method}; the header Allow lists the methods");
        Self::new(ErrorCode::MethodNotAllowed, message)
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Appends the members of the body, for bodies with more members.
    pub(super) fn write_members(&self, format: ErrorFormat, out: &mut Vec<u8>) {
        let body = self.body(format).to_string();
        let members = body.strip_prefix('{').and_then(|body| body.strip_suffix('}'));
        out.extend_from_slice(members.unwrap_or_default().as_bytes());
    }

    fn body(&self, format: ErrorFormat) -> Value {
        let Self { status, message, context, .. } = self;
        let code = self.code.name();
        let context = context.as_deref().cloned().unwrap_or_default();
        match format {
            ErrorFormat::Envelope => {
                let error = json!({ "code": code, "message": message, "context": context });
                json!({ "error": error })
            }
            ErrorFormat::Problem => {
                let title = status.canonical_reason().unwrap_or_default();
                let mut problem = json!({
                    "type": "about:blank", "title": title, "status": status.as_u16(), "detail": message, "code": code,
                });
                if let Value::Object(problem) = &mut problem {
                    problem.extend(context);
                }
                problem
            }
        }
    }

    /// The response, in the configured format.
    pub(super) fn response(self, format: ErrorFormat) -> Response {
        let content_type = match format {
            ErrorFormat::Envelope => JSON,
            ErrorFormat::Problem => PROBLEM,
        };
        let body = self.body(format).to_string();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl From<UnmatchedError> for ApiError {
    fn from(error: UnmatchedError) -> Self {
        let field = match error.reason {
            NoRule::UnknownDomain => "domain".to_owned(),
            NoRule::Unmatched | NoRule::Exempt => format!("descriptors[{}]", error.descriptor),
        };
        let context = json!({ "field": field, "reason": error.reason.name() });
        Self::new(ErrorCode::Unmatched, error.to_string()).with_context(context)
    }
}

impl From<IdempotencyError> for ApiError {
    fn from(error: IdempotencyError) -> Self {
        match error {
            IdempotencyError::KeyReused => Self::new(
                ErrorCode::IdempotencyKeyReused,
                "this `Idempotency-Key` was used for another request; use a new key",
            ),
            IdempotencyError::InProgress => Self::new(
                ErrorCode::IdempotencyKeyInUse,
                "a request with this `Idempotency-Key` is in progress; retry when it is answered, or close its connection",
            ),
        }
    }
}
