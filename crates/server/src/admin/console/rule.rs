//! The page of one rule: its traffic, who is limited most, and whether it is effective.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sluicegate::explain::rule::text::{self, grouped};

use super::chart::{Chart, Series};
use super::identities::link as identity_link;
use super::layout::ConsolePage;
use super::parts::{Column, HitsRange, Tile, empty, failed, others, percent, table, tiles};
use super::trial::comparison;
use crate::admin::traffic::what_if::compare_limits;
use crate::admin::traffic::{rule_of, rules as rule_pages};
use crate::admin::{AdminInner, Caller};

/// Which rule is shown.
#[derive(Debug, Deserialize)]
pub(super) struct RuleChoice {
    #[serde(default)]
    id: String,
    /// Other limits, as in a rule file, for a trial on recent requests.
    #[serde(default)]
    limits: String,
}

/// Other limits that an operator tries.
const EXAMPLE: &str = "{ algorithm: token_bucket, rate: 20/s, burst: 40 }";

pub(super) async fn page(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Query(RuleChoice { id, limits: tried }): Query<RuleChoice>,
) -> Response {
    let page = ConsolePage { title: &id, path: "/console/rules", caller: &caller };
    let (value, limits) = {
        let rules = admin.app.engine().snapshot();
        let Ok(no) = rule_of(rules.rules(), &id) else {
            let message = format!("There is no rule {id} with a limit in the enforced rules.");
            return failed(page, StatusCode::NOT_FOUND, &message);
        };
        let written = rules.rules().rule(no);
        let mut limits = text::limits(&written.limits);
        limits.extend(text::settings(written));
        let statistics = admin.app.traffic();
        (statistics.and_then(|one| rule_pages::rule(&admin.app, one, &id).ok()), limits)
    };
    let trial = match tried.trim() {
        "" => None,
        tried => Some(compare_limits(&admin, &id, tried).await),
    };
    let content = html! {
        h2 { "Limits" }
        ul { @for limit in &limits { li { (limit) } } }
        section #rule data-fragment="" {
            @match value {
                Some(value) => { (traffic(&value)) }
                None => { (empty("Traffic statistics are off.")) }
            }
        }
        @if admin.app.traffic().is_some() { (what_if(&id, &tried, trial.as_ref())) }
        p { a href="/console/edit" { "Edit the rules" } }
    };
    page.render(&content).into_response()
}

fn traffic(rule: &Value) -> Markup {
    let count = |name: &str| rule[name].as_u64();
    let shown = |name: &str| count(name).map_or_else(|| "not known".to_owned(), grouped);
    let hits = count("hits").unwrap_or_default();
    let share = |name: &str| count(name).map_or_else(String::new, |part| percent(part, hits));
    let last = rule["last_denied"].as_str().or(rule["last_shadow_denied"].as_str());
    html! {
        h2 { "Is it effective?" }
        p.verdict {
            (rule["judgement"]["text"].as_str().unwrap_or("Not judged yet: the rule is observed from the next second on."))
        }
        @if let Some(unknown) = rule["unknown"].as_str() { p.hint { (unknown) "." } }
        h2 { "Traffic of the last hour" }
        (tiles(&[
            Tile { name: "Hits", value: shown("hits"), more: since(rule) },
            Tile { name: "Denied", value: shown("denied_hits"), more: share("denied_hits") },
            Tile { name: "Denied in shadow", value: shown("shadow_denied_hits"), more: share("shadow_denied_hits") },
            Tile { name: "Near the limit", value: shown("near_limit_hits"), more: share("near_limit_hits") },
            Tile {
                name: "Identities",
                value: shown("identities"),
                more: match count("denied_identities") {
                    Some(denied) => format!("{} of them denied", grouped(denied)),
                    None => String::new(),
                },
            },
            Tile { name: "Last fired", value: last.map_or("not yet".to_owned(), clock), more: last.map_or("", |at| at.split('T').next().unwrap_or("")).to_owned() },
        ]))
        (chart(&rule["series"]))
        (usage(&rule["usage"]))
        (top("Denied the most", &rule["top"]["denied"], rule))
        (top("The most hits", &rule["top"]["talkers"], rule))
    }
}

