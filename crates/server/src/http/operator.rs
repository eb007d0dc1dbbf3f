//! Endpoints that need the operator role: `/v1/keys/…`, `/v1/explain`, and `/v1/refund` without
//! proof.
//!
//! A refund refills limits as a reset does, so it requires the operator role or proof of a charge:
//! the idempotency key and the body of a check that this node has admitted. The stored response of
//! that check is removed, which makes the refund single-use; the same check, repeated, is charged
//! again.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use serde_json::json;
use sluicegate::explain::explain_on;
use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::request::Request;
use sluicegate::{Snapshot, Timestamp};

use super::body::receive;
use super::check::{CheckOperation, refuse_slots};
use super::error::{ApiError, JSON};
use super::idempotency::{ApiResponse, IdempotencyHeader, replayed};
use super::openapi::{ErrorResponses, IdempotencyResponses, OperatorResponses};
use super::request::{ParsedChecks, read_checks};
use super::schema::{CheckBody, CheckResponse, ExplainResponse, InspectResponse};
use super::{Api, KeysAccess, Peer};
use crate::auth::{AuthEndpoint, AuthError};
use crate::idempotency::Replayable;
use crate::rls::RefundPolicy;
use crate::telemetry::Endpoint;
use crate::traces::Span;
use crate::unmatched::UnmatchedError;

/// Descriptors of a request that is explained: each takes several lookups.
pub(crate) const EXPLAINED_DESCRIPTORS_MAX: usize = 32;

/// State of every limit of a request.
#[utoipa::path(
    post, path = "/v1/keys/inspect", tag = "keys",
    security(("operator_token" = [])),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "State of the limits.", body = InspectResponse), ErrorResponses, OperatorResponses),
)]
pub(super) async fn inspect(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.keys(CheckOperation::Inspect, request).await
}

/// Resets the limits of a request.
#[utoipa::path(
    post, path = "/v1/keys/reset", tag = "keys",
    security(("operator_token" = [])),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "State of the limits after the reset.", body = CheckResponse), ErrorResponses, OperatorResponses),
)]
pub(super) async fn reset(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.keys(CheckOperation::Reset, request).await
}

/// Gives `hits`, which are required, back to every limit of a request, at most until it is full: a
/// top-up. Needs no proof of a charge. `allowed` is whether a check of one hit would pass now.
#[utoipa::path(
    post, path = "/v1/keys/credit", tag = "keys",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A request that is repeated with the same key and body gets the first response, and credits nothing again.")),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }], "hits": 1 })),
    responses((status = 200, description = "State of the limits after the credit.", body = CheckResponse), ErrorResponses, IdempotencyResponses, OperatorResponses),
)]
pub(super) async fn credit(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.keys(CheckOperation::Credit, request).await
}

