//! A trial of other rules on the sample of recent requests, as a table.

use maud::{Markup, html};
use serde_json::Value;
use sluicegate::explain::rule::text::grouped;

use super::chart::ago;
use super::parts::{Column, empty, percent, table};
use super::rules::link;

/// The comparison of the enforced rules with changed ones; `only` names a rule.
pub(super) fn comparison(compared: &Value, only: Option<&str>) -> Markup {
    let all = compared["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_shown = |row: &&Value| only.is_none_or(|id| row["rule"] == id);
    let rows: Vec<&Value> = all.iter().filter(is_shown).collect();
    let notes = |value: &Value| -> Vec<String> {
        let notes = value["notes"].as_array().map(Vec::as_slice).unwrap_or_default();
        notes.iter().filter_map(|note| note.as_str().map(str::to_owned)).collect()
    };
    html! {
        p { (sample(&compared["sample"])) }
        @for note in notes(compared) { p.warning { (note) } }
        @if rows.is_empty() {
            (empty("No request of the sample is under one of these rules."))
        } @else {
            (table("Rules on recent requests", None, &[Column::Text("Rule"), Column::Number("Requests"), Column::Number("Denied by the enforced rules"), Column::Number("Denied by the changed rules"), Column::Number("Identities denied, before and after")], &html! {
                        @for row in rows {
                            @let id = row["rule"].as_str().unwrap_or_default();
                            tr {
                                th scope="row" {
                                    @if row["before"].is_null() { code { (id) } }
                                    @else { a href=(link(id)) { code { (id) } } }
                                    @for note in notes(row) { div.hint { (note) } }
                                }
                                td.number { (requests(row)) }
                                td.number { (denied(&row["before"])) }
                                td.number { (denied(&row["after"])) }
                                td.number { (identities(&row["before"])) " → " (identities(&row["after"])) }
                            }
                        }
                    }))
        }
    }
}

fn sample(sample: &Value) -> String {
    let count = sample["requests"].as_u64().unwrap_or_default();
    let span = sample["span_seconds"].as_f64().unwrap_or_default();
    let one_in = sample["one_identity_in"].as_u64().unwrap_or(1);
    let of = match one_in {
        1 => "all requests".to_owned(),
        one_in => format!("the requests of one identity in {one_in}"),
    };
    format!(
        "Replayed on {} of the last {}: {of}, from empty counters.",
        match count {
            1 => "1 request".to_owned(),
            count => format!("{} requests", grouped(count)),
        },
        ago(span.ceil() as u64)
    )
}

fn requests(row: &Value) -> String {
    let tally = if row["after"].is_null() { &row["before"] } else { &row["after"] };
    tally["requests"].as_u64().map_or_else(|| "–".to_owned(), grouped)
}

fn denied(tally: &Value) -> String {
    match (tally["denied"].as_u64(), tally["requests"].as_u64()) {
        (Some(denied), Some(requests)) => {
            format!("{} ({})", grouped(denied), percent(denied, requests))
        }
        _ => "–".to_owned(),
    }
}

fn identities(tally: &Value) -> String {
    match (tally["denied_identities"].as_u64(), tally["identities"].as_u64()) {
        (Some(denied), Some(all)) => format!("{} of {}", grouped(denied), grouped(all)),
        _ => "–".to_owned(),
    }
}
