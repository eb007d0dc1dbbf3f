//! Who is limited now, and what is done about it: block, grant, reset.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::layout::ConsolePage;
use super::parts::{Column, HitsRange, empty, others, table};
use super::rules::link as rule_link;
use crate::admin::traffic::{Ranking, identities};
use crate::admin::{AdminInner, Caller};

/// Rows of each table.
const ROWS_MAX: usize = 50;

/// Which identities are listed.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filter {
    #[serde(default)]
    key: String,
}

pub(super) async fn page(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(Filter { key }): Query<Filter>,
) -> Response {
    let page = ConsolePage { title: "Identities", path: "/console/identities", caller: &caller };
    let kind = Some(key.trim()).filter(|key| !key.is_empty() && !key.contains(['=', '|']));
    let table = |top: Ranking| {
        let value = identities::page(&admin.app, top, kind, None, ROWS_MAX);
        rows(&value, top)
    };
    let domains: Vec<String> =
        admin.app.engine().snapshot().rules().domains().map(str::to_owned).collect();
    let content = html! {
        h2 { "Find one" }
        form.row method="get" action="/console/identity" {
            div {
                label for="domain" { "Domain" }
                select id="domain" name="domain" { @for domain in &domains { option value=(domain) { (domain) } } }
            }
            div {
                label for="descriptor" { "Identity " span.hint { "such as " code { "user_id=42" } } }
                input id="descriptor" name="descriptor" required;
            }
            button { "Find" }
        }
        form.row method="get" action="/console/identities" {
            div {
                label for="key" { "Kind of identity " span.hint { "a key of descriptors, such as user_id; empty for all" } }
                input id="key" name="key" value=(key);
            }
            button { "Show" }
        }
        section #identities data-fragment="" {
            h2 { "Limited now" }
            (table(Ranking::Limited))
            h2 { "The most hits" }
            (table(Ranking::Talkers))
        }
    };
    page.render(&content).into_response()
}

/// The path of the page of an identity.
pub(super) fn link(domain: &str, descriptor: &str) -> String {
    let (domain, descriptor) = (super::encoded(domain), super::encoded(descriptor));
    format!("/console/identity?domain={domain}&descriptor={descriptor}")
}

fn rows(value: &Value, top: Ranking) -> Markup {
    let all = value["identities"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (field, name) = match top {
        Ranking::Limited => ("denied_hits", "Denied hits"),
        Ranking::Talkers => ("hits", "Hits"),
    };
    let with_hits = |row| (row, HitsRange::of(row, field));
    let rows: Vec<_> =
        all.iter().map(with_hits).filter(|(_, hits)| hits.is_significant()).collect();
    if rows.is_empty() {
        return empty(match top {
            Ranking::Limited => "No identity was denied in the last minutes.",
            Ranking::Talkers => "No identity had a hit in the last minutes.",
        });
    }
    html! {
        (table(name, Some(&html! { "In the last 5 to 10 minutes on this node." }), &[Column::Text("Identity"), Column::Text("Domain"), Column::Number(name), Column::Text("Rules")], &html! {
                    @for (row, hits) in &rows {
                        @let descriptor = row["descriptor"].as_str().unwrap_or_default();
                        @let domain = row["domain"].as_str().unwrap_or_default();
                        tr {
                            th scope="row" { a href=(link(domain, descriptor)) { code { (descriptor) } } }
                            td { (domain) }
                            td.number { (hits.text()) }
                            td {
                                @for rule in row["rules"].as_array().map(Vec::as_slice).unwrap_or_default() {
                                    @let rule = rule.as_str().unwrap_or_default();
                                    div { a href=(rule_link(rule)) { (rule) } }
                                }
                            }
                        }
                    }
                }))
        (others(all.len() - rows.len()))
    }
}
