//! Changes through the admin endpoint: the page and `/api/v1/audit`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use maud::html;
use serde_json::{Value, json};

use super::layout::ConsolePage;
use super::parts::{Column, empty, since, table};
use crate::admin::{AdminInner, AuditEntry, Caller};
use crate::logs::rfc3339;

/// Entries that are shown.
const SHOWN_MAX: usize = 200;

pub(super) async fn page(State(admin): State<Arc<AdminInner>>, caller: Caller) -> Response {
    let page = ConsolePage { title: "Audit", path: "/console/audit", caller: &caller };
    let (entries, now) = (admin.audit.last(SHOWN_MAX), admin.app.engine().now());
    let content = html! {
        p { "Changes through this node's admin endpoint since it started, the newest first. All of them are in its log, and in the file of --audit-log." }
        section #audit data-fragment="" {
            @if entries.is_empty() {
                (empty("No change was made since this node started."))
            } @else {
                (table("Changes", None, &[Column::Text("When"), Column::Text("Who"), Column::Text("What"), Column::Text("Target")], &html! {
                            @for AuditEntry { at, caller, action, target } in &entries {
                                tr {
                                    td { time datetime=(rfc3339(*at)) title=(rfc3339(*at)) { (since(*at, now)) } }
                                    td { (caller) }
                                    td { code { (action) } }
                                    td { code { (target) } }
                                }
                            }
                        }))
            }
        }
    };
    page.render(&content).into_response()
}

/// The last entries as JSON.
pub(in crate::admin) async fn list(State(admin): State<Arc<AdminInner>>, _: Caller) -> Response {
    let entries: Vec<Value> = admin.audit.last(SHOWN_MAX).iter().map(AuditEntry::to_json).collect();
    crate::admin::json(&json!({ "scope": "node", "entries": entries }))
}
