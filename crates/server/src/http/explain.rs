//! `/v1/explain`: which rules a request is under, what would happen now, and why. Nothing is counted. For operators, as it shows the rules.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sluicegate::explain::explain as explained;
use sluicegate::rules::request::Request;

use super::Answering;
use super::ask::read;
use super::openapi::{NotYours, Refusals};
use super::receive::receive;
use super::refusal::Refusal;
use super::shapes::{Asked, Explained};
use crate::telemetry::Door;

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
    let answered = match app.may_see_keys(request.headers()) {
        Ok(()) => match receive(request.into_body()).await {
            Ok(body) => app.explained(&body),
            Err(refusal) => Err(refusal),
        },
        Err(refusal) => Err(refusal),
    };
    let telemetry = app.service.telemetry();
    match answered {
        Ok(text) => {
            telemetry.answered(Door::Explain, app.service.engine().now().since(begun));
            let mut response = Response::new(text.into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
        Err(refusal) => {
            telemetry.failed(Door::Explain, refusal.fault);
            refusal.response(app.options.body)
        }
    }
}

impl Answering {
    fn explained(&self, body: &[u8]) -> Result<String, Refusal> {
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
        let all = ask.checks.iter();
        let mut answers =
            all.map(|check| check.ask(|request| explained(&rules, request, now).to_json()));
        Ok(match (ask.many, answers.next()) {
            (false, Some(one)) => one.to_string(),
            (_, first) => {
                let answers: Vec<Value> = first.into_iter().chain(answers).collect();
                json!({ "answers": answers }).to_string()
            }
        })
    }
}
