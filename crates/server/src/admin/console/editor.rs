//! The editor of rules: one file at a time, with validation, a preview of the change, and a note.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sluicegate::config::rules::Source;
use sluicegate_rulestore::{Activation, Proposal, Revision, RevisionKind, RuleStore, StoreError};

use super::layout::ConsolePage;
use super::parts::{diff, failed, load_problems, problems};
use super::trial::comparison;
use crate::admin::rules::{Preview, preview};
use crate::admin::traffic::what_if::compare_files;
use crate::admin::{AdminInner, Caller, Role};

/// Which file is edited.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FileChoice {
    file: Option<String>,
}

/// The form of the editor.
#[derive(Debug, Deserialize)]
pub(super) struct EditForm {
    #[serde(default)]
    base: Option<u64>,
    file: String,
    /// The name under which the file is stored.
    #[serde(default)]
    name: String,
    text: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    activation: String,
    /// Time of a scheduled activation.
    #[serde(default)]
    at: String,
    action: String,
}

/// The page of the editor.
struct Editor<'a> {
    files: &'a [Source],
    file: &'a str,
    name: &'a str,
    text: &'a str,
    note: &'a str,
    base: Option<u64>,
    activation: &'a str,
    at: &'a str,
    /// The refusal of a change.
    refusal: Option<String>,
    /// The revision that became active since the base.
    newer: Option<u64>,
    preview: Option<Preview>,
    /// The changed rules on recent requests.
    trial: Option<Value>,
    read_only: Option<String>,
    require_approval: bool,
}

/// When a change takes effect.
const ACTIVATIONS: [(&str, &str); 3] = [
    ("now", "at once"),
    ("at", "at a time"),
    ("shadow", "as a candidate: it runs beside the enforced rules and denies nothing"),
];

const EXAMPLE: &str = "domain: example\ndescriptors:\n  - key: user\n    limits: { algorithm: token_bucket, rate: 10/s, burst: 20 }\n";

fn frame(caller: &Caller) -> ConsolePage<'_> {
    ConsolePage { title: "Edit the rules", path: "/console/rules", caller }
}

pub(super) async fn page(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(choice): Query<FileChoice>,
) -> Response {
    let page = frame(&caller);
    let Some(store) = admin.app.rule_store() else { return no_store(page) };
    let (revision, files) = match store.active().await {
        Ok(active) => active,
        Err(error) => return unavailable(page, &error),
    };
    let first = files.first().map(|file| file.name.clone());
    let file = choice.file.or(first).unwrap_or_else(|| "rules.yaml".to_owned());
    let text = files.iter().find(|one| one.name == file).map_or(EXAMPLE, |one| &one.text);
    let base = revision.map(|revision| revision.number);
    let editor = Editor { text, note: "", base, ..editor(store, &files, &file) };
    let content = html! { (load_problems(&admin)) (content(&editor, &caller)) };
    page.render(&content).into_response()
}

pub(super) async fn submit(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Form(mut form): Form<EditForm>,
) -> Response {
    let page = frame(&caller);
    let Some(store) = admin.app.rule_store() else { return no_store(page) };
    if form.action == "rebase" {
        form.base = store.overview().active.map(|active| active.number);
    }
    // The edit is based on the revision that the browser has shown.
    let stored = match form.base {
        Some(base) => store.revision(base).await.map(|stored| stored.sources),
        None => Ok(Vec::new()),
    };
    let files = match stored {
        Ok(files) => files,
        Err(error) => return unavailable(page, &error),
    };
    // Browsers send lines that end with CRLF.
    let mut text = form.text.replace("\r\n", "\n");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let changed = replaced(&files, &form, &text);
    let mut editor = Editor {
        text: &text,
        note: &form.note,
        base: form.base,
        name: &form.name,
        activation: &form.activation,
        at: &form.at,
        ..editor(store, &files, &form.file)
    };
    let mut status = StatusCode::OK;
    if form.action == "save" {
        match save(&admin, &caller, store, &form, changed.clone()).await {
            Ok(revision) => {
                let path = format!("/console/revision?number={}&saved=1", revision.number);
                return Redirect::to(&path).into_response();
            }
            Err(refusal) => {
                status = StatusCode::UNPROCESSABLE_ENTITY;
                editor.refusal = Some(refusal);
                let active = store.overview().active.map(|active| active.number);
                editor.newer = active.filter(|active| form.base != Some(*active));
            }
        }
    }
    if admin.app.traffic().is_some() {
        // Invalid rules have no trial; the preview says why.
        editor.trial = compare_files(&admin, changed.clone()).await.ok();
    }
    match preview(&admin, store, files.clone(), changed).await {
        Ok(preview) => editor.preview = Some(preview),
        Err(response) => return *response,
    }
    (status, page.render(&content(&editor, &caller))).into_response()
}