/// A form for other limits, and what they would have done.
fn what_if(id: &str, tried: &str, trial: Option<&Result<Value, String>>) -> Markup {
    html! {
        section #what-if aria-label="What if" {
            h2 { "What if it had other limits?" }
            form.fields method="get" action="/console/rule#what-if" {
                input type="hidden" name="id" value=(id);
                div {
                    label for="limits" { "Limits " span.hint { "as in a rule file, such as " code { (EXAMPLE) } } }
                    input id="limits" name="limits" required size="60" value=(tried);
                }
                div { button { "Try on recent requests" } }
            }
            @match trial {
                None => {}
                Some(Ok(compared)) => { (comparison(compared, Some(id))) }
                Some(Err(problem)) => { p.problem role="alert" { (problem) } }
            }
        }
    }
}

/// What identities use in the window of the limit, and the threshold that follows.
fn usage(usage: &Value) -> Markup {
    let figure = |name: &str| {
        usage[name].as_f64().map_or_else(|| "–".to_owned(), |one| grouped(one.ceil() as u64))
    };
    html! {
        h2 { "What its identities use" }
        @if let Some(unknown) = usage["unknown"].as_str() { p.hint { "Not known: " (unknown) "." } }
        @if usage["identities"].is_u64() {
            p {
                "In a window of " (usage["window_seconds"].as_f64().unwrap_or_default()) " s, " (figure("identities"))
                " sampled identities use at most: half of them " (figure("p50"))
                ", 90 % " (figure("p90")) ", 99 % " (figure("p99")) ", the heaviest " (figure("max")) "."
                @if usage["suggested"].is_number() {
                    " A limit of " strong { (figure("suggested")) } " in this window admits 99 % of them."
                }
            }
        }
    }
}

fn since(rule: &Value) -> String {
    rule["window_since"].as_str().map_or_else(String::new, |at| format!("since {}", clock(at)))
}

/// The time of day of a moment in RFC 3339.
fn clock(at: &str) -> String {
    let time = at.split_once('T').map_or(at, |(_, time)| time);
    format!("{} UTC", time.split('.').next().unwrap_or(time).trim_end_matches('Z'))
}

fn chart(series: &Value) -> Markup {
    let step = series["step_seconds"].as_u64().unwrap_or(10);
    let column = |name: &str| -> Vec<Option<f64>> {
        let values = series[name].as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().map(|one| one.as_f64().map(|count| count / step as f64)).collect()
    };
    let hits = column("hits");
    if hits.len() < 2 {
        return empty("The plot begins with the second step of 10 seconds that has traffic.");
    }
    let chart = Chart {
        title: "Hits",
        unit: "hits/s",
        series: vec![
            Series { name: "all", class: "allowed", values: hits },
            Series { name: "denied", class: "denied", values: column("denied_hits") },
            Series {
                name: "denied in shadow",
                class: "shadow",
                values: column("shadow_denied_hits"),
            },
        ],
        step_s: step,
    };
    chart.render()
}

fn top(title: &str, identities: &Value, rule: &Value) -> Markup {
    let all = identities.as_array().map(Vec::as_slice).unwrap_or_default();
    let with_hits = |row| (row, HitsRange::of(row, "hits"));
    let rows: Vec<_> =
        all.iter().map(with_hits).filter(|(_, hits)| hits.is_significant()).collect();
    let domain = rule["domain"].as_str().unwrap_or_default();
    html! {
        h2 { (title) ", in the last minutes" }
        @if rows.is_empty() {
            (empty("No identity in the last minutes."))
        } @else {
            (table(title, None, &[Column::Text("Identity"), Column::Number("Hits")], &html! {
                        @for (row, hits) in &rows {
                            @let descriptor = row["descriptor"].as_str().unwrap_or_default();
                            tr {
                                th scope="row" { a href=(identity_link(domain, descriptor)) { code { (descriptor) } } }
                                td.number { (hits.text()) }
                            }
                        }
                    }))
        }
        (others(all.len() - rows.len()))
    }
}
