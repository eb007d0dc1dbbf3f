//! The list of rules.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use sluicegate::Stats;
use sluicegate::explain::rule::text;

use super::layout::ConsolePage;
use super::parts::{Column, empty, percent, table};
use crate::admin::{AdminInner, Caller};

/// Rows of the list.
const ROWS_MAX: usize = 1_000;

/// A row of the list.
struct ListedRule {
    id: String,
    limits: Vec<String>,
    settings: Vec<String>,
    stats: Stats,
}

pub(super) async fn list(State(admin): State<Arc<AdminInner>>, caller: Caller) -> Response {
    let page = ConsolePage { title: "Rules", path: "/console/rules", caller: &caller };
    let engine = admin.app.engine();
    let rules = engine.snapshot();
    let set = rules.rules();
    let count = set.rules().len();
    let mut rows: Vec<ListedRule> = set
        .rules()
        .map(|no| ListedRule {
            id: set.id(no),
            limits: text::limits(&set.rule(no).limits),
            settings: text::settings(set.rule(no)),
            stats: rules.stats(no),
        })
        .collect();
    rows.sort_by(|a, b| b.stats.over_limit.cmp(&a.stats.over_limit).then_with(|| a.id.cmp(&b.id)));
    rows.truncate(ROWS_MAX);
    page.render(&content(&rows, count)).into_response()
}

/// The path of a rule's page.
pub(super) fn link(id: &str) -> String {
    format!("/console/rule?id={}", super::encoded(id))
}

fn content(rows: &[ListedRule], count: usize) -> Markup {
    html! {
        p { a href="/console/edit" { "Edit the rules" } }
        section #rules data-fragment="" {
            @if rows.is_empty() {
                (empty("There are no rules: every request is allowed."))
            } @else {
                (table("Rules", Some(&html! {
                            "Hits since this node started, the most denied first"
                            @if count > rows.len() { ", " (rows.len()) " of " (count) " rules" }
                            "."
                        }), &[Column::Text("Rule"), Column::Text("Limits"), Column::Number("Hits"), Column::Number("Over limit"), Column::Number("Share"), Column::Number("In shadow")], &html! {
                            @for row in rows {
                                tr {
                                    th scope="row" { a href=(link(&row.id)) { code { (row.id) } } }
                                    td {
                                        @for limit in &row.limits { div { (limit) } }
                                        @for setting in &row.settings { div.hint { (setting) } }
                                    }
                                    td.number { (text::grouped(row.stats.total_hits)) }
                                    td.number { (text::grouped(row.stats.over_limit)) }
                                    td.number { (percent(row.stats.over_limit, row.stats.total_hits)) }
                                    td.number { (text::grouped(row.stats.shadow_mode)) }
                                }
                            }
                        }))
            }
        }
    }
}