/// Proposes the change; the reason if it is refused.
async fn save(
    admin: &AdminInner,
    caller: &Caller,
    store: &RuleStore,
    form: &EditForm,
    sources: Vec<Source>,
) -> Result<Revision, String> {
    if caller.role < Role::Edit {
        return Err(format!("The token `{}` may not edit rules.", caller.name));
    }
    let activation = match form.activation.as_str() {
        "shadow" => Activation::Shadow,
        "at" => Activation::At(form.at.trim().parse().map_err(|_| {
            format!("The time must be written like 2026-12-24T18:00:00Z, got `{}`.", form.at)
        })?),
        _ => Activation::Now,
    };
    let proposal = Proposal {
        base: form.base,
        author: caller.name.to_string(),
        note: form.note.trim().to_owned(),
        kind: RevisionKind::Edit,
        restores: None,
        sources,
        activation,
    };
    let proposed = store.propose(proposal).await.map_err(|error| match error {
        StoreError::Invalid { .. } => "The rules are invalid: see below.".to_owned(),
        error => error.to_string(),
    })?;
    let target = format!("revision {}: {}", proposed.number, proposed.note);
    admin.audit(caller, "rules.propose", &target);
    crate::admin::wait_until_enforced(store, &proposed).await;
    Ok(proposed)
}

/// The files with the edited one in its place; an empty text removes it.
fn replaced(files: &[Source], form: &EditForm, text: &str) -> Vec<Source> {
    let name = if form.name.trim().is_empty() { &form.file } else { form.name.trim() };
    let mut all: Vec<Source> =
        files.iter().filter(|one| one.name != form.file && one.name != *name).cloned().collect();
    if !text.trim().is_empty() {
        all.push(Source { name: name.to_owned(), text: text.to_owned() });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn editor<'a>(store: &RuleStore, files: &'a [Source], file: &'a str) -> Editor<'a> {
    let overview = store.overview();
    Editor {
        files,
        file,
        name: file,
        text: "",
        note: "",
        base: None,
        activation: "now",
        at: "",
        refusal: None,
        newer: None,
        preview: None,
        trial: None,
        read_only: overview.read_only.map(|read_only| read_only.reason),
        require_approval: overview.require_approval,
    }
}

fn no_store(page: ConsolePage<'_>) -> Response {
    failed(page, StatusCode::NOT_FOUND, "This process has no rule store.")
}

fn unavailable(page: ConsolePage<'_>, error: &StoreError) -> Response {
    failed(page, StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
}

fn content(editor: &Editor<'_>, caller: &Caller) -> Markup {
    let Editor { files, file, name, text, note, base, refusal, preview, read_only, .. } = editor;
    let can_save = read_only.is_none() && caller.role >= Role::Edit;
    html! {
        @if let Some(reason) = read_only { p.warning { "Read-only: " (reason) } }
        @if read_only.is_none() && caller.role < Role::Edit {
            p.warning { "The token " code { (caller.name) } " may read the rules and not change them." }
        }
        @if let Some(refusal) = refusal {
            div.problem role="alert" {
                (refusal)
                @if let Some(newer) = editor.newer {
                    p { a href=(format!("/console/revision?number={newer}")) { "Show revision " (newer) } }
                }
            }
        }
        @if files.len() > 1 {
            nav aria-label="Files" {
                ul {
                    @for one in *files {
                        @let target = format!("/console/edit?file={}", super::encoded(&one.name));
                        li {
                            @if one.name == *file { a href=(target) aria-current="page" { (one.name) } }
                            @else { a href=(target) { (one.name) } }
                        }
                    }
                }
            }
        }
        form.editor method="post" action="/console/edit" data-editor="" {
            @if let Some(base) = base { input type="hidden" name="base" value=(base); }
            input type="hidden" name="file" value=(file);
            label for="text" { "Rules in YAML" }
            textarea.rules id="text" name="text" spellcheck="false" aria-describedby="problems" { "\n" (text) }
            ul.problems id="problems" aria-live="polite" {
                @if let Some(preview) = preview { (problems(preview)) }
            }
            @if let Some(preview) = preview { (preview_section(preview, editor.trial.as_ref())) }
            div.row {
                div {
                    label for="name" { "File name" }
                    input id="name" name="name" value=(name);
                }
                div {
                    label for="note" { "Note " span.hint { "why the rules change; required" } }
                    input id="note" name="note" value=(note) size="50" maxlength="1000";
                }
            }
            div.row {
                div {
                    label for="activation" { "Takes effect" }
                    select id="activation" name="activation" {
                        @for (value, text) in ACTIVATIONS {
                            option value=(value) selected[value == editor.activation] { (text) }
                        }
                    }
                }
                div {
                    label for="at" { "Time " span.hint { "of “at a time”, such as 2026-12-24T18:00:00Z" } }
                    input id="at" name="at" value=(editor.at);
                }
            }
            @if editor.require_approval { p.hint { "Another person must approve each change before it takes effect." } }
            div.row {
                button name="action" value="check" { "Preview the change" }
                @if let Some(newer) = editor.newer {
                    button name="action" value="rebase" { "Base it on revision " (newer) }
                }
                @if can_save { button.main name="action" value="save" { "Save" } }
            }
        }
        script type="module" src="/console/assets/editor.js" {}
    }
}

fn preview_section(preview: &Preview, trial: Option<&Value>) -> Markup {
    html! {
        section aria-label="Preview" {
            h2 { "What the change does" }
            @match &preview.changes {
                Some(changes) => { pre tabindex="0" aria-label="Changed rules and their counters" { (changes) } }
                None => { p { "Nothing can be said until the rules are valid." } }
            }
            (diff(&preview.diff))
            @if let Some(trial) = trial {
                h2 { "On recent requests" }
                (comparison(trial, None))
            }
        }
    }
}
