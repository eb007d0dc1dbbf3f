//! Counters of identities: `/api/v1/keys/…` and `/api/v1/explain`, with the bodies of the same
//! paths of the HTTP endpoint.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use super::access::{Caller, Role};
use super::{AdminInner, error};
use crate::app::App;
use crate::http::operator_routes;

/// Bytes of a request; far more than a person sends.
const BODY_BYTES_MAX: usize = 256 << 10;

pub(super) fn routes(app: App, admin: Arc<AdminInner>) -> Router<Arc<AdminInner>> {
    let router = operator_routes(app).layer(from_fn_with_state(admin, authorize));
    Router::new().nest("/api/v1", router)
}

/// Requires the role of the operation, and records changes with the body that named the identity.
async fn authorize(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    let action = match request.uri().path() {
        "/keys/reset" => Some("keys.reset"),
        "/keys/credit" => Some("keys.credit"),
        _ => None,
    };
    let role = if action.is_some() { Role::Operate } else { Role::Read };
    if let Err(refused) = caller.require(role) {
        return *refused;
    }
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let message = format!("the body must be complete, and at most {BODY_BYTES_MAX} bytes");
        return error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message);
    };
    let target = String::from_utf8_lossy(&body).into_owned();
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    if let Some(action) = action.filter(|_| response.status().is_success()) {
        admin.audit(&caller, action, &target);
    }
    response
}
