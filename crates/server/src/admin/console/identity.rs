//! One identity: the state of its limits, and the overrides that concern it.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use sluicegate::Inspected;
use sluicegate::explain::rule::text::grouped;
use sluicegate::rules::overrides::OverrideChange;
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::typed::{self, TypedEntry};

use super::chart::ago;
use super::identity_actions::{IdentityForm, act, in_force, override_forms, reset_form};
use super::layout::ConsolePage;
use super::parts::{Column, empty, failed, table};
use super::rules::link as rule_link;
use crate::admin::overrides::OverrideRow;
use crate::admin::{AdminInner, Caller, Role};
use crate::logs::rfc3339;

/// Which identity is shown.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct IdentityChoice {
    #[serde(default)]
    domain: String,
    /// As statistics name it (`user_id=42|path=/login`), or as people type it, with commas.
    #[serde(default)]
    descriptor: String,
}

pub(super) async fn page(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(choice): Query<IdentityChoice>,
) -> Response {
    respond(&admin, &caller, &choice, None).await
}

pub(super) async fn submit(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Form(form): Form<IdentityForm>,
) -> Response {
    let choice =
        IdentityChoice { domain: form.domain.clone(), descriptor: form.descriptor.clone() };
    let done = act(&admin, &caller, &form).await;
    respond(&admin, &caller, &choice, Some(done)).await
}

async fn respond(
    admin: &AdminInner,
    caller: &Caller,
    choice: &IdentityChoice,
    done: Option<Result<String, String>>,
) -> Response {
    let typed = typed_descriptor(&choice.descriptor);
    let page = ConsolePage { title: &typed, path: "/console/identities", caller };
    let entries = match typed::entries(&typed) {
        Ok(entries) => entries,
        Err(problem) => return failed(page, StatusCode::BAD_REQUEST, &problem),
    };
    let inspected = match inspect(admin, &choice.domain, &entries).await {
        Ok(inspected) => inspected,
        Err(problem) => return failed(page, StatusCode::SERVICE_UNAVAILABLE, &problem),
    };
    let all = crate::admin::overrides::active(admin).await.unwrap_or_default();
    let is_of_identity = |row: &OverrideRow| {
        row.domain == choice.domain && entries.iter().any(|one| row.concerns(&one.key, &one.value))
    };
    let overrides: Vec<OverrideRow> = all.into_iter().filter(is_of_identity).collect();
    let now = admin.app.engine().now();
    let is_block = |row: &&OverrideRow| row.change == OverrideChange::Block && row.is_in_force(now);
    let block = overrides.iter().find(is_block).cloned();
    let store = admin.app.rule_store();
    let read_only =
        store.and_then(|store| store.read_only()).map(|read_only| read_only.reason.clone());
    let is_writable = store.is_some() && read_only.is_none();
    let status = match done {
        Some(Err(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let content = html! {
        @match &done {
            Some(Ok(text)) => { p.good role="status" { (text) } }
            Some(Err(text)) => { p.problem role="alert" { (text) } }
            None => {}
        }
        p { "Domain " code { (choice.domain) } ". "
            a href=(explain_link(&choice.domain, &typed)) { "Explain a request of it" } }
        h2 { "Limits now" }
        @if let Some(block) = &block {
            p.problem { "Blocked until " (rfc3339(block.until)) ": " (block.note) }
        }
        (limits(admin, &inspected, block.is_some()))
        h2 { "Blocks and grants" }
        (in_force(&choice.domain, &typed, &overrides, admin.app.engine().now(), caller))
        @if let Some(reason) = &read_only { p.hint { "Blocks and grants cannot be changed here: " (reason) } }
        @if caller.role < Role::Edit {
            p.hint { "The token " code { (caller.name) } " may neither block nor grant: that needs the role edit." }
        }
        @if caller.role >= Role::Edit && is_writable { (override_forms(&choice.domain, &typed, &entries)) }
        @if caller.role >= Role::Operate { (reset_form(&choice.domain, &typed)) }
    };
    (status, page.render(&content)).into_response()
}

async fn inspect(
    admin: &AdminInner,
    domain: &str,
    entries: &[TypedEntry],
) -> Result<Vec<Inspected>, String> {
    let borrowed: Vec<Entry<'_>> = entries.iter().map(TypedEntry::entry).collect();
    let descriptors = [Descriptor::of(&borrowed)];
    let request = Request { domain, descriptors: &descriptors, hits: 1 };
    let engine = admin.app.engine();
    let rules = engine.snapshot();
    engine.inspect(engine.call(&rules, &request)).await.map_err(|error| error.to_string())
}

fn limits(admin: &AdminInner, inspected: &[Inspected], is_blocked: bool) -> Markup {
    let rules = admin.app.engine().snapshot();
    let all = inspected.iter().flat_map(|one| std::iter::once(one).chain(&one.pools));
    let rows: Vec<_> =
        all.flat_map(|one| one.limits.iter().map(move |state| (one.target, state))).collect();
    if rows.is_empty() {
        return empty("No rule with a limit matches this identity.");
    }
    html! {
        (table("Limits", None, &[Column::Text("Rule"), Column::Text("Limit"), Column::Number("Quota"), Column::Number("Remaining"), Column::Text("A hit now"), Column::Text("Full again")], &html! {
                    @for (target, state) in rows {
                        tr {
                            td {
                                @if let Target::Rule(no) = target {
                                    @let id = rules.rules().id(no);
                                    a href=(rule_link(&id)) { code { (id) } }
                                }
                            }
                            td {
                                (state.policy.name)
                                @if state.policy.name != state.policy.algorithm { " " span.hint { (state.policy.algorithm) } }
                            }
                            td.number { @match state.policy.quota { Some(quota) => { (grouped(quota)) } None => { "–" } } }
                            td.number { @match state.remaining { Some(remaining) => { (remaining) } None => { "–" } } }
                            td {
                                @if is_blocked { span.denied-text { "is denied by the block" } }
                                @else if state.allowed { span.allowed-text { "is allowed" } }
                                @else {
                                    span.denied-text {
                                        "is denied"
                                        @if let Some(wait) = state.retry_after { ", for " (ago(wait.as_micros().div_ceil(1_000_000))) }
                                    }
                                }
                            }
                            td { @if state.reset_after.is_zero() { "now" } @else { "in " (ago(state.reset_after.as_micros().div_ceil(1_000_000))) } }
                        }
                    }
                }))
    }
}

fn explain_link(domain: &str, typed: &str) -> String {
    format!(
        "/console/explain?domain={}&descriptors={}&hits=1",
        super::encoded(domain),
        super::encoded(typed)
    )
}

/// The descriptor as people type it, from the form of statistics.
fn typed_descriptor(text: &str) -> String {
    if !text.contains('|') && !text.contains('%') {
        return text.to_owned();
    }
    let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let escaped = |part: &str| super::escaped(&decoded(part));
    let entries = text.split('|').filter(|entry| !entry.starts_with("pool:")).map(|entry| {
        match entry.split_once('=') {
            Some((key, value)) => format!("{}={}", escaped(key), escaped(value)),
            None => escaped(entry),
        }
    });
    entries.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::typed_descriptor;

    #[test]
    fn a_descriptor_of_statistics_is_typed_with_commas() {
        for (text, expected) in [
            ("user_id=42", "user_id=42"),
            ("user_id=42|path=/a%2Cb", "user_id=42,path=/a\\,b"),
            ("user_id=a%7Cb|pool:credits", "user_id=a|b"),
            ("user_id=42,path=/login", "user_id=42,path=/login"),
        ] {
            assert_eq!(typed_descriptor(text), expected);
        }
    }
}
