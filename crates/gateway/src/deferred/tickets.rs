//! Tickets: what clients see of their deferred requests. Knowing the id is the permission.
//!
//! | request | response |
//! |---|---|
//! | `GET TICKETS/ID` | state, position, estimate; at the end the head of the upstream's response |
//! | `GET TICKETS/ID/response` | the upstream's response |
//! | `DELETE TICKETS/ID` | cancels a request that is not being sent |

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use jiff::Timestamp as Date;
use serde_json::{Value, json};
use sluicegate_server::app::App;

use super::Deferrals;
use super::accept::retry_after;
use super::estimate::estimate;
use super::request::{
    DeferredRequest, DeferredState, Millis, StoredResponse, millis, read_headers,
};
use super::store::{BodyPart, StoreError};
use crate::body::ResponseBody;

/// Attempts to cancel a request that changes meanwhile.
const CANCEL_ATTEMPTS: usize = 3;

/// An error of the tickets.
#[derive(Debug, Clone, Copy)]
enum TicketError {
    NotFound,
    BadMethod,
    NotReady,
    TooLarge,
    NotCancellable,
    Unavailable,
}

impl Deferrals {
    /// The response to a request for a ticket; `None` for all other paths.
    pub(crate) async fn answer(&self, app: &App, head: &Parts) -> Option<Response<ResponseBody>> {
        let rest = head.uri.path().strip_prefix(self.tickets_path())?.strip_prefix('/')?;
        let (id, is_response) = match rest.strip_suffix("/response") {
            Some(id) => (id, true),
            None => (rest, false),
        };
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let Ok(_permit) = self.reads.try_acquire() else {
            return Some(TicketError::Unavailable.response());
        };
        let answered = match head.method {
            _ if !is_id => Err(TicketError::NotFound),
            Method::GET | Method::HEAD if is_response => self.response(id).await,
            Method::GET | Method::HEAD => self.ticket(app, id).await,
            Method::DELETE if !is_response => self.cancel(id).await,
            _ => Err(TicketError::BadMethod),
        };
        Some(answered.unwrap_or_else(TicketError::response))
    }

    async fn find(&self, id: &str) -> Result<(DeferredRequest, u64), TicketError> {
        let store = self.store().ok_or(TicketError::Unavailable)?;
        store.get(id).await?.ok_or(TicketError::NotFound)
    }

    async fn ticket(&self, app: &App, id: &str) -> Result<Response<ResponseBody>, TicketError> {
        let (request, ahead) = self.find(id).await?;
        let estimated_at = estimate(app, &request, ahead).await;
        let mut response = json_response(&ticket_json(&request, ahead, estimated_at));
        if matches!(request.state, DeferredState::Queued | DeferredState::Running) {
            let now = millis(app.engine().now());
            response.headers_mut().insert(RETRY_AFTER, retry_after(estimated_at, now));
        }
        Ok(response)
    }

    /// The upstream's response, as it was.
    async fn response(&self, id: &str) -> Result<Response<ResponseBody>, TicketError> {
        let store = self.store().ok_or(TicketError::Unavailable)?;
        let (request, _) = self.find(id).await?;
        let StoredResponse { status, headers, body_bytes } =
            request.response.ok_or(TicketError::NotReady)?;
        if body_bytes.is_none() {
            return Err(TicketError::TooLarge);
        }
        let body = store.body(id, BodyPart::Response).await?.unwrap_or_default();
        let mut response = Response::new(ResponseBody::full(body));
        *response.status_mut() = StatusCode::from_u16(status).map_err(|_| TicketError::NotReady)?;
        *response.headers_mut() = read_headers(&headers).ok_or(TicketError::NotReady)?;
        // That of a HEAD, or of a response without a body, is not the length of what is stored.
        response.headers_mut().remove(CONTENT_LENGTH);
        Ok(response)
    }

    async fn cancel(&self, id: &str) -> Result<Response<ResponseBody>, TicketError> {
        let store = self.store().ok_or(TicketError::Unavailable)?;
        for _ in 0..CANCEL_ATTEMPTS {
            let (request, _) = self.find(id).await?;
            if request.state != DeferredState::Queued {
                return Err(TicketError::NotCancellable);
            }
            if store.remove(&request).await? {
                self.metrics.cancelled.fetch_add(1, Relaxed);
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
        }
        Err(TicketError::NotCancellable)
    }
}

/// A ticket, as clients and callbacks get it.
pub(super) fn ticket_json(
    request: &DeferredRequest,
    ahead: u64,
    estimated_at: Option<Millis>,
) -> Value {
    let is_waiting = request.state == DeferredState::Queued;
    let response = request.response.as_ref().map(|response| {
        let headers = response.headers.iter().map(|(name, value)| json!([name, value]));
        let headers: Vec<Value> = headers.collect();
        json!({ "status": response.status, "headers": headers, "body_bytes": response.body_bytes })
    });
    let callback = request.callback.as_ref().map(|callback| match callback {
        _ if callback.is_delivered => "delivered",
        _ if callback.due_at.is_some() || is_waiting => "pending",
        _ if request.state == DeferredState::Running => "pending",
        _ => "failed",
    });
    let mut ticket = json!({
        "id": request.id,
        "state": request.state.name(),
        "position": is_waiting.then_some(ahead),
        "estimated_at": estimated_at.map(date),
        "created_at": date(request.created_at),
        "expires_at": date(request.expires_at),
        "attempts": request.attempts,
        "error": request.error,
        "response": response,
        "callback": callback,
    });
    if let Value::Object(fields) = &mut ticket {
        // What does not apply is left out.
        fields.retain(|_, value| !value.is_null());
    }
    ticket
}

/// RFC 3339.
pub(super) fn date(at: Millis) -> String {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    Date::from_millisecond(at).map_or_else(|_| at.to_string(), |date| date.to_string())
}

fn json_response(body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(format!("{body}\n"))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl TicketError {
    const fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "ticket_not_found",
                "There is no such ticket: it was cancelled, or its time has passed.",
            ),
            Self::BadMethod => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Use GET or DELETE.")
            }
            Self::NotReady => (
                StatusCode::NOT_FOUND,
                "response_not_ready",
                "There is no response yet. The ticket has the state.",
            ),
            Self::TooLarge => (
                StatusCode::GONE,
                "response_too_large",
                "The body of the response was too large to be stored. The ticket has its head.",
            ),
            Self::NotCancellable => (
                StatusCode::CONFLICT,
                "not_cancellable",
                "Only a request that is queued can be cancelled.",
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "tickets_unavailable",
                "Tickets cannot be read now. Try again.",
            ),
        }
    }

    fn response(self) -> Response<ResponseBody> {
        let (status, code, message) = self.parts();
        let body = json!({ "error": { "code": code, "message": message, "context": {} } });
        let mut response = json_response(&body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        match self {
            Self::BadMethod => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, DELETE"));
            }
            Self::Unavailable | Self::NotReady => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl From<StoreError> for TicketError {
    fn from(_: StoreError) -> Self {
        Self::Unavailable
    }
}
