//! What would happen to a request, and why: a form, and the explanation as `sluicegate explain`
//! prints it.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use sluicegate::explain::explain_on;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::typed::{TypedEntry, entries};

use super::layout::ConsolePage;
use crate::admin::{AdminInner, Caller};
use crate::http::EXPLAINED_DESCRIPTORS_MAX;

/// The form.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ExplainForm {
    #[serde(default)]
    domain: String,
    /// One a line, such as `user_id=42,path=/login`.
    #[serde(default)]
    descriptors: String,
    #[serde(default)]
    hits: String,
}

/// An explained request.
struct Explained {
    is_allowed: bool,
    why: String,
    text: String,
}

pub(super) async fn page(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(form): Query<ExplainForm>,
) -> Response {
    let page = ConsolePage { title: "Explain", path: "/console/explain", caller: &caller };
    let is_sent = !form.descriptors.trim().is_empty();
    let explained = if is_sent { Some(explain(&admin, &form).await) } else { None };
    let status = match explained {
        Some(Err(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let domains: Vec<String> =
        admin.app.engine().snapshot().rules().domains().map(str::to_owned).collect();
    (status, page.render(&content(&form, &domains, explained.as_ref()))).into_response()
}

async fn explain(admin: &AdminInner, form: &ExplainForm) -> Result<Explained, String> {
    let lines = form.descriptors.lines().map(str::trim).filter(|line| !line.is_empty());
    let typed: Vec<Vec<TypedEntry>> = lines.map(entries).collect::<Result<_, _>>()?;
    if typed.len() > EXPLAINED_DESCRIPTORS_MAX {
        let count = typed.len();
        return Err(format!(
            "at most {EXPLAINED_DESCRIPTORS_MAX} descriptors are explained, got {count}"
        ));
    }
    let hits = match form.hits.trim() {
        "" => 1,
        text => text.parse().map_err(|_| format!("hits: must be a whole number, got `{text}`"))?,
    };
    let borrowed: Vec<Vec<Entry<'_>>> =
        typed.iter().map(|all| all.iter().map(TypedEntry::entry).collect()).collect();
    let descriptors: Vec<Descriptor<'_>> =
        borrowed.iter().map(|entries| Descriptor::of(entries)).collect();
    let request = Request { domain: &form.domain, descriptors: &descriptors, hits };
    let engine = admin.app.engine();
    let rules = engine.snapshot();
    let explanation = explain_on(engine, &rules, &request).await.map_err(|e| e.to_string())?;
    Ok(Explained {
        is_allowed: explanation.allowed(),
        why: explanation.why().to_owned(),
        text: explanation.to_text(),
    })
}

fn content(
    form: &ExplainForm,
    domains: &[String],
    explained: Option<&Result<Explained, String>>,
) -> Markup {
    let hits = if form.hits.is_empty() { "1" } else { &form.hits };
    html! {
        p { "Which rules match a request, what would happen to it now, and why. Nothing is counted." }
        form.fields method="get" action="/console/explain" {
            div {
                label for="domain" { "Domain" }
                select id="domain" name="domain" {
                    @for domain in domains {
                        option value=(domain) selected[*domain == form.domain] { (domain) }
                    }
                }
            }
            div {
                label for="descriptors" { "Descriptors " span.hint { "one a line, such as " code { "user_id=42,path=/login" } } }
                textarea id="descriptors" name="descriptors" rows="3" required { (form.descriptors) }
            }
            div {
                label for="hits" { "Hits" }
                input id="hits" name="hits" inputmode="numeric" value=(hits);
            }
            div { button.main { "Explain" } }
        }
        @match explained {
            None => {}
            Some(Err(problem)) => { p.problem role="alert" { (problem) } }
            Some(Ok(Explained { is_allowed, why, text })) => {
                section aria-label="Explanation" {
                    h2 { "Explanation" }
                    p.verdict.(if *is_allowed { "good" } else { "problem" }) role="status" {
                        @if *is_allowed { "✓ " } @else { "✗ " } (why)
                    }
                    pre tabindex="0" aria-label="Steps of the decision" { (text) }
                }
            }
        }
    }
}
