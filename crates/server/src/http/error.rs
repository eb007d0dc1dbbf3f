//! What whoever gets no answer is told.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::options::Body;
use super::request::NotAsked;
use crate::telemetry::Fault;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Few have one.
    context: Option<Box<Map<String, Value>>>,
    header: Option<(HeaderName, &'static str)>,
    /// As the service counts it.
    pub(super) fault: Fault,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let (message, fault) = (message.into(), Fault::Invalid);
        Self { status, code, message, context: None, header: None, fault }
    }

    /// The body is no request.
    pub(super) fn not_asked(not: &NotAsked) -> Self {
        let place = json!({ "line": not.line, "column": not.column, "field": not.field });
        Self::invalid(not.to_string()).with_context(place)
    }

    /// The body is a request that is not for this.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// The body is longer than it may be.
    pub(super) fn too_large(most: usize) -> Self {
        let message = format!(
            "the body has more than {most} bytes; send fewer checks at a time, in several requests"
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    /// The body took too long to come.
    pub(super) fn late() -> Self {
        let message = "the body took too long to come; send it at once, with its length";
        let refusal = Self::new(StatusCode::REQUEST_TIMEOUT, "body_late", message);
        Self { fault: Fault::Late, ..refusal }
    }

    /// The body broke off.
    pub(super) fn broken() -> Self {
        let message = "the body broke off; send it again";
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Rules were never loaded.
    pub(super) fn no_rules() -> Self {
        let message = "no rules are loaded; correct them, the log says what is wrong with them";
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_rules", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Service, header, ..refusal }
    }

    /// There are too many requests at once.
    pub(super) fn overload() -> Self {
        let message = "too many requests at once; wait a second and try again";
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Overload, header, ..refusal }
    }

    /// There is too much of something already.
    pub(super) fn too_many(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Overload, header, ..refusal }
    }

    /// The service is about to end.
    pub(super) fn draining() -> Self {
        let message = "the service is shutting down; ask again, and another will answer";
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Service, header, ..refusal }
    }

    /// The store did not answer, and that is to be told.
    pub(super) fn store(error: impl std::fmt::Display) -> Self {
        let message = format!("{error}; ask again in a second");
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Store, header, ..refusal }
    }

    /// The same with more to tell.
    pub(super) fn with_context(self, context: Value) -> Self {
        match context {
            Value::Object(context) => Self { context: Some(Box::new(context)), ..self },
            _ => self,
        }
    }

    /// The token was not shown.
    pub(super) fn no_token() -> Self {
        let message = "the operator's token is needed; send `Authorization: Bearer TOKEN`";
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
        let header = Some((WWW_AUTHENTICATE, "Bearer"));
        Self { header, ..refusal }
    }

    /// The source address has used up its wrong guesses; the token was not compared.
    pub(super) fn too_many_tokens() -> Self {
        let message =
            "too many wrong tokens from this address: this one was not compared; retry in a second";
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", message);
        let header = Some((RETRY_AFTER, "1"));
        Self { fault: Fault::Overload, header, ..refusal }
    }

    /// Refund without proof of a charge.
    pub(super) fn unproven() -> Self {
        let message = "no charged check matches this refund: send the `Idempotency-Key` and the body of the check, once, within ten \
                       minutes and to the same node; or use /v1/reserve and /v1/cancel, or the operator's token";
        Self::new(StatusCode::FORBIDDEN, "refund_unproven", message)
    }

    /// Nobody may.
    pub(super) fn keys_off() -> Self {
        let message = "looking into counters is off, since this address can be reached from other machines and no token is \
                       set; set SLUICEGATE_ADMIN_TOKEN, or listen on loopback";
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// A web page asks, not an operator.
    pub(super) fn from_a_page() -> Self {
        let message = "requests with an `Origin` come from web pages, which need the operator's token here; set \
                       SLUICEGATE_ADMIN_TOKEN and send `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// There is nothing under this path.
    pub(super) fn not_found(path: &str, routes: &[&str]) -> Self {
        let path: String = path.chars().take(100).collect();
        let message = format!("nothing is under `{path}`; there are {}", routes.join(", "));
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// There is, but for another method.
    pub(super) fn wrong_method(method: &http::Method, path: &str) -> Self {
        let message =
            format!("`{path}` does not answer {method}; the header Allow says what it does");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// As it is sent.
    pub(super) fn response(self, body: Body) -> Response {
        let Self { status, code, message, context, header, .. } = self;
        let context = context.map_or_else(Map::new, |context| *context);
        let (content_type, body) = match body {
            Body::Envelope => {
                let error = json!({ "code": code, "message": message, "context": context });
                (JSON, json!({ "error": error }))
            }
            Body::Problem => {
                let title = status.canonical_reason().unwrap_or_default();
                let mut problem = json!({
                    "type": "about:blank", "title": title, "status": status.as_u16(), "detail": message, "code": code,
                });
                if let Value::Object(problem) = &mut problem {
                    problem.extend(context);
                }
                (PROBLEM, problem)
            }
        };
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
