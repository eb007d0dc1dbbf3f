//! `/v1/keys/…`: how the limits of somebody stand, and as new. For operators: others learn what concerns them by `/v1/peek`.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::HeaderMap;
use http::header::ORIGIN;

use super::Answering;
use super::check::Want;
use super::openapi::{NotYours, Refusals};
use super::options::KeysAccess;
use super::refusal::Refusal;
use super::shapes::{Answered, Asked, Inspected};

/// How the limits of somebody stand, one by one.
#[utoipa::path(
    post, path = "/v1/keys/inspect", tag = "keys",
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "How they stand.", body = Inspected), Refusals, NotYours),
)]
pub(super) async fn inspect(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.keys(Want::Inspect, request).await
}

/// Makes the limits of somebody as new.
#[utoipa::path(
    post, path = "/v1/keys/reset", tag = "keys",
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "How they stand now.", body = Answered), Refusals, NotYours),
)]
pub(super) async fn reset(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    app.keys(Want::Reset, request).await
}

impl Answering {
    async fn keys(&self, want: Want, request: HttpRequest) -> Response {
        match self.may_see_keys(request.headers()) {
            Ok(()) => self.answer(want, request).await,
            Err(refusal) => {
                self.service.telemetry().failed(want.door(), refusal.fault);
                refusal.response(self.options.body)
            }
        }
    }

    pub(super) fn may_see_keys(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.options.keys {
            // A page that a browser of this machine happens to show is not an operator.
            KeysAccess::Open if headers.contains_key(ORIGIN) => Err(Refusal::from_a_page()),
            KeysAccess::Open => Ok(()),
            KeysAccess::Token(token) if token.is_shown_in(headers) => Ok(()),
            KeysAccess::Token(_) => Err(Refusal::no_token()),
            KeysAccess::Off => Err(Refusal::keys_off()),
        }
    }
}
