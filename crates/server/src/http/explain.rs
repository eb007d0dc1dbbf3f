//! `/v1/explain`: which rules a request is under, what would happen now, and why. Nothing is counted. For operators, as it shows the rules.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::json;
use sluicegate::explain::{explain as explained, explain_by, explained_request};
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Operation};

use super::Answering;
use super::error::Refusal;
use super::openapi::{NotYours, Refusals};
use super::receive::receive;
use super::request::read;
use super::schema::{Asked, Explained};
use crate::counters::Counters;
use crate::telemetry::Endpoint;

/// The most descriptors of a request that is explained: each is looked up in more ways than one.
const DESCRIPTORS_MAX: usize = 32;

/// Which rules a request is under, what would happen now, and why. Nothing is counted.
#[utoipa::path(
    post, path = "/v1/explain", tag = "rules",
    request_body(content = Asked, example = json!({ "domain": "example", "descriptors": [{ "user": "me" }] })),
    responses((status = 200, description = "What would happen, and why.", body = Explained), Refusals, NotYours),
)]
pub(super) async fn explain(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    let begun = app.service.engine().now();
    let (head, body) = request.into_parts();
    let answered = match app.may_see_keys(&head) {
        Ok(()) => match receive(body).await {
            Ok(body) => app.explained(&body).await,
            Err(refusal) => Err(refusal),
        },
        Err(refusal) => Err(refusal),
    };
    let telemetry = app.service.telemetry();
    match answered {
        Ok(text) => {
            telemetry.record_response(Endpoint::Explain, app.service.engine().now().since(begun));
            let mut response = Response::new(text.into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
        Err(refusal) => {
            telemetry.record_failure(Endpoint::Explain, refusal.fault);
            refusal.response(app.options.body)
        }
    }
}

impl Answering {
    async fn explained(&self, body: &[u8]) -> Result<String, Refusal> {
        if !self.service.health().has_rules() {
            return Err(Refusal::no_rules());
        }
        let ask = read(body, &self.options.most).map_err(|not| Refusal::not_asked(&not))?;
        let descriptors = |request: &Request<'_>| request.descriptors.len();
        let many: usize = ask.checks.iter().map(|check| check.ask(descriptors)).sum();
        if many > DESCRIPTORS_MAX {
            return Err(Refusal::invalid(format!(
                "`descriptors`: at most {DESCRIPTORS_MAX} are explained at a time, got {many}"
            )));
        }
        let engine = self.service.engine();
        let (rules, now) = (engine.snapshot(), engine.now());
        let mut answers = Vec::with_capacity(ask.checks.len());
        for check in &ask.checks {
            let parts = check.parts();
            let descriptors = parts.descriptors();
            let request = parts.request(&descriptors);
            answers.push(match self.service.counters() {
                Counters::Own(_) => explained(&rules, &request, now).to_json(),
                Counters::Shared(shared) => {
                    let descriptors = explained_request(&rules, &request);
                    let asked = Request { descriptors: &descriptors, ..request };
                    let mut peeked = Checked::default();
                    let peek = shared
                        .apply(Operation::Peek, shared.call(&rules, &asked), &mut peeked)
                        .await;
                    peek.map_err(Refusal::store)?;
                    explain_by(&rules, &request, peeked).to_json()
                }
            });
        }
        Ok(match (ask.many, answers.as_slice()) {
            (false, [one]) => one.to_string(),
            _ => json!({ "answers": answers }).to_string(),
        })
    }
}
