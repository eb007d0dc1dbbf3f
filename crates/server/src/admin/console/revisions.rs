//! Revisions of the rules: the list, one of them with its difference, and what can be done with it.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use sluicegate_rulestore::{
    Overview, Revision, RevisionState, RuleStore, StoreError, StoredRevision, unified_diff,
};

use super::candidate;
use super::layout::ConsolePage;
use super::parts::{Column, diff, empty, failed, table};
use crate::admin::overrides::{OverrideRow, active, rows_of};
use crate::admin::{AdminInner, Caller, Role, wait_until_enforced};

/// Revisions of a page.
const PAGE_MAX: usize = 50;

/// Which revisions are listed.
#[derive(Debug, Deserialize)]
pub(super) struct ListChoice {
    before: Option<u64>,
}

/// Which revision is shown.
#[derive(Debug, Deserialize)]
pub(super) struct RevisionChoice {
    number: u64,
    /// Whether it was just saved.
    #[serde(default)]
    saved: Option<u8>,
}

/// What is done with a revision.
#[derive(Debug, Deserialize)]
pub(super) struct RevisionForm {
    number: u64,
    action: String,
    #[serde(default)]
    note: String,
}

pub(super) async fn list(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(choice): Query<ListChoice>,
) -> Response {
    let page = ConsolePage { title: "Revisions", path: "/console/revisions", caller: &caller };
    let Some(store) = admin.app.rule_store() else {
        return failed(page, StatusCode::NOT_FOUND, "This process has no rule store.");
    };
    let mut found = match store.revisions(choice.before, PAGE_MAX + 1).await {
        Ok(found) => found,
        Err(error) => return failed(page, StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    };
    let older = (found.len() > PAGE_MAX).then(|| found[PAGE_MAX - 1].number);
    found.truncate(PAGE_MAX);
    page.render(&list_content(&store.overview(), &found, older)).into_response()
}

pub(super) async fn show(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(choice): Query<RevisionChoice>,
) -> Response {
    respond(&admin, &caller, choice.number, choice.saved.is_some(), None).await
}

pub(super) async fn submit(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Form(form): Form<RevisionForm>,
) -> Response {
    let Some(store) = admin.app.rule_store() else {
        return respond(&admin, &caller, form.number, false, None).await;
    };
    match act(&admin, &caller, store, &form).await {
        Ok(revision) => {
            let path = format!("/console/revision?number={}&saved=1", revision.number);
            Redirect::to(&path).into_response()
        }
        Err(refusal) => respond(&admin, &caller, form.number, false, Some(refusal)).await,
    }
}

/// Does what the form says; the reason if it is refused.
async fn act(
    admin: &AdminInner,
    caller: &Caller,
    store: &RuleStore,
    form: &RevisionForm,
) -> Result<Revision, String> {
    if caller.role < Role::Edit {
        return Err(format!("The token `{}` may not change rules.", caller.name));
    }
    let (number, by) = (form.number, &*caller.name);
    let (action, done) = match form.action.as_str() {
        "approve" => ("rules.approve", store.approve(number, by).await),
        "activate" => ("rules.activate", store.activate(number, by).await),
        "withdraw" => ("rules.withdraw", store.withdraw(number).await),
        _ => {
            let base = store.overview().active.map(|active| active.number);
            let note = form.note.trim();
            ("rules.rollback", store.rollback(number, base, by, note).await)
        }
    };
    let revision = done.map_err(|error| error.to_string())?;
    admin.audit(caller, action, &format!("revision {}: {}", revision.number, revision.note));
    wait_until_enforced(store, &revision).await;
    Ok(revision)
}

async fn respond(
    admin: &AdminInner,
    caller: &Caller,
    number: u64,
    is_saved: bool,
    refusal: Option<String>,
) -> Response {
    let title = format!("Revision {number}");
    let page = ConsolePage { title: &title, path: "/console/revisions", caller };
    let Some(store) = admin.app.rule_store() else {
        return failed(page, StatusCode::NOT_FOUND, "This process has no rule store.");
    };
    let read = async {
        let stored = store.revision(number).await?;
        let before = match stored.revision.base {
            Some(base) => store.revision(base).await?.sources,
            None => Vec::new(),
        };
        Ok::<_, StoreError>((stored, before))
    };
    match read.await {
        Ok((stored, before)) => {
            let text = unified_diff(&before, &stored.sources);
            let status = match refusal {
                Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
                None => StatusCode::OK,
            };
            let is_enforced = store.status().enforced() == number;
            let lost = lost_overrides(admin, store, &stored).await;
            let content = html! {
                @if let Some(refusal) = &refusal { p.problem role="alert" { (refusal) } }
                @if is_saved {
                    p.good role="status" { (saved(&stored.revision, is_enforced)) }
                    @for domain in admin.app.health().withheld() { p.warning { (domain) } }
                }
                (about(&stored.revision))
                (actions(&stored.revision, &lost, caller, store.overview().read_only.is_none()))
                @if stored.revision.state == RevisionState::Shadow { (candidate::section(&admin.app, number)) }
                h2 { @match stored.revision.base { Some(base) => { "Difference from revision " (base) } None => { "Content" } } }
                (diff(&text))
            };
            (status, page.render(&content)).into_response()
        }
        Err(error @ StoreError::NotFound(_)) => {
            failed(page, StatusCode::NOT_FOUND, &error.to_string())
        }
        Err(error) => failed(page, StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

fn saved(revision: &Revision, is_enforced: bool) -> String {
    match revision.state {
        RevisionState::Active if is_enforced => "Saved, and enforced by this node.".to_owned(),
        RevisionState::Active => "Saved; this node does not enforce it yet.".to_owned(),
        state => format!("Saved: {}.", state_text(state)),
    }
}

const fn state_text(state: RevisionState) -> &'static str {
    match state {
        RevisionState::Pending => "waits for the approval of another person",
        RevisionState::Scheduled => "scheduled",
        RevisionState::Suspended => "suspended: other rules became active before its time",
        RevisionState::Shadow => "candidate, not enforced",
        RevisionState::Active => "active",
        RevisionState::Superseded => "superseded",
        RevisionState::Withdrawn => "withdrawn",
    }
}

fn list_content(overview: &Overview, found: &[Revision], older: Option<u64>) -> Markup {
    html! {
        p {
            "Stored in " code { (overview.location) } ". "
            a href="/console/edit" { "Edit the rules" } ", or "
            a href="/api/v1/rules/export" { "export them as YAML" } "."
        }
        @if let Some(read_only) = &overview.read_only { p.warning { "Read-only: " (read_only.reason) } }
        @if found.is_empty() {
            (empty("There is no revision yet: the first change makes one."))
        } @else {
            (table("Revisions", None, &[Column::Text("Revision"), Column::Text("State"), Column::Text("When"), Column::Text("Who"), Column::Text("Note")], &html! {
                        @for one in found {
                            tr {
                                th scope="row" { a href=(format!("/console/revision?number={}", one.number)) { (one.number) } }
                                td { (state_text(one.state)) }
                                td { (super::parts::when(one.at)) }
                                td { (one.author) }
                                td { (one.note) }
                            }
                        }
                    }))
            @if let Some(older) = older { p { a href=(format!("/console/revisions?before={older}")) { "Older revisions" } } }
        }
    }
}

fn about(revision: &Revision) -> Markup {
    let row = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        table {
            tbody {
                (row("State", html! { (state_text(revision.state)) }))
                (row("Note", html! { (revision.note) }))
                (row("Author", html! { (revision.author) }))
                (row("Written", super::parts::when(revision.at)))
                (row("Kind", html! {
                    (revision.kind.name())
                    @if let Some(restores) = revision.restores { ", restores revision " (restores) }
                }))
                @if let Some(at) = revision.activate_at { (row("Scheduled for", super::parts::when(at))) }
                @if let Some(at) = revision.activated_at { (row("Active since", super::parts::when(at))) }
                @if let Some(by) = &revision.approved_by { (row("Approved by", html! { (by) })) }
                @if let Some(why) = &revision.suspended_because { (row("Suspended", html! { (why) })) }
                (row("Hash", html! { code { (revision.digest) } }))
            }
        }
    }
}

/// Blocks and grants in force that a rollback to this revision ends.
async fn lost_overrides(
    admin: &AdminInner,
    store: &RuleStore,
    stored: &StoredRevision,
) -> Vec<String> {
    let now = admin.app.engine().now();
    let text = |row: &OverrideRow| {
        format!("{} {}: {} ({})", row.domain, row.matches_text(), row.change_text(), row.note)
    };
    let remaining: Vec<String> = rows_of(store, &stored.sources).iter().map(text).collect();
    let active = active(admin).await.unwrap_or_default();
    let in_force = active.iter().filter(|row| row.is_in_force(now)).map(text);
    in_force.filter(|row| !remaining.contains(row)).collect()
}

fn actions(revision: &Revision, lost: &[String], caller: &Caller, is_writable: bool) -> Markup {
    if !is_writable || caller.role < Role::Edit {
        return html! {};
    }
    let button = |action: &str, text: &str| {
        html! {
            form.inline method="post" action="/console/revision" {
                input type="hidden" name="number" value=(revision.number);
                button name="action" value=(action) { (text) }
            }
        }
    };
    html! {
        div.row {
            @match revision.state {
                RevisionState::Pending => { (button("approve", "Approve")) (button("withdraw", "Withdraw")) }
                RevisionState::Scheduled | RevisionState::Suspended | RevisionState::Shadow => {
                    (button("activate", "Activate now")) (button("withdraw", "Withdraw"))
                }
                RevisionState::Superseded => {
                    @if !lost.is_empty() {
                        div.warning {
                            "A rollback ends these blocks and grants:"
                            ul { @for one in lost { li { (one) } } }
                        }
                    }
                    form.row method="post" action="/console/revision" {
                        input type="hidden" name="number" value=(revision.number);
                        div {
                            label for="note" { "Note " span.hint { "why it is restored; required" } }
                            input id="note" name="note" required size="50" maxlength="1000";
                        }
                        button.main name="action" value="rollback" { "Roll back to this revision" }
                    }
                }
                RevisionState::Active | RevisionState::Withdrawn => {}
            }
        }
    }
}