/// Explains which rules apply to a request, what would happen now, and why. Nothing is charged.
#[utoipa::path(
    post, path = "/v1/explain", tag = "rules",
    security(("operator_token" = [])),
    request_body(content = CheckBody, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "The explanation.", body = ExplainResponse), ErrorResponses, OperatorResponses),
)]
pub(super) async fn explain(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    let begun = api.app.engine().now();
    let (head, body) = request.into_parts();
    let explained = match api.require_operator(&head) {
        Ok(()) => match receive(body).await {
            Ok(body) => api.explain(&body).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let response = explained.map(|text| {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
        ApiResponse { headers, body: text.into(), ..ApiResponse::default() }
    });
    api.finish(Endpoint::Explain, begun, response, None)
}

/// Requires of credits that they name their hits, and that a limit gets them.
pub(super) fn check_credits(
    batch: &ParsedChecks<'_>,
    rules: &Snapshot<'_>,
) -> Result<(), ApiError> {
    let mut plan = Plan::default();
    for (index, check) in batch.checks.iter().enumerate() {
        let at = |field: String| match batch.is_list {
            true => format!("checks[{index}].{field}"),
            false => field,
        };
        check.with_request(|request| {
            if !check.has_hits && request.descriptors.iter().any(|one| one.hits.is_none()) {
                let field = at("hits".to_owned());
                return Err(ApiError::invalid(format!(
                    "`{field}` is missing; send the hits to give back, such as 100"
                ))
                .with_context(json!({ "field": field })));
            }
            rules.rules().plan(request, &mut plan);
            let no_limit = plan.steps().iter().enumerate().find_map(|(index, step)| {
                let Target::None(reason) = step.target else { return None };
                Some(UnmatchedError::new(rules, request, index, reason))
            });
            no_limit.map_or(Ok(()), |error| Err(ApiError::from(error)))
        })?;
    }
    Ok(())
}

impl Api {
    async fn keys(&self, operation: CheckOperation, request: HttpRequest) -> Response {
        let (head, body) = request.into_parts();
        match self.require_operator(&head) {
            Ok(()) => self.respond(operation, HttpRequest::from_parts(head, body)).await,
            Err(error) => {
                self.finish(operation.endpoint(), self.app.engine().now(), Err(error), None)
            }
        }
    }

    /// Requires the operator role.
    pub(super) fn require_operator(&self, head: &Parts) -> Result<(), ApiError> {
        let headers = &head.headers;
        match &self.options.keys {
            // A browser on this machine may show any web page.
            KeysAccess::Open if headers.contains_key(ORIGIN) => Err(ApiError::from_web_page()),
            KeysAccess::Open | KeysAccess::Authorized => Ok(()),
            // A request without a token is not a guess.
            KeysAccess::Token(_) if !headers.contains_key(AUTHORIZATION) => {
                Err(ApiError::no_token())
            }
            KeysAccess::Token(token) => {
                let peer = head.extensions.get::<Peer>().map(|Peer(address)| *address);
                let is_right = || token.authorizes(headers);
                let shown = self.app.authenticate(AuthEndpoint::Http, peer, is_right);
                shown.map_err(|error| match error {
                    AuthError::Wrong => ApiError::no_token(),
                    AuthError::TooMany => ApiError::too_many_tokens(),
                })
            }
            KeysAccess::Off => Err(ApiError::keys_off()),
        }
    }

    pub(super) async fn refund(&self, request: HttpRequest) -> Response {
        let policy = self.app.options().refunds;
        if policy == RefundPolicy::Open {
            return self.respond(CheckOperation::Refund, request).await;
        }
        let (head, body) = request.into_parts();
        let error = match self.require_operator(&head) {
            // The pools that the check has charged are found by its key.
            Ok(()) if self.app.engine().snapshot().rules().has_pools() => {
                return self.refund_by_key(&head, body, false).await;
            }
            Ok(()) => {
                return self
                    .respond(CheckOperation::Refund, HttpRequest::from_parts(head, body))
                    .await;
            }
            Err(error) => error,
        };
        match policy {
            // A wrong token is reported as such.
            RefundPolicy::Proven if !head.headers.contains_key(AUTHORIZATION) => {
                self.refund_by_key(&head, body, true).await
            }
            _ => {
                let begun = self.app.engine().now();
                let name = CheckOperation::Refund.span_name();
                let span = self.app.begin_span(name, &head.headers);
                self.finish(Endpoint::Refund, begun, Err(error), span)
            }
        }
    }

    async fn refund_by_key(&self, head: &Parts, body: Body, needs_proof: bool) -> Response {
        let begun = self.app.engine().now();
        let mut span = self.app.begin_span(CheckOperation::Refund.span_name(), &head.headers);
        let key = IdempotencyHeader::of(&head.headers);
        let refunded = match receive(body).await {
            Ok(body) => self.refund_charge(&key, &body, needs_proof, begun, span.as_mut()).await,
            Err(error) => Err(error),
        };
        self.finish(Endpoint::Refund, begun, refunded, span)
    }

    async fn refund_charge(
        &self,
        key: &IdempotencyHeader,
        body: &Bytes,
        needs_proof: bool,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<ApiResponse, ApiError> {
        let check = key.keyed(Endpoint::Check, body)?;
        if check.is_none() && needs_proof {
            return Err(ApiError::unproven());
        }
        // Before the proof is consumed.
        refuse_slots(&read_checks(body, &self.options.limits)?, &self.app.engine().snapshot())?;
        let refund = async {
            let charge = check.and_then(|check| self.app.take_charge(&check, now));
            if charge.is_none() && needs_proof {
                return Err(ApiError::unproven());
            }
            let pools = charge.and_then(ApiResponse::restore).map(|charge| charge.pools);
            let pools = pools.unwrap_or_default();
            self.refund_charged(body, pools, now, span).await
        };
        let keyed = key.keyed(Endpoint::Refund, body)?;
        self.app.idempotent_later(keyed, now, refund).await.map(replayed)
    }

    async fn explain(&self, body: &[u8]) -> Result<String, ApiError> {
        self.require_rules()?;
        let batch = read_checks(body, &self.options.limits)?;
        let descriptors = |request: &Request<'_>| request.descriptors.len();
        let count: usize = batch.checks.iter().map(|check| check.with_request(descriptors)).sum();
        if count > EXPLAINED_DESCRIPTORS_MAX {
            return Err(ApiError::invalid(format!(
                "`descriptors`: at most {EXPLAINED_DESCRIPTORS_MAX} are explained at a time, got {count}"
            )));
        }
        let engine = self.app.engine();
        let rules = engine.snapshot();
        let mut answers = Vec::with_capacity(batch.checks.len());
        for check in &batch.checks {
            let parts = check.parts();
            let descriptors = parts.descriptors();
            let request = parts.request(&descriptors);
            let explanation =
                explain_on(engine, &rules, &request).await.map_err(ApiError::store)?;
            answers.push(explanation.to_json());
        }
        Ok(match (batch.is_list, answers.as_slice()) {
            (false, [one]) => one.to_string(),
            _ => json!({ "answers": answers }).to_string(),
        })
    }
}
