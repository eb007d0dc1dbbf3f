//! The candidate on the page of its revision: what it would have decided so far, live.

use maud::{Markup, html};
use serde_json::Value;
use sluicegate::explain::rule::text::grouped;

use super::parts::{Column, HitsRange, Tile, empty, others, percent, table, tiles};
use crate::admin::rules::candidate_json;
use crate::app::App;

/// The section of a revision that is the candidate.
pub(super) fn section(app: &App, number: u64) -> Markup {
    let now = candidate_json(app);
    let is_this = now["revision"]["number"] == number;
    html! {
        section #candidate data-fragment="" aria-label="Trial" {
            h2 { "Beside the enforced rules" }
            @match now["state"].as_str() {
                Some("running") if is_this => { (running(&now)) }
                Some("failed") if is_this => {
                    p.problem role="alert" { "This candidate does not run: " (text(&now["error"])) }
                }
                _ => { (empty("It begins to run within a second.")) }
            }
        }
    }
}

/// On other pages: that a candidate runs.
pub(super) fn note(app: &App) -> Markup {
    let revision = match (app.candidate().running(), app.candidate().failure()) {
        (Some(run), _) => (run.revision().number, false),
        (None, Some(failure)) => (failure.revision.number, true),
        (None, None) => return html! {},
    };
    let (number, has_failed) = revision;
    let link = format!("/console/revision?number={number}");
    html! {
        @if has_failed {
            p.warning { "The candidate, " a href=(link) { "revision " (number) } ", does not run." }
        } @else {
            p { "A candidate runs beside the enforced rules: " a href=(link) { "revision " (number) } "." }
        }
    }
}

fn running(now: &Value) -> Markup {
    let count = |name: &str| now["requests"][name].as_u64().unwrap_or_default();
    let total = count("total");
    let tile = |name: &'static str, field: &str| Tile {
        name,
        value: grouped(count(field)),
        more: format!("{} of {} requests", percent(count(field), total), grouped(total)),
    };
    html! {
        p {
            "Every request is also checked by this revision, since " (text(&now["since"]))
            ", on this node. No answer depends on it."
        }
        (tiles(&[
            tile("Newly denied", "only_candidate_denies"),
            tile("No longer denied", "only_enforced_denies"),
            tile("Denied by both", "both_deny"),
            tile("Allowed by both", "both_allow"),
        ]))
        h3 { "Rules of the candidate" }
        (rules(&now["rules"]))
        h3 { "Identities that would newly be denied" }
        (identities(&now["newly_denied"], "No request would newly be denied."))
        h3 { "Identities that would no longer be denied" }
        (identities(&now["newly_allowed"], "No denied request would pass."))
        @for note in rows(&now["notes"]) { p.hint { (text(note)) } }
    }
}

fn rules(all: &Value) -> Markup {
    let figure = |row: &Value, field: &str| match row[field].as_u64() {
        Some(figure) => grouped(figure),
        None => "–".to_owned(),
    };
    if rows(all).is_empty() {
        return empty("It has no rule with a limit.");
    }
    html! {
        (table("Rules of the candidate", None, &[Column::Text("Rule"), Column::Number("Hits"), Column::Number("Denied"), Column::Number("Requests newly denied"), Column::Text("Judgement")], &html! {
                    @for row in rows(all) {
                        tr {
                            th scope="row" { code { (text(&row["rule"])) } }
                            td.number { (figure(row, "hits")) }
                            td.number { (figure(row, "denied_hits")) }
                            td.number { (figure(row, "newly_denied_requests")) }
                            td { (row["judgement"]["text"].as_str().unwrap_or("not judged yet")) }
                        }
                    }
                }))
    }
}

fn identities(all: &Value, none: &str) -> Markup {
    let listed = |row: &&Value| HitsRange::of(row, "requests").is_significant();
    let significant: Vec<&Value> = rows(all).iter().filter(listed).collect();
    if rows(all).is_empty() {
        return empty(none);
    }
    html! {
        (table("Identities", None, &[Column::Text("Domain"), Column::Text("Identity"), Column::Number("Requests")], &html! {
                    @for row in &significant {
                        tr {
                            td { (text(&row["domain"])) }
                            th scope="row" { code { (text(&row["descriptor"])) } }
                            td.number { (HitsRange::of(row, "requests").text()) }
                        }
                    }
                }))
        (others(rows(all).len() - significant.len()))
    }
}

fn rows(all: &Value) -> &[Value] {
    all.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
