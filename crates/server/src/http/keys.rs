//! `/v1/keys/…`: how the limits of somebody stand, and as new. For operators: others learn what concerns them by `/v1/peek`.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::header::{AUTHORIZATION, ORIGIN};
use http::request::Parts;

use super::Answering;
use super::Peer;
use super::check::Want;
use super::error::Refusal;
use super::openapi::{NotYours, Refusals};
use super::options::KeysAccess;
use super::schema::{Answered, Asked, Inspected};
use crate::auth::{AuthEndpoint, AuthError};

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
        let (head, body) = request.into_parts();
        match self.may_see_keys(&head) {
            Ok(()) => self.answer(want, HttpRequest::from_parts(head, body)).await,
            Err(refusal) => {
                self.service.telemetry().record_failure(want.endpoint(), refusal.fault);
                refusal.response(self.options.body)
            }
        }
    }

    /// Checks for the operator role.
    pub(super) fn may_see_keys(&self, head: &Parts) -> Result<(), Refusal> {
        let headers = &head.headers;
        match &self.options.keys {
            // A page that a browser of this machine happens to show is not an operator.
            KeysAccess::Open if headers.contains_key(ORIGIN) => Err(Refusal::from_a_page()),
            KeysAccess::Open => Ok(()),
            // A request without a token is not a guess.
            KeysAccess::Token(_) if !headers.contains_key(AUTHORIZATION) => {
                Err(Refusal::no_token())
            }
            KeysAccess::Token(token) => {
                let peer = head.extensions.get::<Peer>().map(|Peer(address)| *address);
                let is_right = || token.is_shown_in(headers);
                let shown = self.service.authenticate(AuthEndpoint::Http, peer, is_right);
                shown.map_err(|error| match error {
                    AuthError::Wrong => Refusal::no_token(),
                    AuthError::TooMany { .. } => Refusal::too_many_tokens(),
                })
            }
            KeysAccess::Off => Err(Refusal::keys_off()),
        }
    }
}
